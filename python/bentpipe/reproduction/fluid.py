"""Solutions of the fluid models, kept among a paper's runs: the same measures are taken from them.

A solution has a time series in the columns of a simulation's, and neither flows nor single drops.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass

import polars as pl

from bentpipe import _core
from bentpipe.errors import ModelError
from bentpipe.models.fluid import solve

__all__ = ["Solution", "checked", "digest_of", "solved"]


@dataclass(frozen=True, slots=True)
class Solution:
    """What the equations say of a scenario, in the tables of a run."""

    series: pl.DataFrame
    flows: pl.DataFrame
    drop_runs: pl.DataFrame
    drops: pl.DataFrame
    counters: Mapping[str, float]


def checked(scenario: _core.Scenario, seed: int) -> None:
    """Raise `ModelError` if the equations do not cover a scenario, before anything runs."""
    try:
        _core.fluid_inputs(scenario, seed)
    except _core.ModelError as error:
        label = f", setting {scenario.aqm}" if scenario.aqm else ""
        raise ModelError(f"{scenario.name}{label}: {error}") from None


def digest_of(scenario: _core.Scenario, digest: str) -> str:
    """Return the SHA-256 of what determines a solution: the scenario, of `digest`, and its models."""
    return hashlib.sha256(f"{digest} {json.dumps(scenario.models(), sort_keys=True)}".encode()).hexdigest()


def solved(scenario: _core.Scenario, seed: int) -> Solution:
    """Solve the equations of a scenario; the seed draws its capacity, where that is drawn."""
    none = pl.DataFrame({"flow": []})
    runs = pl.DataFrame({"length": [], "count": []})
    return Solution(solve(scenario, seed), none, runs, none, {})
