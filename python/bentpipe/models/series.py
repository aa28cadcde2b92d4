"""Measured series that drive the fluid models: PEP delay, load ratio and new connections, as Fourier series.

[B07] 4.4 and 6.4 measure them in a run without AQM and bottleneck. docs/series.md defines them.
"""

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from bentpipe import _core, files
from bentpipe.errors import UsageError
from bentpipe.format import brief, number, plural
from bentpipe.runs import plan
from bentpipe.runs.compare import run

__all__ = [
    "FORMAT",
    "HARMONICS",
    "INTERVAL",
    "POINTS",
    "Captured",
    "Series",
    "capture",
    "check_free",
    "fit",
    "markdown",
]

FORMAT = "measured series"
VERSION = 1
POINTS = 500
INTERVAL = 0.1
"""Time between the points [s]."""
HARMONICS = 8
"""Default number of harmonics. No source states it; common curve-fitting tools offer up to eight."""
MOST_POINTS, MOST_HARMONICS = 100_000, 100
LEAST_LOAD = 0.01
"""Least offered load at a point, as a share of the mean, for a meaningful load ratio."""

_RATE, _WINDOW = "100 Gbps", "100 GB"
"""Values for the regulator's rate and the spacelink's windows (the next limit) that never limit."""
_TIMES = ("run.duration", "run.sample_interval")
_KEYS = ("pep_delay", "load_ratio", "new_connections")


@dataclass(frozen=True, slots=True)
class Series:
    """One measured series and the Fourier series fitted to it."""

    unit: str
    interval: float
    """Time between the points [s]; the period is their number times this."""
    mean: float
    cos: tuple[float, ...]
    """Coefficients of cos 2πkt/P, k from 1."""
    sin: tuple[float, ...]
    measured: tuple[float, ...]
    """The points, the first at t = 0."""

    def __call__(self, time: float) -> float:
        """Return the fitted series at `time` [s]."""
        phase = 2 * math.pi * time / (self.interval * len(self.measured))
        waves = enumerate(zip(self.cos, self.sin, strict=True), 1)
        return math.fsum(
            [self.mean, *(a * math.cos(k * phase) + b * math.sin(k * phase) for k, (a, b) in waves)]
        )

    @property
    def fitted(self) -> list[float]:
        """The fitted series at the points."""
        return [self(self.interval * index) for index in range(len(self.measured))]

    @property
    def rms(self) -> float:
        """Root mean square difference between the points and the fitted series."""
        squares = ((x - y) ** 2 for x, y in zip(self.measured, self.fitted, strict=True))
        return math.sqrt(math.fsum(squares) / len(self.measured))

    @property
    def explained(self) -> float | None:
        """Share of the points' variance that the fitted series explains; `None` if they do not vary."""
        waves = math.fsum((a * a + b * b) / 2 for a, b in zip(self.cos, self.sin, strict=True))
        mean = math.fsum(self.measured) / len(self.measured)
        variance = math.fsum((x - mean) ** 2 for x in self.measured) / len(self.measured)
        return waves / variance if variance > 0 else None

    @property
    def noise(self) -> float:
        """Mean of `explained` for independent random points."""
        return 2 * len(self.cos) / (len(self.measured) - 1)

    def as_json(self) -> dict[str, Any]:
        """Return the series as it is written to the file."""
        explained, most = self.explained, max(map(abs, self.measured))
        # Twelve digits of the largest point: below, cosines differ between machines.
        places = 11 - math.floor(math.log10(most)) if most > 0 else 12
        return {
            "unit": self.unit,
            "mean": round(self.mean, places),
            "cos": [round(value, places) + 0.0 for value in self.cos],
            "sin": [round(value, places) + 0.0 for value in self.sin],
            "rms": _digits(self.rms),
            "explained": None if explained is None else _digits(explained),
            "lowest": _digits(min(self.fitted)),
            "measured": list(self.measured),
        }


@dataclass(frozen=True, slots=True)
class Captured:
    """The three series of one run."""

    scenario: str
    digest: str
    """SHA-256 of everything that determines the run except the seed."""
    seed: int
    as_it_is: bool
    """True if the AQM and the bottleneck were left in place."""
    missing: int
    """Points without a PEP delay, interpolated linearly."""
    dropped: int
    """Packets that the gateway dropped during the measurement."""
    queue: float
    """Mean length of the transmit queue [packets]."""
    pep_delay: Series
    """Time from entering the receive queue to entering the transmit queue [s]."""
    load_ratio: Series
    """Mean offered load over offered load."""
    new_connections: Series
    """Connections opened during the interval, as a share of those open in it."""

    @property
    def series(self) -> dict[str, Series]:
        """The series by their names in the file."""
        return dict(zip(_KEYS, (self.pep_delay, self.load_ratio, self.new_connections), strict=True))

    def as_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {
            "bentpipe": FORMAT,
            "version": VERSION,
            "scenario": self.scenario,
            "scenario_digest": self.digest,
            "seed": self.seed,
            "versions": {"bentpipe": _core.__version__},
            "without": [] if self.as_it_is else ["AQM", "bottleneck"],
            "interval": self.pep_delay.interval,
            "points": len(self.pep_delay.measured),
            "harmonics": len(self.pep_delay.cos),
            "missing": self.missing,
            "dropped": self.dropped,
            "transmit_queue": _digits(self.queue),
            **{name: series.as_json() for name, series in self.series.items()},
        }

    @property
    def warnings(self) -> list[str]:
        """Reasons to doubt the series."""
        found = []
        if not self.as_it_is and (self.dropped or self.queue > 1):
            found.append(
                f"the gateway dropped {plural(self.dropped, 'packet')} and had {brief(self.queue, 3)} in its"
                " transmit queue on average: something still holds packets up there"
            )
        if self.missing:
            found.append(f"{plural(self.missing, 'point')} without a PEP delay, taken from their neighbours")
        for name, series in self.series.items():
            if min(series.fitted) < 0:
                found.append(f"the curve of {name} falls to {brief(min(series.fitted), 3)}, below any point")
        return found

    def write(
        self, path: str | Path, figure: tuple[Path, bytes] | None = None, *, force: bool = False
    ) -> Path:
        """Write the file, and `figure` as path and content if given; each atomically.

        `UsageError` if one of them exists, unless `force` is set, or cannot be written.
        """
        path = Path(path)
        check_free(path, figure and figure[0], force=force)
        try:
            files.make_folder(path.parent)
            if figure is not None:
                files.write(*figure)
            files.write(path, _text(self.as_json()).encode())
        except OSError as error:
            raise UsageError(f"{path}: cannot be written: {error.strerror or error}") from None
        return path


def capture(
    scenario: str | Path,
    *,
    points: int = POINTS,
    interval: float = INTERVAL,
    harmonics: int = HARMONICS,
    seed: int | None = None,
    set: Mapping[str, object] | Iterable[str] | None = None,  # noqa: A002
    as_it_is: bool = False,
) -> Captured:
    """Simulate a scenario, measure `points` points `interval` [s] apart after the warm-up, fit the series.

    Unless `as_it_is`, the subject's AQM is replaced by `droptail`, and the rates of its regulator and of the
    satellite link and the spacelink's windows are raised until they no longer limit. `set` overrides keys as
    in `load`. The seed defaults to the scenario's.

    Raises `UsageError` if a number is out of range, the subject is not a gateway, the capacity changes, or
    next to nothing is offered at some points.
    """
    _check(points, interval, harmonics)
    overrides = plan.overrides_from(set)
    for each in overrides:
        if each.split("=", 1)[0].strip() in _TIMES:
            raise UsageError(f"--set {each}: points and interval determine this key; allowed: other keys")
    times = (f"{round(points * interval * 1e9)} ns", f"{round(interval * 1e9)} ns")
    overrides += [f"{key}={time}" for key, time in zip(_TIMES, times, strict=True)]
    loaded = plan.load(scenario, overrides)
    subject = _subject(loaded)
    if not as_it_is:
        loaded = plan.load(scenario, overrides + _raised(loaded.name, subject)).with_setting("droptail")
    result = run(loaded, seed=seed)
    (setting,), (first,) = result.settings, result.seeds
    table, flows = result.one("series", setting, first), result.one("flows", setting, first)
    flows = flows.filter(pl.col("traffic").is_in(subject.traffic))
    counters = {row["counter"]: row["value"] for row in result.counters().iter_rows(named=True)}
    delay, missing = _filled(table["transit_time"])

    def fitted(values: list[float], unit: str = "") -> Series:
        # Points are stored and fitted with nine digits.
        return fit([_digits(value, 9) for value in values], harmonics, interval=interval, unit=unit)

    return Captured(
        scenario=loaded.name,
        digest=hashlib.sha256(loaded.canonical().encode()).hexdigest(),
        seed=first,
        as_it_is=as_it_is,
        missing=missing,
        dropped=round(counters["dropped_packets"] + counters["drops_elsewhere"]),
        queue=math.fsum(table["transmit_queue"]) / points,
        pep_delay=fitted(delay, "s"),
        load_ratio=fitted(_load_ratio(table["offered_load"])),
        new_connections=fitted(_new(flows, table["time"], interval)),
    )


def fit(measured: Sequence[float], harmonics: int, *, interval: float = INTERVAL, unit: str = "") -> Series:
    """Fit a Fourier series with the points' period by least squares.

    Waves over whole periods of evenly spaced points are orthogonal, so each coefficient is a sum. Sums are
    exact except for their final rounding: the same points give the same bytes on every machine.
    """
    _check(len(measured), interval, harmonics)
    values = tuple(measured)
    n = len(values)
    cos = [math.cos(2 * math.pi * i / n) for i in range(n)]
    sin = [math.sin(2 * math.pi * i / n) for i in range(n)]
    wave = [
        tuple(
            2 / n * math.fsum(x * table[i * k % n] for i, x in enumerate(values))
            for k in range(1, harmonics + 1)
        )
        for table in (cos, sin)
    ]
    return Series(unit, interval, math.fsum(values) / n, wave[0], wave[1], values)


def check_free(path: Path, figure: Path | None = None, *, force: bool = False) -> None:
    """Raise `UsageError` if the file or the figure exists, unless `force` is set."""
    if figure == path:
        raise UsageError(
            f"{path}: is the figure's name too; allowed: another, such as {path.with_suffix('.json')}"
        )
    for each in (path, figure):
        if each is not None and each.is_dir():
            raise UsageError(f"{each}: is a folder; allowed: the name of a file")
        if each is not None and each.exists() and not force:
            raise UsageError(f"{each}: exists already; --force replaces it")


def _check(points: int, interval: float, harmonics: int) -> None:
    if not 1 <= harmonics <= MOST_HARMONICS:
        raise UsageError(f"harmonics is {harmonics}, but it must be from 1 to {MOST_HARMONICS}")
    least = 2 * harmonics + 1
    if not least <= points <= MOST_POINTS:
        raise UsageError(
            f"points is {points}, but it must be from {least} to {MOST_POINTS}: {harmonics} harmonics and"
            f" the mean are {least} numbers"
        )
    if not 1e-6 <= interval <= 3600:
        raise UsageError(f"interval is {interval:g} s, but it must be from 1 µs to 1 h")


@dataclass(frozen=True, slots=True)
class _Subject:
    """The measured gateway, as in the scenario's canonical form."""

    gateway: Mapping[str, Any]
    link: Mapping[str, Any]
    """The gateway's satellite link."""
    traffic: Sequence[str]
    """Traffic whose data crosses that link towards the terminal."""
    alone: bool
    """True if the scenario has a single gateway."""


def _subject(scenario: _core.Scenario) -> _Subject:
    """Return the subject; `UsageError` if it is no gateway."""
    found = json.loads(scenario.canonical())
    if "gateway" not in found["subject"]:
        raise UsageError(
            f"{scenario.name}: the subject is the link {scenario.subject_link}, which has no PEP delay to"
            " measure; allowed: a scenario whose subject is a gateway"
        )
    gateways = found["gateways"]
    gateway = gateways[found["subject"]["gateway"]]
    if "terminals" in gateway:
        raise UsageError(
            f"{scenario.name}: gateway {gateway['name']} has {scenario.terminals} terminals; allowed: one"
        )
    hop = {"link": gateway["link"], "forward": gateway["link_forward"]}
    traffic = [each["name"] for each in found["traffic"] if hop in each["route"]]
    return _Subject(gateway, found["links"][gateway["link"]], traffic, len(gateways) == 1)


def _raised(scenario: str, subject: _Subject) -> list[str]:
    """Return the overrides that remove the bottleneck; `UsageError` if it cannot be removed."""
    gateway, link = subject.gateway, subject.link
    way = link["forward" if gateway["link_forward"] else "reverse"]
    if "capacity" in way:
        raise UsageError(
            f"{scenario}: link.{link['name']}.capacity changes with time, so the bottleneck cannot be"
            " removed; allowed: a copy of the scenario without it, or --as-it-is"
        )
    path = "gateway" if subject.alone else f"gateway.{gateway['name']}"
    overrides = [f"{path}.regulator.rate={_RATE}"]
    if gateway["pep"]["split"]:
        overrides += [f"{path}.spacelink.{key}={_WINDOW}" for key in ("window", "stream_window")]
    if way["rate"] is not None:
        key = "rate" if gateway["link_forward"] else "reverse.rate"
        overrides.append(f"link.{link['name']}.{key}={_RATE}")
    return overrides


def _filled(column: pl.Series) -> tuple[list[float], int]:
    values = column.cast(pl.Float64).fill_nan(None)
    missing = values.null_count()
    if missing == len(values):
        raise UsageError(
            "no packet entered the transmit queue at any point; allowed: a scenario with traffic"
        )
    filled = values.interpolate().fill_null(strategy="forward").fill_null(strategy="backward")
    return filled.to_list(), missing


def _load_ratio(column: pl.Series) -> list[float]:
    """Return mean offered load over offered load at each point [B07 4.4]."""
    load = column.cast(pl.Float64).to_list()
    mean = math.fsum(load) / len(load)
    silent = sum(1 for each in load if each <= LEAST_LOAD * mean)
    if silent:
        raise UsageError(
            f"{silent} of {len(load)} points have less than {100 * LEAST_LOAD:g} % of the mean offered load,"
            " so the load ratio cannot be fitted; allowed: a longer --interval, or more traffic"
        )
    return [mean / each for each in load]


def _new(flows: pl.DataFrame, ends: pl.Series, interval: float) -> list[float]:
    """Return connections opened in each interval as a share of those open in it; 0 if none is open."""
    edges = ends.to_numpy()
    import numpy as np

    opened = np.sort(flows["opened"].to_numpy())
    closed = np.sort(flows["closed"].drop_nulls().to_numpy())
    starts = np.concatenate(([edges[0] - interval], edges[:-1]))
    begun = np.searchsorted(opened, edges)
    fresh = begun - np.searchsorted(opened, starts)
    there = begun - np.searchsorted(closed, starts)
    return [int(new) / int(of) if of else 0.0 for new, of in zip(fresh, there, strict=True)]


def _digits(value: float, digits: int = 6) -> float:
    """Return `value` rounded to `digits` significant digits."""
    return float(f"{value:.{digits}g}")


def _text(content: Mapping[str, Any]) -> str:
    """Return JSON with one line per key."""

    def value(of: object) -> str:
        return json.dumps(of, ensure_ascii=False, allow_nan=False)

    def table(of: Mapping[str, object]) -> str:
        return "{\n" + ",\n".join(f"    {value(key)}: {value(each)}" for key, each in of.items()) + "\n  }"

    lines = (
        f"  {value(key)}: {table(each) if key in _KEYS else value(each)}" for key, each in content.items()
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


def markdown() -> str:
    """Return the table of docs/series.md: the series of the 2007 gateway and the variance explained."""
    lines = [
        "| `byun2007-gateway` | series | mean | standard deviation | `rms` | `explained` | noise |",
        "| --- | --- | --: | --: | --: | --: | --: |",
    ]
    for as_it_is in (False, True):
        found = capture("byun2007-gateway", as_it_is=as_it_is)
        name = f"unchanged: {plan.load(found.scenario).aqm}" if as_it_is else "without AQM and bottleneck"
        for key, series in found.series.items():
            scale, unit = {"pep_delay": (1e3, " ms"), "load_ratio": (1, ""), "new_connections": (100, " %")}[
                key
            ]
            std = math.sqrt(math.fsum((x - series.mean) ** 2 for x in series.measured) / len(series.measured))
            cells = [f"{number(value * scale)}{unit}" for value in (series.mean, std, series.rms)]
            explained = "–" if series.explained is None else f"{100 * series.explained:.1f} %"
            lines.append(
                f"| {name} | `{key}` | {' | '.join(cells)} | {explained} | {100 * series.noise:.1f} % |"
            )
    return "\n".join(lines) + "\n"
