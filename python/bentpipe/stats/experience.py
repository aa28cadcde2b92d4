"""Experience of the users behind each terminal, by class of traffic: opinions, page load times and stalls."""

import math
from collections.abc import Callable, Mapping

import polars as pl

from bentpipe.qoe.thresholds import Threshold, of_scenario
from bentpipe.stats.opinions import opinions, viewings
from bentpipe.stats.recorded import Recorded, quantile

__all__ = ["EXPERIENCE", "GRADED", "bad_terminals", "experience", "graded_by", "over_terminals"]

GRADED: Mapping[str, tuple[str, str]] = {
    "voip": ("mos", "voice.mos"),
    "dash": ("mos", "video.mos"),
    "pages": ("page_time_p75", "page.load"),
    "rendered pages": ("page_time_p75", "page.load"),
}
"""Column of `experience`, a metric of classes too, and measure of each kind of traffic; the first decides."""

EXPERIENCE = {
    "terminal": pl.String,
    "mos": pl.Float64,
    "page_time_p75": pl.Float64,
    "stalled": pl.Float64,
    "grade": pl.String,
}
"""Columns of `experience`."""
_NONE = pl.DataFrame(schema=EXPERIENCE)


def graded_by(run: Recorded, traffic_class: str) -> tuple[str, Threshold] | None:
    """Return the column of `experience` that grades a class, and its limits; None if none does."""
    kinds = {kind for _, of, kind in run.traffic if of == traffic_class}
    found = next((GRADED[kind] for kind in GRADED if kind in kinds), None)
    return None if found is None else (found[0], of_scenario(run.limits)[found[1]])


def experience(run: Recorded, traffic_class: str) -> pl.DataFrame:
    """Return a row for each terminal with calls, viewings or pages of a class; none with a single terminal.

    Columns: `terminal`; `mos`, the mean of its calls and viewings; `page_time_p75` [s], where a failed page
    takes for ever; `stalled`, time as a share of the time played [%]; `grade`. Null where it has no such
    traffic. Viewings shorter than a second and pages still loading at the end do not count.
    """
    found = run.experience.get(traffic_class)
    if found is None:
        found = run.experience[traffic_class] = _experience(run, traffic_class)
    return found


def _experience(run: Recorded, traffic_class: str) -> pl.DataFrame:
    graded = graded_by(run, traffic_class)
    if graded is None or "terminal" not in run.flows.columns:
        return _NONE
    stalled, played = pl.col("stalled").sum(), pl.col("played_time").sum()
    parts = [
        opinions(run, traffic_class).group_by("terminal").agg(pl.col("mos").mean()),
        viewings(run, traffic_class)
        .with_columns(pl.col("terminal").cast(pl.String))
        .group_by("terminal")
        .agg(pl.when(played > 0).then(100 * stalled / played).alias("stalled")),
        _page_times(run, traffic_class),
    ]
    known = pl.concat([part.select("terminal") for part in parts]).drop_nulls().unique().sort("terminal")
    for part in parts:
        known = known.join(part, on="terminal", how="left", maintain_order="left")
    column, limits = graded
    grades = [None if value is None else limits.grade(value) for value in known[column]]
    return known.with_columns(pl.Series("grade", grades, dtype=pl.String)).select(*EXPERIENCE)


def _page_times(run: Recorded, traffic_class: str) -> pl.DataFrame:
    """Return the 75th percentile of the page load time of each terminal; infinite if it is a failed page."""
    if run.pages is None:
        return pl.DataFrame(schema={"terminal": pl.String, "page_time_p75": pl.Float64})
    taken = pl.col("load_time").fill_null(math.inf)
    return (
        run.pages.filter(pl.col("class").cast(pl.String) == traffic_class)
        .group_by(pl.col("terminal").cast(pl.String))
        # Between two failed pages the interpolation has no value.
        .agg(taken.quantile(0.75, interpolation="linear").fill_nan(math.inf).alias("page_time_p75"))
    )


def bad_terminals(run: Recorded, traffic_class: str) -> float | None:
    """Return the share of the terminals with a grade in a class whose grade is bad [%]; None without any."""
    grades = _column(run, traffic_class, "grade")
    return 100 * grades.to_list().count("bad") / len(grades) if len(grades) else None


def over_terminals(column: str, share: float) -> Callable[[Recorded, str], float | None]:
    """Return the function that computes a quantile of a column of `experience` over the terminals."""
    return lambda run, traffic_class: quantile(_column(run, traffic_class, column), share)


def _column(run: Recorded, traffic_class: str, column: str) -> pl.Series:
    found = experience(run, traffic_class)[column]
    # An empty column needs no query of polars.
    return found.drop_nulls() if len(found) else found
