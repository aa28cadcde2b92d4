"""Common parts of all pages, each of which is one HTML file with its charts that opens offline."""

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from html import escape
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any

import jinja2
import markupsafe
from jinja2.bccache import Bucket

from bentpipe import files
from bentpipe.format import clock
from bentpipe.report import vega
from bentpipe.report.colours import as_variable, as_variables, variables
from bentpipe.report.panels import CONFIG, Figure, Panel
from bentpipe.report.scripts import bundle
from bentpipe.report.sources import linked
from bentpipe.runs.plan import slug

__all__ = [
    "dated",
    "environment",
    "page",
    "parameters",
    "script_json",
    "specification",
]

_CONTENTS = "<!-- contents -->"
_LISTED = 24
"""Number of figures above which the contents list a section without them."""
_TAGS = re.compile(r"<[^>]*>")
_HEADING = re.compile(
    r'(?:<figure id="(?P<figure>[^"]*)">\s*)?<h(?P<level>[23])(?: id="(?P<id>[^"]*)")?>'
    r"(?P<text>.*?)</h(?P=level)>",
    re.DOTALL,
)


def page(template: str, figures: Iterable[Figure], **context: Any) -> str:  # noqa: ANN401
    """Return a page from `template`, `figures` (with the numbers of their charts) and `context`.

    Lines of its `summary` without a value are left out.
    """
    specs: list[dict[str, Any]] = []
    shown = []
    for figure in figures:
        first = len(specs)
        specs += [_for_page(panel) for panel in figure.panels]
        shown.append({"figure": replace(figure, panels=()), "charts": range(first, len(specs))})
    linked_by_time = any("time" in spec["usermeta"] for spec in specs)
    data, scripts = as_variables(script_json(specs)), bundle() if specs else ""
    # The charts are many times as large as their text, which is all that the page needs.
    del specs
    context = {"description": [], "warnings": [], **context}
    context["summary"] = [(name, value) for name, value in context.get("summary", []) if value]
    html = (
        environment()
        .get_template(template)
        .render(
            figures=shown,
            specs=data,
            linked=linked_by_time,
            bundle=scripts,
            variables=variables(),
            **context,
        )
    )
    return _completed(html)


def _completed(html: str) -> str:
    """Return a rendered page with the ids of its headings, the contents and the sources."""
    start, end = html.index("<main>"), html.index("</main>")
    body = html[start:end]
    body, cited = linked(body)
    if cited:
        rows = "".join(
            f'<dt id="source-{key}">[{key}]</dt><dd>{escape(text)}</dd>' for key, text in cited.items()
        )
        body += f'<section>\n<h2>Sources</h2>\n<dl class="glossary sources">{rows}</dl>\n</section>\n'
    entries: list[tuple[str, str, list[str]]] = []
    taken: set[str] = set()

    def heading(match: re.Match[str]) -> str:
        level, name, text = match["level"], match["id"] or match["figure"], match["text"]
        if name is None:
            name = slug(_TAGS.sub("", text), taken)
        taken.add(name)
        if level == "2":
            entries.append((name, _TAGS.sub("", text).strip(), []))
        elif entries and text:
            entries[-1][2].append(f'<a href="#{name}">{_TAGS.sub("", text).strip()}</a>')
        if match["figure"]:
            return match[0]
        return f'<h{level} id="{name}">{text}</h{level}>'

    body = _HEADING.sub(heading, body)
    return "".join((html[:start], body.replace(_CONTENTS, _contents(entries)), html[end:]))


def _contents(entries: Sequence[tuple[str, str, list[str]]]) -> str:
    """Return the list of a page's sections with their figures; empty for fewer than two."""
    if len(entries) < 2:
        return ""
    lines = []
    for name, text, inner in entries:
        more = f" <span>{', '.join(inner)}</span>" if 0 < len(inner) <= _LISTED else ""
        lines.append(f'<li><a href="#{name}">{text}</a>{more}</li>')
    return f'<nav class="contents" aria-label="Contents">\n<ul>{"".join(lines)}</ul>\n</nav>'


def _for_page(panel: Panel) -> dict[str, Any]:
    """Return a panel's specification for a page: as wide as it, with its time axis."""
    spec = specification(panel.chart, fit=True)
    meta: dict[str, Any] = dict(spec.get("usermeta", {}))
    span = _link_time(spec)
    if span is not None:
        datasets = spec.get("datasets", {})
        meta["time"] = {
            "span": span,
            "detail": {
                name: detail
                for drawn, detail in panel.details
                for name, values in datasets.items()
                if values == drawn
            },
        }
        spec["params"] = [*spec.get("params", []), {"name": "span", "value": span}]
    spec["usermeta"] = meta
    return spec


def _link_time(spec: dict[str, Any]) -> list[float] | None:
    """Make the time axis of a chart follow the signal `span`; return its current ends, None without one."""
    ends: list[float] | None = None
    for layer in spec.get("layer", [spec]):
        x = layer.get("encoding", {}).get("x", {})
        if x.get("field") != "time" or x.get("type") != "quantitative":
            continue
        domain = x.get("scale", {}).get("domain")
        if domain is None:
            values = spec.get("datasets", {}).get((layer.get("data") or spec["data"]).get("name"), [])
            times = [row["time"] for row in values if row.get("time") is not None]
            domain = [min(times), max(times)] if times else None
        if domain is None:
            continue
        ends = [float(domain[0]), float(domain[1])]
        x["scale"] = {**x.get("scale", {}), "domain": {"signal": "span"}, "nice": False, "zero": False}
        if isinstance(layer["mark"], dict):
            layer["mark"]["clip"] = True
    return ends


class _Compiled(jinja2.BytecodeCache):
    """Cache of compiled templates, in `__pycache__` beside the compiled modules."""

    def load_bytecode(self, bucket: Bucket) -> None:
        """Read a template, unless it was compiled from another text or by another version."""
        with suppress(OSError):
            bucket.bytecode_from_string(self._path(bucket).read_bytes())

    def dump_bytecode(self, bucket: Bucket) -> None:
        """Write a template if the folder can be written."""
        if not sys.dont_write_bytecode:
            with suppress(OSError):
                self._path(bucket).parent.mkdir(parents=True, exist_ok=True)
                files.write(self._path(bucket), bucket.bytecode_to_string())

    def _path(self, bucket: Bucket) -> Path:
        return Path(cache_from_source(str(Path(__file__).with_name(f"template-{bucket.key}.py"))))


@cache
def environment() -> jinja2.Environment:
    """Return the environment of the templates, which escapes all texts."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("bentpipe.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
        bytecode_cache=_Compiled(),
    )
    found.filters["clock"] = clock
    found.filters["variable"] = as_variable
    found.filters["code"] = _with_code
    return found


def _with_code(text: str) -> markupsafe.Markup:
    """Return a text with the names between backticks as code."""
    parts = [
        f"<code>{markupsafe.escape(part)}</code>" if number % 2 else markupsafe.escape(part)
        for number, part in enumerate(text.split("`"))
    ]
    return markupsafe.Markup("".join(parts))  # noqa: S704


def dated(manifest: Mapping[str, Any]) -> str:
    """Return the version of Bentpipe that made a result, and the date."""
    return f"Bentpipe {manifest['core']['version']} · {(manifest['finished'] or manifest['started'])[:10]}"


def specification(chart: vega.Chart, *, fit: bool = False) -> dict[str, Any]:
    """Return a chart's specification in the common style; `fit` fits its width to the page."""
    spec: dict[str, Any] = chart.to_dict()
    background = spec.pop("background", None)
    spec["config"] = {**CONFIG, "background": background}
    if fit:
        spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    return spec


def script_json(value: object) -> str:
    """Return JSON that is safe inside a script element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def parameters(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the effective parameters of a manifest's settings: `shared` by all, and `differing`."""
    per_setting = {setting["name"]: {row["key"]: row for row in setting["effective"]} for setting in settings}
    keys: dict[str, None] = {}
    for rows in per_setting.values():
        keys.update(dict.fromkeys(rows))
    shared, differing = [], []
    for key in keys:
        rows_of = [rows.get(key) for rows in per_setting.values()]
        first = rows_of[0]
        if first is not None and all(row is not None and row["value"] == first["value"] for row in rows_of):
            shared.append(first)
        else:
            differing.append({"key": key, "values": [row["value"] if row else "–" for row in rows_of]})
    return {"shared": shared, "differing": differing}
