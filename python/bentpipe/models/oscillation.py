"""Oscillation of the simulator's queue at the points of a stability map."""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import polars as pl

from bentpipe import _core, files
from bentpipe.errors import UsageError
from bentpipe.runs.compare import compare
from bentpipe.runs.plan import load, under
from bentpipe.runs.store import core_digest

__all__ = ["keys_of", "oscillation", "simulated"]


def oscillation(queue: Sequence[float] | pl.Series, interval: float) -> dict[str, float | None]:
    """Return mean, standard deviation and dominant period of a queue sampled every `interval` [s].

    `mean` and `std` [packets], `cv` = std / mean; `period` [s] is the peak of the periodogram (Hann window),
    and `peak` the share of the variance within a factor of 1.5 of it: near 1 for an oscillation; small for
    noise, whose period is meaningless. `period` and `peak` are None if the queue does not vary.
    """
    import numpy as np

    values = np.asarray(queue, dtype=float)
    mean, std = float(values.mean()), float(values.std())
    found: dict[str, float | None] = {
        "mean": mean,
        "std": std,
        "cv": std / mean if mean > 0.0 else None,
        "period": None,
        "peak": None,
    }
    if std > 0.0 and len(values) >= 16:
        power = np.abs(np.fft.rfft((values - mean) * np.hanning(len(values)))) ** 2
        frequency = np.fft.rfftfreq(len(values), interval)
        # Fewer than four periods cannot be distinguished from drift.
        known = frequency * interval * len(values) >= 4.0
        total = power.sum()
        power, frequency = power[known], frequency[known]
        top = frequency[int(power.argmax())]
        near = (frequency > top / 1.5) & (frequency < top * 1.5)
        found["period"] = float(1.0 / top)
        found["peak"] = float(power[near].sum() / total)
    return found


def simulated(
    path: str | Path,
    overrides: Sequence[str],
    settings: Sequence[str],
    axes: Mapping[str, Sequence[float]],
    cache: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> list[dict[str, Any]]:
    """Simulate a scenario once under each setting at every combination of `connections` and `pep_delay`.

    Each row has `setting`, `at_connections` (a whole number), `at_pep_delay` [s], and the transmit queue's
    `oscillation`.
    Warm-up and duration are the scenario's. The file `cache` stores finished rows for reuse.

    Raises `UsageError` for other axes, or if the scenario has no single key for one.
    """
    plain = load(path, list(overrides))
    keys = keys_of(plain, axes)
    kept: dict[str, Any] = {}
    if cache is not None and cache.exists():
        kept = json.loads(cache.read_text(encoding="utf-8"))
    interval = 1e-9 * float(json.loads(plain.canonical())["run"]["sample_interval"])
    first, second = axes
    points = [(a, b) for a in axes[first] for b in axes[second]]
    rows = []
    for done, point in enumerate(points):
        at = dict(zip(axes, point, strict=True))
        sets = [*overrides, *(f"{keys[name][0]}={keys[name][1](value)}" for name, value in at.items())]
        scenario = load(path, sets)
        missing = [name for name in settings if _digest(scenario, name) not in kept]
        if missing:
            result = compare(scenario, missing, runs=1)
            for name in missing:
                series = result.one("series", name, result.seeds[0])
                kept[_digest(scenario, name)] = oscillation(series["transmit_queue"], interval)
            if cache is not None:
                files.write_json(cache, kept)
        found = {f"at_{name}": value for name, value in at.items()}
        if "connections" in at:
            found["at_connections"] = float(_whole(at["connections"]))
        if "pep_delay" in at:
            found["at_pep_delay"] = max(at["pep_delay"], _half_tick(plain))
        rows += [{"setting": name, **found, **kept[_digest(scenario, name)]} for name in settings]
        if on_progress is not None:
            on_progress(done + 1, len(points))
    return rows


_RULES = 2
"""Version of `oscillation`, whose values a cache holds."""


def keys_of(scenario: _core.Scenario, axes: Iterable[str]) -> dict[str, tuple[str, Callable[[float], str]]]:
    """Return the scenario key of each axis, and the function that formats its value.

    Raises `UsageError` if the scenario has no single key for one.
    """
    return {name: _key(scenario, name) for name in axes}


def _digest(scenario: _core.Scenario, setting: str) -> str:
    text = json.dumps([_RULES, core_digest(), scenario.seed, under(scenario, setting).canonical()])
    return hashlib.sha256(text.encode()).hexdigest()


def _half_tick(scenario: _core.Scenario) -> float:
    """Return the mean wait besides the PEP's delay: half a tick of the regulator [s]."""
    tick = json.loads(scenario.canonical())["gateways"][0]["regulator"].get("tick") or 0
    return 0.5e-9 * float(tick)


def _whole(connections: float) -> int:
    """Return the number of connections that is simulated."""
    return max(1, round(connections))


def _key(scenario: _core.Scenario, axis: str) -> tuple[str, Callable[[float], str]]:
    """Return the scenario key of an axis, and the function that formats its value."""
    data = json.loads(scenario.canonical())
    if axis == "connections":
        found = [
            f"traffic.{traffic['name']}.{key}"
            for traffic in data["traffic"]
            for kind, key in (("pages", "sessions"), ("bulk", "flows"))
            if kind in {str(name).lower() for name in traffic["kind"]}
        ]
        if len(found) == 1:
            return found[0], lambda value: str(_whole(value))
    if axis == "pep_delay" and len(data.get("gateways", [])) == 1:
        besides = _half_tick(scenario)
        return "gateway.pep.delay", lambda value: f"{max(0.0, 1e6 * (value - besides)):.3f} us"
    raise UsageError(
        f"map: the simulator cannot vary {axis} in this scenario; allowed: connections if there is one kind"
        " of long-lived traffic, pep_delay if there is one gateway, or --no-sim"
    )
