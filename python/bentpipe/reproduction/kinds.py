"""What each kind of figure needs to know beside its experiment, its cases and its measures."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bentpipe.models.engines import QUANTITIES as BOTH
from bentpipe.reproduction.table import Table

__all__ = [
    "COMPARED",
    "FIRST_RUN",
    "MEASURED",
    "OPTIONS",
    "PICTURES",
    "QUANTITIES",
    "WITHOUT_RUNS",
    "Quantity",
]


@dataclass(frozen=True, slots=True)
class Quantity:
    """A column of a run's series, as figures show it."""

    label: str
    unit: str
    factor: float = 1.0
    from_zero: bool = True


QUANTITIES: Mapping[str, Quantity] = {
    "transmit_queue": Quantity("transmit queue", "packets"),
    "throughput": Quantity("rate on the satellite", "Mbit/s", 1e-6, from_zero=False),
    "arrival_rate": Quantity("rate arriving at the gateway", "Mbit/s", 1e-6, from_zero=False),
    "mark_probability": Quantity("marked share of the packets", "%", 100.0),
    "queue_delay": Quantity("queueing delay", "ms", 1e3),
}
"""By the column's name in docs/results.md."""


def _span(given: Table) -> tuple[float, ...]:
    """Return two times [s], or none."""
    span = given.numbers("span") if "span" in given else []
    if span and not (len(span) == 2 and 0 <= span[0] < span[1]):
        raise given.wrong("span", span, "two times [s], the first the lesser")
    return tuple(span)


def _series_options(given: Table) -> dict[str, Any]:
    return {
        "quantity": given.choice("quantity", QUANTITIES),
        "span": _span(given),
        "columns": given.whole("columns", 1),
        "order": given.choice("order", ["rows", "columns"], "rows"),
        "points": given.texts("points", []),
    }


def _flow_options(given: Table) -> dict[str, Any]:
    return {
        "traffic": given.texts("traffic"),
        "lines": given.texts("lines", []),
        "count": given.whole("count"),
        "columns": given.whole("columns", 1),
    }


def _model_options(given: Table) -> dict[str, Any]:
    known = [each.name for each in BOTH]
    quantities = given.texts("quantities")
    for each in quantities or [""]:
        if each not in known:
            raise given.wrong("quantities", each, ", ".join(known))
    return {"quantities": quantities, "span": _span(given)}


def _cut_options(given: Table) -> dict[str, Any]:
    decr = given.numbers("decr")
    for each in decr:
        if not 0 < each < 1:
            raise given.wrong("decr", each, "above 0 and below 1")
    return {
        "limit": given.take("limit_bytes", float),
        "window": given.take("window_bytes", float),
        "decr": decr,
    }


OPTIONS: Mapping[str, Callable[[Table], dict[str, Any]]] = {
    "series": _series_options,
    "first drops": lambda given: {"count": given.whole("count")},
    "flow throughput": _flow_options,
    "bars": lambda given: {"marks": given.numbers("marks") if "marks" in given else []},
    "cuts": _cut_options,
    "models": _model_options,
}
"""What reads the keys that a kind of figure has beside those of all."""

MEASURED = ("curves", "change", "course", "bars")
"""Kinds of figures that show measures."""

COMPARED = ("change", "gains")
"""Kinds of figures that show cases beside others."""

FIRST_RUN = ("series", "first drops", "flow throughput")
"""Kinds of figures that show the first run of each case."""

WITHOUT_RUNS = ("cuts",)
"""Kinds of figures of laws, which need no experiment."""

PICTURES = tuple(dict.fromkeys((*MEASURED, *COMPARED, *OPTIONS)))
"""All kinds."""
