"""The compiled core: scenarios, the packet-level simulator, the registry of algorithms.

Tables are offered as Arrow C streams (the PyCapsule interface), so polars, pandas and pyarrow take
them without a copy.
"""

from typing import Any, final

__version__: str

class ScenarioError(Exception):
    """A scenario, an override or a setting is wrong; the message is complete and meant for the user."""

class SimulationError(Exception):
    """The simulator contradicted itself, for example a counter identity does not hold."""

class Cancelled(Exception):  # noqa: N818
    """The run was stopped through its `Progress`."""

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
    def check_overrides(self) -> None:
        """Raise `ScenarioError` unless every override has its effect."""

    def effective(self) -> list[dict[str, str]]:
        """Return every parameter in force: `key`, `value` with its unit, `origin`, `note`."""

    def printed(self) -> list[dict[str, Any]]:
        """Return the source's figures: setting, metric, value, unit, std (or None), source, calibrated."""

    def canonical(self) -> str:
        """Return, as JSON, all that determines a result."""

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
) -> Run:
    """Run `scenario` with `seed` without holding the interpreter's lock.

    `trace` are flows to trace, `captures` links with the files to write their packets to, which must not
    exist; `snap` limits the bytes of a packet and `packets` the packets of a file. Raises `WatchError` if
    there is no such flow or link, `OSError` if a file cannot be written, `SimulationError` if the simulator
    contradicts itself, `Cancelled` if `progress` says so.
    """

def registry() -> str:
    """Return the algorithms as JSON: `aqms` with parameters and presets, `schedulers` and `markings`."""

def schema() -> str:
    """Return the JSON Schema of a scenario file."""
