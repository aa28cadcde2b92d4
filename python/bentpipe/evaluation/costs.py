"""Cost and control of each algorithm: RFC 7928, sections 11 and 12."""

import csv
import json
from functools import cache
from pathlib import Path
from typing import Any

from bentpipe import _core

__all__ = ["Cost", "controls", "costs"]

Cost = dict[str, float]
"""Processor time of a packet with 1, 1,000 and 100,000 flows [ns], and memory of a flow [B]."""

_FILE = Path(__file__).parent / "costs.csv"


@cache
def costs() -> dict[str, Cost]:
    """Return what `make costs` has measured, by algorithm; the machine's share is in every figure."""
    with _FILE.open(encoding="utf-8", newline="") as file:
        return {
            row.pop("name"): {key: float(value) for key, value in row.items()} for row in csv.DictReader(file)
        }


@cache
def controls() -> dict[str, dict[str, Any]]:
    """Return of each algorithm its `title`, `source`, `placement` and parameters, from the registry.

    A parameter has `name`, `default`, `range`, `doc`, and `tune` if a search can set it.
    """
    registry = json.loads(_core.registry())
    return {each["name"]: each for each in [*registry["aqms"], *registry["schedulers"]]}
