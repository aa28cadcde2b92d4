"""Check of the warm-up: MSER-5 on the main time series of a result's runs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import polars as pl

from bentpipe.format import brief, number
from bentpipe.stats.steady import settling

__all__ = ["QUANTITIES", "SCHEMA", "Warmup", "detected", "warmup_warnings"]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A time series that is checked."""

    series: str
    label: str
    unit: str
    factor: float


QUANTITIES = (
    Quantity("throughput", "rate sent on the link", "Mbit/s", 1e-6),
    Quantity("transmit_queue", "transmit queue", "packets", 1),
    Quantity("pep_buffers", "PEP buffers", "kB", 1e-3),
)

SCHEMA = {
    **dict.fromkeys(("setting", "series", "unit"), pl.String),
    **dict.fromkeys(("discarded", "detected", "mean_before", "mean_after"), pl.Float64),
    "clear": pl.Boolean,
    "runs": pl.UInt32,
}


@dataclass(frozen=True, slots=True)
class Warmup:
    """Settling time of one quantity under one setting."""

    setting: str
    quantity: Quantity
    discarded: float
    """Warm-up of the scenario [s]."""
    detected: float | None
    """Warm-up by MSER-5, from the start of the run [s]: median over the runs, at least `discarded`, as only
    the measured time is examined. None if most runs do not settle."""
    before: float | None
    """Mean over the measured time that MSER-5 would discard, in the quantity's unit; None if that is
    empty."""
    after: float | None
    """Mean over the remaining time."""
    clear: bool
    """True if these means differ significantly."""
    runs: int

    def row(self) -> dict[str, object]:
        """Return the fields as a dictionary, ready for JSON."""
        return {
            "setting": self.setting,
            "series": self.quantity.series,
            "unit": self.quantity.unit,
            "discarded": self.discarded,
            "detected": self.detected,
            "mean_before": self.before,
            "mean_after": self.after,
            "clear": self.clear,
            "runs": self.runs,
        }


def detected(
    settings: Sequence[str],
    seeds: Sequence[int],
    read: Callable[[str, int], pl.DataFrame],
    scenario: Mapping[str, float],
) -> list[Warmup]:
    """Check the main series of every setting; `read` returns the series of a setting and a seed.

    `scenario` holds `warmup` and `sample_interval` [s].
    """
    discarded, interval = scenario["warmup"], scenario["sample_interval"]
    found = []
    for setting in settings:
        tables = [read(setting, seed) for seed in seeds]
        for quantity in QUANTITIES:
            if quantity.series not in tables[0].columns:
                continue
            columns = [table[quantity.series].cast(pl.Float64).fill_nan(None) for table in tables]
            runs = [(column.drop_nulls() * quantity.factor).to_list() for column in columns]
            what = settling(runs)
            end = None if what.samples is None else round(discarded + what.samples * interval, 9)
            found.append(
                Warmup(setting, quantity, discarded, end, what.before, what.after, what.clear, len(runs))
            )
    return found


def warmup_warnings(found: Sequence[Warmup]) -> list[str]:
    """Return a line on settings that settled after the warm-up, and one on those that did not settle."""
    late = [each for each in found if each.clear and each.detected is not None]
    never = [each for each in found if each.clear and each.detected is None]
    lines = []
    if late:
        parts = _by_setting(
            late,
            lambda each: (
                f"{each.quantity.label} from {brief(each.detected or 0.0)} s on ({number(each.before)}"
                f" {each.quantity.unit} before, {number(each.after)} since)"
            ),
        )
        end = brief(max(each.detected or 0.0 for each in late))
        lines.append(
            f"A warm-up of {brief(late[0].discarded)} s is too short; settled by MSER-5: {parts}. Set"
            f" run.warmup to {end} s."
        )
    if never:
        parts = _by_setting(never, lambda each: each.quantity.label)
        lines.append(
            f"Not settled within the first half of the measured time by MSER-5: {parts}. Set a longer"
            " run.duration."
        )
    return lines


def _by_setting(found: Sequence[Warmup], text: Callable[[Warmup], str]) -> str:
    """Write `red: rate, queue; avq: rate`."""
    settings = dict.fromkeys(each.setting for each in found)
    return "; ".join(
        f"{name}: {', '.join(text(each) for each in found if each.setting == name)}" for name in settings
    )
