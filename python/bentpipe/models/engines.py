"""Comparison of engines: quantities, their moments, and each engine's `Account` of a scenario.

An engine is the simulator, a model or the live gateway. Its account gives means and standard deviations over
time for each setting, and time series if it has them. The first account is the reference of the comparison.
This module does not depend on any engine.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import polars as pl

from bentpipe.format import brief, convert, spread
from bentpipe.stats.intervals import summarise

__all__ = ["LOSS", "QUANTITIES", "Account", "Moments", "Quantity", "compared", "moments", "quantities"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity that models and simulations both give, as a column of their time series."""

    name: str
    """Name in tables and files."""
    column: str
    """Column of the time series."""
    label: str
    unit: str
    factor: float
    """Factor from the column's unit to `unit`."""
    weight: str | None = None
    """Column of the weights for a mean over packets; the standard deviation is over time."""


QUANTITIES: tuple[Quantity, ...] = (
    Quantity("throughput", "throughput", "Throughput", "Mbit/s", 1e-6),
    Quantity("offered_load", "offered_load", "Offered load", "Mbit/s", 1e-6),
    Quantity("queue", "transmit_queue", "Queue", "packets", 1.0),
    Quantity("queue_delay", "queue_delay", "Queueing delay", "ms", 1e3, "throughput"),
    Quantity("mark_probability", "mark_probability", "Mark probability", "%", 100.0, "offered_load"),
    Quantity("loss_rate", "loss_rate", "Loss rate", "%", 100.0, "offered_load"),
)


LOSS = "loss_rate."
"""Prefix of the loss rate of one class of traffic; the class's name follows."""

METRICS: dict[str, tuple[str, str | None]] = {
    "throughput": ("throughput", "throughput_std"),
    "offered_load": ("offered_load", None),
    "queue": ("queue_mean", "queue_std"),
    "queue_delay": ("queue_delay_mean", None),
    "mark_probability": ("mark_rate", None),
    "loss_rate": ("loss_rate", None),
}
"""Metrics whose printed values correspond to a quantity's mean and standard deviation."""


@dataclass(frozen=True, slots=True)
class Moments:
    """Mean and standard deviation over time of a quantity in one run, in its unit; `None` if unknown."""

    mean: float | None
    std: float | None


@dataclass(frozen=True)
class Account:
    """Results of one engine for a scenario."""

    engine: str
    """Name in tables and files: `simulator`, `model`, `live`."""
    title: str
    """Short description of the engine."""
    moments: Mapping[str, Mapping[str, Sequence[Moments]]]
    """Moments by setting and quantity, one entry per run."""
    series: Mapping[str, pl.DataFrame]
    """The first run's time series by setting, in the columns of a simulation's; may be empty."""


def moments(table: pl.DataFrame, quantity: Quantity) -> tuple[float | None, float | None]:
    """Return mean and standard deviation of a quantity over the samples of a time series; `None` without."""
    if quantity.column not in table.columns:
        return None, None
    value = pl.col(quantity.column).cast(pl.Float64).fill_nan(None) * quantity.factor
    known = table.with_columns(value.alias(quantity.column)).drop_nulls(quantity.column)
    column = known[quantity.column]
    mean, std = column.mean(), column.std()
    if quantity.weight is not None and quantity.weight in known.columns:
        weight = known[quantity.weight]
        # Samples without packets have weight zero.
        total = float(weight.sum())
        mean = float((column * weight).sum()) / total if total else None
    finite = [float(x) if isinstance(x, float | int) and math.isfinite(x) else None for x in (mean, std)]
    return finite[0], finite[1]


def with_spread(found: Mapping[str, Any]) -> str:
    """Write an engine's mean with its standard deviation; a dash for None."""
    if found["mean"] is None:
        return "–"
    return brief(found["mean"], 4) + (f" ± {spread(found)}" if found["std"] is not None else "")


def quantities(table: pl.DataFrame) -> list[Quantity]:
    """Return the quantities that a time series holds, the AQM's state variables last."""
    columns = table.columns
    known = [each for each in QUANTITIES if each.column in columns]
    return known + [Quantity(name, name, name, "", 1.0) for name in columns if name.startswith("aqm.")]


def compared(
    accounts: Sequence[Account], settings: Sequence[str], printed: Sequence[Mapping[str, Any]] = ()
) -> list[dict[str, Any]]:
    """Return a row for each setting and each quantity that at least two accounts give.

    A row has `setting`, `quantity`, `label`, `unit`, `printed` (values printed by the scenario's source:
    `mean`, `std`, `source`, `calibrated`; or None), and a table per engine: `mean` over the runs, `ci95`
    (half-width of its 95 % interval, None below two runs), `std` (over time, mean over the runs) and `runs`.
    Engines after the first also have `difference`, of their mean from the first engine's [%], and
    `difference_ci95`, its half-width due to the first engine's interval. Unknown values are None.
    """
    rows = []
    for setting in settings:
        for quantity in _known(accounts, setting):
            row: dict[str, Any] = {
                "setting": setting,
                "quantity": quantity.name,
                "label": quantity.label,
                "unit": quantity.unit,
                "printed": _printed(printed, setting, quantity),
            }
            for account in accounts:
                row[account.engine] = _entry(account.moments[setting].get(quantity.name, ()))
            first = row[accounts[0].engine]
            for account in accounts[1:]:
                row[account.engine] |= _difference(row[account.engine]["mean"], first)
            rows.append(row)
    return rows


def _known(accounts: Sequence[Account], setting: str) -> list[Quantity]:
    """Return the quantities whose mean at least two accounts give."""
    fixed = {each.name: each for each in QUANTITIES}
    names = dict.fromkeys([*fixed, *(name for account in accounts for name in account.moments[setting])])
    return [
        fixed.get(name) or _other(name)
        for name in names
        if sum(any(m.mean is not None for m in a.moments[setting].get(name, ())) for a in accounts) > 1
    ]


def _other(name: str) -> Quantity:
    if name.startswith(LOSS):
        return Quantity(name, name, f"Loss rate, {name.removeprefix(LOSS)}", "%", 1.0)
    return Quantity(name, name, name, "", 1.0)


def _entry(runs: Sequence[Moments]) -> dict[str, Any]:
    mean, std = summarise([run.mean for run in runs]), summarise([run.std for run in runs])
    return {"mean": mean.mean, "ci95": mean.ci95, "std": std.mean, "runs": mean.runs}


def _difference(mean: float | None, first: Mapping[str, Any]) -> dict[str, Any]:
    base, ci95 = first["mean"], first["ci95"]
    if mean is None or not base:
        return {"difference": None, "difference_ci95": None}
    half = None if ci95 is None else 100 * abs(mean / base) * ci95 / abs(base)
    return {"difference": 100 * (mean - base) / base, "difference_ci95": half}


def _printed(rows: Sequence[Mapping[str, Any]], setting: str, quantity: Quantity) -> dict[str, Any] | None:
    names = METRICS.get(quantity.name)
    if names is None:
        return None
    found: dict[str, Any] = {"mean": None, "std": None, "source": "", "calibrated": False}
    for row in rows:
        if row["setting"] != setting or row["metric"] not in names:
            continue
        given = {"mean" if row["metric"] == names[0] else "std": row["value"]}
        if row["std"] is not None and row["metric"] == names[0]:
            given["std"] = row["std"]
        for key, value in given.items():
            found[key] = convert(float(value), row["unit"], quantity.unit)
        found["source"] = row["source"]
        found["calibrated"] |= bool(row["calibrated"])
    return found if found["mean"] is not None or found["std"] is not None else None
