"""Measure where the fluid equations hold: `make model-domain`.

Or `python tools/model_domain.py docs`. Simulates a link and a gateway over a grid of connections, capacities
and round-trip times, solves the equations at each point, and writes docs/models-domain.csv, the generated
part and the figure of docs/models-domain.md, and the domain that `bentpipe model` warns by. With `--drawn`
it draws the numbers of the CSV file again, without simulations.
"""

import csv
import itertools
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import altair as alt
import polars as pl

from bentpipe import _core, files
from bentpipe.format import brief
from bentpipe.models.domain import DOMAIN, LABELS, LIMITS, WARNED, limit_text
from bentpipe.models.engines import compared
from bentpipe.models.fluid import model
from bentpipe.models.validation import simulated
from bentpipe.runs.compare import compare
from bentpipe.runs.plan import load
from blocks import table
from reference import with_generated
from stored_runs import draw

__all__ = ["PLACES", "Place", "borders", "main", "measured", "page", "points"]

PAGE, DATA, FIGURE = "models-domain.md", "models-domain.csv", "models-domain.svg"
CAPACITIES = (4, 20)
"""[Mbit/s]"""
_RUN = {"run.warmup": "40 s", "run.duration": "80 s"}
_OUTLIERS = 0.1
"""Share of the points inside the border that may be off by more than the limit."""

Row = Mapping[str, Any]
Change = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Place:
    """A scenario, its settings, and the equations to solve for it."""

    name: str
    scenario: str
    settings: tuple[str, ...]
    connections: tuple[int, ...]
    """Behind a PEP not so few that the receive window of 11 segments is too small to fill the link."""
    round_trips: tuple[int, ...]
    """Round-trip times of the senders without queueing delay [ms]."""
    equations: Mapping[str, Change]
    """Overrides of the equations, by their name on the page."""

    def changes(self, connections: int, capacity: int, round_trip: int) -> dict[str, object]:
        """Return the overrides of a grid point; capacity in Mbit/s, round-trip time in ms."""
        rate = f"{capacity} Mbps"
        if self.name == "link":
            return {
                **_RUN,
                "host.s.count": connections,
                "host.d.count": connections,
                "traffic.bulk.flows": connections,
                "link.bottleneck.rate": rate,
                "link.bottleneck.delay": f"{(round_trip - 20) / 2} ms",
                "link.left.delay": "5 ms",
                "link.right.delay": "5 ms",
            }
        return {
            **_RUN,
            "traffic.web.sessions": connections,
            "traffic.web.ramp.over": "1 s",
            "traffic.web.ramp.pause": "0 s",
            "gateway.regulator.rate": rate,
            "link.satellite.rate": rate,
            "link.ingress.delay.uniform": [f"{round_trip / 3} ms", f"{2 * round_trip / 3} ms"],
        }


PLACES = (
    Place(
        "link",
        "red-dumbbell",
        ("RED 60/120", "avqred", "droptail"),
        (20, 80, 320),
        (60, 200, 600),
        {
            "end_to_end": {"model.equations": "end_to_end"},
            "single_queue": {"model.equations": "single_queue"},
            "padhye": {"model.equations": "padhye"},
        },
    ),
    Place(
        "gateway",
        "byun2007-gateway",
        ("RED 4", "avqred"),
        (60, 120, 320),
        (40, 120, 300),
        {
            "gateway": {"model.equations": "gateway"},
            "padhye": {"model.equations": "padhye"},
            "padhye, no delay": {"model.equations": "padhye", "model.feedback": "none"},
            "timeouts": {"model.equations": "timeouts"},
            "timeouts, no delay": {"model.equations": "timeouts", "model.feedback": "none"},
        },
    ),
)


def points(place: Place) -> list[tuple[int, int, int]]:
    """Return connections, capacity [Mbit/s] and round-trip time [ms] of every point of the grid."""
    return list(itertools.product(place.connections, CAPACITIES, place.round_trips))


def window(scenario: _core.Scenario) -> float:
    """Return the segments in flight per connection when all connections together fill the link."""
    found = json.loads(_core.fluid_inputs(scenario, scenario.seed))["inputs"]
    of = {each["symbol"]: each["value"] for each in found}
    return float(of["μ"] * of["R"] / of["m"])


def measured(place: Place, point: tuple[int, int, int]) -> Iterator[dict[str, Any]]:
    """Simulate a point and solve all equations for it; yield a row per setting and engine."""
    change = place.changes(*point)
    ours = simulated(compare(load(place.scenario, set=change), settings=list(place.settings), runs=1))
    connections, capacity, round_trip = point
    for name, equations in place.equations.items():
        loaded = load(place.scenario, set={**change, **equations})
        theirs = model(loaded, list(place.settings)).account()
        rows = {
            (row["setting"], row["quantity"]): row for row in compared([ours, theirs], list(place.settings))
        }
        for setting in place.settings:
            at = {
                "place": place.name,
                "connections": connections,
                "capacity_mbps": capacity,
                "round_trip_ms": round_trip,
                "window": window(loaded),
                "aqm": setting,
            }
            if name == next(iter(place.equations)):
                yield (
                    at
                    | {"engine": "simulator"}
                    | {quantity: rows[setting, quantity]["simulator"]["mean"] for quantity in LIMITS}
                )
            yield (
                at
                | {"engine": name}
                | {quantity: rows[setting, quantity]["model"]["mean"] for quantity in LIMITS}
            )


def differences(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yield each row of a model with its ratios to the simulator's values, as `QUANTITY_ratio`."""
    known = {(*_place(row), row["aqm"]): row for row in rows if row["engine"] == "simulator"}
    for row in rows:
        if row["engine"] != "simulator":
            true = known[*_place(row), row["aqm"]]
            yield {**row, **{f"{name}_ratio": _ratio(row[name], true[name]) for name in LIMITS}}


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(row[key] for key in ("place", "connections", "capacity_mbps", "round_trip_ms"))


def _ratio(ours: float, true: float) -> float:
    return ours / true if true else math.inf


def is_off(ratio: float, limit: float) -> bool:
    """Return True if a ratio is above the factor `limit`, or below its inverse."""
    return not 1 / limit <= ratio <= limit


def borders(rows: Sequence[Row], quantities: Iterable[str]) -> dict[str, dict[str, float | None]]:
    """Return for each set of equations and each of `quantities` the least window of the domain.

    That is the least window of the grid so that at most a tenth of the points with this or a greater one is
    off by more than the limit; `None` without such a window.
    """
    found: dict[str, dict[str, float | None]] = {}
    for name in dict.fromkeys(row["engine"] for row in rows):
        mine = [row for row in rows if row["engine"] == name]
        found[name] = {quantity: _border(mine, quantity) for quantity in quantities}
    return found


def _border(rows: Sequence[Row], quantity: str) -> float | None:
    for least in sorted({row["window"] for row in rows}):
        inside = [row for row in rows if row["window"] >= least]
        off = sum(is_off(row[f"{quantity}_ratio"], LIMITS[quantity]) for row in inside)
        if off <= _OUTLIERS * len(inside):
            return float(least)
    return None


def sentence(name: str, by: Mapping[str, float | None], least: float) -> str:
    """Return where a set of equations holds."""
    parts = [f"{LABELS[quantity]} {where(border, least)}" for quantity, border in by.items()]
    return f"- `{name}`: {', '.join(parts)}."


def where(border: float | None, least: float) -> str:
    """Return the windows inside a border in words; `least` is the least window of the grid."""
    if border is None:
        return "nowhere"
    return "everywhere" if border <= least else f"from {brief(border, 2)} segments"


def summary(rows: Sequence[Row]) -> str:
    """Return in a sentence where each set of equations is within all limits."""
    parts = []
    for place in PLACES:
        mine = [row for row in rows if row["place"] == place.name]
        least = min(row["window"] for row in mine)
        holds: dict[str, list[str]] = {}
        for name, by in borders(mine, WARNED).items():
            known = [border for border in by.values() if border is not None]
            border = max(known) if len(known) == len(by) else None
            holds.setdefault(where(border, least), []).append(f"`{name}`")
        found = ", ".join(f"{place_} with {' and '.join(names)}" for place_, names in holds.items())
        parts.append(f"{_AT[place.name]} {found}")
    return f"Load, throughput and loss rate are within their limits {'; '.join(parts)}.\n"


_AT = {"link": "on the link", "gateway": "behind the PEP"}


def page(rows: Sequence[Row]) -> str:
    """Return the generated part of the page."""
    every = list(differences(rows))
    limits = ", ".join(f"{LABELS[name]} within {limit_text(name)}" for name in WARNED)
    parts = [summary(every)]
    for place in PLACES:
        mine = [row for row in every if row["place"] == place.name]
        least = min(row["window"] for row in mine)
        heads = ["equations", *(f"{aqm}: {LABELS[name]}" for aqm in place.settings for name in LIMITS)]
        by_aqm = {aqm: borders([row for row in mine if row["aqm"] == aqm], LIMITS) for aqm in place.settings}
        cells = [
            [
                f"`{name}`",
                *(where(by_aqm[aqm][name][each], least) for aqm in place.settings for each in LIMITS),
            ]
            for name in place.equations
        ]
        parts += [
            f"### {place.name.capitalize()}\n",
            f"`{place.scenario}`, windows from {brief(least, 2)} to"
            f" {brief(max(row['window'] for row in mine), 2)} segments. With all AQMs together, {limits}:\n",
            *(sentence(name, by, least) for name, by in borders(mine, WARNED).items()),
            "",
            "Each AQM by itself:\n",
            table(heads, cells).replace("from ", "").replace(" segments", ""),
            "",
            "Ratio of the model's value to the simulator's, median (least to greatest), by window:\n",
            _ratios(mine, place),
            "",
        ]
    return "\n".join(parts)


_CLASSES = ((0.0, 1.0), (1.0, 3.0), (3.0, 10.0), (10.0, math.inf))


def _ratios(rows: Sequence[Row], place: Place) -> str:
    lines = []
    for low, high in _CLASSES:
        label = (
            f"below {high:g}" if low == 0 else f"{low:g} to {high:g}" if high < math.inf else f"above {low:g}"
        )
        for name in place.equations:
            mine = [row for row in rows if row["engine"] == name and low <= row["window"] < high]
            if mine:
                cells = [_spread([row[f"{quantity}_ratio"] for row in mine]) for quantity in LIMITS]
                lines.append([label, str(len(mine)), name, *cells])
    # Numbers begin in the second column.
    return table(["window", "points", "equations", *(LABELS[name] for name in LIMITS)], lines)


def _spread(values: Sequence[float]) -> str:
    shown = [brief(value, 2) for value in (median(values), min(values), max(values))]
    return f"{shown[0]} ({shown[1]} to {shown[2]})"


def picture(rows: Sequence[Row], path: Path) -> None:
    """Draw the ratio of the loss rate and of the load against the window as a heat map, a panel per place."""
    panels, header = [], alt.Header(title=None, labelPadding=24, labelFontSize=11)
    for place in PLACES:
        mine = [row for row in differences(rows) if row["place"] == place.name]
        order = [f"{brief(each, 2)}" for each in sorted({row["window"] for row in mine})]
        cells = []
        for quantity in ("loss_rate", "offered_load", "queue"):
            for (name, window_), alike in _grouped(mine):
                ratio = median(row[f"{quantity}_ratio"] for row in alike)
                cells.append(
                    {
                        "equations": name,
                        "window": brief(window_, 2),
                        "quantity": LABELS[quantity],
                        "factor": min(max(math.log2(ratio), -2.0), 2.0) if ratio > 0 else -2.0,
                        "text": brief(ratio, 2),
                    }
                )
        base = alt.Chart(pl.DataFrame(cells)).encode(
            x=alt.X("window:O", sort=order, title=f"{place.name}: segments in flight per connection"),
            y=alt.Y("equations:N", sort=list(place.equations), title=None),
        )
        colour = alt.Color(
            "factor:Q",
            title="model / simulator",
            scale=alt.Scale(domain=[-2, 0, 2], range=["#2166ac", "#f7f7f7", "#b2182b"]),
            legend=alt.Legend(
                values=[-2, -1, 0, 1, 2],
                labelExpr="datum.value == -2 ? '1/4 or less' : datum.value == 2 ? '4 or more' :"
                " datum.value < 0 ? '1/2' : datum.value > 0 ? '2' : '1'",
            ),
        )
        shown = alt.condition("abs(datum.factor) > 1.3", alt.value("white"), alt.value("#1f2933"))
        heat = alt.layer(
            base.mark_rect(stroke="white").encode(color=colour),
            base.mark_text(fontSize=10).encode(text="text:N", color=shown),
        ).properties(width=34 * len(order), height=24 * len(place.equations))
        panels.append(heat.facet(row=alt.Row("quantity:N", header=header, sort=list(LABELS.values()))))
    draw(path, alt.vconcat(*panels).resolve_scale(color="shared"))


def _grouped(rows: Sequence[Row]) -> Iterator[tuple[tuple[str, float], list[Row]]]:
    def key(row: Row) -> tuple[str, float]:
        return row["engine"], row["window"]

    for each, alike in itertools.groupby(sorted(rows, key=key), key):
        yield each, list(alike)


def read(path: Path) -> list[dict[str, Any]]:
    """Return the rows of the file of numbers."""
    with path.open(encoding="utf-8", newline="") as file:
        return [
            {key: value if key in ("place", "aqm", "engine") else float(value) for key, value in row.items()}
            for row in csv.DictReader(file)
        ]


def write(rows: Sequence[Row], path: Path) -> None:
    """Write the rows as CSV, numbers with five digits."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0])
        for row in rows:
            writer.writerow([f"{x:.5g}" if isinstance(x, float) else x for x in row.values()])


def main(docs: Path, *, again: bool = True) -> None:
    """Measure the grid, unless not `again`, and renew page, figure, numbers and the domain of the package."""
    if again:
        write(
            [row for place in PLACES for point in points(place) for row in measured(place, point)],
            docs / DATA,
        )
    rows = read(docs / DATA)
    text = (docs / PAGE).read_text(encoding="utf-8")
    (docs / PAGE).write_text(with_generated(text, page(rows), docs / PAGE), encoding="utf-8")
    picture(rows, docs / "figures" / FIGURE)
    found = {
        place.name: borders([row for row in differences(rows) if row["place"] == place.name], WARNED)
        for place in PLACES
    }
    files.write_json(DOMAIN, found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), again="--drawn" not in sys.argv)
