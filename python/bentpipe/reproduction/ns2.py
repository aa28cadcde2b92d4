"""Comparison of the simulator with published figures of ns-2 for the same experiments.

Two kinds of experiments: ten sessions over 1 Mbit/s (after Jain & Modiano 2004, section III) and fifty flows
over 20 Mbit/s. A table holds an experiment's figures in one or several rows; its columns define the set-up,
so tables with other buffers, windows, round trips or transports are checked in the same way.
"""

import csv
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import polars as pl

from bentpipe._core import Progress, Run, Scenario, simulate
from bentpipe.errors import UsageError
from bentpipe.runs.experiment import checked_jobs
from bentpipe.runs.progress import OnProgress

__all__ = ["Cell", "Experiment", "experiments", "shipped", "verify"]

SEEDS = 5

_ROUNDING = 1e-9
"""Difference that is a rounding error: ns-2 gives an empty queue a mean of 1e-16 packets."""

_FOLDER = Path(__file__).parents[1] / "data/truth"


@dataclass(frozen=True, slots=True)
class Target:
    """A figure of ns-2 with its tolerance."""

    metric: str
    unit: str
    mean: float
    std: float
    relative: float
    """Allowed difference as a share of `mean`."""
    deviations: float
    """Allowed difference in standard deviations `std`; the larger of the two counts."""
    required: bool
    """True if it must be met; figures that are artefacts of ns-2 are only compared."""

    @property
    def tolerance(self) -> float:
        """Allowed difference, in `unit`."""
        return max(self.relative * abs(self.mean), self.deviations * self.std, _ROUNDING)


@dataclass(frozen=True, slots=True)
class Experiment:
    """One set-up with its target figures."""

    name: str
    scenario: str
    """Text of the scenario file."""
    targets: tuple[Target, ...]
    measure: Callable[[Run], Mapping[str, float]]
    """Computes a run's figures, by metric."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A figure of ns-2 with ours."""

    experiment: str
    target: Target
    values: tuple[float, ...]
    """Ours, one per seed."""

    @property
    def mean(self) -> float:
        """Our mean over the seeds."""
        return fmean(self.values)

    @property
    def std(self) -> float:
        """Our sample standard deviation over the seeds; zero for a single seed."""
        return stdev(self.values) if len(self.values) > 1 else 0.0

    @property
    def difference(self) -> float:
        """Our mean minus ns-2's."""
        return self.mean - self.target.mean

    @property
    def passed(self) -> bool:
        """True if the difference is within the tolerance."""
        return abs(self.difference) <= self.target.tolerance

    @property
    def verdict(self) -> str:
        """`pass` or `fail`; `differs` if the figure is not required."""
        if self.passed:
            return "pass"
        return "fail" if self.target.required else "differs"

    def row(self) -> dict[str, Any]:
        """Return the cell as a JSON object."""
        return {
            "experiment": self.experiment,
            "metric": self.target.metric,
            "unit": self.target.unit,
            "theirs_mean": self.target.mean,
            "theirs_std": self.target.std,
            "ours_mean": self.mean,
            "ours_std": self.std,
            "seeds": len(self.values),
            "difference": self.difference,
            "tolerance": self.target.tolerance,
            "required": self.target.required,
            "verdict": self.verdict,
        }


def shipped() -> list[Path]:
    """Return the shipped tables of ns-2.35."""
    return sorted(_FOLDER.glob("*.csv"))


def experiments(table: Path) -> list[Experiment]:
    """Read a table of either kind; raises `UsageError` for a wrong one."""
    try:
        with table.open(newline="", encoding="utf-8") as file:
            reader = csv.DictReader(file)
            columns = set(reader.fieldnames or ())
            rows = list(reader)
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"{table}: {reason}") from None
    for kind in (_TEN, _DUMBBELL):
        if set(kind.key) <= columns:
            missing = sorted(set(kind.columns) - columns)
            if missing:
                raise UsageError(f"{table}:1: no column {missing[0]!r}; needed: {', '.join(kind.columns)}")
            if not rows:
                raise UsageError(f"{table}: no row below the headings; at least one experiment is needed")
            return list(_grouped(table, kind, rows))
    needed = " or ".join(", ".join(kind.key) for kind in (_TEN, _DUMBBELL))
    raise UsageError(f"{table}:1: unknown kind of table; needed: the columns {needed}")


def _grouped(table: Path, kind: "_Kind", rows: Sequence[Mapping[str, str | None]]) -> Iterator[Experiment]:
    groups: dict[tuple[str, ...], list[_Row]] = {}
    for number, cells in enumerate(rows, start=2):
        row = _Row(f"{table}:{number}", cells)
        groups.setdefault(tuple(row.text(key) for key in kind.key), []).append(row)
    for group in groups.values():
        yield kind.build(group)


class _Row:
    """A row of a table, with its location for messages."""

    def __init__(self, location: str, cells: Mapping[str, str | None]) -> None:
        self.location = location
        self._cells = cells

    def text(self, column: str, allowed: Iterable[str] = ()) -> str:
        value = self._cells.get(column)
        if value is None or not value.strip():
            raise UsageError(f"{self.location}: {column}: missing")
        choices = list(allowed)
        if choices and value not in choices:
            raise UsageError(f"{self.location}: {column}: found {value!r}; allowed: {', '.join(choices)}")
        return value

    def number(self, column: str, least: float = 0.0) -> float:
        text = self.text(column)
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not (math.isfinite(value) and value >= least):
            raise UsageError(
                f"{self.location}: {column}: found {text!r}; allowed: a number, at least {least:g}"
            )
        return value

    def whole(self, column: str, least: int = 1) -> int:
        value = self.number(column, least)
        if value != int(value):
            raise UsageError(f"{self.location}: {column}: found {value:g}; allowed: a whole number")
        return int(value)


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of table: the columns that identify an experiment, all required columns, and the set-up."""

    key: tuple[str, ...]
    columns: tuple[str, ...]
    build: Callable[[Sequence[_Row]], Experiment]


SEGMENT = 1040
"""Length of a data packet on every link [bytes], of which 1000 are payload."""

_TRANSPORTS = {
    "Reno": 'algorithm = "reno"',
    "Newreno": 'algorithm = "newreno"',
    "Sack1": 'algorithm = "newreno"\nsack = true\nprr = false',
}
_VARIANTS = {
    # Side of the loss relative to the bottleneck, and further transport parameters.
    "base": ("before", ""),
    "loss_after_bottleneck": ("after", ""),
    "minrto_1s": ("before", 'min_rto = "1 s"'),
    "overhead_8.32ms": ("before", 'overhead = "8.32 ms"'),
    "rttlow_10ms": ("before", ""),
    "era": ("after", 'min_rto = "1 s"\nclock_granularity = "100 ms"\nlimited_transmit = false'),
}


class _Sessions(NamedTuple):
    """Sessions with the same round trip and loss."""

    names: tuple[str, ...]
    """Names of the class in tables."""
    sessions: int
    rtt: float
    """Round-trip time without serialization [s]."""
    loss: float
    """Probability that a data packet is lost."""


_CASES = {
    "a": (_Sessions(("lossy10pct",), 1, 0.5, 0.10), _Sessions(("lossless",), 9, 0.5, 0.0)),
    "b": (_Sessions(("lossy1pct",), 1, 0.5, 0.01), _Sessions(("lossless",), 9, 0.5, 0.0)),
    "c": (_Sessions(("rtt1000ms",), 1, 1.0, 0.0), _Sessions(("rtt500ms",), 9, 0.5, 0.0)),
    "d": (_Sessions(("rtt500ms",), 5, 0.5, 0.0), _Sessions(("rtt20ms", "rttlow"), 5, 0.02, 0.0)),
}
_AGGREGATE = "aggregate"
"""Name of all ten sessions in tables."""


def _ten_sessions(rows: Sequence[_Row]) -> Experiment:
    first = rows[0]
    case, variant = first.text("case", _CASES), first.text("variant", _VARIANTS)
    queue = first.text("queue", ("DropTail", "RED", "DRR"))
    tcp, buffer = first.text("tcp", _TRANSPORTS), first.whole("buffer_pkts", 4)
    window = first.whole("max_window", 2)
    classes = list(_CASES[case])
    if variant == "rttlow_10ms":
        classes[1] = classes[1]._replace(rtt=0.01)
    where, extra = _VARIANTS[variant]
    parts = [
        _head(f"Ten sessions, case {case}, {variant}", warmup=0, duration=2000),
        _transport(tcp, window, extra),
        _link("bottleneck", "r1", "r2", "1 Mbps", 0.001, queue=_queue(queue, buffer)),
    ]
    for name, (_, count, rtt, loss) in zip(_CLASSES, classes, strict=True):
        access = rtt / 2 - 0.002
        losses = {side: loss if side == where else 0.0 for side in ("before", "after")}
        parts += [
            f'[host."{name} senders"]\ncount = {count}\n[host."{name} receivers"]\ncount = {count}\n',
            _link(f"{name} left", f"{name} senders", "r1", "10 Mbps", access, loss=losses["before"]),
            _link(f"{name} right", "r2", f"{name} receivers", "10 Mbps", 0.001, loss=losses["after"]),
            _bulk(name, count),
        ]
    required = queue in {"RED", "DRR"} or variant == "overhead_8.32ms"
    targets: list[Target] = []
    known = {name: each.sessions for each in classes for name in each.names} | {_AGGREGATE: 10}
    for row in rows:
        sessions = row.text("sessions_class", known)
        metric = f"goodput {sessions}"
        if metric in {target.metric for target in targets}:
            raise UsageError(f"{row.location}: sessions_class: found {sessions!r} twice in one experiment")
        if row.whole("n_sessions") != known[sessions]:
            raise UsageError(
                f"{row.location}: n_sessions: found {row.text('n_sessions')}; allowed for {sessions} in case"
                f" {case}: {known[sessions]}"
            )
        relative, deviations = (0.10, 3.0) if known[sessions] == 1 else (0.05, 2.5)
        mean, std = row.number("goodput_bps_mean"), row.number("goodput_bps_std")
        targets.append(Target(metric, "bit/s", mean, std, relative, deviations, required))
    drops, sent = first.number("drops_mean"), first.number("bottleneck_departures_mean")
    if drops + sent == 0:
        raise UsageError(
            f"{first.location}: bottleneck_departures_mean: found 0 without drops; allowed: above 0"
        )
    queue_mean, queue_std = first.number("qlen_pkts_mean"), first.number("qlen_pkts_mean_std_over_seeds")
    rate, rate_std = drops / (drops + sent), first.number("drops_std") / (drops + sent)
    targets += [
        Target("queue", "packets", queue_mean, queue_std, 0.10, 0.0, required),
        Target("drop_rate", "", rate, rate_std, 0.10, 0.0, required),
    ]
    return Experiment(
        f"{case}/{variant}/{tcp}/{queue} buffer {buffer} window {window}",
        "\n".join(parts),
        tuple(targets),
        lambda run: _ten_figures(run, classes),
    )


_CLASSES = ("first", "second")
"""Names of the classes of sessions in a scenario."""


def _ten_figures(run: Run, classes: Sequence[_Sessions]) -> dict[str, float]:
    flows = pl.DataFrame(run.flows)
    seconds = run.counters["measured_seconds"]
    traffic = flows["traffic"].cast(pl.String)
    of_class = [float(flows.filter(traffic == name)["bytes"].sum()) * 8 / seconds for name in _CLASSES]
    figures = _queue_figures(run)
    for goodput, each in zip(of_class, classes, strict=True):
        figures |= {f"goodput {name}": goodput / each.sessions for name in each.names}
    figures[f"goodput {_AGGREGATE}"] = sum(of_class)
    return figures


def _dumbbell(rows: Sequence[_Row]) -> Experiment:
    row, *others = rows
    if others:
        raise UsageError(f"{others[0].location}: the same experiment as {row.location}; allowed: one row")
    rtt, flows, rate = row.number("rtt_s", 0.06), row.whole("n_flows"), row.number("bottleneck_bps", 1.0)
    queue = row.text("queue", ("DropTail", "RED", "ARED", "DRR", "PI", "REM", "Vq"))
    tcp, buffer = row.text("tcp", _TRANSPORTS), row.whole("buffer_pkts", 4)
    window = row.whole("max_window", 2)
    # The published round trips of 0.06 and 0.56 s have access links of 10 and 15 ms.
    access = 0.010 if rtt <= 0.06 else 0.015
    parts = [
        _head("Dumbbell", warmup=50, duration=150),
        _transport(tcp, window, ""),
        _link(
            "bottleneck",
            "r1",
            "r2",
            f"{rate:.0f} bps",
            rtt / 2 - 2 * access,
            queue=_queue(queue, buffer, fast=True),
        ),
        f"[host.senders]\ncount = {flows}\n[host.receivers]\ncount = {flows}\n",
        _link("left", "senders", "r1", "100 Mbps", access),
        _link("right", "r2", "receivers", "100 Mbps", access),
        _bulk("first", flows, group=""),
    ]
    targets = [
        _target(row, "utilization", "", "utilization", 0.05, 2.5),
        _target(row, "queue", "packets", "qlen_mean_pkts", 0.10, 0.0),
        _target(row, "drop_rate", "", "drop_rate", 0.10, 0.0),
        _target(row, "goodput", "bit/s", "goodput_bps_total", 0.05, 2.5),
    ]

    def figures(run: Run) -> dict[str, float]:
        seconds = run.counters["measured_seconds"]
        return {
            **_queue_figures(run),
            "utilization": run.counters["sent_bytes"] * 8 / seconds / rate,
            "goodput": float(pl.DataFrame(run.flows)["bytes"].sum()) * 8 / seconds,
        }

    name = f"rtt {rtt:g} s/{tcp}/{queue} buffer {buffer} window {window}"
    if (flows, rate) != (50, 20e6):
        name += f", {flows} flows over {rate / 1e6:g} Mbit/s"
    return Experiment(name, "\n".join(parts), tuple(targets), figures)


def _target(row: _Row, metric: str, unit: str, column: str, relative: float, deviations: float) -> Target:
    mean, std = row.number(f"{column}_mean"), row.number(f"{column}_std")
    return Target(metric, unit, mean, std, relative, deviations, required=True)


def _queue_figures(run: Run) -> dict[str, float]:
    drops, sent = run.counters["dropped_packets"], run.counters["sent_packets"]
    return {"queue": run.counters["queue_time_average"], "drop_rate": drops / (drops + sent)}


def _head(title: str, *, warmup: int, duration: int) -> str:
    return (
        f'title = "{title}"\n[run]\nwarmup = "{warmup} s"\nduration = "{duration} s"\n'
        'subject = "bottleneck"\n[router.r1]\n[router.r2]\n'
    )


def _transport(tcp: str, window: int, extra: str) -> str:
    given = extra.split("\n") if extra else []
    base = [
        'preset = "ns2"',
        *_TRANSPORTS[tcp].split("\n"),
        f'receive_window = "{max(window, 1000)} segments"',
        f'max_window = "{window} segments"',
        f'initial_ssthresh = "{window} segments"',
    ]
    return "\n".join(["[transport.tcp]", *base, *given, ""])


def _link(
    name: str, one: str, other: str, rate: str, delay: float, *, loss: float = 0.0, queue: str = ""
) -> str:
    lines = [f'[link."{name}"]', f'between = ["{one}", "{other}"]', f'rate = "{rate}"']
    lines.append(f'delay = "{delay * 1e6:.0f} us"')
    if loss:
        lines.append(f'loss = {{ probability = {loss}, of = "data" }}')
        lines.append("reverse = { loss = 0 }")
    if queue:
        lines.append(f'[link."{name}".queue]\n{queue}')
    return "\n".join([*lines, ""])


def _bulk(name: str, count: int, group: str | None = None) -> str:
    sort = f"{name} " if group is None else group
    return (
        f'[traffic."{name}"]\nkind = "bulk"\nfrom = "{sort}senders"\nto = "{sort}receivers"\n'
        f'transport = "tcp"\nflows = {count}\nstart = {{ uniform = ["0 s", "1 s"] }}\n'
    )


def _queue(name: str, buffer: int, *, fast: bool = False) -> str:
    """Return a queue of ns-2 in a scenario's keys."""
    packet = f'mean_packet = "{SEGMENT} B"'
    target = 90
    spread = "wait = true, ns2 = true"
    if name == "RED" and fast:
        red = f'algorithm = "red", min_th = 60, max_th = 120, max_p = 0.5, w_q = 0.02, {spread}, {packet}'
        return f'limit = "{buffer} packets"\naqm = {{ {red} }}'
    return {
        # ns-2 refuses a packet that would make the queue as long as its limit.
        "DropTail": f'limit = "{buffer - 1} packets"',
        "DRR": (
            f'limit = "{buffer * SEGMENT} B"\n'
            f'scheduler = {{ algorithm = "drr", quantum = "{SEGMENT} B", head_drop = true }}'
        ),
        "RED": (
            f'limit = "{buffer} packets"\naqm = {{ algorithm = "red", min_th = {buffer / 4:g}, '
            f"max_th = {3 * buffer / 4:g}, max_p = 0.1, w_q = 0.002, {spread}, {packet} }}"
        ),
        "ARED": (
            f'limit = "{buffer} packets"\naqm = {{ algorithm = "ared", min_th = 40, max_th = 120, '
            f"w_q = 0.002, {packet} }}"
        ),
        "PI": (
            f'limit = "{buffer} packets"\naqm = {{ algorithm = "pi", q_ref = {target}, a = 1.822e-5, '
            "b = 1.816e-5, w = 170 }"
        ),
        "REM": (
            f'limit = "{buffer} packets"\naqm = {{ algorithm = "rem", b_ref = {target}, gamma = 0.001, '
            f'phi = 1.001, interval = "2 ms", {packet} }}'
        ),
        "Vq": (
            f'limit = "{buffer} packets"\naqm = {{ algorithm = "avq", gamma = 0.98, alpha = 0.15, '
            f'accepted = true, buffer = "{buffer * SEGMENT} B" }}'
        ),
    }[name]


_TEN = _Kind(
    key=("case", "variant", "buffer_pkts", "max_window", "tcp", "queue"),
    columns=(
        "case", "variant", "buffer_pkts", "max_window", "tcp", "queue", "sessions_class", "n_sessions",
        "goodput_bps_mean", "goodput_bps_std", "qlen_pkts_mean", "qlen_pkts_mean_std_over_seeds",
        "drops_mean", "drops_std", "bottleneck_departures_mean",
    ),
    build=_ten_sessions,
)  # fmt: skip
_DUMBBELL = _Kind(
    key=("rtt_s", "queue", "tcp", "n_flows", "bottleneck_bps", "buffer_pkts", "max_window"),
    columns=(
        "rtt_s", "queue", "tcp", "n_flows", "bottleneck_bps", "buffer_pkts", "max_window", "utilization_mean",
        "utilization_std", "qlen_mean_pkts_mean", "qlen_mean_pkts_std", "drop_rate_mean", "drop_rate_std",
        "goodput_bps_total_mean", "goodput_bps_total_std",
    ),
    build=_dumbbell,
)  # fmt: skip


def verify(
    wanted: Sequence[Experiment],
    *,
    seeds: int = SEEDS,
    jobs: int | None = None,
    on_progress: OnProgress = lambda *_: None,
) -> list[Cell]:
    """Run every experiment with seeds 1, 2, … and return its cells, in order.

    Raises `ScenarioError` and `SimulationError`.
    """
    if seeds < 1:
        raise UsageError(f"seeds is {seeds}, but at least 1 is needed")
    running = [Progress() for _ in range(len(wanted) * seeds)]
    figures: dict[tuple[int, int], Mapping[str, float]] = {}
    done, lock = 0, threading.Lock()

    def one(index: int, seed: int) -> None:
        nonlocal done
        experiment = wanted[index]
        scenario = Scenario.parse(experiment.scenario, experiment.name, [])
        control = running[index * seeds + seed - 1]
        measured = experiment.measure(simulate(scenario, seed, control))
        with lock:
            figures[index, seed] = measured
            done += 1

    pool = ThreadPoolExecutor(checked_jobs(jobs), thread_name_prefix="bentpipe")
    on_progress(0, len(running), 0)
    try:
        pairs = product(range(len(wanted)), range(1, seeds + 1))
        for future in as_completed([pool.submit(one, index, seed) for index, seed in pairs]):
            future.result()
            on_progress(done, len(running), 0)
    except BaseException:
        for control in running:
            control.cancel()
        pool.shutdown(wait=True, cancel_futures=True)
        raise
    pool.shutdown(wait=True)
    return [
        Cell(each.name, target, tuple(figures[index, seed][target.metric] for seed in range(1, seeds + 1)))
        for index, each in enumerate(wanted)
        for target in each.targets
    ]
