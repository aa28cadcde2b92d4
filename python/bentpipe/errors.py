"""Exceptions of the package, by who can correct the mistake."""

from pathlib import Path

from bentpipe._core import AlgorithmError, Cancelled, ScenarioError, SimulationError

__all__ = [
    "AlgorithmError",
    "BentpipeError",
    "Cancelled",
    "ClusterError",
    "FolderExistsError",
    "LiveError",
    "ModelError",
    "ResultError",
    "ScenarioError",
    "SimulationError",
    "UsageError",
]


class BentpipeError(Exception):
    """Base of the package's exceptions; the message is complete and meant for the user."""


class UsageError(BentpipeError):
    """An argument is wrong: a setting, a number of runs, a folder to write to."""


class FolderExistsError(UsageError):
    """The folder of a new result exists already. Commands have --force; callers in Python read `advice`."""

    def __init__(self, path: Path, advice: str = "") -> None:
        self.path = path
        super().__init__(f"{path}: exists already; choose another folder{advice}")


class ClusterError(BentpipeError):
    """The cluster disappeared or lost all of its workers, or the storage of a search failed."""


class ResultError(BentpipeError):
    """A folder is not a result, is incomplete, or lacks the requested data."""


class ModelError(BentpipeError):
    """A model cannot solve a scenario: it does not cover it, or it has no bounded solution."""


class LiveError(Exception):
    """A live run failed for a reason other than its arguments; the message is complete."""
