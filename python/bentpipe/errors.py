"""What can go wrong, told apart by who can mend it."""

from bentpipe._core import AlgorithmError, Cancelled, ScenarioError, SimulationError

__all__ = [
    "AlgorithmError",
    "BentpipeError",
    "Cancelled",
    "ClusterError",
    "LiveError",
    "ModelError",
    "ResultError",
    "ScenarioError",
    "SimulationError",
    "UsageError",
]


class BentpipeError(Exception):
    """Base of the errors raised here; the text is complete and meant for the user."""


class UsageError(BentpipeError):
    """An argument is wrong: a setting, a number of runs, a folder to write to."""


class ClusterError(BentpipeError):
    """A cluster went away, or has lost all of its workers."""


class ResultError(BentpipeError):
    """A folder is not a result, is not complete, or does not hold what was asked for."""


class ModelError(BentpipeError):
    """A model cannot solve a scenario: it does not cover it, or it has no bounded solution."""


class LiveError(Exception):
    """A live run failed, for a reason that lies in none of its arguments; the text is complete."""
