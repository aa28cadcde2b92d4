"""The stability map: phase margins, the border of stability, and the simulator's queue."""

import itertools
from pathlib import Path
from typing import Any

import polars as pl

from bentpipe import _core, files
from bentpipe.format import percent, with_unit
from bentpipe.models.stability import Axis, StabilityMap
from bentpipe.report import vega
from bentpipe.report.colours import MUTED
from bentpipe.report.comparison import picture
from bentpipe.report.pages import page
from bentpipe.report.panels import Figure, Panel, Width

__all__ = ["write_map"]

_UNSTABLE, _NEUTRAL, _STABLE, _NONE = "#d55e00", "#fff", "#0072b2", "#b8bfc7"
_LINE = "#111"
"""Colour of lines on the map, which is the same in the light and the dark scheme."""
_LEAST, _MOST = -90.0, 90.0
_WIDTH, _HEIGHT = 270, 250


def write_map(found: StabilityMap, folder: Path) -> None:
    """Write the map to `folder`, as a figure and as a page."""
    files.write(folder / "map.svg", picture(_figure(found)))
    files.write(folder / "map.html", _page(found).encode())


def _caption(found: StabilityMap) -> str:
    """Return the caption of the figure."""
    text = (
        f"{found.scenario}, equations {found.equations}. Colour: phase margin of the linearized fluid "
        "equations at their operating point; the line is the border of stability; grey: no operating point."
    )
    if found.simulated:
        text += (
            " Circles: one simulation each. Their size is the queue's variation (standard deviation over "
            "mean); darker circles have more of their variance within a factor of 1.5 of one period, which "
            "distinguishes an oscillation from noise."
        )
    return text


def _figure(found: StabilityMap, width: Width = _WIDTH) -> Figure:
    panels = tuple(
        Panel(_panel(found, setting, number, last=len(found.settings) - 1, width=width))
        for number, setting in enumerate(found.settings)
    )
    return Figure("map", "Stability", _caption(found), panels, columns=min(3, len(panels)))


def _values(found: StabilityMap, axis: Axis) -> list[float]:
    return [axis.factor * x for x in found.table[f"at_{axis.name}"].unique().sort().to_list()]


def _edges(values: list[float]) -> list[tuple[float, float]]:
    """Return the lower and upper end of each value's cell."""
    if len(values) == 1:
        return [(values[0] - 0.5, values[0] + 0.5)]
    between = [0.5 * (a + b) for a, b in itertools.pairwise(values)]
    ends = [2 * values[0] - between[0], *between, 2 * values[-1] - between[-1]]
    return list(itertools.pairwise(ends))


def _panel(found: StabilityMap, setting: str, number: int, last: int, width: Width) -> vega.Chart:
    xs, ys = _values(found, found.x), _values(found, found.y)
    x_cells = dict(zip(xs, _edges(xs), strict=True))
    y_cells = dict(zip(ys, _edges(ys), strict=True))
    cells: list[dict[str, Any]] = []
    state: dict[tuple[int, int], bool | None] = {}
    for row in found.table.filter(pl.col("setting") == setting).iter_rows(named=True):
        x, y = (row[f"at_{axis.name}"] * axis.factor for axis in (found.x, found.y))
        margin = row["phase_margin"]
        if row["stable"] is not None and margin is None:
            margin = _MOST
        state[xs.index(x), ys.index(y)] = row["stable"]
        cells.append(
            {
                "x": x_cells[x][0],
                "x2": x_cells[x][1],
                "y": y_cells[y][0],
                "y2": y_cells[y][1],
                "margin": None if margin is None else min(max(margin, _LEAST), _MOST),
            }
        )
    x_title, y_title = (with_unit(axis.label, axis.unit) for axis in (found.x, found.y))
    x_scale = vega.Scale(domain=[x_cells[xs[0]][0], x_cells[xs[-1]][1]], nice=False, zero=False)
    y_scale = vega.Scale(domain=[y_cells[ys[0]][0], y_cells[ys[-1]][1]], nice=False, zero=False)
    x_axis = vega.X("x:Q", title=x_title, scale=x_scale, axis=vega.Axis(tickCount=5))
    y_axis = vega.Y("y:Q", title=y_title, scale=y_scale, axis=vega.Axis(tickCount=5))
    scale = vega.Scale(
        domain=[_LEAST, 0.0, _MOST], range=[_UNSTABLE, _NEUTRAL, _STABLE], clamp=True, interpolate="rgb"
    )
    # One legend per panel keeps the panels aligned.
    legend = vega.Legend(
        title="Phase margin [degrees]: unstable < 0 < stable",
        gradientLength=240,
        values=[-90, -45, 0, 45, 90],
        titleLimit=400,
        symbolSize=100,
    )
    colour = vega.Color(
        "margin:Q", scale=scale, legend=legend if number == 0 or not found.simulated else None
    )
    where: dict[str, Any] = {"x": x_axis, "y": y_axis}
    base = vega.Chart(vega.InlineData(values=cells)).encode(**where, x2="x2:Q", y2="y2:Q")
    # Cells without a margin are left out of the second layer.
    layers: list[vega.Chart] = [base.mark_rect(color=_NONE), base.mark_rect().encode(color=colour)]
    border = _border(state, [x_cells[x] for x in xs], [y_cells[y] for y in ys])
    if border:
        line = vega.Chart(vega.InlineData(values=border)).mark_rule(strokeWidth=2.2, color=_LINE)
        layers.append(line.encode(**where, x2="x2:Q", y2="y2:Q"))
    layers += _circles(found, setting, where, size=number == min(1, last), swing=number == min(2, last))
    heading = vega.TitleParams(text=setting, subtitle=_subtitle(found, setting), subtitleColor=MUTED)
    layered = vega.layer(*layers).resolve_scale(size="independent", fill="independent", color="independent")
    drawing: vega.Chart = layered.properties(width=width, height=_HEIGHT, title=heading)
    return drawing


def _subtitle(found: StabilityMap, setting: str) -> str:
    table = found.table.filter(pl.col("setting") == setting)
    known = table.filter(pl.col("stable").is_not_null())
    if known.is_empty():
        return "no operating point at any point"
    if found.x.name == "pep_delay" and not known["pep_in_loop"].any():
        return "the PEP's delay is not in the loop"
    share = known["stable"].mean()
    return f"stable at {percent(share)} of the points" if isinstance(share, float) else ""


def _border(
    state: dict[tuple[int, int], bool | None],
    x_cells: list[tuple[float, float]],
    y_cells: list[tuple[float, float]],
) -> list[dict[str, float]]:
    """Return the edges between stable and unstable cells."""
    sides = []
    for (i, j), stable in state.items():
        for beside in ((i + 1, j), (i, j + 1)):
            other = state.get(beside)
            if stable is None or other is None or stable == other:
                continue
            if beside[0] > i:
                x, (low, high) = x_cells[i][1], y_cells[j]
                sides.append({"x": x, "x2": x, "y": low, "y2": high})
            else:
                y, (low, high) = y_cells[j][1], x_cells[i]
                sides.append({"x": low, "x2": high, "y": y, "y2": y})
    return sides


def _circles(
    found: StabilityMap, setting: str, where: dict[str, Any], *, size: bool, swing: bool
) -> list[vega.Chart]:
    """Return the simulations as circles, with legends of size and filling if requested."""
    points = [
        {
            "x": row[f"at_{found.x.name}"] * found.x.factor,
            "y": row[f"at_{found.y.name}"] * found.y.factor,
            "cv": row["cv"],
            "peak": row["peak"] or 0.0,
        }
        for row in found.simulated
        if row["setting"] == setting and row["cv"] is not None
    ]
    if not points:
        return []
    sizes = vega.Legend(
        title="Simulated queue: standard deviation / mean",
        values=[0.25, 0.5, 1, 2],
        format="~g",
        titleLimit=400,
        symbolType="circle",
        symbolFillColor="#fff",
        symbolStrokeColor=_LINE,
        symbolStrokeWidth=1.2,
    )
    by_size = vega.Size(
        "cv:Q", scale=vega.Scale(domain=[0, 2.5], range=[0, 420], clamp=True), legend=sizes if size else None
    )
    fills = vega.Legend(title="Share of variance near one period", gradientLength=240, titleLimit=400)
    by_fill = vega.Fill(
        "peak:Q",
        scale=vega.Scale(domain=[0.0, 0.8], range=["#fff", "#000"], clamp=True, interpolate="rgb"),
        legend=fills if swing else None,
    )
    marks = vega.Chart(vega.InlineData(values=points)).mark_point(stroke=_LINE, strokeWidth=1.2, opacity=1.0)
    return [marks.encode(**where, size=by_size, fill=by_fill)]


def _page(found: StabilityMap) -> str:
    """Return the page of a map, which opens offline."""
    return page(
        "stability.html.j2",
        [_figure(found, "container")],
        title=f"Stability of {found.scenario}",
        kicker=f"Bentpipe {_core.__version__}",
        verdict=[f"{setting}: {_subtitle(found, setting)}." for setting in found.settings],
    )
