"""Build the documentation as a website that works from files, without a network.

    python tools/website.py [FOLDER]

The pages are those of docs/ and the project's top-level pages, with the files that they link to. FOLDER is
target/site unless given. The exit code is 1 if a link leads nowhere.
"""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "target" / "site-build"

NAV: dict[str, list[str]] = {
    "Tutorials": [
        "tutorial-first-answer.md",
        "tutorial-scenario.md",
        "tutorial-aqm.md",
        "tutorial-live.md",
        "tutorial-paper.md",
        "gallery.md",
    ],
    "How to": [
        "install.md",
        "how-to.md",
        "advise.md",
        "choosing.md",
        "evaluation.md",
        "evaluation-satellite.md",
        "tune.md",
        "sweep.md",
        "cluster.md",
        "python.md",
        "python-aqms.md",
        "live.md",
        "gateway.md",
        "gateway-terminals.md",
        "gateway-monitoring.md",
        "gateway-security.md",
        "reproduce.md",
        "CONTRIBUTING.md",
    ],
    "Explanation": [
        "why-satellite.md",
        "trust.md",
        "models.md",
        "models-domain.md",
        "models-gateway.md",
        "laws.md",
        "stability.md",
        "markov.md",
        "delay.md",
        "avqred_backlog.md",
        "onboard.md",
        "quic.md",
        "terminals.md",
        "statistics.md",
        "validation.md",
        "ARCHITECTURE.md",
        "other-tools.md",
        "decisions",
    ],
    "Reference": [
        "scenarios.md",
        "traffic.md",
        "packet-sources.md",
        "transports.md",
        "congestion-control.md",
        "links.md",
        "scheduler-tree.md",
        "marking.md",
        "algorithms",
        "cli.md",
        "reproduce-data.md",
        "python-reference.md",
        "results.md",
        "metrics.md",
        "reports.md",
        "qoe.md",
        "series.md",
        "glossary.md",
        "CHANGELOG.md",
    ],
    "Evidence": [
        "truth.md",
        "advise-results.md",
        "evaluation-aqm.md",
        "evaluation-cc.md",
        "evaluation-media.md",
        "evaluation-published.md",
        "kernel.md",
        "live-bench.md",
        "mutants.md",
        "reproduction",
        "rahmani2011.md",
    ],
}
"""Pages by purpose; a folder stands for its README or the page of its name, and all its pages."""
PAGES = {
    "README.md": "README.md",
    "CONTRIBUTING.md": "CONTRIBUTING.md",
    "CHANGELOG.md": "CHANGELOG.md",
    "docs/README.md": "contents.md",
}
"""Pages that have another place on the site than in docs/."""
SHIM = ROOT / "tools" / "vendor" / "iframe-worker" / "shim.js"
"""Search in pages opened as files needs it (iframe-worker 1.0.4); the theme would load it from a network."""
_SHIM_TAG = re.compile(r'src="https://[^"]*/iframe-worker/shim"')
_HERE = re.compile(r"\]\(#[^)\s]+\)")
"""A link within a page. GitHub keeps the hyphens on both sides of an omitted sign, the site has one."""
_LINK = re.compile(r"""(!?\[[^\]]*\]\(|<img [^>]*?src=")([^)"\s#]+)(#[^)\s]*)?([)"])""")


STYLE = """\
.md-typeset table:not([class]) :is(th, td) { padding: 0.4em 0.8em; }
.md-typeset table:not([class]) code { word-break: normal; }
.md-typeset table:not([class]) :is(th, td):first-child {
  position: sticky;
  left: 0;
  background-color: var(--md-default-bg-color);
}
@media (max-width: 40em) {
  .md-typeset table:not([class]) :is(th, td) { min-width: 0; padding: 0.3em 0.5em; }
  .md-typeset table:not([class]) :is(th, td):first-child { max-width: 40vw; overflow-wrap: break-word; }
  .md-typeset table:not([class]) td:nth-child(n + 4):last-child { min-width: 11em; }
  .md-typeset .md-code__nav { display: none; }
}
"""
"""Tables: less padding than the theme's, and a first column that stays when a narrow window scrolls them."""


def build(site: Path) -> list[str]:
    """Build the site, and return its broken links."""
    shutil.rmtree(BUILD, ignore_errors=True)
    shutil.rmtree(site, ignore_errors=True)
    pages = BUILD / "docs"
    shutil.copytree(ROOT / "docs", pages)
    origins = {page: ROOT / "docs" / page.relative_to(pages) for page in sorted(pages.rglob("*.md"))}
    origins |= {pages / shown: ROOT / name for name, shown in PAGES.items()}
    for page, origin in origins.items():
        text = origin.read_text(encoding="utf-8")
        page.write_text(_adopted(text, page, origin.parent), encoding="utf-8")
    (pages / "tables.css").write_text(STYLE, encoding="utf-8")
    (BUILD / "zensical.toml").write_text(_configuration(pages), encoding="utf-8")
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    done = subprocess.run(command, cwd=BUILD, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        # The reason stands before the traceback of `--strict`.
        return [re.sub(r"\x1b\[[0-9;]*m", "", done.stdout + done.stderr).partition("Traceback")[0]]
    shutil.move(BUILD / "site", site)
    (site / "404.html").unlink()
    shutil.copy(SHIM, site / "assets" / "iframe-worker.js")
    for page in site.rglob("*.html"):
        up = "../" * (len(page.relative_to(site).parts) - 1)
        text = page.read_text(encoding="utf-8")
        page.write_text(_SHIM_TAG.sub(f'src="{up}assets/iframe-worker.js"', text), encoding="utf-8")
    return broken(site)


def _adopted(text: str, page: Path, origin: Path) -> str:
    """Return a page whose links to files outside docs/ lead to copies of them; `origin` is its folder."""
    pages = BUILD / "docs"

    def adopt(found: re.Match[str]) -> str:
        before, target, anchor, after = found[1], found[2], found[3] or "", found[4]
        if urlsplit(target).scheme:
            return found[0]
        path = (origin / target).resolve()
        if not path.is_relative_to(ROOT) or not path.exists():
            return found[0]
        name = path.relative_to(ROOT)
        if str(name) in PAGES:
            place = pages / PAGES[str(name)]
        elif name.parts[0] == "docs":
            place = pages / name.relative_to("docs")
        else:
            place = pages / "files" / name
            _copy(path, place)
        if place.is_dir() or path.is_dir():
            place /= "README.md" if (path / "README.md").exists() else "index.txt"
        up = "../" * (len(page.relative_to(pages).parts) - 1)
        return f"{before}{up}{place.relative_to(pages).as_posix()}{anchor}{after}"

    return _HERE.sub(lambda found: re.sub("-+", "-", found[0]), _LINK.sub(adopt, text))


def _copy(path: Path, place: Path) -> None:
    """Copy a file; of a folder, the names of its files."""
    if path.is_dir():
        place.mkdir(parents=True, exist_ok=True)
        names = sorted(each.name for each in path.iterdir())
        (place / "index.txt").write_text("\n".join(names) + "\n", encoding="utf-8")
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    shutil.copy(path, place)


def _configuration(pages: Path) -> str:
    nav: list[object] = [{"Bentpipe": "README.md"}]
    for title, names in NAV.items():
        entries: list[object] = []
        for name in names:
            if (pages / name).is_dir():
                inside = sorted(each.name for each in (pages / name).glob("*.md") if each.name != "README.md")
                first = f"{name}.md" if (pages / f"{name}.md").exists() else f"{name}/README.md"
                entries.append({name.capitalize(): [first, *(f"{name}/{each}" for each in inside)]})
            else:
                entries.append(name)
        nav.append({title: entries})
    nav.append({"All pages": "contents.md"})
    return f"""[project]
site_name = "Bentpipe"
site_description = "Congestion control for satellite gateways: simulate it, model it, run it."
site_dir = "site"
use_directory_urls = false
extra_css = ["tables.css"]
nav = {_toml(nav)}

[project.plugins.offline]

[project.theme]
font = false
features = [
  "content.code.copy",
  "navigation.footer",
  "navigation.sections",
  "navigation.top",
  "search.highlight",
]

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Switch to dark mode"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "Switch to light mode"
"""


def _toml(value: object) -> str:
    """Write lists, tables and strings as TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{json.dumps(key)} = {_toml(each)}" for key, each in value.items()) + " }"
    if isinstance(value, list):
        return "[" + ", ".join(map(_toml, value)) + "]"
    return json.dumps(value)


class _Page(HTMLParser):
    """Links of a page, and the places in it that links can name."""

    def __init__(self, path: Path) -> None:
        """Read a page."""
        super().__init__()
        self.links: list[tuple[str, str]] = []
        self.places: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note the links and places of an element."""
        found = dict(attrs)
        self.places |= {str(found[name]) for name in ("id", "name") if found.get(name)}
        link = found.get("href" if tag in {"a", "link"} else "src")
        if link is not None:
            self.links.append((tag, link))


def broken(site: Path) -> list[str]:
    """Return a site's links to files or places that it does not have, and what it loads from a network."""
    pages = {path: _Page(path) for path in sorted(site.rglob("*.html"))}
    return [text for path, page in pages.items() for text in _broken(site, path, page, pages)]


def _broken(site: Path, path: Path, page: _Page, pages: dict[Path, _Page]) -> Iterator[str]:
    for tag, link in page.links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            if tag != "a":
                yield f"{path.relative_to(site)}: {link}: is loaded from a network"
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        target = target / "index.html" if target.is_dir() else target
        if not target.exists():
            yield f"{path.relative_to(site)}: {link}: there is no such file"
        elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].places:
            yield f"{path.relative_to(site)}: {link}: there is no such place"


def main() -> int:
    """Build the site and print its broken links."""
    site = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT / "target" / "site"
    found = build(site)
    print("\n".join(found) if found else f"Site: {site / 'index.html'}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
