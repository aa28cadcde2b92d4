"""Evaluation of AQMs, congestion controls and controls of media by the cases that RFCs ask for."""

from pathlib import Path

__all__ = ["MANIFEST", "RUNS", "is_evaluation"]

MANIFEST = "evaluation.json"
"""File of a folder that says that it holds an evaluation."""
RUNS = 5
"""Default number of runs of each setting in each case."""


def is_evaluation(folder: Path) -> bool:
    """Return True if a folder holds an evaluation."""
    return (folder / MANIFEST).is_file()
