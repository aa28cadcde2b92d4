"""Tables of quantities that both engines have, live and simulated."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from bentpipe.format import quantity
from bentpipe.stats.intervals import summarise
from blocks import table

__all__ = ["Compared", "compared", "verdict"]


@dataclass(frozen=True, slots=True)
class Compared:
    """A quantity of both engines, a value for each run."""

    name: str
    simulated: Sequence[float]
    live: Sequence[float]
    band: float | None

    @property
    def difference(self) -> float | None:
        """Difference of the medians [%]; None without values, or if the simulated one is zero."""
        if not (self.simulated and self.live):
            return None
        before = median(self.simulated)
        return 100 * (median(self.live) / before - 1) if before else None


def verdict(each: Compared) -> str:
    """Return `met` or `missed`; empty without a band."""
    if each.band is None or each.difference is None:
        return ""
    return "met" if abs(each.difference) <= each.band else "**missed**"


def compared(rows: Sequence[Compared]) -> str:
    """Return the table of quantities with their differences and verdicts."""
    cells = []
    for each in rows:
        expected = summarise(list(each.simulated))
        ends = (min(each.live), max(each.live)) if each.live else ()
        spread = " – ".join(dict.fromkeys(quantity(end, None) for end in ends))
        shown = "" if each.difference is None else f"{each.difference:+.1f} %"
        band = "" if each.band is None else f"± {each.band:g}"
        mean = quantity(expected.mean, expected.ci95)
        cells.append([each.name, mean, spread, shown, band, verdict(each)])
    return table(["", "simulated", "live", "difference of medians", "band [%]", ""], cells)
