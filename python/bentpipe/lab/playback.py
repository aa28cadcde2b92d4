"""Runs of a scenario side by side: advanced, changed in between, and replayed.

The same text, settings, seed and changes give the same runs, so that going back in time is running again.
"""

import io
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from bentpipe._core import Scenario, Simulation
from bentpipe.errors import ScenarioError, UsageError
from bentpipe.lab import limits
from bentpipe.runs.plan import under
from bentpipe.runs.source import key_of
from bentpipe.stats.recorded import Recorded
from bentpipe.stats.services import Service, services

__all__ = ["Change", "Playback", "Side", "check_files", "opened", "seed_for_page"]


@dataclass(frozen=True, slots=True)
class Change:
    """A key that gets another value at a time of the run."""

    time: float
    """Simulated time [s]."""
    key: str
    value: str

    @property
    def override(self) -> str:
        """The change as `key=value`."""
        return f"{self.key}={self.value}"


@dataclass(slots=True)
class Side:
    """One setting's run, and what of it has been sent."""

    setting: str
    scenario: Scenario
    simulation: Simulation
    services: list[Service]
    samples: int = 0
    drops: int = 0


def opened(text: str, file: str, overrides: Iterable[str] = ()) -> Scenario:
    """Return the scenario of a text in which the whole run is measured; `ScenarioError` if it is wrong.

    `file` is its path, to which names of files are relative. Raises `UsageError` beyond a limit.
    """
    given = list(overrides)
    plain = Scenario.parse(text, file, given)
    duration = plain.warmup + plain.duration
    if duration > limits.DURATION:
        raise UsageError(
            f"run.duration: the run takes {duration:g} s with its warm-up; allowed in the lab: at most"
            f" {limits.DURATION:g} s"
        )
    whole = {"run.warmup": "0 s", "run.duration": f"{duration!r} s"}
    others = [each for each in given if key_of(each) not in whole]
    return Scenario.parse(text, file, [*others, *(f"{key}={value}" for key, value in whole.items())])


def check_files(scenario: Scenario, file: str, folder: Path) -> None:
    """Raise `UsageError` if a scenario names a file that is neither in `folder` nor shipped."""
    shipped = Path(__file__).parents[1] / "data" / "scenarios"
    packed = scenario.packed()
    for path, _ in packed[5] if packed else []:
        there = Path(path).resolve()
        if not any(there.is_relative_to(each.resolve()) for each in (folder, shipped)):
            raise UsageError(f"{file}: names the file {path}; allowed in the lab: files in {folder}")


class Playback:
    """Runs of a scenario under several settings with the same seed, at the same simulated time."""

    def __init__(
        self,
        text: str,
        file: str,
        settings: Sequence[str],
        seed: int | None = None,
        changes: Iterable[Change] = (),
        folder: Path | None = None,
    ) -> None:
        """Begin at time zero. No `settings` means the scenario as it is.

        Files that the scenario names, also by a setting or a change, must be in `folder` or shipped. Raises
        `ScenarioError` for what is wrong in the text, a setting or a change, `UsageError` beyond a limit.
        """
        if len(settings) > limits.SETTINGS:
            raise UsageError(
                f"settings: found {len(settings)}; allowed side by side: at most {limits.SETTINGS}"
            )
        if seed is not None and not _is_seed(seed):
            raise UsageError(f"seed: found {seed}; allowed: a whole number from 0 to 2^64 - 1")
        self._text, self._file, self._folder = text, file, folder or Path()
        base = opened(text, file)
        self.settings = list(settings) or [base.aqm]
        self._is_named = bool(settings)
        self.seed = base.seed if seed is None else seed
        self.changes = sorted(changes, key=lambda change: change.time)
        self.sides: list[Side] = []
        self._made = 0
        self._begin()

    def _begin(self) -> None:
        self._made = 0
        self.sides = []
        for setting in self.settings:
            scenario = self._scenario(setting, ())
            self.sides.append(
                Side(
                    setting,
                    scenario,
                    Simulation(scenario, self.seed),
                    services(scenario.traffic, scenario.thresholds),
                )
            )
        self._make_changes(0.0)

    def _scenario(self, setting: str, changes: Iterable[Change]) -> Scenario:
        last = {change.key: change.override for change in changes}
        scenario = opened(self._text, self._file, last.values())
        found = under(scenario, setting) if self._is_named else scenario
        check_files(found, self._file, self._folder)
        return found

    @property
    def now(self) -> float:
        """Simulated time [s]."""
        return self.sides[0].simulation.now

    @property
    def end(self) -> float:
        """End of the run [s]."""
        return self.sides[0].simulation.end

    def advance(self, to: float) -> None:
        """Advance all runs to a time [s], and make the changes on the way."""
        to = min(to, self.end)
        for change in self.changes[self._made :]:
            if change.time > to:
                break
            self._run_to(change.time)
            self._make_changes(change.time)
        self._run_to(to)

    def _run_to(self, to: float) -> None:
        for side in self.sides:
            side.simulation.advance(to)

    def _make_changes(self, time: float) -> None:
        while self._made < len(self.changes) and self.changes[self._made].time <= time:
            self._made += 1
            self._apply()

    def _apply(self) -> None:
        """Let every run go on under the changes made so far."""
        made = self.changes[: self._made]
        for side in self.sides:
            side.simulation.change(self._scenario(side.setting, made))

    def change(self, key: str, value: str) -> Change:
        """Give a key another value from now on; later changes are forgotten.

        Raises `ScenarioError` if the value is wrong, or the key cannot change during a run, `UsageError`
        beyond a limit; then nothing has changed.
        """
        made = Change(self.now, key, value)
        before = self.changes
        self.changes = [*before[: self._made], made]
        self._made += 1
        try:
            self._apply()
        except (ScenarioError, UsageError):
            # Some runs may have changed: all begin again.
            self.changes = before
            self._repeat(made.time)
            raise
        return made

    def step(self) -> None:
        """Advance to the next packet that arrives at the first subject, leaves it or is dropped there.

        Changes on the way are made.
        """
        self.sides[0].simulation.step()
        while self._made < len(self.changes) and self.changes[self._made].time <= self.now:
            # The first run has passed the change, and only time zero is before it.
            self._repeat(self.changes[self._made].time)
            self.sides[0].simulation.step()
        for side in self.sides[1:]:
            side.simulation.advance(self.now)

    def _repeat(self, to: float) -> None:
        """Run from time zero to a time [s] again, at which all that has been sent is the same."""
        sent = [(side.samples, side.drops) for side in self.sides]
        self._begin()
        for side, (samples, drops) in zip(self.sides, sent, strict=True):
            side.samples, side.drops = samples, drops
        self.advance(to)

    def seek(self, to: float) -> None:
        """Go to a time [s], before or after the present."""
        if to < self.now:
            self._begin()
        self.advance(to)

    # ----- what the page shows ----------------------------------------------------------------------------

    def tables(self, side: Side, *, packets: bool) -> dict[str, bytes]:
        """Return what a run has recorded since the last call, as Arrow streams by name.

        `series` has a row per sample, `drops` one per drop; `packets`, if wanted, one per packet in flight.
        """
        series = pl.DataFrame(side.simulation.series(side.samples))
        drops = pl.DataFrame(side.simulation.drops(side.drops))
        side.samples += len(series)
        side.drops += len(drops)
        found = {"series": _stream(_thinned(series)), "drops": _stream(_thinned(drops.select("time")))}
        if packets:
            found["packets"] = _stream(pl.DataFrame(side.simulation.packets(limits.PACKETS)))
        return found

    def forget_sent(self) -> None:
        """Send everything again with the next call of `tables`."""
        for side in self.sides:
            side.samples = side.drops = 0

    def served(self, side: Side) -> list[dict[str, object]]:
        """Return the figure by which the users of each class judge their service so far, with its grade."""
        run = side.simulation.run()
        recorded = Recorded(
            pl.DataFrame(run.series),
            pl.DataFrame(run.flows),
            pl.DataFrame(run.drop_runs),
            run.counters,
            side.scenario.capacity,
            side.scenario.traffic,
            None if run.pages is None else pl.DataFrame(run.pages),
            side.scenario.thresholds,
        )
        rows: list[dict[str, object]] = []
        for service in side.services:
            value = service.metric.of(recorded)
            rows.append(
                {
                    "class": service.traffic_class,
                    "label": service.metric.label,
                    "unit": service.metric.unit,
                    "value": value,
                    "grade": service.grade(value),
                }
            )
        return rows

    def first_drop(self) -> float | None:
        """Return the time of the first drop of any run so far [s]; None without."""
        times = [time for side in self.sides for time in _times(side, 1)]
        return min(times, default=None)

    def slowest_page(self) -> tuple[float, float] | None:
        """Return begin and end of the page that took longest to load in any run [s]; None without."""
        pages = [page for side in self.sides if (page := side.simulation.slowest_page()) is not None]
        return max(pages, key=lambda page: page[1] - page[0], default=None)

    def worst_flow(self) -> tuple[float, float] | None:
        """Return when the flow with the longest completion time was opened and closed [s]; None without."""
        found = pl.concat(
            pl.DataFrame(side.simulation.run().flows)
            .filter(pl.col("completed"))
            .select("completion_time", "opened", "closed")
            for side in self.sides
        ).top_k(1, by="completion_time")
        return found.row(0)[1:] if len(found) else None


def seed_for_page(seed: int) -> int | str:
    """Return a seed as the page gets it: above 2^53, where JavaScript rounds numbers, as a text."""
    return seed if seed < 2**53 else str(seed)


def _is_seed(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**64


def _times(side: Side, most: int) -> Iterator[float]:
    yield from pl.DataFrame(side.simulation.drops(0))["time"].head(most)


def _thinned(table: pl.DataFrame) -> pl.DataFrame:
    """Return an even share of a table that is too long for a frame."""
    every = -(-len(table) // limits.ROWS)
    return table.gather_every(every) if every > 1 else table


def _stream(table: pl.DataFrame) -> bytes:
    """Return a table as an Arrow stream without compression."""
    buffer = io.BytesIO()
    table.write_ipc_stream(buffer, compression="uncompressed")
    return buffer.getvalue()
