"""The compiled core: scenarios, the packet-level simulator, the registry of algorithms.

Tables are offered as Arrow C streams (the PyCapsule interface), so polars, pandas and pyarrow take
them without a copy.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Literal, final

__version__: str

class ScenarioError(Exception):
    """A scenario, an override or a setting is wrong; the message is complete and meant for the user."""

class SimulationError(Exception):
    """The simulator contradicted itself, for example a counter identity does not hold."""

class ModelError(Exception):
    """A model cannot solve the scenario: where, what was found and what is allowed."""

class Cancelled(Exception):  # noqa: N818
    """The run was stopped through its `Progress`."""

class AlgorithmError(Exception):
    """An AQM written in Python raised an exception, which is the cause, or broke the rules; says when."""

class WatchError(Exception):
    """There is no such link or flow to look at."""

@final
class Scenario:
    """A scenario, read and checked; immutable."""

    @staticmethod
    def load(path: str, overrides: list[str]) -> Scenario:
        """Read the scenario at `path`, each override being `key=value`; `ScenarioError` if it is wrong."""

    @staticmethod
    def parse(text: str, name: str, overrides: list[str]) -> Scenario:
        """Like `load`, from `text`; `name` stands for the file in messages."""

    @property
    def name(self) -> str:
        """The file's stem."""
    @property
    def text(self) -> str:
        """The file's text, overrides not applied."""
    @property
    def overrides(self) -> list[str]:
        """The overrides that it was read with, as they were given."""
    @property
    def title(self) -> str:
        """One line saying what it is."""
    @property
    def description(self) -> str:
        """A paragraph or more."""
    @property
    def source(self) -> str:
        """Where the parameters come from; may be empty."""
    @property
    def seed(self) -> int:
        """Seed of the first run."""
    @property
    def runs(self) -> int:
        """Runs per setting of a comparison."""
    @property
    def duration(self) -> float:
        """Measured time [s]."""
    @property
    def warmup(self) -> float:
        """Simulated time before measuring begins [s]."""
    @property
    def sample_interval(self) -> float:
        """Time between samples of the series [s]."""
    @property
    def settings(self) -> list[str]:
        """What a comparison compares by default."""
    @property
    def setting_names(self) -> list[str]:
        """The settings that there are, beside AQMs written in Python."""
    @property
    def warnings(self) -> list[str]:
        """What is accepted but doubtful."""
    @property
    def aqm(self) -> str:
        """Label of the subject's AQM, for example `RED 4`."""
    @property
    def behind_pep(self) -> bool: ...
    @property
    def capacity(self) -> float:
        """Rate of the subject's link [bit/s]."""

    @property
    def subject_link(self) -> str:
        """Name of the subject's link."""

    def check_watch(self, trace: list[str], links: list[str]) -> None:
        """Raise `WatchError` unless these flows can be traced and these links captured.

        Whether there are the flows, only a run tells.
        """

    def with_setting(self, name: str) -> Scenario:
        """Return the same scenario under another setting; `ScenarioError` names the nearest if unknown."""

    def with_settings(self, names: list[str]) -> list[Scenario]:
        """Return the same scenario under each setting.

        `ScenarioError` if one is unknown or given twice, or if an override has no effect under any of them.
        """

    def all_settings(self) -> tuple[list[str], list[str]]: ...
    def with_outside(self, label: str, marks_anywhere: bool, keys: list[tuple[str, str, str]]) -> Scenario:
        """Return the same scenario with the subject's queue left to an AQM written in Python.

        `keys`, with values and notes, stand for it among the scenario's; the first one is its name.
        """

    def check_overrides(self) -> None:
        """Raise `ScenarioError` unless every override has its effect."""

    def effective(self) -> list[dict[str, str]]:
        """Return every parameter in force: `key`, `value` with its unit, `origin`, `note`."""

    def printed(self) -> list[dict[str, Any]]:
        """Return the source's figures: setting, metric, value, unit, std (or None), source, calibrated."""

    def models(self) -> dict[str, Any]:
        """Return the table `model` with its defaults: `kind`, `equations`, times in ns and so on."""

    def canonical(self) -> str:
        """Return, as JSON, all that determines a result."""

    def packed(self) -> tuple[str, str, list[str], str | None, list[tuple[str, str]]] | None:
        """Return what it was read from, to be read again elsewhere; None where its AQM is written in Python.

        That is: file, text, overrides, setting, and of each file that it names the path and the SHA-256.
        """

    def file(self, path: str) -> bytes | None:
        """Return what was in a file that the scenario names."""

    @staticmethod
    def unpack(
        file: str, text: str, overrides: list[str], setting: str | None, files: Mapping[str, bytes]
    ) -> Scenario:
        """Read a scenario again that was packed elsewhere, with what is in its files by their paths.

        Nothing is read from the disk; `ScenarioError` if a file did not come along.
        """

@final
class Progress:
    """How far a run has come, and the way to stop it; may be used from any thread."""

    def __init__(self) -> None: ...
    def fraction(self) -> float:
        """Return the share of the simulated time that is done, 0 to 1."""

    def cancel(self) -> None:
        """Ask the run to stop; `simulate` then raises `Cancelled`."""

@final
class Table:
    """A table as an Arrow C stream."""

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Return the stream as a capsule."""

@final
class Run:
    """What one run recorded, from the moment measuring began."""

    @property
    def series(self) -> Table:
        """One row per sample."""
    @property
    def drops(self) -> Table:
        """One row per dropped packet."""
    @property
    def flows(self) -> Table:
        """One row per flow."""
    @property
    def drop_runs(self) -> Table:
        """How often each length of consecutive drops occurred."""
    @property
    def trace(self) -> Table | None:
        """What the traced flows' senders knew, one row per change; None where nothing was to be traced."""
    @property
    def captured(self) -> list[tuple[int, int, int]]:
        """For each capture: packets written, left out, and retransmissions among those written."""
    @property
    def counters(self) -> dict[str, float]:
        """Totals."""
    @property
    def cpu_seconds(self) -> float:
        """Processor time the run took [s]."""

def simulate(
    scenario: Scenario,
    seed: int,
    progress: Progress,
    *,
    trace: list[str] = ...,
    captures: list[tuple[str, str]] = ...,
    snap: int | None = None,
    packets: int = ...,
    aqm: Callable[[], Mapping[str, Callable[..., Any]]] | None = None,
) -> Run:
    """Run `scenario` with `seed` without holding the interpreter's lock.

    `trace` are flows to trace, `captures` links with the files to write their packets to, which must not
    exist; `snap` limits the bytes of a packet and `packets` the packets of a file. `aqm` makes the methods of
    an AQM written in Python, which keeps the lock most of the time; it raises `AlgorithmError` if that fails.
    Raises `WatchError` if
    there is no such flow or link, `OSError` if a file cannot be written, `SimulationError` if the simulator
    contradicts itself, `Cancelled` if `progress` says so.
    """

def fluid(scenario: Scenario, seed: int) -> Table:
    """Solve the fluid equations of `scenario` without holding the interpreter's lock: one row a sample.

    `seed` draws what is random in the capacity. Raises `ModelError` if the equations do not cover it.
    """

def fluid_inputs(scenario: Scenario, seed: int) -> str:
    """Return, as JSON, the name of the `equations` that answer `scenario` and the `inputs` they are given.

    Each input has `symbol`, `what`, `value` (null: without bound) and `unit`. Raises `ModelError` if the
    equations do not cover the scenario.
    """

def stability(
    scenario: Scenario,
    seed: int,
    points: Sequence[tuple[float | None, float | None, float | None]],
    threads: int,
) -> list[dict[str, Any]]:
    """Say how far the fluid equations of `scenario` are from oscillation at each of `points`.

    A point is connections, round trip [s] and PEP delay [s], each `None` for the scenario's. For each there
    is a dictionary of `p`, `queue` [packets], `offered` [packets/s], `window` [segments] and `round_trip` [s]
    at the operating point, `unstable_roots`, `gain_margin`, `phase_margin` [degrees], `delay_margin` [s],
    `crossover` [rad/s], `growth` [1/s] and `period` [s] of the rightmost root, and `pep_in_loop`; or only
    `error` where there is no operating point. The interpreter's lock is not held. Raises `ModelError` if the
    equations do not cover the scenario.
    """

@final
class Verdict:
    """What an AQM says of a packet."""

    PASS: ClassVar[Verdict]
    """Nothing to signal."""
    MARK: ClassVar[Verdict]
    """Signal congestion, in the way of the marking method: drop it, set its ECN field, or cut its window."""
    DROP: ClassVar[Verdict]
    """Discard it, whatever the marking method."""

    @staticmethod
    def hold(seconds: float) -> Verdict:
        """Keep it out of the queue for so long, then ask again; only in `arrive`."""

    @staticmethod
    def drop_both(spot: Spot) -> Verdict:
        """Discard it, and the waiting packet that `Cx.sample` has shown in this call; only in `arrive`."""

@final
class Spot:
    """Where a waiting packet stands, during the call in which `Cx.sample` has shown it."""

@final
class Packet:
    """What an AQM is told of a packet; immutable."""

    @property
    def len(self) -> int:
        """Length on the wire [bytes]."""
    @property
    def flow(self) -> int:
        """Number of the flow that it belongs to."""
    @property
    def number(self) -> int:
        """How many packets had been judged before it."""
    @property
    def arrival(self) -> float:
        """When it entered the watched queue [s]; 0 before."""
    @property
    def arrival_ns(self) -> int:
        """When it entered the watched queue [ns]; 0 before."""
    @property
    def ecn(self) -> Literal["not-ect", "ect", "ect1", "ce"]:
        """Its ECN field (RFC 3168): no ECN, ECT(0), ECT(1) (RFC 9331), or marked."""
    @property
    def split(self) -> bool:
        """Whether its connection ends at the gateway, so that its sender's window can be cut."""
    @property
    def marked(self) -> bool:
        """Whether it tells the gateway to cut that window."""
    @property
    def tcp_window(self) -> int | None:
        """Its sender's congestion window [bytes]; None if it carries no data of TCP's."""
    @property
    def tcp_seq(self) -> int | None:
        """Sequence number of its first byte; None if it carries no data of TCP's."""
    @property
    def tcp_syn(self) -> bool | None:
        """Whether it opens its connection; None if it carries no data of TCP's."""

@final
class Cx:
    """All that an AQM may see, for the length of a call; afterwards it raises `RuntimeError`."""

    @property
    def now(self) -> float:
        """The simulated time [s]."""
    @property
    def now_ns(self) -> int:
        """The simulated time [ns]; differences of it are exact."""
    @property
    def queue(self) -> QueueState:
        """The watched queue."""
    @property
    def rng(self) -> Rng:
        """The AQM's own random stream, which follows from the run's seed."""
    def sample(self) -> tuple[Spot, Packet] | None:
        """Return one of the waiting packets, each as likely; only in `arrive`, if the scheduler can."""

@final
class QueueState:
    """The watched queue as a packet finds it, the packet itself not counted."""

    @property
    def packets(self) -> int:
        """Packets waiting."""
    @property
    def bytes(self) -> int:
        """Bytes waiting."""
    @property
    def held(self) -> int:
        """Packets held back at the mark point."""
    @property
    def limit_packets(self) -> int | None:
        """How many packets it may hold; None: any number."""
    @property
    def limit_bytes(self) -> int | None:
        """How many bytes it may hold; None: any number."""
    @property
    def capacity(self) -> float:
        """Capacity of the link that drains it [bytes/s]."""
    @property
    def sent_bytes(self) -> int:
        """Bytes that have left it over its link since the run began."""
    @property
    def idle_since(self) -> float | None:
        """Since when its link has had nothing to send [s]; None while it has."""
    @property
    def idle_since_ns(self) -> int | None:
        """Since when its link has had nothing to send [ns]; None while it has."""

@final
class Rng:
    """A random stream: the same numbers for the same seed."""

    def uniform(self) -> float:
        """Return a number in [0, 1)."""
    def uniform_in(self, low: float, high: float) -> float:
        """Return a number in [low, high)."""
    def below(self, n: int) -> int:
        """Return one of 0, 1, … n - 1."""
    def exponential(self, mean: float) -> float:
        """Return a number of the exponential law with this mean."""
    def normal(self) -> float:
        """Return a number of the normal law with mean 0 and variance 1."""
    def bits(self) -> int:
        """Return 64 random bits."""

def registry() -> str:
    """Return the algorithms as JSON: `aqms` with parameters and presets, `schedulers` and `markings`."""

def schema() -> str:
    """Return the JSON Schema of a scenario file."""
