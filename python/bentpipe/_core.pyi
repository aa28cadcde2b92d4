"""The compiled core: scenarios, the packet-level simulator, the fluid models and the registry of algorithms.

Tables are offered as Arrow C streams (PyCapsule interface), so that polars, pandas and pyarrow take them
without a copy.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, final

from bentpipe.runs.python_aqm import PythonAqm

__version__: str

class ScenarioError(Exception):
    """A scenario, an override or a setting is wrong; the message is complete and meant for the user."""

class SimulationError(Exception):
    """The results of a run contradict each other, for example a counter identity does not hold."""

class ModelError(Exception):
    """A model cannot solve the scenario; the message says where, what was found and what is allowed."""

class Cancelled(Exception):  # noqa: N818
    """The run was stopped through its `Progress`."""

class AlgorithmError(Exception):
    """An AQM written in Python raised an exception (`__cause__`) or returned an invalid value."""

class WatchError(Exception):
    """The scenario has no such link or flow to watch."""

@final
class Simulation:
    """A run in progress, whose time its caller advances; it belongs to the thread that made it.

    Without changes it takes the same course as `simulate`, whatever the steps.
    """

    now: float
    """Time simulated so far [s]."""
    end: float
    """End of the run [s]."""
    classes: list[str]
    """Names of the classes of traffic."""
    links: list[str]
    """Names of the directions of links, to which `packets` refers."""
    series_names: list[str]
    """Names of the series, the time first."""

    def __new__(cls, scenario: Scenario, seed: int) -> Simulation:
        """Return the run of a scenario with one seed, at time zero; `ScenarioError` if it is too large."""

    def advance(self, to: float) -> None:
        """Handle all events up to `to` [s], or to the end of the run if that is earlier.

        A fault of an AQM written in Python ends the run: later calls raise it again.
        """

    def step(self) -> bool:
        """Advance to the next packet that arrives at the subject, leaves it or is dropped there.

        Returns False at the end of the run.
        """

    def change(self, scenario: Scenario) -> list[str]:
        """Continue as `scenario` says; return the keys that differ.

        Rates, delays, AQMs, the number of users and what they do may change. `ScenarioError` for any other
        key; then nothing is changed. An AQM whose parameters change keeps its state.
        """

    def series(self, first: int) -> Table:
        """Return the samples from number `first` on, with the goodput of each class [bit/s]."""

    def drops(self, first: int) -> Table:
        """Return the drops from number `first` on: `time` [s], `place`, `reason`."""

    def slowest_page(self) -> tuple[float, float] | None:
        """Return begin and end [s] of the page that took longest to load, so far; None without a page."""

    def packets(self, most: int) -> Table:
        """Return the packets in flight: `packet`, `at`, `place`, `share`, `class`, `payload`.

        `at` is 0 on a link, 1 waiting for a link, 2 in a gateway; `place` the number of the direction of the
        link, or of the gateway; `share` the share of the propagation delay that has passed. Of more than
        `most` packets an even share is returned.
        """

    def run(self) -> Run:
        """Return the results as if the run ended now."""

@final
class Scenario:
    """A scenario, read and checked; immutable."""

    @staticmethod
    def load(path: str, overrides: list[str], parameters: list[str] = ...) -> Scenario:
        """Read the scenario at `path`; each override is `key=value`. `ScenarioError` if something is wrong.

        `parameters` are names that overrides of an AQM's table may have beside those in the registry.
        """

    @staticmethod
    def parse(text: str, name: str, overrides: list[str]) -> Scenario:
        """Read a scenario from `text`; messages refer to it as `name`."""

    def _repr_html_(self) -> str:
        """Return main values and the picture as HTML for a notebook."""

    @staticmethod
    def from_dict(mapping: Mapping[str, Any], name: str = ..., folder: str | Path = ...) -> Scenario:
        """Return the scenario with the keys and values of a scenario file, as nested dictionaries.

        `name` is its name in results; files that it names are relative to `folder`. Raises `ScenarioError`.
        """

    def to_dict(self) -> dict[str, Any]:
        """Return the tables of the file with the overrides; `ScenarioError` if one has no effect."""

    def to_toml(self) -> str:
        """Return `to_dict` as the text of a scenario file, without comments."""

    @property
    def name(self) -> str:
        """Stem of the file."""
    @property
    def text(self) -> str:
        """Text of the file, without overrides."""
    @property
    def overrides(self) -> list[str]:
        """Overrides that it was read with, unchanged."""
    @property
    def classes(self) -> list[str]:
        """Classes of traffic, in the order of the file."""
    @property
    def traffic(self) -> list[tuple[str, str, str]]:
        """Traffic: name, class and kind of each."""
    def tables(self) -> str:
        """Return the file's tables with the overrides, as a TOML table on one line."""
    @property
    def thresholds(self) -> list[tuple[str, float, float]]:
        """Limits of good and bad that the file sets: measure, good and bad of each."""
    @property
    def title(self) -> str:
        """One-line description."""
    @property
    def description(self) -> str:
        """One or more paragraphs."""
    @property
    def source(self) -> str:
        """Source of the parameters; may be empty."""
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
        """Simulated time before the measurement [s]."""
    @property
    def sample_interval(self) -> float:
        """Time between two samples of the series [s]."""
    @property
    def settings(self) -> list[str]:
        """Settings of a comparison by default."""
    @property
    def setting_names(self) -> list[str]:
        """Names of all settings, AQMs written in Python excepted."""
    @property
    def warnings(self) -> list[str]:
        """Accepted but doubtful parts, including overrides without effect."""
    @property
    def warning_codes(self) -> list[str]:
        """Code of each of the warnings."""
    @property
    def aqm(self) -> str:
        """Label of the subject's AQM, for example `RED 4`."""
    @property
    def python_aqm(self) -> PythonAqm | None:
        """The subject's AQM if it is written in Python."""
    @property
    def behind_pep(self) -> bool:
        """True if congestion is signalled with packets behind the PEP, which has acknowledged them."""
    @property
    def marks_behind_pep(self) -> bool:
        """True if packets are marked with ECN behind the PEP, which echoes the marks."""
    @property
    def capacity(self) -> float:
        """Capacity of the subject's link, or links [bit/s]."""

    @property
    def terminals(self) -> int:
        """Number of terminals, if a gateway has several; else 0."""
    @property
    def has_return(self) -> bool:
        """True if the terminals of the subject have queues in the return direction."""
    @property
    def subject_link(self) -> str:
        """Name of the subject's link."""

    def check_watch(self, trace: list[str], links: list[str], logs: list[str] | None = None) -> None:
        """Raise `WatchError` unless these flows can be traced, these links captured, and these flows logged.

        Only a run shows whether the flows exist.
        """

    def with_setting(self, name: str) -> Scenario:
        """Return the scenario under another setting; `ScenarioError` suggests the nearest name if unknown."""

    def with_settings(self, names: list[str]) -> list[Scenario]:
        """Return the scenario under each setting.

        `ScenarioError` if one is unknown or given twice, or if an override has no effect under any of them.
        """

    def all_settings(self) -> tuple[list[str], list[str]]:
        """Return the names of all settings that fit the subject, and the reasons why others do not fit."""

    def with_python_aqm(self, algorithm: PythonAqm) -> Scenario:
        """Return the scenario with the subject's queue left to an AQM written in Python."""

    def aqm_overrides(self) -> list[tuple[str, str]]:
        """Return overrides of parameters of the subject's AQM, as names and values."""

    def check_overrides(self, others: Sequence[Scenario] = ...) -> None:
        """Raise `ScenarioError` unless each override has an effect here or in one of `others`."""

    def effective(self) -> list[dict[str, str]]:
        """Return each key in effect: `key`, `value` with its unit, `origin`, `note`."""

    def printed(self) -> list[dict[str, Any]]:
        """Return the source's figures: setting, metric, value, unit, std (or None), source, calibrated."""

    def models(self) -> dict[str, Any]:
        """Return the table `model`, defaults filled in: `kind`, `equations`, times in ns and so on."""

    def canonical(self) -> str:
        """Return everything that determines a result, as JSON."""

    def packed(self) -> tuple[str, str, list[str], str | None, list[str], list[tuple[str, str]]] | None:
        """Return the source of the scenario, without an AQM written in Python, for `unpack`.

        That is: file, text, overrides, setting, parameter names, and path and SHA-256 of each file that it
        names.
        """

    def file(self, path: str) -> bytes | None:
        """Return the content of a file that the scenario names."""

    @staticmethod
    def unpack(
        file: str,
        text: str,
        overrides: list[str],
        setting: str | None,
        parameters: list[str],
        files: Mapping[str, bytes],
    ) -> Scenario:
        """Read a packed scenario; `files` holds the content of its files by path.

        Nothing is read from the disk; `ScenarioError` if a file is missing.
        """

@final
class Progress:
    """Progress of a run, and the way to stop it; may be used from any thread."""

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
    """Results of a run, from the beginning of the measurement."""

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
        """Number of runs of consecutive drops, one row per length."""
    @property
    def terminals(self) -> Table | None:
        """Terminals of gateways with several, one row each; None if each gateway has one."""
    @property
    def terminal_series(self) -> Table | None:
        """Terminals over time, one row per terminal and interval; None if each gateway has one."""
    @property
    def pages(self) -> Table | None:
        """Pages of users behind terminals, one row each; None if each gateway has one terminal."""
    @property
    def trace(self) -> Table | None:
        """Senders' state of the traced flows, one row per change; None without traced flows."""
    @property
    def captured(self) -> list[tuple[int, int, int]]:
        """For each capture: packets written, packets left out, retransmissions among the packets written."""
    @property
    def logged(self) -> tuple[int, int, int, int] | None:
        """Of the logs: files, files cut at their limit, events, flows beyond the limit; None without logs."""
    @property
    def counters(self) -> dict[str, float]:
        """Counters of the subject, by name."""
    @property
    def cpu_seconds(self) -> float:
        """Processor time of the run [s]."""

def simulate(
    scenario: Scenario,
    seed: int,
    progress: Progress,
    *,
    trace: list[str] = ...,
    captures: list[tuple[str, str]] = ...,
    snap: int | None = None,
    packets: int = ...,
    qlog: tuple[str, list[str], int, int] | None = None,
) -> Run:
    """Run `scenario` with `seed`, without the interpreter's lock unless its AQM is written in Python.

    `trace` are flows to trace, `captures` links with the files for their packets, which must not exist;
    `snap` limits the bytes of a packet and `packets` the packets of a file. `qlog` logs connections: an empty
    folder, the flows (all if empty), and the largest numbers of flows and of events of a file. Raises
    `AlgorithmError` if an AQM written in Python fails, `WatchError` if there is no such flow or link,
    `OSError` if a file cannot be written, `SimulationError` if the results contradict each other, and
    `Cancelled` if `progress` asks for a stop.
    """

def fluid(scenario: Scenario, seed: int) -> Table:
    """Solve the fluid equations of `scenario` without the interpreter's lock: one row per sample.

    `seed` draws random capacities. Raises `ModelError` if the equations do not cover the scenario.
    """

def fluid_inputs(scenario: Scenario, seed: int) -> str:
    """Return, as JSON, the name of the `equations` for `scenario` and their `inputs`.

    Each input has `symbol`, `what`, `value` (null: unbounded) and `unit`. Raises `ModelError` if the
    equations do not cover the scenario.
    """

def stability(
    scenario: Scenario,
    seed: int,
    points: Sequence[tuple[float | None, float | None, float | None]],
    threads: int,
) -> list[dict[str, Any]]:
    """Compute the stability margins of the fluid equations of `scenario` at each of `points`.

    A point is connections, round trip [s] and PEP delay [s], each `None` for the scenario's. Each result is a
    dictionary of `p`, `queue` [packets], `offered` [packets/s], `window` [segments] and `round_trip` [s] at
    the operating point, `unstable_roots`, `gain_margin`, `phase_margin` [degrees], `delay_margin` [s],
    `crossover` [rad/s], `growth` [1/s] and `period` [s] of the rightmost root, and `pep_in_loop`; or only
    `error` if there is no operating point. The interpreter's lock is not held. Raises `ModelError` if the
    equations do not cover the scenario.
    """

@final
class Verdict:
    """Decision of an AQM about a packet."""

    PASS: ClassVar[Verdict]
    """No signal."""
    MARK: ClassVar[Verdict]
    """Signal congestion by the marking method: drop the packet, set its ECN field, or cut its sender's
    window."""
    DROP: ClassVar[Verdict]
    """Drop the packet, whatever the marking method."""

    @staticmethod
    def hold(seconds: float) -> Verdict:
        """Hold the packet back for so long, then call `arrive` again; only in `arrive`."""

    @staticmethod
    def drop_both(slot: QueueSlot) -> Verdict:
        """Drop the packet and the one that `Context.sample` returned in this call; only in `arrive`."""

@final
class QueueSlot:
    """Position of a waiting packet, valid during the call in which `Context.sample` returned it."""

@final
class Packet:
    """A packet as the AQM sees it; immutable."""

    @property
    def len(self) -> int:
        """Length on the wire [bytes]."""
    @property
    def flow(self) -> int:
        """Number of its flow."""
    @property
    def dscp(self) -> int:
        """Codepoint (DSCP), 0 to 63."""
    @property
    def number(self) -> int:
        """Number of packets offered to the AQM before it."""
    @property
    def arrival(self) -> float:
        """Time when it entered the watched queue [s]; 0 before."""
    @property
    def arrival_ns(self) -> int:
        """Time when it entered the watched queue [ns]; 0 before."""
    @property
    def ecn(self) -> Literal["not-ect", "ect", "ect1", "ce"]:
        """ECN field (RFC 3168): no ECN, ECT(0), ECT(1) (RFC 9331), or CE."""
    @property
    def split(self) -> bool:
        """True if its connection is split at the gateway, so that its sender's window can be cut."""
    @property
    def marked(self) -> bool:
        """True if it tells the gateway to cut that window."""
    @property
    def tcp_window(self) -> int | None:
        """Congestion window of its sender [bytes]; None without TCP data."""
    @property
    def tcp_seq(self) -> int | None:
        """Sequence number of its first byte; None without TCP data."""
    @property
    def tcp_syn(self) -> bool | None:
        """True if it opens its connection; None without TCP data."""

@final
class Context:
    """Time, queue state and random numbers, valid during one call; afterwards it raises `RuntimeError`."""

    @property
    def now(self) -> float:
        """Simulated time [s]."""
    @property
    def now_ns(self) -> int:
        """Simulated time [ns]; differences are exact."""
    @property
    def queue(self) -> QueueState:
        """The watched queue."""
    @property
    def rng(self) -> Rng:
        """The AQM's random stream, determined by the run's seed."""
    def sample(self) -> tuple[QueueSlot, Packet] | None:
        """Return a waiting packet drawn uniformly; only in `arrive`, None if the scheduler cannot."""

@final
class QueueState:
    """The watched queue as a packet finds it, without the packet itself."""

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
        """Maximum number of packets; None without limit."""
    @property
    def limit_bytes(self) -> int | None:
        """Maximum number of bytes; None without limit."""
    @property
    def capacity(self) -> float:
        """Capacity of the link that drains it [bytes/s]."""
    @property
    def sent_bytes(self) -> int:
        """Bytes sent over its link since the start of the run."""
    @property
    def idle_since(self) -> float | None:
        """Time since which its link has been idle [s]; None while it is busy."""
    @property
    def idle_since_ns(self) -> int | None:
        """Time since which its link has been idle [ns]; None while it is busy."""

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
        """Return an exponentially distributed number with this mean."""
    def normal(self) -> float:
        """Return a normally distributed number with mean 0 and variance 1."""
    def bits(self) -> int:
        """Return 64 random bits."""

def registry() -> str:
    """Return the algorithms as JSON: `aqms` with parameters and presets, `schedulers` and `markings`."""

def schema() -> str:
    """Return the JSON Schema of scenario files."""
