"""Draw docs/figures/architecture.svg from the crates' manifests: `make docs`.

A box is a crate. An arrow points to a used crate; arrows implied by others are omitted. Crates are above all
crates that they use.
"""

import tomllib
from html import escape
from pathlib import Path

__all__ = ["FIGURE", "svg"]

ROOT = Path(__file__).resolve().parents[1]
FIGURE = ROOT / "docs/figures/architecture.svg"

WIDTH, BOX, ROW, GAP, MARGIN = 1120, 190, 60, 56, 20
"""Width of the figure, of a box, its height, the space between rows, and the margin [px]."""

STYLE = """
  .box { fill: #f4f6f8; stroke: #57606a; }
  .front { fill: #e7f0fd; }
  .name { font: 600 14px system-ui, sans-serif; fill: #1f2328; }
  .note { font: 11px system-ui, sans-serif; fill: #57606a; }
  .arrow { stroke: #8c959f; fill: none; marker-end: url(#head); }
  #head path { fill: #8c959f; }
  @media (prefers-color-scheme: dark) {
    .box { fill: #161b22; stroke: #8b949e; }
    .front { fill: #132339; }
    .name { fill: #e6edf3; }
    .note { fill: #9da7b1; }
  }
"""

COLUMNS = 5
PLACES = {
    "python": 3,
    "capture": 2.45,
    "sim": 0,
    "testbed": 4,
    "link": 0.9,
    "traffic": 1.9,
    "model": 3,
    "gatewayd": 4,
    "scenario": 1.5,
    "gateway": 1.5,
    "packet": 2.45,
    "quic": 0,
    "queue": 1.5,
    "spacelink": 4,
    "transport": 0.58,
    "units": 2,
}
"""Column of each crate, chosen so that arrows pass between the boxes."""

NOTES = {
    "units": "time, rate, random streams",
    "queue": "AQMs, schedulers, queue",
    "transport": "TCP, SCTP, RTP, PEP link",
    "quic": "QUIC in simulated time",
    "packet": "IP, TCP, UDP headers",
    "gateway": "PEP buffers, regulator",
    "spacelink": "QUIC between the ends",
    "scenario": "files to plain data",
    "link": "link engine, channels",
    "traffic": "packet generators",
    "model": "fluid models",
    "sim": "packet simulator",
    "capture": "pcapng, qlog",
    "gatewayd": "Linux daemon",
    "testbed": "emulated links, load",
    "python": "bindings",
}
"""Content of each crate in a few words."""


def uses() -> dict[str, set[str]]:
    """Return the direct dependencies of each crate, without those of its tests."""
    found = {}
    for manifest in sorted(ROOT.glob("crates/*/Cargo.toml")):
        table = tomllib.loads(manifest.read_text(encoding="utf-8"))
        names = table.get("dependencies", {})
        found[manifest.parent.name] = {
            name.removeprefix("bentpipe-") for name in names if name.startswith("bentpipe-")
        }
    return found


def dependencies(graph: dict[str, set[str]], start: str) -> set[str]:
    """Return the direct and indirect dependencies of `start`."""
    found: set[str] = set()
    todo = list(graph[start])
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo += graph[name]
    return found


def reduced(graph: dict[str, set[str]]) -> dict[str, set[str]]:
    """Return the graph without the arrows implied by others."""
    return {
        name: {
            each
            for each in targets
            if not any(each in dependencies(graph, other) for other in targets - {each})
        }
        for name, targets in graph.items()
    }


def layers(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the crates by row, the lowest first; each is above all that it uses."""
    level: dict[str, int] = {}
    while len(level) < len(graph):
        for name, targets in graph.items():
            if name not in level and all(each in level for each in targets):
                level[name] = 1 + max((level[each] for each in targets), default=-1)
    rows: list[list[str]] = [[] for _ in range(max(level.values()) + 1)]
    for name in graph:
        rows[level[name]].append(name)
    return rows


def svg() -> str:
    """Return the figure as SVG text."""
    graph = uses()
    missing = (set(graph) ^ set(NOTES)) | (set(graph) ^ set(PLACES))
    if missing:
        raise SystemExit(
            f"architecture_figure.py: NOTES, PLACES and crates/ differ in {', '.join(sorted(missing))}"
        )
    arrows = reduced(graph)
    rows = layers(graph)
    height = 2 * MARGIN + (len(rows) + 1) * ROW + len(rows) * GAP
    place: dict[str, tuple[float, float]] = {}
    for index, row in enumerate(rows):
        floor = height - MARGIN - ROW - index * (ROW + GAP)
        step = (WIDTH - 2 * MARGIN) / COLUMNS
        for name in row:
            place[name] = (MARGIN + step * (PLACES[name] + 0.5), floor)
    parts = []
    for name, targets in arrows.items():
        x, y = place[name]
        for target in sorted(targets):
            tx, ty = place[target]
            middle = (y + ROW + ty) / 2
            parts.append(
                f'<path class="arrow" d="M{x:.0f} {y + ROW:.0f} C{x:.0f} {middle:.0f} {tx:.0f} {middle:.0f} '
                f'{tx:.0f} {ty - 3:.0f}"/>'
            )
    for name, (x, y) in place.items():
        parts.append(_box(name, NOTES[name], x, y, BOX, "box"))
    top = MARGIN
    x = place["python"][0]
    parts.append(
        f'<path class="arrow" d="M{x:.0f} {top + ROW} L{x:.0f} {place["python"][1] - 3:.0f}"/>'
        + _box("python/bentpipe", "command line, experiments, statistics, reports", x, top, 320, "box front")
    )
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        'aria-label="The crates and what each uses">\n'
        f"<style>{STYLE}</style>\n"
        '<defs><marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="8" markerHeight="8" '
        'orient="auto"><path d="M0 0 L8 4 L0 8 z"/></marker></defs>\n'
        f"{body}\n</svg>\n"
    )


def _box(name: str, note: str, x: float, y: float, width: float, kind: str) -> str:
    left = x - width / 2
    return (
        f'<rect class="{kind}" x="{left:.0f}" y="{y:.0f}" width="{width:.0f}" height="{ROW}" rx="6"/>'
        f'<text class="name" x="{x:.0f}" y="{y + 25:.0f}" text-anchor="middle">{escape(name)}</text>'
        f'<text class="note" x="{x:.0f}" y="{y + 44:.0f}" text-anchor="middle">{escape(note)}</text>'
    )


if __name__ == "__main__":
    FIGURE.write_text(svg(), encoding="utf-8")
