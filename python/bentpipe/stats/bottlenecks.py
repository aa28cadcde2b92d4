"""The resources that limit each class of traffic, and their shares of the time of its flows."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from bentpipe.stats.recorded import Traffic

__all__ = ["Limited", "limits"]

_LINK = "link"


class Counted(Protocol):
    """A result with counters of classes, as `bentpipe.Result`."""

    @property
    def traffic(self) -> Traffic:
        """Name, class and kind of each traffic entry."""

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs."""

    def counters_of(self, setting: str, seed: int) -> Mapping[str, float | None]:
        """Return the counters of one run."""


@dataclass(frozen=True, slots=True)
class Limited:
    """A class under one setting."""

    traffic_class: str
    shares: Mapping[str, float]
    """Share of the time of its flows by resource, the largest first [%]; `link.NAME` for a link."""

    def text(self) -> str:
        """Write the resources with a tenth of the time or more, as `carrier 80 %, link access 15 %`."""
        named = {
            name: f"link {name.partition('.')[2]}" if name.startswith(f"{_LINK}.") else name.replace("_", " ")
            for name in self.shares
        }
        return ", ".join(f"{named[name]} {share:.0f} %" for name, share in self.shares.items() if share >= 10)


def limits(result: Counted, setting: str) -> list[Limited]:
    """Return what limits each class with TCP or QUIC flows under a setting, over all runs."""
    found = []
    counters = [result.counters_of(setting, seed) for seed in result.seeds]
    for traffic_class in dict.fromkeys(each[1] for each in result.traffic):
        start = f"{traffic_class}.limited_by_"
        samples = sum(run.get(f"{traffic_class}.limited_samples") or 0 for run in counters)
        if not samples:
            continue
        total: dict[str, float] = {}
        for run in counters:
            for name, value in run.items():
                if name.startswith(start) and name != start + _LINK:
                    total[name.removeprefix(start)] = total.get(name.removeprefix(start), 0) + (value or 0)
        order = sorted(total, key=lambda name: -total[name])
        found.append(Limited(traffic_class, {name: 100 * total[name] / samples for name in order}))
    return found
