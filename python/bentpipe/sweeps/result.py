"""Results of a sweep: metrics at each point, and differences between settings."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from bentpipe import files, pages
from bentpipe.errors import ResultError, UsageError
from bentpipe.runs.dataset import FORMAT, MANIFEST, checked_manifest, failures_of, read_all
from bentpipe.runs.former_names import current_document
from bentpipe.runs.store import REPORT
from bentpipe.stats.differences import MEANS, PAIRED, Comparison, corrected
from bentpipe.stats.intervals import paired, summarise
from bentpipe.stats.metrics import Metric, find, named_metric

if TYPE_CHECKING:
    from bentpipe.pages import Plot

__all__ = ["DEFAULT_METRICS", "SweepResult", "check_metrics", "is_sweep", "narrow", "open_sweep"]

DEFAULT_METRICS = ("throughput", "queue_delay_mean")


class SweepResult:
    """A sweep's dataset, complete, interrupted or still running."""

    def __init__(self, folder: str | Path) -> None:
        """Read the manifest in `folder`; `ResultError` if it is not a sweep's."""
        self.folder = Path(folder)
        """Folder of the files."""
        self.manifest: dict[str, Any] = _manifest(self.folder)
        """Request, versions and status of the sweep."""

    def __repr__(self) -> str:
        found = self.manifest
        name = found.get("scenario", {}).get("name", "?")
        return f"<bentpipe.SweepResult {name}: {', '.join(self.factors)}; {self.folder}>"

    def _repr_html_(self) -> str:
        return str(pages.draw("cells.sweep_cell", self))

    @property
    def complete(self) -> bool:
        """True if the sweep finished; runs may have failed."""
        return bool(self.manifest["status"] == "complete")

    @property
    def factors(self) -> tuple[str, ...]:
        """Varied keys."""
        return tuple(self.manifest["factors"])

    @property
    def metrics(self) -> tuple[str, ...]:
        """Metrics shown in tables and reports."""
        return tuple(self.manifest.get("metrics") or DEFAULT_METRICS)

    @property
    def failures(self) -> list[dict[str, Any]]:
        """Failed runs: `setting`, `point` (the value of each factor), `seed`, `error`."""
        return failures_of(self.folder)

    def frame(self) -> pl.DataFrame:
        """Return one row per run: setting, a column for each factor, seed, digest, and every metric.

        Factors are strings, as in a scenario file. Raises `ResultError` if the files cannot be read.
        """
        return read_all(self.folder, self.factors)

    @property
    def settings(self) -> list[str]:
        """Settings with runs, in the order of the latest request."""
        there = self.frame()["setting"].unique(maintain_order=True).to_list()
        asked = [name for name in self.manifest.get("settings", []) if name in there]
        return [*asked, *(name for name in there if name not in asked)]

    def rows(self, metrics: Sequence[str] | None = None) -> list[dict[str, Any]]:
        """Return the mean of each metric with its 95 % interval, for each setting and point.

        `metrics` default to those of the sweep. Raises `UsageError` for an unknown metric.
        """
        everything = self.frame()
        chosen = self._chosen(metrics, everything)
        found: list[dict[str, Any]] = []
        places = {name: place for place, name in enumerate(self.settings)}
        groups = list(self._groups(everything, "setting", *self.factors))
        for key, table in sorted(groups, key=lambda group: places[group[0][0]]):
            named = dict(zip(("setting", *self.factors), key, strict=True))
            for metric in chosen:
                summary = summarise(table[metric.name].to_list())
                found.append({**named, "metric": metric.name, "unit": metric.unit, **summary.row()})
        return found

    def table(self, metrics: Sequence[str] | None = None) -> pl.DataFrame:
        """Return `rows` as a data frame."""
        schema = {**dict.fromkeys(("setting", *self.factors, "metric", "unit"), pl.String), **MEANS}
        return pl.DataFrame(self.rows(metrics), schema=schema)

    def differences(self, a: str, b: str, metrics: Sequence[str] | None = None) -> pl.DataFrame:
        """Return the differences of each metric between settings `a` and `b` at each point, paired by seed.

        A column for each factor, then `a`, `b`, `metric`, `unit`, `mean_a`, `mean_b`, `difference`, its
        `std` and 95 % interval (`ci95`, `ci_low`, `ci_high`, `method`), `runs`, `p`, `p_holm`, corrected over
        all rows (Holm), and `verdict`. Seeds without a partner are left out. Raises `ResultError` for an
        unknown setting, `UsageError` for an unknown metric or the same setting twice.
        """
        if a == b:
            raise UsageError(f"setting {a}: found twice; allowed: two settings")
        everything = self.frame()
        chosen = self._chosen(metrics, everything)
        for name in (a, b):
            if name not in set(everything["setting"]):
                raise ResultError(
                    f'{self.folder}: there is no setting "{name}"; there are {", ".join(self.settings)}'
                )
        sides = [
            {key: table for key, table in self._groups(part, *self.factors)}  # noqa: C416
            for part in (everything.filter(pl.col("setting") == name) for name in (a, b))
        ]
        points = [point for point in sides[0] if point in sides[1]]
        found: list[Comparison] = []
        for point in points:
            both = sides[0][point].join(sides[1][point], on="seed", suffix=" of b", maintain_order="left")
            found += [_compared(a, b, metric, both) for metric in chosen]
        places = [point for point in points for _ in chosen]
        rows = [
            {**dict(zip(self.factors, place, strict=True)), **each.row(), "std": each.found.std}
            for place, each in zip(places, corrected(found), strict=True)
        ]
        return pl.DataFrame(rows, schema={**dict.fromkeys(self.factors, pl.String), **_DIFFERENCES})

    def _chosen(self, metrics: Sequence[str] | None, table: pl.DataFrame) -> list[Metric]:
        """Return the metrics asked for; `UsageError` for one that the runs of `table` do not have."""
        chosen = check_metrics(self.metrics if metrics is None else metrics)
        for metric in chosen if len(table) else ():
            if metric.name not in table.columns:
                classes = dict.fromkeys(name.rpartition(".")[0] for name in table.columns if find(name))
                raise UsageError(
                    f"{self.folder}: has no metric {metric.name}; its classes of traffic are"
                    f" {', '.join(filter(None, classes)) or 'not recorded'}"
                )
        return chosen

    def newest(self, table: pl.DataFrame) -> pl.DataFrame:
        """Return the runs of `frame` over which means are taken.

        For each setting and point these are the runs of the latest build, if there are any.
        """
        ours = pl.col("core") == self.manifest["core"]["sha256"]
        return table.filter(ours | ~ours.any().over("setting", *self.factors))

    def _groups(self, table: pl.DataFrame, *keys: str) -> Iterator[tuple[tuple[str, ...], pl.DataFrame]]:
        """Yield each place with its runs, see `newest`."""
        known = self.newest(table)
        parts: Iterator[tuple[tuple[Any, ...], pl.DataFrame]] = (
            iter(known.group_by(*keys, maintain_order=True)) if keys else iter([((), known)])
        )
        for place, part in parts:
            if not part.is_empty():
                yield tuple(map(str, place)), part

    def report(self, path: str | Path | None = None) -> Path:
        """Write the report as one HTML file that opens offline; return its path.

        The default is `report.html` in the dataset's folder. Replaces the file if it exists.
        """
        return pages.write("sweep.render", self, self.folder / REPORT if path is None else Path(path))

    def plot(self, metric: str, *, x: str | None = None) -> "Plot":
        """Return an Altair chart of a metric at the points of the sweep, with 95 % intervals.

        `x` is the factor on the horizontal axis; the means are then over all values of the other factors of a
        grid. Without it, one factor is drawn as lines, two as maps, and more as an effect each. Raises
        `UsageError` for an unknown metric or factor, and without any value.
        """
        chart: Plot = pages.draw("plots.sweep_chart", self, metric, x=x)
        return chart

    def shortfalls(self) -> list[str]:
        """Return where intervals stayed too wide although runs were added, as sentences."""
        until = self.manifest.get("until")
        if until is None:
            return []
        rows = self.rows([until["metric"]])
        without = sum(row["mean"] is None for row in rows)
        wide = sum(
            row["mean"] is not None
            and (row["ci95"] is None or not narrow(row["mean"], row["ci95"], until["share"]))
            for row in rows
        )
        lines = []
        if wide:
            lines.append(
                f"{until['metric']}: at {wide} of {len(rows)} places (a setting at a point) the 95 % interval"
                f" is still wider than {until['share']:.3g} of the mean either way, with at most"
                f" {until['most']} runs; near a mean of zero no relative width can be reached"
            )
        if without:
            lines.append(f"{until['metric']}: no run has a value at {without} of {len(rows)} places")
        return lines

    def of_other_builds(self) -> int:
        """Return the number of runs of other builds than the latest."""
        return int((self.frame()["core"] != self.manifest["core"]["sha256"]).sum())


_DIFFERENCES = {
    **dict.fromkeys(("a", "b", "metric", "unit"), pl.String),
    **dict.fromkeys(("mean_a", "mean_b", "difference", "std", "ci95", "ci_low", "ci_high"), pl.Float64),
    "method": pl.String,
    "runs": pl.UInt32,
    **dict.fromkeys(("p", "p_holm"), pl.Float64),
    "verdict": pl.String,
}


def _compared(a: str, b: str, metric: Metric, both: pl.DataFrame) -> Comparison:
    pairs = both.select(metric.name, f"{metric.name} of b").drop_nulls()
    ours, theirs = (pairs[name].to_list() for name in pairs.columns)
    one, two = summarise(ours), summarise(theirs)
    found = paired(ours, theirs)
    return Comparison(a, b, metric, one.mean, two.mean, one.runs, two.runs, PAIRED, found)


def narrow(mean: float, ci95: float, share: float) -> bool:
    """Return True if the half-width `ci95` is at most this share of the mean."""
    return ci95 <= share * abs(mean)


def check_metrics(names: Sequence[str]) -> list[Metric]:
    """Return the metrics called `names`; `UsageError` for an unknown one."""
    return [named_metric(name) for name in names]


def is_sweep(folder: Path) -> bool:
    """Return True if a folder holds the dataset of a sweep."""
    return files.manifest_format(folder) == FORMAT


def open_sweep(folder: str | Path) -> SweepResult:
    """Open the dataset of a sweep; `ResultError` if the folder holds none."""
    return SweepResult(folder)


def _manifest(folder: Path) -> dict[str, Any]:
    if not is_sweep(folder):
        what = "is not a sweep's" if folder.is_dir() else "there is no such folder"
        raise ResultError(f"{folder}: {what}")
    manifest: dict[str, Any] = files.read_json(folder / MANIFEST)
    manifest = checked_manifest(manifest, folder)
    return current_document(manifest) if manifest.get("format_version") == 1 else manifest
