"""Renew docs/reproduction/pfavqred.md and its figure: `make pfavqred`.

Or `python tools/pfavqred_page.py docs results/reproduce`. Runs stored in the second folder are not repeated.
"""

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

import altair as alt
import polars as pl
import vl_convert

from bentpipe.format import number
from bentpipe.reproduction import Reproduction, reproduce
from bentpipe.reproduction.reading import load_paper
from bentpipe.stats.intervals import summarise
from reference import with_generated

__all__ = ["EXPERIMENTS", "FIGURE", "PAGE", "Cell", "cells", "distances", "renew"]

EXPERIMENTS = ("pfavqred-capacity", "pfavqred-arrivals", "pfavqred-lifetime")
"""Experiments of byun2007 on the page; our figures of them have the same ids."""
PAGE, FIGURE = "pfavqred.md", "pfavqred-map"
_MEASURES = ("drops", "flow-std", "udp-80", "udp-160", "udp-320")
_LIFE = "life"
_SHARE = 40.0
"""Optimal share of a UDP flow ([B07] 5.3.2) [kbit/s]."""
_TOLERANCES = {"drops": 0.10, "deviation": 0.30, "UDP": 0.30}
"""Those of the tables' rules; a UDP flow's is that of a deviation."""
_SHOWN = 6
"""Rows of the page's table."""


@dataclass(frozen=True, slots=True)
class Cell:
    """Results of one reading of PFAVQRED's weight."""

    rate: str
    """Window of a flow's rate, with its unit, or its life."""
    share: str
    cap: str
    drops: float
    """Drops over AVQRED's."""
    deviation: float
    """Deviation of the connections' throughput [kbit/s]."""
    udp: tuple[float, float, float]
    """Throughput of the three UDP flows [kbit/s]."""

    def name(self) -> str:
        """Return the reading in words."""
        rate = "over its life" if self.rate == _LIFE else f"within {self.rate}"
        return f"rate {rate}, share of the {self.share}, {self.cap}"


def cells(made: Reproduction) -> list[Cell]:
    """Return a cell for every point of the scan."""
    measures = [
        next(each for shown in made.paper.pictures for each in shown.measures if each.name == name)
        for name in _MEASURES
    ]

    def means(experiment: str, case: str, point: str) -> list[float]:
        found = (
            summarise(made.verdicts.values(experiment, case, measure, point)).mean for measure in measures
        )
        return [math.nan if mean is None else mean for mean in found]

    base = means(EXPERIMENTS[2], "AVQRED", "")[0]
    out = []
    for name in EXPERIMENTS:
        experiment = made.paper.experiments[name]
        for case in experiment.cases:
            if case.label == "AVQRED":
                continue
            share, _, cap = case.label.rpartition(", ")
            share = share or name.removeprefix("pfavqred-")
            for point in experiment.points:
                drops, deviation, *udp = means(name, case.label, point.label)
                rate = point.label or _LIFE
                out.append(Cell(rate, share, cap, drops / base, deviation, (udp[0], udp[1], udp[2])))
    return out


def distances(cell: Cell, printed: tuple[float, float]) -> dict[str, float]:
    """Return how far a reading is from print, in tolerances: at most 1 is within.

    `printed` are the drops over AVQRED's and the deviation [kbit/s]. The distance is that of the logarithms,
    so that twice and half are as far; of the UDP flows it is the mean of the three.
    """

    def far(ours: float, theirs: float, kind: str) -> float:
        return abs(math.log(max(ours, 1e-9) / theirs)) / math.log1p(_TOLERANCES[kind])

    return {
        "drops": far(cell.drops, printed[0], "drops"),
        "deviation": far(cell.deviation, printed[1], "deviation"),
        "UDP": fmean(far(each, _SHARE, "UDP") for each in cell.udp),
    }


def _printed() -> tuple[float, float]:
    tables = load_paper("byun2007").tables
    drops, deviation = (
        next(table.columns[0].printed for table in tables if table.name == name)
        for name in ("table-5-1", "table-5-2")
    )
    return drops["PFAVQRED"] / drops["AVQRED"], deviation["PFAVQRED"]


def _map(found: list[tuple[Cell, dict[str, float]]]) -> str:
    caps = list(dict.fromkeys(cell.cap for cell, _ in found))
    rates = list(dict.fromkeys(cell.rate for cell, _ in found))
    rows = [
        {
            "rate": cell.rate,
            "cap": cell.cap,
            "share": f"share of the {cell.share}",
            "what": what,
            "distance": distance,
            "text": f"{distance:.1f}",
        }
        for cell, parts in found
        for what, distance in [*parts.items(), ("worst of the three", max(parts.values()))]
    ]
    base = alt.Chart(pl.DataFrame(rows)).encode(
        x=alt.X("rate:N", sort=rates, title="Window", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("cap:N", sort=caps, title=None),
    )
    color = alt.Color(
        "distance:Q",
        title="Tolerances from print",
        scale=alt.Scale(scheme="viridis", domain=[0, 6], clamp=True, reverse=True),
    )
    dark = alt.condition("datum.distance > 3", alt.value("white"), alt.value("black"))
    layers = (
        base.mark_rect().encode(color=color),
        base.mark_text(fontSize=10).encode(text="text:N", color=dark),
    )
    order = ["worst of the three", "drops", "deviation", "UDP"]
    chart = (
        alt.layer(*layers)
        .properties(width=190, height=120)
        .facet(
            row=alt.Row("what:N", sort=order, title=None),
            column=alt.Column("share:N", sort=["share of the capacity"], title=None),
        )
        .configure(font="sans-serif", background="white")
    )
    return vl_convert.vegalite_to_svg(chart.to_dict()) + "\n"


def _table(found: list[tuple[Cell, dict[str, float]]], printed: tuple[float, float]) -> str:
    best = sorted(found, key=lambda each: max(each[1].values()))[:_SHOWN]
    default = next(
        each
        for each in found
        if (each[0].rate, each[0].share, each[0].cap) == ("3 s", "capacity", "any weight")
    )
    if default not in best:
        best.append(default)
    rows = [
        "| reading | drops over AVQRED's | deviation [kbit/s] | UDP of 80, 160, 320 kbit/s [kbit/s]"
        " | drops | deviation | UDP |",
        "| --- | --: | --: | --: | --: | --: | --: |",
    ]
    for cell, parts in best:
        name = f"{cell.name()}{' (the default)' if cell is default[0] else ''}"
        udp = ", ".join(number(each) for each in cell.udp)
        far = " | ".join(f"{parts[part]:.1f}" for part in ("drops", "deviation", "UDP"))
        rows.append(f"| {name} | {number(cell.drops)} | {number(cell.deviation)} | {udp} | {far} |")
    share = ", ".join([number(_SHARE)] * 3)
    rows.append(f"| print | {number(printed[0])} | {number(printed[1])} | about {share} | | | |")
    within = sum(max(parts.values()) <= 1 for _, parts in found)
    counted = [
        f"{sum(parts[part] <= 1 for _, parts in found)} within the tolerance of the {words}"
        for part, words in (("drops", "drops"), ("deviation", "deviation"), ("UDP", "UDP flows"))
    ]
    rows += ["", f"Of {len(found)} readings {', '.join(counted)}; {within} of all three."]
    return "\n".join(rows)


def renew(docs: Path, out: Path) -> None:
    """Simulate the runs missing in `out`, and write the page's generated part and its figure."""
    (made,) = reproduce(["byun2007"], out=out, only=EXPERIMENTS)
    printed = _printed()
    found = [(cell, distances(cell, printed)) for cell in cells(made)]
    (docs / "figures" / f"{FIGURE}.svg").write_text(_map(found), encoding="utf-8")
    page = docs / "reproduction" / PAGE
    text = with_generated(page.read_text(encoding="utf-8"), _table(found, printed), page)
    page.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    renew(*map(Path, sys.argv[1:]))
