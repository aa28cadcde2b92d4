"""Picture of a scenario as SVG: nodes, links, queues, the AQM's watch and mark points, and the traffic.

Nodes are rows from the senders down to the receivers, with the links between them. Long texts wrap, so the
picture stays narrow enough for a page in print and a small window.
"""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from itertools import pairwise

from bentpipe._core import Scenario
from bentpipe.report.picture_text import Aqm, Link, Network, Node, Stage, Traffic, network

__all__ = ["picture"]

_COLUMN, _GATEWAY = 300, 560
"""Least widths of a column, and of a gateway [px]."""
_WIDTH, _MARGIN, _PAD, _GAP = 580, 16, 12, 12
"""Least width of the picture, its margin, the space within a box and between rows [px]."""
_LINE, _SIZE, _SMALL = 18, 14.0, 13.0
"""Line spacing and sizes of text [px]."""
_TRACK = 30
"""Distance of a link's line from the left edge of its column [px]."""
_AQM, _GUTTER = 164, 78
"""Widths of the AQM's box, and of the arrows beside it [px]."""

_STYLE = """
  text { font: 13px Helvetica, Arial, "Liberation Sans", "DejaVu Sans", sans-serif; fill: #3d444d; }
  .title { font-size: 17px; font-weight: 600; fill: #1f2328; }
  .name { font-size: 14px; font-weight: 600; fill: #1f2328; }
  .page { fill: #ffffff; }
  .box { fill: #f4f6f8; stroke: #6e7781; }
  .gateway { fill: #e7f0fd; stroke: #3b6ea8; }
  .pep, .regulator { fill: #ffffff; stroke: #3b6ea8; }
  .line { stroke: #57606a; stroke-width: 2; fill: none; }
  .satellite { stroke-dasharray: 7 5; }
  .queue { fill: #ffffff; stroke: #57606a; stroke-width: 1.5; }
  .bar { fill: #57606a; }
  .aqm { fill: #fff4e0; stroke: #9a5b00; }
  .watch { stroke: #9a5b00; stroke-width: 1.8; fill: none; stroke-dasharray: 3 3; }
  .mark { stroke: #9a5b00; stroke-width: 1.8; fill: none; }
  .head { fill: #57606a; }
  .aqmhead { fill: #9a5b00; }
  .verb { fill: #7a4800; }
  @media screen and (prefers-color-scheme: dark) {
    text { fill: #c9d1d9; }
    .title, .name { fill: #f0f6fc; }
    .page { fill: #0d1117; }
    .box { fill: #1b222b; stroke: #8b949e; }
    .gateway { fill: #12233a; stroke: #6ca0dc; }
    .pep, .regulator { fill: #0d1117; stroke: #6ca0dc; }
    .line { stroke: #aab4be; }
    .queue { fill: #0d1117; stroke: #aab4be; }
    .bar, .head { fill: #aab4be; }
    .aqm { fill: #33260c; stroke: #e3a03c; }
    .watch, .mark { stroke: #e3a03c; }
    .aqmhead { fill: #e3a03c; }
    .verb { fill: #f0b35a; }
  }
"""


def picture(scenario: Scenario, *, parts: bool = False) -> str:
    """Return the picture of a scenario as an SVG document.

    With `parts` a page can find what is drawn: groups have the keys of their part (`data-part`), lines their
    link (`data-link`, and `data-up` if data flows upwards), queues a place for a bar (`data-bar`, `data-x`,
    `data-y`).
    """
    keys = {row["key"] for row in scenario.effective()} if parts else None
    return _Drawing(network(scenario), keys).svg()


@dataclass(slots=True)
class _Band:
    """A node or link at its place."""

    item: Node | Link
    x: float = 0
    y: float = 0
    width: float = 0
    height: float = 0


_Row = list[_Band]
"""Bands side by side."""


class _Drawing:
    """Layout of the rows, and the SVG elements."""

    def __init__(self, found: Network, keys: set[str] | None = None) -> None:
        self.network = found
        self.keys = keys
        """Keys of the scenario for parts that a page can find; None for a plain picture."""
        self.behind: list[str] = []
        """Lines, drawn first."""
        self.parts: list[str] = []
        self.level = _levels(found)
        self.rows = self._rows()
        needed = max(
            sum(_GATEWAY if _is_gateway(band.item) else _COLUMN for band in row) + _PAD * (len(row) - 1)
            for row in self.rows
        )
        self.width = max(_WIDTH, needed + 2 * _MARGIN)

    def svg(self) -> str:
        """Return the document."""
        y = float(_MARGIN)
        for line in _wrapped(self.network.title, self.width - 2 * _MARGIN, 17.0, bold=True):
            y += 22
            self._text(line, _MARGIN, y - 6, "title")
        y += 8
        for row in self.rows:
            y = self._place(row, y) + _GAP
        self._connect()
        for row in self.rows:
            for band in row:
                if isinstance(band.item, Node):
                    with self._part(self._candidates(band.item)):
                        self._draw_node(band, band.item)
                else:
                    with self._part([_joined("link", band.item.name)]):
                        self._draw_link(band, band.item)
        y = self._traffic(y + 6, self.network.traffic)
        y = self._legend(y + 4)
        height = round(y + _MARGIN)
        width = round(self.width)
        label = escape(f"Network of the scenario: {self.network.title}", quote=True)
        body = "\n".join([*self.behind, *self.parts])
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}"'
            f' height="{height}" style="max-width: 100%; height: auto" role="img" aria-label="{label}">\n'
            f"<style>{_STYLE}</style>\n"
            f'<rect class="page" width="{width}" height="{height}"/>\n{body}\n</svg>\n'
        )

    @contextmanager
    def _part(self, candidates: list[str]) -> Iterator[None]:
        """Group what is drawn meanwhile as the first of the parts that the scenario has."""
        part = None
        if self.keys is not None:
            known = (each for each in candidates if any(key.startswith(f"{each}.") for key in self.keys))
            part = next(known, None)
        if part is not None:
            self.parts.append(f'<g data-part="{escape(part)}">')
        yield
        if part is not None:
            self.parts.append("</g>")

    def _candidates(self, node: Node) -> list[str]:
        gateways = [_joined("gateway", node.name), "gateway"]
        kinds = {"hosts": "host", "router": "router", "terminal": "terminal"}
        if node.kind == "gateway":
            return gateways
        return [_joined(kinds[node.kind], node.name), *(["gateway"] if node.kind == "terminal" else [])]

    def _bar(self, name: str, x: float, y: float) -> None:
        """Leave a place for the bar of a queue."""
        if self.keys is not None:
            self.parts.append(f'<g data-bar="{escape(name)}" data-x="{x:.0f}" data-y="{y:.0f}"/>')

    def _line_of(self, link: Link) -> str:
        """Return the attributes by which a page finds the line of a link."""
        if self.keys is None:
            return ""
        up = self.level[link.between[0]] > self.level[link.between[1]]
        return f' data-link="{escape(link.name)}" data-up="{str(up).lower()}"'

    def _rows(self) -> list[_Row]:
        """Return the rows of nodes and, between them, of links."""
        depth = max(self.level.values())
        nodes: list[_Row] = [[] for _ in range(depth + 1)]
        links: list[_Row] = [[] for _ in range(depth + 1)]
        for node in self.network.nodes.values():
            nodes[self.level[node.name]].append(_Band(node))
        for link in self.network.links:
            upper = min(self.level[end] for end in link.between)
            links[min(upper, depth)].append(_Band(link))
        rows = [row for pair in zip(nodes, links, strict=True) for row in pair]
        return [row for row in rows if row]

    def _place(self, row: _Row, y: float) -> float:
        """Set the places of a row from `y` on, and return its lower edge."""
        whole = self.width - 2 * _MARGIN
        weights = [_GATEWAY if _is_gateway(band.item) else _COLUMN for band in row]
        spare = whole - _PAD * (len(row) - 1)
        x = float(_MARGIN)
        for band, weight in zip(row, weights, strict=True):
            band.x, band.y = x, y
            band.width = spare * weight / sum(weights)
            x += band.width + _PAD
            item = band.item
            band.height = _node_height(item, band) if isinstance(item, Node) else _link_height(item, band)
        height = max(band.height for band in row)
        if _is_node(row):
            for band in row:
                band.height = height
        return y + height

    def _connect(self) -> None:
        """Draw the lines of the links between their nodes."""
        nodes = {band.item.name: band for row in self.rows for band in row if _is_node(row)}
        for row in self.rows:
            for band in row:
                if not isinstance(band.item, Link):
                    continue
                ends = sorted(band.item.between, key=lambda name: self.level[name])
                upper, lower = (nodes[name] for name in ends)
                kind = "line satellite" if band.item.satellite else "line"
                named = self._line_of(band.item)
                x = band.x + _TRACK
                if upper.y == lower.y:
                    below = upper.y + upper.height
                    for end in (upper, lower):
                        at = _within(x, end)
                        self.behind.append(
                            f'<path class="{kind}"{named} d="M{at:.0f} {below:.0f} V{band.y:.0f} H{x:.0f}'
                            f' V{band.y + band.height:.0f}"/>'
                        )
                    continue
                top, bottom = _within(x, upper), _within(x, lower)
                tip = lower.y - 2
                self.behind.append(
                    f'<path class="{kind}"{named} d="M{top:.0f} {upper.y + upper.height:.0f}'
                    f' V{band.y - 2:.0f} H{x:.0f} V{band.y + band.height:.0f} H{bottom:.0f} V{tip:.0f}"/>'
                )
                steps = self._data_steps(band.item)
                if (ends[0], ends[1]) in steps:
                    self.behind.append(_head(bottom, tip, "head"))
                if (ends[1], ends[0]) in steps:
                    self.behind.append(_head(top, upper.y + upper.height + 2, "head", up=True))

    def _data_steps(self, link: Link) -> set[tuple[str, str]]:
        """Return the directions in which a link carries data, as pairs of nodes."""
        steps = {step for traffic in self.network.traffic for step in pairwise(traffic.route)}
        return {link.between, link.between[::-1]} & steps

    def _draw_node(self, band: _Band, node: Node) -> None:
        kind = "box gateway" if node.kind == "gateway" else "box"
        x, y, width, height = band.x, band.y, band.width, band.height
        if node.count > 1:
            # A second sheet shows a group.
            self._rect(kind, x + 5, y + 5, width - 5, height - 5)
            width, height = width - 5, height - 5
        self._rect(kind, x, y, width, height)
        left = x + _TRACK + 26
        title = node.name
        self._text(title, left, y + 21, "name")
        note = "" if node.note == node.name or _has_long_note(node) else node.note
        note = f"× {node.count:,}" if node.count > 1 else note
        after = left + _measure(title, _SIZE, bold=True) + 10
        if after + _measure(note, _SMALL) <= x + width - 4:
            self._text(note, after, y + 21)
        elif note:
            self._text(note, left, y + 21 + _LINE)
        if _has_long_note(node):
            for row, line in enumerate(_wrapped(node.note, _note_width(band), _SMALL), start=1):
                self._text(line, left, y + 21 + row * _LINE)
        if node.stages:
            self._stages(band, node)

    def _stages(self, band: _Band, node: Node) -> None:
        """Draw the stages of a gateway on the line that continues the links, and the AQM beside them."""
        track = band.x + _TRACK
        y = band.y + 36
        places: dict[str, float] = {}
        symbols: list[tuple[Stage, float]] = []
        lower: dict[str, float] = {}
        for stage in node.stages:
            lines = _stage_lines(stage, _stage_width(band, node))
            height = max(len(lines) * _LINE, 24)
            middle = y + height / 2
            symbols.append((stage, middle))
            lower[stage.name] = y + height + 1
            for index, line in enumerate(lines):
                self._text(line, track + 26, middle - (len(lines) - 1) * _LINE / 2 + 5 + index * _LINE)
            places[stage.name] = middle
            y += height + 12
        self.parts.append(f'<path class="line" d="M{track:.0f} {band.y:.0f} V{band.y + band.height:.0f}"/>')
        for stage, middle in symbols:
            self._symbol(stage, track, middle)
            if stage.kind in {"queue", "aqm"}:
                is_first = stage.name == next(each.name for each, _ in symbols if each.kind == stage.kind)
                self._bar("gateway" if is_first else "transmit", track + 26, lower[stage.name])
        if node.aqm is not None:
            self._bar("drop", track + 26, places[node.aqm.mark] - 3)
            self._aqm(band, node.aqm, places)

    def _aqm(self, band: _Band, aqm: Aqm, places: dict[str, float]) -> None:
        """Draw the AQM's box at the right, with arrows to the queues that it watches and marks at."""
        x = band.x + band.width - _AQM - _PAD
        watch, mark = places[aqm.watch], places[aqm.mark]
        if watch == mark:
            watch, mark = watch + 9, mark - 9
        lines = _aqm_lines(aqm)
        height = max(abs(watch - mark) + 30, 14 + _LINE * len(lines))
        top = (watch + mark) / 2 - height / 2
        top = min(max(top, band.y + _PAD), band.y + band.height - _PAD - height)
        self._rect("aqm", x, top, _AQM, height)
        self._text(lines[0], x + 10, top + 20, "name")
        for index, line in enumerate(lines[1:], start=1):
            self._text(line, x + 10, top + 20 + index * _LINE)
        left = x - _GUTTER + 12
        self.parts.append(
            f'<path class="mark" d="M{x:.0f} {mark:.0f} H{left + 5:.0f}"/>'
            f'<path class="aqmhead" d="M{left:.0f} {mark:.0f} l8 -4.5 v9 z"/>'
            f'<path class="watch" d="M{left:.0f} {watch:.0f} H{x - 6:.0f}"/>'
            f'<circle class="aqmhead" cx="{left:.0f}" cy="{watch:.0f}" r="3.5"/>'
            f'<path class="aqmhead" d="M{x:.0f} {watch:.0f} l-8 -4.5 v9 z"/>'
        )
        for index, line in enumerate(reversed(aqm.verb.split())):
            self._text(line, left + 2, mark - 6 - index * 14, "verb")
        self._text("watches", left + 2, watch + 15, "verb")

    def _draw_link(self, band: _Band, link: Link) -> None:
        x = band.x + _TRACK
        left = x + 26
        y = band.y + 16
        self._text(link.name, left, y, "name")
        note = " · ".join(each for each in ("satellite link" if link.satellite else "", link.note) if each)
        after = left + _measure(link.name, _SIZE, bold=True) + 10
        if after + _measure(note, _SMALL) < band.x + band.width:
            self._text(note, after, y)
        elif note:
            y += _LINE
            self._text(note, left, y)
        for stage in link.stages:
            lines = _stage_lines(stage, band.width - _TRACK - 26)
            if stage.kind != "text":
                self._symbol(stage, x, y + _LINE * len(lines) / 2 + 5)
                self._bar(f"link {link.name}", left, y + _LINE * len(lines) + 6)
            for line in lines:
                y += _LINE
                self._text(line, left, y)

    def _symbol(self, stage: Stage, x: float, y: float) -> None:
        """Draw the symbol of a stage on the line at `x`."""
        if stage.kind in {"queue", "aqm"}:
            kind = "queue aqm" if stage.kind == "aqm" else "queue"
            self._rect(kind, x - 10, y - 12, 20, 24, 2)
            for index in range(3):
                self.parts.append(
                    f'<rect class="bar" x="{x - 6:.0f}" y="{y + 6 - 6 * index:.0f}" width="12" height="3.5"/>'
                )
        elif stage.kind == "pep":
            self._rect("pep", x - 15, y - 12, 30, 24, 4)
            self.parts.append(
                f'<text x="{x:.0f}" y="{y + 4:.0f}" text-anchor="middle" style="font-size: 10px">PEP</text>'
            )
        elif stage.kind == "regulator":
            self.parts.append(f'<circle class="regulator" cx="{x:.0f}" cy="{y:.0f}" r="11"/>')
            self.parts.append(f'<path class="line" d="M{x:.0f} {y:.0f} l5 -6 M{x - 6:.0f} {y + 5:.0f} h12"/>')

    def _traffic(self, y: float, every: list[Traffic]) -> float:
        """Write the list of the traffic from `y` on, and return its lower edge."""
        if not every:
            return y
        y += 18
        self._text("Traffic", _MARGIN, y, "title")
        y += 4
        width = self.width - 2 * _MARGIN - 14
        routes = {" → ".join(each.route) for each in every}
        same = len(routes) == 1
        if same:
            for line in _wrapped(routes.pop(), width + 14, _SMALL):
                y += _LINE
                self._text(line, _MARGIN, y)
        for each in every:
            y += _LINE + 4
            with self._part([_joined("traffic", each.name)]):
                self._text(each.name, _MARGIN, y, "name")
                for text in [*each.lines, *([] if same else [" → ".join(each.route)])]:
                    for line in _wrapped(text, width, _SMALL):
                        y += _LINE
                        self._text(line, _MARGIN + 14, y)
        return y + 8

    def _legend(self, y: float) -> float:
        """Draw the signs that the picture uses, from `y` on, and return its lower edge."""
        signs = {"queue": "queue"}
        if any(stage.kind == "aqm" for link in self.network.links for stage in link.stages):
            signs["aqm"] = "queue with an AQM"
        if any(link.satellite for link in self.network.links):
            signs["satellite"] = "satellite link"
        x = float(_MARGIN)
        y += 26
        for sign, text in signs.items():
            if sign == "satellite":
                self.parts.append(f'<path class="line satellite" d="M{x:.0f} {y - 4:.0f} h30"/>')
            else:
                self._symbol(Stage(sign, "", ""), x + 12, y - 4)
            self._text(text, x + 38, y)
            x += 38 + _measure(text, _SMALL) + 22
        return y + 10

    def _text(self, text: str, x: float, y: float, kind: str = "") -> None:
        if text:
            named = f' class="{kind}"' if kind else ""
            self.parts.append(f'<text{named} x="{x:.0f}" y="{y:.0f}">{escape(text)}</text>')

    def _rect(self, kind: str, x: float, y: float, width: float, height: float, round_: int = 6) -> None:
        self.parts.append(
            f'<rect class="{kind}" x="{x:.0f}" y="{y:.0f}" width="{width:.0f}" height="{height:.0f}"'
            f' rx="{round_}"/>'
        )


def _joined(table: str, name: str) -> str:
    """Return the key of a table of that name."""
    return f"{table}.{name}" if re.fullmatch(r"[A-Za-z0-9_-]+", name) else f'{table}."{name}"'


def _is_node(row: _Row) -> bool:
    return isinstance(row[0].item, Node)


def _is_gateway(item: Node | Link) -> bool:
    return isinstance(item, Node) and item.kind == "gateway"


def _from_the_internet(found: Network, route: list[str]) -> list[list[str]]:
    """Return a route, or its reverse if it leads from a terminal to its gateway: both have one order.

    A route from one terminal to another is two, from the gateway to each.
    """
    kinds = list(pairwise(found.nodes[name].kind for name in route))
    if ("terminal", "gateway") not in kinds:
        return [route]
    if ("gateway", "terminal") not in kinds:
        return [route[::-1]]
    gateway = kinds.index(("terminal", "gateway")) + 1
    return [route[gateway::-1], route[gateway:]]


def _levels(found: Network) -> dict[str, int]:
    """Return the row of each node: below all that come before it on a route, as far as routes agree."""
    level: dict[str, int] = {}
    for _ in found.nodes:
        routes = (route for traffic in found.traffic for route in _from_the_internet(found, traffic.route))
        for route in routes:
            for index, name in enumerate(route):
                before = level[route[index - 1]] + 1 if index else 0
                # Routes in opposite directions have no common order: the first one counts.
                if name not in level or (before > level[name] and before < len(found.nodes)):
                    level[name] = before
    for _ in found.nodes:
        for link in found.links:
            for here, there in (link.between, link.between[::-1]):
                if here in level and there not in level:
                    level[there] = level[here] + 1
    for name in found.nodes:
        level.setdefault(name, 0)
    used = sorted(set(level.values()))
    return {name: used.index(value) for name, value in level.items()}


def _stage_width(band: _Band, node: Node) -> float:
    """Return the width of a stage's text, which leaves room for the AQM's box."""
    return band.width - _TRACK - 26 - _PAD - (_AQM + _GUTTER if node.aqm else 0)


def _stage_lines(stage: Stage, width: float) -> list[str]:
    return _wrapped(stage.text, width, _SMALL)


def _aqm_lines(aqm: Aqm) -> list[str]:
    lines = [f"AQM {aqm.name}"]
    for text in aqm.lines:
        lines += _wrapped(text, _AQM - 20, _SMALL)
    return lines


def _has_long_note(node: Node) -> bool:
    """Return true for a node whose note is below its name, in several lines."""
    return node.kind == "terminal" and (node.count > 1 or ";" in node.note)


def _note_width(band: _Band) -> float:
    return band.width - _TRACK - 26 - 9


def _node_height(node: Node, band: _Band) -> float:
    sheet = 5 if node.count > 1 else 0
    if _has_long_note(node):
        return 34 + sheet + _LINE * len(_wrapped(node.note, _note_width(band), _SMALL))
    title = _measure(node.name, _SIZE, bold=True) + 10 + _measure(node.note, _SMALL)
    wraps = title > _note_width(band)
    if not node.stages:
        return 34 + sheet + (_LINE if wraps else 0)
    width = _stage_width(band, node)
    height = 36.0 + sum(max(len(_stage_lines(stage, width)) * _LINE, 24) + 12 for stage in node.stages)
    if node.aqm is not None:
        height = max(height, 12 + _LINE * len(_aqm_lines(node.aqm)) + 2 * _PAD)
    return height


def _link_height(link: Link, band: _Band) -> float:
    lines = sum(len(_stage_lines(stage, band.width - _TRACK - 26)) for stage in link.stages)
    head = _measure(link.name, _SIZE, bold=True) + 10 + _measure(f"satellite link · {link.note}", _SMALL)
    return 22 + _LINE * (lines + (1 if head > band.width - _TRACK - 26 else 0))


def _within(x: float, band: _Band) -> float:
    """Return the place nearest to `x` where a line may join a node."""
    return min(max(x, band.x + 14), band.x + band.width - 20)


def _head(x: float, y: float, kind: str, *, up: bool = False) -> str:
    """Return an arrow head with its point at (x, y)."""
    back = 9 if up else -9
    return f'<path class="{kind}" d="M{x:.0f} {y:.0f} l-5 {back} h10 z"/>'


def _measure(text: str, size: float, *, bold: bool = False) -> float:
    """Return an upper estimate of a text's width [px], from DejaVu Sans, a wide font."""
    em = sum(_ADVANCE.get(char, 0.72 if char.isupper() else 0.62) for char in text)
    return size * em * (1.12 if bold else 1.0)


_ADVANCE = {
    **dict.fromkeys("iljI|'.,:; \N{NO-BREAK SPACE}", 0.33),
    **dict.fromkeys("ft()[]r-", 0.42),
    **dict.fromkeys("mwMWµ%→×", 0.95),
}
"""Advance widths of characters that differ from the rest [em]."""


_UNIT = re.compile(r"(?<=[0-9]) (?=[A-Za-z%]{1,6}(?:/s)?\b)")
"""Space between a number and its unit, where a line does not break."""


def _wrapped(text: str, width: float, size: float, *, bold: bool = False) -> list[str]:
    """Return a text as lines that fit in `width`; words that are too long are broken."""
    lines: list[str] = []
    current = ""
    for word in _pieces(_UNIT.sub("\N{NO-BREAK SPACE}", text).split(" "), width, size, bold=bold):
        longer = f"{current} {word}" if current else word
        if current and _measure(longer, size, bold=bold) > width:
            lines.append(current)
            current = word
        else:
            current = longer
    return [*lines, current] if current else lines


def _pieces(words: Iterable[str], width: float, size: float, *, bold: bool) -> Iterable[str]:
    for word in words:
        rest = word
        while _measure(rest, size, bold=bold) > width and len(rest) > 1:
            cut = len(rest)
            while cut > 1 and _measure(rest[:cut], size, bold=bold) > width:
                cut -= 1
            yield rest[:cut]
            rest = rest[cut:]
        yield rest
