"""States of AQMs and schedulers: label and unit of the columns of `series` with a dot in their name."""

from collections.abc import Collection
from dataclasses import dataclass

__all__ = ["State", "state_of", "states"]


@dataclass(frozen=True, slots=True)
class State:
    """A state variable."""

    label: str
    unit: str = ""
    factor: float = 1.0


_PACKETS, _BYTES = "packets", "kB"
STATES = {
    "avg": State("average queue", _PACKETS),
    "avgcq": State("average queue of a flow", _PACKETS),
    "p": State("marking probability", "%", 100),
    "max_p": State("largest probability of the ramp", "%", 100),
    "p_c": State("marking probability of classic packets", "%", 100),
    "p_cl": State("marking probability of L4S packets, coupled", "%", 100),
    "VQ": State("virtual queue", _PACKETS),
    "virtual_capacity": State("virtual capacity", "Mbit/s", 1e-6),
    "v_cap": State("virtual capacity", "Mbit/s", 1e-6),
    "rate": State("rate of a flow", "kbit/s", 1e-3),
    "qdelay": State("queueing delay, as estimated", "ms", 1e3),
    "burst_allowance": State("burst allowance", "ms", 1e3),
    "active": State("active flows", "flows"),
    "active_flows": State("active flows", "flows"),
    "new_flows": State("new flows", "flows"),
    "old_flows": State("old flows", "flows"),
    "open": State("open flows", "flows"),
    "l_packets": State("queue of L4S packets", _PACKETS),
    "c_packets": State("queue of classic packets", _PACKETS),
    "collisions": State("collisions of flows, so far"),
    "price": State("price"),
    "dropping": State("dropping: 1, else 0"),
}
"""Label, unit and factor of state variables; others are drawn by their name."""


def state_of(column: str, columns: Collection[str]) -> State | None:
    """Return the state in a column of the series with these `columns`; None if it holds no state.

    The virtual queues of AVQ and GKVQ count bytes.
    """
    owner, dot, name = column.rpartition(".")
    if not dot or owner.rpartition(".")[2] not in {"aqm", "scheduler"}:
        return None
    if name == "VQ" and f"{owner}.v_cap" not in columns:
        return State("virtual queue", _BYTES, 1e-3)
    return STATES.get(name, State(""))


def states(columns: Collection[str]) -> dict[str, tuple[str, str, float]]:
    """Return label, unit and factor of each of the `columns` that holds a state."""
    found = {column: state_of(column, columns) for column in columns}
    return {
        column: (state.label or column.rpartition(".")[2], state.unit, state.factor)
        for column, state in found.items()
        if state is not None
    }
