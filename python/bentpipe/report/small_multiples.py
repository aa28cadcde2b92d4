"""Small multiples of delay–goodput ellipses as one SVG document: a panel for each setting, one scale."""

import math
from collections.abc import Mapping, Sequence
from html import escape

from bentpipe.report.colours import AXIS, DARK, GRID, INK, MUTED, PALETTE, PAPER, text_colour

__all__ = ["small_multiples"]

Points = Sequence[tuple[float, float]]

_WIDTH, _COLUMNS = 1100, 6
_LEFT, _TOP, _GAP, _PANEL, _TITLE = 44, 34, 12, 84, 20

_DOT = 4
"""Curves smaller than this are drawn as a dot of this size."""


def small_multiples(panels: Mapping[str, Mapping[str, Points]], titles: Sequence[str], name: str) -> str:
    """Return the picture: of each panel a curve of (delay [ms], rate [Mbit/s]) for each title that it has.

    `name` is its text for those who do not see it.
    """
    every = [point for curves in panels.values() for points in curves.values() for point in points]
    if not every:
        return ""
    far = _round(max(delay for delay, _ in every))
    high = _round(max(rate for _, rate in every))
    width = (_WIDTH - _LEFT - _GAP * (_COLUMNS - 1)) / _COLUMNS
    rows = math.ceil(len(panels) / _COLUMNS)
    height = _TOP + rows * (_PANEL + _TITLE + _GAP) + 34
    parts = [_legend(titles)]
    for number, (label, curves) in enumerate(panels.items()):
        row, column = divmod(number, _COLUMNS)
        left = _LEFT + column * (width + _GAP)
        top = _TOP + row * (_PANEL + _TITLE + _GAP) + _TITLE
        last = number + _COLUMNS >= len(panels)
        parts.append(_frame(label, left, top, width, (far, high), is_first=column == 0, is_last=last))
        for title, points in curves.items():
            places = [
                (left + width * math.sqrt(min(delay, far) / far), top + _PANEL * (1 - min(rate, high) / high))
                for delay, rate in points
            ]
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            colour = f"s{titles.index(title) % len(PALETTE)}"
            parts.append(f'<polyline class="{colour}" points="{path}"/>')
            if max(max(each) - min(each) for each in zip(*places, strict=True)) < _DOT:
                x, y = places[0]
                parts.append(f'<path class="{colour} dot" d="M{x:.1f} {y:.1f}h0"/>')
    bottom = height - 6
    axes = "one-way delay [ms], on a square-root scale; upwards: goodput [Mbit/s]"
    parts.append(f'<text class="soft" x="{_LEFT}" y="{bottom:.0f}">{axes}</text>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {height:.0f}" role="img"'
        f' aria-label="{escape(name, quote=True)}">{_style()}{"".join(parts)}</svg>'
    )


def _round(value: float) -> float:
    """Return the next of 1, 1.2, 1.5, 2, 3, 5, 8 times a power of ten."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 1.2, 1.5, 2, 3, 5, 8, 10) if step * power >= value * 0.999)


def _frame(
    label: str,
    left: float,
    top: float,
    width: float,
    ends: tuple[float, float],
    *,
    is_first: bool,
    is_last: bool,
) -> str:
    far, high = ends
    parts = [
        f'<text class="name" x="{left:.0f}" y="{top - 6:.0f}">{escape(label)}</text>',
        f'<rect x="{left:.1f}" y="{top:.0f}" width="{width:.1f}" height="{_PANEL}"/>',
    ]
    parts.append(f'<path class="grid" d="M{left:.1f} {top + _PANEL / 2:.1f}h{width:.1f}"/>')
    below = top + _PANEL + 13
    for tick in _ticks(far):
        x = left + width * math.sqrt(tick / far)
        parts.append(f'<path class="grid" d="M{x:.1f} {top:.0f}v{_PANEL}"/>')
        if is_last:
            parts.append(f'<text class="soft middle" x="{x:.1f}" y="{below:.0f}">{tick:g}</text>')
    if is_first:
        for share in (0.0, 0.5, 1.0):
            y = top + _PANEL * (1 - share) + 4
            parts.append(f'<text class="soft end" x="{left - 4:.0f}" y="{y:.0f}">{high * share:.3g}</text>')
    return "".join(parts)


def _ticks(far: float) -> list[float]:
    """Return round values on the axis that are far enough from each other."""
    power = math.floor(math.log10(far))
    found: list[float] = []
    for value in (step * 10.0**each for each in (power - 2, power - 1, power) for step in (1, 2, 5)):
        share = math.sqrt(value / far)
        last = math.sqrt(found[-1] / far) if found else 0.0
        if share - last > 0.2 and share < 0.95:
            found.append(value)
    return found


def _legend(titles: Sequence[str]) -> str:
    parts, x = [], float(_LEFT)
    for number, title in enumerate(titles):
        parts.append(f'<path class="s{number % len(PALETTE)}" d="M{x:.0f} 12h22"/>')
        parts.append(f'<text x="{x + 28:.0f}" y="16">{escape(title)}</text>')
        x += 46 + 7 * len(title)
    return "".join(parts)


def _style() -> str:
    """Return the style: the colours of reports, light or dark as the page is."""

    def rules(of: Mapping[str, str]) -> str:
        colour = {each: of.get(each, each) for each in (INK, MUTED, PAPER, GRID, AXIS, *PALETTE)}
        series = "".join(f".s{number}{{stroke:{colour[each]}}}" for number, each in enumerate(PALETTE))
        return (
            f"text{{fill:{colour[INK]}}}.soft{{fill:{colour[MUTED]}}}"
            f"rect{{fill:{colour[PAPER]};stroke:{colour[AXIS]}}}.grid{{stroke:{colour[GRID]}}}{series}"
        )

    light = {each: text_colour(each) for each in PALETTE}
    fixed = (
        "svg{font:12px 'Liberation Sans',Arial,sans-serif}.name{font-weight:600}.soft{font-size:10.5px}"
        ".middle{text-anchor:middle}.end{text-anchor:end}polyline,path{fill:none;stroke-width:1.6}"
        f"rect{{stroke-width:1}}.grid{{stroke-width:.7}}.dot{{stroke-width:{_DOT};stroke-linecap:round}}"
    )
    return f"<style>{fixed}{rules(light)}@media(prefers-color-scheme:dark){{{rules(DARK)}}}</style>"
