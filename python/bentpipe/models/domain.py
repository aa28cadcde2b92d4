"""Measured domain of the fluid equations: from which window on they agree with the simulator."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from bentpipe.format import and_list, brief

__all__ = [
    "DOMAIN",
    "LABELS",
    "LIMITS",
    "WARNED",
    "background_of",
    "domain_of",
    "domain_warnings",
    "is_outside",
    "key_of",
    "limit_text",
    "window_of",
]

DOMAIN = Path(__file__).with_name("domain.json")
"""Least windows for each place, set of equations and quantity; `tools/model_domain.py` writes it."""
LIMITS = {"offered_load": 1.1, "throughput": 1.1, "loss_rate": 2.0, "queue": 2.0}
"""Factor by which a model's value may be off the simulator's inside the domain, by quantity."""
WARNED = ("offered_load", "throughput", "loss_rate")
"""Quantities that warnings are about.

The queue depends on the AQM: that of AVQRED's equations at rest is empty.
"""
LABELS = {
    "offered_load": "offered load",
    "throughput": "throughput",
    "loss_rate": "loss rate",
    "queue": "queue",
}
_LATE = ("timeouts", "padhye")
"""Equations whose default on a gateway is feedback after a round trip; `NO_DELAY` marks those without."""
NO_DELAY = ", no delay"

Borders = Mapping[str, float | None]
"""Least window of the domain by quantity [segments]; `None` if a quantity is outside at all windows."""


@cache
def _read() -> dict[str, dict[str, dict[str, float | None]]]:
    found: dict[str, dict[str, dict[str, float | None]]] = json.loads(DOMAIN.read_text(encoding="utf-8"))
    return found


def key_of(setting: Mapping[str, Any]) -> tuple[str, str]:
    """Return place and name of the equations of a setting, an entry of the manifest of a model's result."""
    keys = {str(row["key"]): str(row["value"]).strip('"') for row in setting["effective"]}
    # A gateway that splits no connections is a queue on the senders' path.
    unsplit = any(key.endswith(".pep.split") and value == "[]" for key, value in keys.items())
    place = "gateway" if any(key.startswith("gateway.") for key in keys) and not unsplit else "link"
    name = str(setting["equations"])
    is_default = place == "link" or name not in _LATE or keys.get("model.feedback") != "none"
    return place, name if is_default else f"{name}{NO_DELAY}"


def background_of(setting: Mapping[str, Any]) -> float:
    """Return the rate of the datagrams beside the connections [bit/s]."""
    return sum(float(each["value"]) for each in setting["inputs"] if each.get("unit") == "bit/s")


def window_of(setting: Mapping[str, Any]) -> float:
    """Return the segments in flight per connection while all connections fill the link beside datagrams.

    The link has its minimum capacity, without outages.
    """
    of = {each["symbol"]: each["value"] for each in setting["inputs"]}
    capacities = [float(each["value"]) for each in setting["inputs"] if each["symbol"] == "μ"]
    capacity = min([each for each in capacities if each > 0], default=0.0)
    datagrams = background_of(setting)
    if datagrams > 0:
        capacity = max(capacity - datagrams / (8 * of["P"]), 0.0)
    return float(capacity * of["R"] / of["m"])


def domain_of(place: str, name: str) -> Borders | None:
    """Return the borders of a set of equations; `None` if they were not measured at the place."""
    return _read().get(place, {}).get(name)


def is_outside(borders: Borders, quantity: str, window: float) -> bool:
    """Return True if a quantity is outside the domain at a window [segments]."""
    border = borders[quantity]
    return border is None or window < border


def domain_warnings(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return a sentence for the settings outside the domain of their equations, grouped by the quantities.

    `settings` are those of the manifest of a model's result; each says which quantities are more than their
    limit off the simulator's, and which equations are not.
    """
    groups: dict[tuple[str, str, tuple[str, ...]], list[Mapping[str, Any]]] = {}
    for setting in settings:
        place, name = key_of(setting)
        borders = domain_of(place, name)
        if borders is None:
            continue
        out = tuple(each for each in WARNED if is_outside(borders, each, window_of(setting)))
        if out:
            groups.setdefault((place, name, out), []).append(setting)
    return [_sentence(*key, group) for key, group in groups.items()]


def _sentence(place: str, name: str, out: tuple[str, ...], settings: Sequence[Mapping[str, Any]]) -> str:
    window = min(map(window_of, settings))
    borders = domain_of(place, name) or {}
    parts = [
        f"{LABELS[each]} by more than {limit_text(each)}"
        + ("" if borders[each] is None else f" (below {brief(borders[each] or 0.0, 2)} segments)")
        for each in out
    ]
    better = [
        other
        for other, theirs in _read()[place].items()
        if other != name and not any(is_outside(theirs, each, window) for each in out)
    ]
    return (
        f"Under {and_list(each['name'] for each in settings)} a connection has {brief(window, 2)} segments"
        f" in flight at the link's capacity. There the equations {name.removesuffix(NO_DELAY)} differ from"
        f" the simulator in {and_list(parts)}, as measured over a grid (docs/models-domain.md)."
        + (f" Use instead: {_options(better)}." if better else " Compare with bentpipe validate.")
    )


def limit_text(quantity: str) -> str:
    """Return the limit of a quantity in words."""
    limit = LIMITS[quantity]
    return f"{100 * (limit - 1):.0f} %" if limit < 2 else f"a factor of {limit:g}"


def _options(names: Sequence[str]) -> str:
    found = []
    for name in names:
        late = " --set model.feedback=none" if name.endswith(NO_DELAY) else ""
        found.append(f"--set model.equations={name.removesuffix(NO_DELAY)}{late}")
    return "; ".join(found)
