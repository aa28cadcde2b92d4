"""Terminal output: progress on stderr, tables on stdout."""

import csv
import json
import math
import re
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import click
from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from bentpipe.errors import UsageError
from bentpipe.format import (
    as_printed,
    clock,
    difference,
    likelihood,
    measured,
    number,
    plural,
    quantity,
    spread,
    with_unit,
)
from bentpipe.runs.result import Result
from bentpipe.stats.bottlenecks import limits
from bentpipe.stats.differences import PAIRED, Comparison
from bentpipe.stats.metrics import METRICS
from bentpipe.stats.ranking import CRITERIA, MANY, ranking
from bentpipe.stats.services import served

if TYPE_CHECKING:
    # Most commands need no models, whose import takes time.
    from bentpipe.models.validation import Validation

__all__ = [
    "QUIET",
    "Bar",
    "Lines",
    "comparison_table",
    "folded",
    "folding",
    "grid",
    "is_quiet",
    "metrics_table",
    "services_table",
    "stderr",
    "stdout",
    "validation_table",
    "warn",
    "watcher",
    "write",
]

QUIET = "bentpipe.quiet"
"""Key of --quiet among a command's values."""
_WIDE = 160
"""Width when the output is not a terminal, so that nothing is cut off."""
_LONGEST = 24
"""Letters of a word in a table that is not broken."""
_CONTROL = re.compile(r"[^\t\n\r\x20-\x7e\xa0-\U0010ffff]")


class _Console(Console):
    """A console that leaves out control characters, which titles and descriptions of scenarios may have."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for each in super().render(renderable, options):
            yield each if each.control else each._replace(text=_CONTROL.sub("", each.text))


class _Output(_Console):
    """A console that prints lines which are longer than the terminal's whole."""

    def print(self, *objects: Any, crop: bool = False, **options: Any) -> None:  # noqa: ANN401
        super().print(*objects, crop=crop, **options)


class _Grid(Table):
    """A table with whole numbers and words, although its lines may be longer than the terminal's."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        least = self.__rich_measure__(console, options.update_width(_WIDE)).minimum
        return super().__rich_console__(console, options.update_width(max(least, options.max_width)))


def stdout() -> Console:
    """Return the console for results."""
    console = _Output(highlight=False, markup=False)
    return console if console.is_terminal else _Output(highlight=False, markup=False, width=_WIDE)


def stderr() -> Console:
    """Return the console for progress and messages."""
    console = _Console(stderr=True, highlight=False, markup=False)
    if console.is_terminal:
        return console
    return _Console(stderr=True, highlight=False, markup=False, width=10_000)


def warn(lines: Iterable[str], label: str = "warning") -> None:
    """Print each line on stderr, behind the label."""
    console = stderr()
    for line in lines:
        console.print(f"{label}: {line}")


class Bar:
    """Progress bar for a terminal."""

    def __init__(self, console: Console, doing: str = "Simulating") -> None:
        """Draw on `console`; `doing` is the activity, in a word."""
        self._doing = doing
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(complete_style="cyan", finished_style="cyan"),
            TextColumn("{task.percentage:>3.0f} %"),
            TimeElapsedColumn(),
            TextColumn("left:"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._total = self._done = 0

    def begin(self, total: int, done: int) -> None:
        """Show the bar."""
        self._total, self._done = total, done
        self._task = self._progress.add_task(self._text(), total=1.0)
        self._progress.update(self._task, completed=done / total)
        self._progress.start()

    def progress(self, share: float) -> None:
        """Move the bar."""
        if self._task is not None:
            self._progress.update(self._task, completed=share, description=self._text())

    def finished(self, setting: str, seed: int, seconds: float) -> None:
        """Count a finished run."""
        del setting, seed, seconds
        self._done += 1

    def close(self) -> None:
        """Remove the bar."""
        self._progress.stop()

    def _text(self) -> str:
        return f"{self._doing}: {self._done} of {plural(self._total, 'run')}"


class Lines:
    """One line per run, for logs and pipes."""

    def __init__(self, console: Console, doing: str = "Simulating") -> None:
        """Write to `console`; `doing` is the activity, in a word."""
        self._console = console
        self._doing = doing
        self._total = self._done = 0
        self._start = time.monotonic()

    def begin(self, total: int, done: int) -> None:
        """Write the number of runs."""
        self._total, self._done = total, done
        there = f", {done} of them already finished" if done else ""
        self._console.print(f"{self._doing} {plural(total, 'run')}{there}", markup=False)

    def progress(self, share: float) -> None:
        """Do nothing between runs."""

    def finished(self, setting: str, seed: int, seconds: float) -> None:
        """Write the finished run."""
        self._done += 1
        text = f"Run {self._done} of {self._total} is finished: {setting}, seed {seed} ({seconds:.1f} s)"
        self._console.print(text, markup=False)

    def close(self) -> None:
        """Do nothing."""


class Rate:
    """Progress of many runs: finished, rate, time left and failures; occasional lines without a terminal."""

    _EVERY = 10.0
    """Seconds between two lines without a terminal."""
    _RECENT = 30.0
    """Minimum window of the rate [s]; it is longer if runs take longer."""
    _LAST = 20

    def __init__(self, console: Console, *, open_end: bool = False) -> None:
        """Write to `console`; with `open_end` more runs may follow, so that the time left is a minimum."""
        self._console = console
        self._open_end = open_end
        self._live = console.is_terminal
        self._total = -1
        self._told = 0.0
        self._finished: deque[tuple[float, int]] = deque()
        """Times and counts of recently finished runs."""
        self._drawn = 0
        """Characters of the current line on the terminal."""

    def update(self, done: int, total: int, failed: int) -> None:
        """Show the progress."""
        if is_quiet():
            return
        now = time.monotonic()
        if self._finished and (done < self._finished[-1][1] or total < self._total):
            # A new activity starts.
            self._finished.clear()
            self._total = -1
        if total != self._total:
            self._begin(done, total)
        if not self._finished:
            self._finished.append((now, done))
        elif done > self._finished[-1][1]:
            self._finished.append((now, done))
            while len(self._finished) > self._LAST and now - self._finished[0][0] > self._RECENT:
                self._finished.popleft()
        if now - self._told < (0.2 if self._live else self._EVERY) and done < total:
            return
        since, before = self._finished[0]
        if done == before == total:
            return
        self._told = now
        rate = (done - before) / (now - since) if now > since else 0.0
        self._write(progress_text(done, total, failed, rate, open_end=self._open_end))

    def close(self) -> None:
        """End the line."""
        if self._drawn:
            self._console.print()
            self._drawn = 0
        self._live = False

    def _begin(self, done: int, total: int) -> None:
        """Write the number of wanted runs, without a terminal."""
        before, self._total = self._total, total
        if self._live or done >= total:
            return
        self._told = time.monotonic()
        there = f", {done} of them already finished" if done else ""
        text = f"{plural(total, 'run')}{there}" if before < 0 else plural(total - before, "more run")
        self._console.print(f"Simulating {text}", markup=False)

    def _write(self, text: str) -> None:
        if not self._live:
            self._console.print(text, markup=False)
            return
        # Overwrites the last line to its end, except the last column, where the line would wrap.
        text = text[: max(1, self._console.width - 1)]
        padded = text.ljust(self._drawn)
        self._console.print(padded, markup=False, end="\r", no_wrap=True, crop=True)
        self._drawn = len(text)


def progress_text(done: int, total: int, failed: int, rate: float, *, open_end: bool = False) -> str:
    """Return the progress line; `rate` is in runs per second."""
    text = f"{done:,} of {plural(total, 'run')}"
    for unit, seconds in (("second", 1), ("minute", 60), ("hour", 3600)):
        if rate * seconds >= 1 or (rate > 0 and unit == "hour"):
            text += f", {rate * seconds:,.1f} {'an' if unit == 'hour' else 'a'} {unit}"
            break
    if rate > 0 and done < total:
        least = "at least " if open_end else ""
        text += f", {least}{clock(math.ceil((total - done) / rate))} left"
    return text + (f", {failed} failed" if failed else "")


class Quiet(Lines):
    """No progress."""

    def begin(self, total: int, done: int) -> None:
        """Write nothing."""

    def finished(self, setting: str, seed: int, seconds: float) -> None:
        """Write nothing."""


def is_quiet() -> bool:
    """Return True if the command was given --quiet."""
    context = click.get_current_context(silent=True)
    return context is not None and bool(context.meta.get(QUIET))


def write(found: Any, form: str) -> None:  # noqa: ANN401
    """Write rows (a list of dictionaries) for programs: as JSON, or as CSV with a line of names.

    Raises `UsageError` for CSV of anything but rows.
    """
    if form == "json":
        click.echo(json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False))
        return
    if not isinstance(found, list):
        raise UsageError("--format csv: there is no list to write; allowed here: table, json")
    names = list(dict.fromkeys(name for row in found for name in row))
    out = csv.DictWriter(sys.stdout, names, lineterminator="\n")
    out.writeheader()
    out.writerows({name: _cell(value) for name, value in row.items()} for row in found)


def _cell(value: object) -> object:
    """Return a value for a CSV file: of a list of named things the names, other lists and tables as JSON."""
    if isinstance(value, list) and all(isinstance(each, dict) and "name" in each for each in value):
        return "; ".join(each["name"] for each in value)
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def watcher(doing: str = "Simulating") -> Bar | Lines:
    """Return the progress display that suits stderr."""
    console = stderr()
    if is_quiet():
        return Quiet(console, doing)
    return Bar(console, doing) if console.is_terminal else Lines(console, doing)


def grid(headings: Sequence[str], rows: Iterable[Sequence[str]], *, right: int | None = None) -> Table:
    """Return a plain table; columns from number `right` on are aligned to the right."""
    table = _Grid(box=box.SIMPLE_HEAD, pad_edge=False, header_style="bold")
    cells = [list(row) for row in rows]
    for index, heading in enumerate(headings):
        number = right is not None and index >= right
        words = [word for row in [headings, *cells] for word in row[index].split()]
        table.add_column(
            Text(heading),
            justify="right" if number else "left",
            overflow="fold",
            no_wrap=number,
            min_width=None if number else min(_LONGEST, max(map(len, words), default=0)),
        )
    for row in cells:
        table.add_row(*map(Text, row))
    return table


def folding(table: Table) -> Table:
    """Let a table with names in its first column fold the others, so that it fits a narrow terminal."""
    for column in table.columns:
        column.no_wrap = column is table.columns[0]
    return table


def folded(text: str, width: int = 18) -> str:
    """Break a heading into lines of at most `width` characters, at spaces and after underscores."""
    lines = [""]
    for part in re.findall(r"\s*[^\s_]*_?", text):
        if len(lines[-1] + part) > width and lines[-1]:
            lines.append(part.lstrip())
        else:
            lines[-1] += part
    return "\n".join(lines)


_STYLES = {"good": "green", "fair": "yellow", "bad": "bold red"}


def services_table(result: Result) -> Table | None:
    """Return who gets what: a row per setting and a column per class of traffic; None without classes."""
    rows = served(result)
    if not rows or not rows[0]:
        return None
    table = grid(["who gets what"], [])
    for each in rows[0]:
        figure = with_unit(each.service.metric.label.partition(": ")[2], each.service.metric.unit)
        heading = Text(f"{each.service.traffic_class}\n{folded(figure)}")
        table.add_column(heading, justify="right", overflow="fold")
    for row in rows:
        cells = []
        for each in row:
            text = Text(quantity(each.found.mean, each.found.ci95, each.found.runs))
            if each.grade:
                text.append(f" {each.grade}", style=_STYLES[each.grade])
            cells.append(text)
        table.add_row(Text(row[0].setting), *cells)
    return folding(table)


def metrics_table(result: Result) -> Table:
    """Return the headline metrics that have a value, a column per setting: mean and 95 % half-width.

    Many settings get a row each, the best first, with the metrics that rank them. An asterisk marks those
    that drop behind the PEP.
    """
    stats: dict[tuple[str, str], dict[str, Any]] = {
        (row["setting"], row["metric"]): row for row in result.rows()
    }
    starred = {
        name: f"{name} *" if result.setting_info(name).get("behind_pep") else name for name in result.settings
    }
    if len(result.settings) > MANY:
        places = [
            [
                str(ranked.place),
                starred[ranked.setting],
                f"{ranked.mean:.1f}",
                *(measured(stats[ranked.setting, metric.name]) for metric in CRITERIA),
            ]
            for ranked in ranking(result)
        ]
        titles = [folded(with_unit(metric.name, metric.unit), 14) for metric in CRITERIA]
        table = grid(["place", "setting", folded("mean rank", 4), *titles], places, right=2)
        table.columns[1].no_wrap = True
        return table
    rows = [
        [
            metric.name,
            metric.unit,
            *(measured(stats[setting, metric.name]) for setting in result.settings),
        ]
        for metric in METRICS
        if metric.headline
        and metric in result.known_metrics
        and any(stats[setting, metric.name]["mean"] is not None for setting in result.settings)
    ]
    return grid(["metric", "unit", *starred.values()], rows, right=2)


def bottlenecks_table(result: Result) -> Table | None:
    """Return what limits each class of TCP or QUIC flows, a row per setting; None without such classes."""
    found = {setting: limits(result, setting) for setting in result.settings}
    classes = list(dict.fromkeys(each.traffic_class for row in found.values() for each in row))
    if not classes or len(result.settings) > MANY:
        return None
    rows = []
    for setting, row in found.items():
        texts = {each.traffic_class: each.text() for each in row}
        rows.append([setting, *(texts.get(name, "–") for name in classes)])
    return grid(["limited by", *classes], rows)


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Return each comparison: both means, the difference with its interval, p-values and the verdict."""
    headings = ["metric", "A", "B", "runs", "mean of A", "mean of B", "A − B", "p", "corrected", "verdict"]
    cells = []
    for each in comparisons:
        row = each.row()
        runs = str(each.found.runs) if each.pairing == PAIRED else f"{each.runs_a}, {each.runs_b}"
        means = [number(each.mean_a), number(each.mean_b), measured(row, "difference")]
        cells.append(
            [
                with_unit(each.metric.name, each.metric.unit),
                each.a,
                each.b,
                runs,
                *means,
                likelihood(each.found.p),
                likelihood(each.p_holm),
                each.verdict,
            ]
        )
    return grid(headings, cells, right=3)


def validation_table(result: "Validation") -> Table:
    """Return each quantity of each setting for each engine, with the difference from the first engine."""
    first, *others = result.accounts
    headings = ["setting", "quantity", "unit", first.engine, "std"]
    for account in others:
        headings += [account.engine, "std", "difference"]
    rows = result.rows()
    printed = any(row["printed"] for row in rows)
    cells, before = [], None
    for row in rows:
        found = row[first.engine]
        line = ["" if row["setting"] == before else row["setting"], row["label"], row["unit"]]
        line += [quantity(found["mean"], found["ci95"], found["runs"]), spread(found)]
        for account in others:
            found = row[account.engine]
            line += [quantity(found["mean"], found["ci95"], found["runs"]), spread(found), difference(found)]
        if printed:
            line.append(as_printed(row["printed"]))
        cells.append(line)
        before = row["setting"]
    return grid([*headings, *(["printed (std)"] if printed else [])], cells, right=3)
