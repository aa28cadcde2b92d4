"""Results as data frames."""

import json
import shutil
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal

import polars as pl

from bentpipe import files, pages
from bentpipe.errors import ResultError, UsageError
from bentpipe.format import meant, plural
from bentpipe.runs.former_names import SERIES as FORMER_SERIES
from bentpipe.runs.former_names import current_counters, current_table
from bentpipe.runs.store import (
    COUNTERS,
    MANIFEST,
    OPTIONAL,
    PAGES,
    REPORT,
    RETURN,
    SIMULATOR,
    TABLES,
    TERMINAL_SERIES,
    TERMINALS,
    TRACE,
    missing_runs,
    read_manifest,
    run_folder,
)
from bentpipe.stats.differences import MEANS, between, chosen, frame, verdict, within
from bentpipe.stats.experience import experience
from bentpipe.stats.groups import by_group
from bentpipe.stats.intervals import Summary, holm, paired, summarise
from bentpipe.stats.metrics import check_classes, evaluate, metrics_of
from bentpipe.stats.ranking import ranking
from bentpipe.stats.recorded import Metric, Recorded
from bentpipe.stats.steady import batch_means
from bentpipe.stats.warmup import SCHEMA, Warmup, detected
from bentpipe.tables import reading

if TYPE_CHECKING:
    from bentpipe.pages import Plot

__all__ = ["Result", "open_result"]

_TABLE = {**dict.fromkeys(("setting", "metric", "unit"), pl.String), **MEANS, "note": pl.String}
_DIFFERENCES = {
    **dict.fromkeys(("setting", "baseline", "metric", "unit"), pl.String),
    **dict.fromkeys(("difference", "std", "ci95"), pl.Float64),
    "runs": pl.UInt32,
    **dict.fromkeys(("ci_low", "ci_high"), pl.Float64),
    "method": pl.String,
    **dict.fromkeys(("p", "p_holm"), pl.Float64),
    "verdict": pl.String,
}
_METRICS = {
    "setting": pl.String,
    "seed": pl.UInt64,
    **dict.fromkeys(("metric", "unit"), pl.String),
    "value": pl.Float64,
}
_RECENT = 3
"""Number of tables that a result keeps."""
_LATE = 0.01
"""Lateness of packets on an emulated link (99th percentile) that counts as too late [s]: below 2 % of a
satellite's round trip."""


class Result:
    """Runs of one or more settings of a scenario, each with the same seeds.

    Returned by `run`, `compare` and `open`. Data frames are those of polars; each is also an Arrow stream,
    which pandas and pyarrow read without a copy.
    """

    def __init__(self, folder: Path, *, unfinished: bool = False, temporary: Path | None = None) -> None:
        """Read the manifest in `folder`; `ResultError` if it is not a result, or an incomplete one.

        `unfinished` accepts a result whose runs are complete but not yet summarised; `temporary` is a folder
        to delete with this object.
        """
        self.folder = folder
        """Folder of the files."""
        self.manifest: dict[str, Any] = read_manifest(folder)
        """Scenario, settings, versions and run times."""
        self._checked = set[Path]()
        self._recent = dict[tuple[str, int, str], pl.DataFrame]()
        """Tables that were read last: one figure after the other reads those of the same run."""
        # Only simulated runs can be resumed.
        self._mend = "repeat the command that made it with " + (
            "--resume" if self.engine == SIMULATOR else "--force"
        )
        if temporary is not None:
            weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
        missing = missing_runs(folder, self.manifest)
        total = len(self.manifest["settings"]) * len(self.manifest["seeds"])
        if missing or (self.manifest["status"] != "complete" and not unfinished):
            done = total - len(missing)
            what = (
                "its files are incomplete" if self.manifest["status"] == "complete" else "it is not finished"
            )
            raise ResultError(
                f"{folder}: {what}: {done} of {total} runs are complete"
                + (f", the first one missing is {missing[0]}" if missing else "")
                + f"; {self._mend}"
            )

    def __repr__(self) -> str:
        scenario = self.manifest["scenario"]["name"]
        return f"<bentpipe.Result {scenario}: {', '.join(self.settings)}; seeds {self.seeds}; {self.folder}>"

    def _repr_html_(self) -> str:
        return str(pages.draw("cells.result_cell", self))

    @property
    def engine(self) -> str:
        """Engine of the runs: `simulator` or `live`."""
        return str(self.manifest.get("engine", SIMULATOR))

    @property
    def notes(self) -> list[str]:
        """Differences between the live runs and their scenario, as notes."""
        notes_of_runs = (
            note for entry in self.manifest["runs"] for note in entry.get("live", {}).get("notes", [])
        )
        return list(dict.fromkeys(notes_of_runs))

    @property
    def invalid(self) -> list[str]:
        """Reasons why live runs are invalid: packets that were lost or bypassed the AQM, or corrupt data."""
        found = []
        for entry in self.manifest["runs"]:
            live = entry.get("live", {})
            losses = live.get("nfqueue", {})
            lost = losses.get("user_dropped", 0) + losses.get("queue_dropped", 0)
            traffic = live.get("load", {}).get("summary", {}).get("traffic", {})
            corrupt = sum(each["corrupt"] for each in traffic.values())
            downs = live.get("counters", {}).get("downs", 0)
            where = f"{entry['setting']}, seed {entry['seed']}: not valid: "
            if downs:
                found.append(
                    f"{where}the spacelink was lost{' ' + plural(downs, 'time') if downs > 1 else ''}, and"
                    " packets bypassed the gateway's AQM until it was restored"
                )
            if lost:
                found.append(
                    f"{where}{plural(lost, 'packet')} overflowed the kernel's queue before the gateway's AQM;"
                    " the machine was too slow"
                )
            if corrupt:
                found.append(f"{where}{plural(corrupt, 'flow')} delivered corrupt data")
        return found

    @property
    def late(self) -> list[str]:
        """Live runs whose emulated links delivered packets too late, as warnings."""
        found = []
        for entry in self.manifest["runs"]:
            statistics = entry.get("live", {}).get("links", {}).get("statistics", {})
            late = statistics.get("late", {}).get("p99_s") or 0.0
            if late > _LATE:
                found.append(
                    f"{entry['setting']}, seed {entry['seed']}: one packet in a hundred left the emulated"
                    f" links at least {late * 1e3:.0f} ms late; the machine was too slow or busy"
                )
        return found

    @property
    def settings(self) -> list[str]:
        """Names of the settings, in the given order."""
        return [setting["name"] for setting in self.manifest["settings"]]

    @property
    def seeds(self) -> list[int]:
        """Seeds of the runs of every setting."""
        return list(self.manifest["seeds"])

    @cached_property
    def _values(self) -> dict[tuple[str, int], dict[str, float | None]]:
        return {
            (setting, seed): evaluate(self.recorded(setting, seed))
            for setting in self.settings
            for seed in self.seeds
        }

    def recorded(self, setting: str, seed: int) -> Recorded:
        """Return the tables and counters of one run, from which its metrics are computed."""
        return Recorded(
            series=self._read(setting, seed, "series"),
            flows=self._read(setting, seed, "flows"),
            drop_runs=self._read(setting, seed, "drop_runs"),
            counters=self.counters_of(setting, seed),
            capacity=self._setting(setting)["capacity"],
            traffic=self.traffic,
            pages=self._read(setting, seed, PAGES) if self.manifest.get(PAGES) else None,
            limits=self.thresholds,
            drops=lambda: self._scan(setting, seed, "drops"),
        )

    @property
    def classes(self) -> list[str]:
        """Classes of traffic, in the order of the scenario; none if an earlier version made the result."""
        return list(dict.fromkeys(each[1] for each in self.traffic))

    @property
    def traffic(self) -> list[tuple[str, str, str]]:
        """Name, class and kind of each traffic entry; none if an earlier version made the result."""
        return [(name, of, kind) for name, of, kind in self.manifest.get("traffic", [])]

    @property
    def thresholds(self) -> list[tuple[str, float, float]]:
        """Limits of good and bad that the scenario sets: measure, good and bad of each."""
        return [(measure, good, bad) for measure, good, bad in self.manifest.get("thresholds", [])]

    def summary(self, setting: str, metric: str) -> Summary:
        """Return the mean of a metric of a setting over its runs, with its interval."""
        place = [each.name for each in self.known_metrics].index(metric)
        return self._summaries[setting][place]

    @property
    def _sides(self) -> dict[str, bool]:
        """True if a gateway has several terminals, and if terminals have queues of the return direction."""
        return {"terminals": bool(self.manifest.get(TERMINALS)), "returns": bool(self.manifest.get(RETURN))}

    @cached_property
    def known_metrics(self) -> list[Metric]:
        """All metrics of the result, those of its classes of traffic last."""
        return metrics_of(self.traffic, **self._sides)

    def values(self) -> dict[str, dict[str, list[float | None]]]:
        """Return every metric of every setting: one value per seed, in the order of the seeds."""
        return {
            setting: {
                metric.name: [self._values[setting, seed][metric.name] for seed in self.seeds]
                for metric in self.known_metrics
            }
            for setting in self.settings
        }

    def metrics(self) -> pl.DataFrame:
        """Return every metric of every run: `setting`, `seed`, `metric`, `unit`, `value` (may be null)."""
        rows = [
            (setting, seed, metric.name, metric.unit, values[metric.name])
            for (setting, seed), values in self._values.items()
            for metric in self.known_metrics
        ]
        return pl.DataFrame(rows, schema=_METRICS, orient="row")

    def rows(self) -> list[dict[str, Any]]:
        """Return `table()` as a list of dictionaries, ready for JSON."""
        return [
            {
                "setting": setting,
                "metric": metric.name,
                "unit": metric.unit,
                **found.row(),
                "note": found.note,
            }
            for setting in self.settings
            for metric, found in zip(self.known_metrics, self._summaries[setting], strict=True)
        ]

    @cached_property
    def _summaries(self) -> dict[str, list[Summary]]:
        """Summaries of every metric of each setting, in the order of `known_metrics`."""
        if len(self.seeds) == 1:
            return {setting: self._one_run(setting) for setting in self.settings}
        return {
            setting: [summarise(values[metric.name]) for metric in self.known_metrics]
            for setting, values in self.values().items()
        }

    def _one_run(self, setting: str) -> list[Summary]:
        """Summarise the only run of a setting; means over samples get intervals from batch means."""
        seed = self.seeds[0]
        recorded, values = self.recorded(setting, seed), self._values[setting, seed]
        found = []
        for metric in self.known_metrics:
            plain, value = summarise([values[metric.name]]), values[metric.name]
            if metric.mean_of is None or value is None:
                found.append(plain)
                continue
            known = batch_means(recorded.samples(metric.mean_of).to_list())
            found.append(known.times(value / known.mean) if known.mean else plain)
        return found

    def table(self) -> pl.DataFrame:
        """Return every metric of every setting over its runs.

        Columns: `setting`, `metric`, `unit`, `mean`, `std` (between runs, null for one run), `ci95`
        (half-width of the 95 % interval of the mean), `runs` (those with a value), `ci_low` and `ci_high`
        (ends of the interval), `method` (`student`, `bootstrap` or, for one run, `batch means`), `note`
        (reason for a missing interval).
        """
        return pl.DataFrame(self.rows(), schema=_TABLE, orient="row")

    def differences(self, baseline: str | None = None, metrics: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the differences of all settings from `baseline` (default: the first setting).

        Runs with the same seed have the same traffic and are compared pairwise. Columns: `setting`,
        `baseline`, `metric`, `unit`, `difference` (mean of setting minus baseline), `std`, `ci95` (half-width
        of the 95 % interval of `difference`), `runs` (pairs), `ci_low` and `ci_high` (its ends), `method`,
        `p` (of no difference), `p_holm` (corrected over all rows of the frame) and `verdict`. `metrics` are
        all by default; fewer metrics need a weaker correction. `UsageError` if one is unknown.
        """
        baseline = self.settings[0] if baseline is None else baseline
        self._setting(baseline)
        wanted = self.known_metrics if metrics is None else chosen(metrics)
        check_classes([metric.name for metric in wanted], self.traffic, **self._sides)
        values = self.values()
        labels, summaries = list[tuple[str, str, str, str]](), list[Summary]()
        for setting in self.settings:
            if setting == baseline:
                continue
            for metric in wanted:
                labels.append((setting, baseline, metric.name, metric.unit))
                summaries.append(paired(values[setting][metric.name], values[baseline][metric.name]))
        rows = [
            (*label, *found.row().values(), found.p, p, verdict(label[0], baseline, found, p))
            for label, found, p in zip(labels, summaries, holm([each.p for each in summaries]), strict=True)
        ]
        return pl.DataFrame(rows, schema=_DIFFERENCES, orient="row")

    def comparisons(
        self,
        metrics: Sequence[str] | None = None,
        settings: Sequence[str] | None = None,
        other: "Result | None" = None,
    ) -> pl.DataFrame:
        """Return pairwise comparisons of all settings, or of equal settings in this and another result.

        `metrics` are by default those that rank settings; `settings` are all. Columns: `a`, `b`, `metric`,
        `unit`, `mean_a`, `mean_b`, `runs_a`, `runs_b`, `difference` (of a minus b), `ci95`, `ci_low`,
        `ci_high`, `method`, `pairing` (`paired by seed` or `independent`), `runs`, `p`, `p_holm` (corrected
        over all rows of the frame), `verdict` (`A is higher`, `no difference seen`). Raises `UsageError` if
        there is nothing to compare, or for an unknown metric.
        """
        wanted = chosen(metrics)
        if other is None:
            return frame(within(self, wanted, settings))
        return frame(between(self, other, wanted, settings))

    def ranking(self) -> pl.DataFrame:
        """Return the settings in the order of their mean rank, the best first.

        Columns: `setting`, `place`, `mean_rank`, and the rank in each metric that ranks settings: one more
        than the number of significantly better settings.
        """
        rows = [
            {"setting": each.setting, "place": each.place, "mean_rank": each.mean} | each.ranks
            for each in ranking(self)
        ]
        return pl.DataFrame(rows)

    @cached_property
    def settled(self) -> list[Warmup]:
        """Settling times of the main series of each setting, by MSER-5."""
        scenario = self.manifest["scenario"]
        return detected(self.settings, self.seeds, lambda s, n: self._read(s, n, "series"), scenario)

    def warmup(self) -> pl.DataFrame:
        """Return the settling times of the main series of each setting, by MSER-5 (docs/statistics.md).

        Columns: `setting`, `series`, `unit`, `discarded` (the scenario's warm-up [s]), `detected` (the
        warm-up by MSER-5, median over the runs [s]; null if most do not settle), `mean_before`, `mean_after`
        (of the measured time, before and after that moment), `clear` (true if these differ significantly),
        `runs`.
        """
        return pl.DataFrame([each.row() for each in self.settled], schema=SCHEMA)

    def series(self, name: str) -> pl.DataFrame:
        """Return one column of the time series of every run: `setting`, `seed`, `time` [s], `value`.

        Raises `ResultError` for an unknown `name`.
        """
        known = self.series_names()
        if name not in known:
            hint = meant(name, known, most=3) or f"there are {', '.join(known)}"
            if name in FORMER_SERIES:
                hint = f"it is now called {FORMER_SERIES[name]}"
            raise ResultError(f'there is no series "{name}"; {hint}')
        return self._gather("series", lambda table: table.select("time", pl.col(name).alias("value")))

    def series_names(self) -> list[str]:
        """Return the columns common to the time series of all runs, except `time`."""
        columns = [self._read(setting, self.seeds[0], "series").columns for setting in self.settings]
        return [name for name in columns[0] if name != "time" and all(name in other for other in columns)]

    def flows(self) -> pl.DataFrame:
        """Return every flow of every run: `setting`, `seed`, and the columns of docs/results.md."""
        return self._gather("flows")

    def drops(self) -> pl.DataFrame:
        """Return every drop of every run: `setting`, `seed`, and the columns of docs/results.md."""
        return self._gather("drops")

    def drop_runs(self) -> pl.DataFrame:
        """Return the number of runs of consecutive drops by length: `setting`, `seed`, `length`, `count`."""
        return self._gather("drop_runs")

    def terminals(self) -> pl.DataFrame:
        """Return what each terminal was sent: `setting`, `seed`, and the columns of docs/results.md.

        Raises `ResultError` if every gateway has one terminal.
        """
        if not self.manifest.get(TERMINALS):
            raise ResultError(f"{self.folder}: no gateway of the scenario has several terminals")
        return self._gather(TERMINALS)

    def groups(self) -> pl.DataFrame:
        """Return what groups of terminals and pools got: `setting`, `seed`, and columns of docs/results.md.

        Raises `ResultError` if every gateway has one terminal, or if an older Bentpipe made the result.
        """
        terminals = self.terminals()
        if "page_time_mean" not in terminals.columns:
            raise ResultError(f"{self.folder}: an older Bentpipe made it, without the pages of terminals")
        experience = self.experience() if self.manifest.get(PAGES) else None
        return by_group(terminals, self.manifest["scenario"]["duration"], experience)

    def experience(self) -> pl.DataFrame:
        """Return the quality of calls, viewings and pages of each terminal, a row for each of its classes.

        Columns: `setting`, `seed`, `terminal`, `class`; `mos`, mean over its calls and viewings;
        `page_time_p75`, 75th percentile of its page load time [s], infinite if failed pages decide it;
        `stalled`, time as a share of the time played [%]; `grade`, `good`, `fair` or `bad` by the thresholds
        (docs/qoe.md) of its `mos`, or of `page_time_p75` in a class of pages. Null where a terminal has no
        such traffic. Models: ITU-T G.107 and P.1203, mode 0. Raises `ResultError` if every gateway has one
        terminal, or if an older Bentpipe made the result.
        """
        if not self.manifest.get(TERMINALS):
            raise ResultError(f"{self.folder}: no gateway of the scenario has several terminals")
        if not self.manifest.get(PAGES):
            raise ResultError(f"{self.folder}: an older Bentpipe made it, without a table of pages")
        rows = []
        for setting in self.settings:
            for seed in self.seeds:
                run = self.recorded(setting, seed)
                for traffic_class in self.classes:
                    found = experience(run, traffic_class)
                    rows.append(
                        found.select(
                            pl.lit(setting).alias("setting"),
                            pl.lit(seed, dtype=pl.UInt64).alias("seed"),
                            "terminal",
                            pl.lit(traffic_class).alias("class"),
                            pl.exclude("terminal"),
                        )
                    )
        return pl.concat(rows)

    def pages(self) -> pl.DataFrame:
        """Return the pages of users behind terminals: `setting`, `seed`, and the columns of docs/results.md.

        Raises `ResultError` if every gateway has one terminal, or if an older Bentpipe made the result.
        """
        if not self.manifest.get(PAGES):
            raise ResultError(f"{self.folder}: has no table of pages")
        return self._gather(PAGES)

    def terminal_series(self) -> pl.DataFrame:
        """Return what each terminal was sent over time: `setting`, `seed`, columns of docs/results.md.

        Raises `ResultError` if every gateway has one terminal, or if an older Bentpipe made the result.
        """
        if not self.manifest.get(TERMINAL_SERIES):
            raise ResultError(f"{self.folder}: has no series of terminals")
        return self._gather(TERMINAL_SERIES)

    def trace(self) -> pl.DataFrame:
        """Return the sender state of the traced flows: `setting`, `seed`, and the columns of docs/results.md.

        Raises `ResultError` if no flow was traced.
        """
        if not self.traced:
            raise ResultError(
                f"{self.folder}: no flow was traced; simulate with --trace, for example flow:17"
            )
        return self._gather(TRACE)

    @property
    def traced(self) -> list[str]:
        """Traced flows, as given to `--trace`."""
        return list(self.manifest.get("trace", []))

    def counters(self) -> pl.DataFrame:
        """Return the counters of every run: `setting`, `seed`, `counter`, `value`."""
        rows = [
            (setting, seed, name, value)
            for setting in self.settings
            for seed in self.seeds
            for name, value in self.counters_of(setting, seed).items()
        ]
        schema = {"setting": pl.String, "seed": pl.UInt64, "counter": pl.String, "value": pl.Float64}
        return pl.DataFrame(rows, schema=schema, orient="row")

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report as one HTML file that opens offline; return its path.

        The default is `report.html` in the result's folder. Replaces the file if it exists.
        """
        return pages.write("comparison.render", self, self.folder / REPORT if path is None else Path(path))

    def plot(
        self,
        name: str,
        *,
        settings: str | Sequence[str] | None = None,
        seed: int | None = None,
        kind: Literal["series", "metric"] | None = None,
    ) -> "Plot":
        """Return an Altair chart of a time series or of a metric.

        A series, as `"transmit_queue"`, is drawn over the measured time [s] of the run with `seed`
        (default: the first), a panel for each setting. A metric, as `"voice.mos"`, is drawn with its 95 %
        interval for each setting, the runs as ticks; dashed lines are the limits of good and bad. A name
        that is both is a series, unless `kind` is `"metric"`. `settings` are all by default, or the best of
        many. `chart.save("x.svg")` writes a file. Raises `UsageError` for an unknown name, setting or seed,
        and without any value.
        """
        chart: Plot = pages.draw("plots.result_chart", self, name, settings=settings, seed=seed, kind=kind)
        return chart

    def save(self, folder: str | Path) -> "Result":
        """Copy a result from its temporary folder to `folder`, which must not exist."""
        target = Path(folder)
        try:
            shutil.copytree(self.folder, target, ignore=shutil.ignore_patterns(MANIFEST))
            shutil.copy2(self.folder / MANIFEST, target / MANIFEST)
        except FileExistsError:
            raise UsageError(f"{target}: exists already") from None
        except OSError as error:
            raise UsageError(f"{target}: cannot be written: {error}") from None
        return Result(target)

    def setting_info(self, name: str) -> dict[str, Any]:
        """Return the manifest's entry of a setting; `ResultError` if it is not a setting of this result."""
        return dict(self._setting(name))

    def one(self, table: str, setting: str, seed: int, columns: Sequence[str] | None = None) -> pl.DataFrame:
        """Return a table of one run: `series`, `drops`, `flows`, `drop_runs`.

        Also `terminals`, `terminal_series` and `pages` if a gateway has several, and `trace` of a traced run.

        Of `columns`, those that the table has are read; without `columns`, all.
        """
        tables = (*TABLES, *(name for name in OPTIONAL if self.manifest.get(name)))
        if table not in tables:
            raise ResultError(f'there is no table "{table}"; there are {", ".join(tables)}')
        return self._read(setting, seed, table, columns)

    def counters_of(self, setting: str, seed: int) -> dict[str, float | None]:
        """Return the counters of one run; None where one is unknown."""
        path = self._run(setting, seed) / COUNTERS
        with self._reading(path):
            counters: dict[str, float | None] = json.loads(path.read_text(encoding="utf-8"))
        shape = dict.fromkeys(counters, (int, float, NoneType)) if isinstance(counters, dict) else {}
        files.require_shape(counters, shape, path)
        return current_counters(counters)

    def _setting(self, name: str) -> dict[str, Any]:
        for setting in self.manifest["settings"]:
            if setting["name"] == name:
                return dict(setting)
        raise ResultError(f'there is no setting "{name}"; there are {", ".join(self.settings)}')

    def _run(self, setting: str, seed: int) -> Path:
        return run_folder(self.folder, self._setting(setting)["slug"], seed)

    def _read(
        self, setting: str, seed: int, table: str, columns: Sequence[str] | None = None
    ) -> pl.DataFrame:
        place = (setting, seed, table)
        with self._reading(self._path(*place)):
            if columns is not None:
                found = self._scan(*place)
                names = found.collect_schema().names()
                return found.select([name for name in columns if name in names]).collect()
            whole = self._recent.pop(place, None)
            if whole is None:
                whole = self._scan(*place).collect()
            self._recent[place] = whole
            while len(self._recent) > _RECENT:
                del self._recent[next(iter(self._recent))]
            # Callers may change their table.
            return whole.clone()

    def _scan(self, setting: str, seed: int, table: str) -> pl.LazyFrame:
        path = self._path(setting, seed, table)
        with self._reading(path):
            return current_table(pl.scan_parquet(path, parallel="none"))

    def _path(self, setting: str, seed: int, table: str) -> Path:
        return self._run(setting, seed) / f"{table}.parquet"

    @contextmanager
    def _reading(self, path: Path) -> Iterator[None]:
        """Read a file of a run, once its folder has been compared with its checksums."""
        if path.parent not in self._checked:
            try:
                files.check(path.parent)
            except ResultError as error:
                raise ResultError(f"{error}; {self._mend}") from None
            self._checked.add(path.parent)
        with reading(path):
            yield

    def _gather(
        self, table: str, choose: Callable[[pl.DataFrame], pl.DataFrame] = lambda table: table
    ) -> pl.DataFrame:
        return pl.concat(self._labelled(table, choose), how="diagonal_relaxed")

    def _labelled(self, table: str, choose: Callable[[pl.DataFrame], pl.DataFrame]) -> Iterator[pl.DataFrame]:
        for setting in self.settings:
            for seed in self.seeds:
                yield choose(self._read(setting, seed, table)).select(
                    pl.lit(setting).alias("setting"), pl.lit(seed, dtype=pl.UInt64).alias("seed"), pl.all()
                )


def open_result(folder: str | Path) -> Result:
    """Open a stored result; `ResultError` if the folder is not a result, or an incomplete one."""
    return Result(Path(folder))
