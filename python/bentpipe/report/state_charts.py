"""Figures of the state of AQMs and schedulers over time: the columns of `series` with a dot in their name."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bentpipe.report.decimate import as_float, bounds, decimate
from bentpipe.report.panels import Figure, Panel, ResultCharts, Width
from bentpipe.runs.result import Result

if TYPE_CHECKING:
    import polars as pl

__all__ = ["state_figures"]


@dataclass(frozen=True, slots=True)
class _State:
    label: str
    unit: str = ""
    factor: float = 1.0


_PACKETS, _BYTES = "packets", "kB"
_STATES = {
    "avg": _State("average queue", _PACKETS),
    "avgcq": _State("average queue of a flow", _PACKETS),
    "p": _State("marking probability", "%", 100),
    "max_p": _State("largest probability of the ramp", "%", 100),
    "p_c": _State("marking probability of classic packets", "%", 100),
    "p_cl": _State("marking probability of L4S packets, coupled", "%", 100),
    "VQ": _State("virtual queue", _PACKETS),
    "virtual_capacity": _State("virtual capacity", "Mbit/s", 1e-6),
    "v_cap": _State("virtual capacity", "Mbit/s", 1e-6),
    "rate": _State("rate of a flow", "kbit/s", 1e-3),
    "qdelay": _State("queueing delay, as estimated", "ms", 1e3),
    "burst_allowance": _State("burst allowance", "ms", 1e3),
    "active": _State("active flows", "flows"),
    "active_flows": _State("active flows", "flows"),
    "new_flows": _State("new flows", "flows"),
    "old_flows": _State("old flows", "flows"),
    "open": _State("open flows", "flows"),
    "l_packets": _State("queue of L4S packets", _PACKETS),
    "c_packets": _State("queue of classic packets", _PACKETS),
    "collisions": _State("collisions of flows, so far"),
    "price": _State("price"),
    "dropping": _State("dropping: 1, else 0"),
}
"""Label, unit and factor of state variables; others are drawn by their name."""


def state_figures(result: Result, width: Width = "container") -> list[Figure]:
    """Return the figure of all states that change, a panel for each; `width` as for `figures`."""
    charts = _StateCharts(result, width)
    found = charts.states()
    return [] if found is None else [found]


class _StateCharts(ResultCharts):
    def states(self) -> Figure | None:
        drawn: list[tuple[str, str, _State, pl.DataFrame]] = []
        for setting in self.settings:
            table = self.result.one("series", setting, self.seed)
            for column in table.columns:
                owner, dot, name = column.rpartition(".")
                if not dot or owner.rpartition(".")[2] not in {"aqm", "scheduler"}:
                    continue
                state = _state(name, owner, table.columns)
                series = self._series(setting, column, state.factor)
                if series is not None and series["value"].drop_nulls().n_unique() > 1:
                    drawn.append((setting, column, state, series))
        if not drawn:
            return None
        panels = []
        for number, (setting, column, state, series) in enumerate(drawn):
            small = decimate(series)
            low, high = bounds([small], [], from_zero=as_float(small["low"].min()) >= 0)
            panels.append(
                Panel(
                    self._curve(
                        small,
                        setting,
                        (0.0, self.duration),
                        (low, high),
                        state.unit or " ",
                        last=number >= len(drawn) - 2,
                        height=100,
                        width=self._half(),
                        note=f"{column}: {state.label}" if state.label else column,
                    ),
                    self._details((small, series)),
                )
            )
        return Figure(
            "states",
            "State of the algorithms over time",
            f"What each AQM or scheduler keeps, in {self._which_run}; each panel has its own scale. States"
            " that do not change are left out. The page of each algorithm defines them.",
            tuple(panels),
            columns=2,
        )


def _state(name: str, owner: str, columns: list[str]) -> _State:
    """Return the state of a column; the virtual queues of AVQ and GKVQ count bytes."""
    if name == "VQ" and f"{owner}.v_cap" not in columns:
        return _State("virtual queue", _BYTES, 1e-3)
    return _STATES.get(name, _State(""))
