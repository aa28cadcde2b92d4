"""Scenarios and results as HTML for the output of a notebook's cell, for light and dark themes."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bentpipe._core import Scenario
from bentpipe.format import as_printed, brief, clock, difference, measured, plural, quantity, spread
from bentpipe.models.fluid import ModelResult
from bentpipe.models.markov_result import Solution
from bentpipe.models.validation import Validation
from bentpipe.report.advice import beside_headline, candidate_rows, metric_heads
from bentpipe.report.pages import environment
from bentpipe.report.picture import picture
from bentpipe.runs.result import Result
from bentpipe.runs.store import LIVE
from bentpipe.stats.caveats import caveats, remedied
from bentpipe.stats.metrics import METRICS
from bentpipe.stats.ranking import MANY, ranking
from bentpipe.stats.services import findings, served, services
from bentpipe.sweeps.result import SweepResult
from bentpipe.tuning.result import TuneResult

__all__ = [
    "advice_cell",
    "markov_cell",
    "model_cell",
    "result_cell",
    "scenario_cell",
    "sweep_cell",
    "tune_cell",
    "validation_cell",
]

_ROWS = 12
"""Maximum number of rows of a table."""
_WARNINGS = 5
_QUEUES = ("throughput", "queue_mean", "queue_delay_mean", "queue_delay_p95", "loss_rate", "retransmitted")
"""Metrics of the link's queue in the output of a result."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell of a table."""

    text: str
    grade: str | None = None
    """Grade of the value: good, fair or bad."""


@dataclass(frozen=True, slots=True)
class Row:
    """A row of a table."""

    name: str
    cells: Sequence[Cell]
    chosen: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A table: headings with a second line each, and rows."""

    title: str
    heads: Sequence[tuple[str, str]]
    rows: Sequence[Row]
    more: str = ""
    """Note on rows that are left out."""
    text: bool = False
    """True for cells with text, False for numbers."""
    keys: bool = False
    """True if headings are keys and metrics, which do not wrap."""


def _output(
    name: str,
    about: Iterable[str],
    tables: Iterable[Table],
    *,
    sentences: Iterable[str] = (),
    facts: Iterable[str] = (),
    warnings: Sequence[str] = (),
    code: str = "",
    drawing: str = "",
) -> str:
    """Return the HTML; `drawing` is an SVG document."""
    shown = list(warnings[:_WARNINGS])
    if len(warnings) > _WARNINGS:
        shown.append(f"{plural(len(warnings) - _WARNINGS, 'more warning')} in the report.")
    # A page inside an image keeps its style to itself.
    source = base64.b64encode(drawing.encode()).decode()
    return (
        environment()
        .get_template("cell.html.j2")
        .render(
            name=name,
            about=" · ".join(filter(None, about)),
            sentences=list(sentences),
            findings=list(facts),
            warnings=shown,
            tables=[table for table in tables if table.rows],
            code=code,
            picture=f"data:image/svg+xml;base64,{source}" if drawing else "",
            picture_text=f"Network of the scenario {name}",
        )
    )


def _pairs(title: str, rows: Iterable[tuple[str, str]]) -> Table:
    return Table(title, (), [Row(name, [Cell(value)]) for name, value in rows if value], text=True)


def scenario_cell(scenario: Scenario) -> str:
    """Return a scenario: its main values and its picture."""
    traffic = [f"{name} ({kind})" for name, _, kind in scenario.traffic]
    rows = [
        ("Measured", f"{clock(scenario.duration)} after {clock(scenario.warmup)} of warm-up"),
        ("Runs", f"{scenario.runs} per setting, from seed {scenario.seed}"),
        ("Link", f"{scenario.subject_link}, {brief(scenario.capacity * 1e-6)} Mbit/s"),
        ("AQM", scenario.aqm),
        ("Settings", ", ".join(scenario.settings)),
        ("Traffic", ", ".join(traffic)),
        ("Changed from the file", ", ".join(scenario.overrides)),
        ("Source", scenario.source),
    ]
    return _output(
        scenario.title or scenario.name,
        [scenario.name],
        [_pairs("", rows)],
        warnings=[remedied(*each) for each in zip(scenario.warnings, scenario.warning_codes, strict=True)],
        drawing=picture(scenario),
    )


def result_cell(result: Result) -> str:
    """Return a result: who gets what under each setting, then metrics of the queue."""
    scenario = result.manifest["scenario"]
    live = ["real connections in real time"] if result.engine == LIVE else []
    names = result.settings
    if len(names) > MANY:
        names = [each.setting for each in ranking(result)]
    shown = names[:_ROWS]
    more = f"{len(names) - len(shown)} more: table()" if len(names) > len(shown) else ""
    behind = {name for name in shown if result.setting_info(name).get("behind_pep")}
    labels = {name: f"{name} *" if name in behind else name for name in shown}
    known = services(result.traffic, result.thresholds)
    rows = {row[0].setting: row for row in served(result) if row}
    stats = {(row["setting"], row["metric"]): row for row in result.rows()}
    wanted = [
        metric
        for metric in METRICS
        if metric.name in _QUEUES and any(stats[name, metric.name]["mean"] is not None for name in shown)
    ]
    tables = [
        Table(
            "Who gets what",
            [
                ("setting", ""),
                *((each.traffic_class, _second(each.metric.label, each.metric.unit)) for each in known),
            ],
            [
                Row(
                    labels[name],
                    [
                        Cell(quantity(each.found.mean, each.found.ci95, each.found.runs), each.grade)
                        for each in rows[name]
                    ],
                )
                for name in shown
                if name in rows
            ],
            more,
        ),
        Table(
            "Link and queue",
            [("setting", ""), *((metric.label, metric.unit) for metric in wanted)],
            [
                Row(labels[name], [Cell(measured(stats[name, metric.name])) for metric in wanted])
                for name in shown
            ],
            more,
        ),
    ]
    return _output(
        scenario["title"] or scenario["name"],
        [
            scenario["name"],
            *live,
            f"{clock(scenario['duration'])} after {clock(scenario['warmup'])} of warm-up",
            f"{plural(len(result.seeds), 'run')} per setting",
            {1: "", 2: "values of both runs"}.get(len(result.seeds), "mean ± 95 % interval"),
            "* drops behind the PEP" if behind else "",
        ],
        tables,
        facts=findings(result) if len(names) <= MANY else [],
        warnings=caveats(result),
    )


def _second(label: str, unit: str) -> str:
    """Return the second line of the heading of a class: its figure and unit."""
    figure = label.partition(": ")[2]
    return f"{figure} [{unit}]" if unit else figure


def sweep_cell(result: SweepResult) -> str:
    """Return a sweep: its design and the means at its first points."""
    manifest = result.manifest
    rows = result.rows() if not result.frame().is_empty() else []
    metrics = list(dict.fromkeys((row["metric"], row["unit"]) for row in rows))
    places: dict[tuple[str, ...], list[Cell]] = {}
    for row in rows:
        places.setdefault((row["setting"], *(row[key] for key in result.factors)), []).append(
            Cell(measured(row))
        )
    lines = [
        Row(place[0], [*(Cell(value) for value in place[1:]), *cells]) for place, cells in places.items()
    ]
    failed = len(result.failures)
    table = Table(
        "",
        [("setting", ""), *((key, "") for key in result.factors), *metrics],
        lines[:_ROWS],
        f"{len(lines) - _ROWS} more: table()" if len(lines) > _ROWS else "",
        keys=True,
    )
    return _output(
        manifest.get("title") or f"Sweep of {manifest['scenario']['name']}",
        [
            manifest["scenario"]["name"],
            plural(len({place[1:] for place in places}), "point"),
            plural(len(result.settings) if rows else 0, "setting"),
            plural(len(result.frame()), "run"),
            ", ".join(manifest.get("overrides", [])),
        ],
        [table],
        warnings=[
            *([] if result.complete else ["The sweep is incomplete; the same call continues it."]),
            *([f"{plural(failed, 'run')} failed: failures"] if failed else []),
        ],
    )


def tune_cell(result: TuneResult) -> str:
    """Return a search: the winner's parameters, and its figures beside the defaults on new seeds."""
    found, winner = result.found, result.winner
    heads = [("setting", ""), *((each.known.label, each.known.unit) for each in result.objectives)]
    figures = {(row["setting"], row["metric"]): row for row in found["figures"]}
    names = list(dict.fromkeys(row["setting"] for row in found["figures"]))
    lines = [
        Row(
            f"trial {name}" if name.isdigit() else name,
            [Cell(measured(figures[name, each.metric])) for each in result.objectives],
            winner is not None and name == str(winner["number"]),
        )
        for name in names
    ]
    tables = [Table(f"On {len(found['seeds_fresh'])} seeds that the search did not use", heads, lines)]
    if winner is not None:
        tables.append(_pairs("Parameters of the winner", winner["point"].items()))
    return _output(
        f"Search: {found['aqm']} in {found['scenario']['title'] or found['scenario']['name']}",
        [found["scenario"]["name"], ", ".join(str(each) for each in result.objectives)],
        tables,
        sentences=[result.counted()],
        warnings=[] if winner is not None else ["No trial completed, so there is no winner."],
    )


def advice_cell(found: Mapping[str, Any]) -> str:
    """Return a recommendation, as `advice.json` holds it: the answer, the candidates, and what to paste."""
    words, heads = found["words"], metric_heads(found)
    lines = [
        Row(
            " ".join(filter(None, [each["name"], f"({each['role']})" if each["role"] else ""])),
            [*(Cell(cell["mean"]) for cell in each["cells"]), Cell(each["first"])],
            each["chosen"],
        )
        for each in candidate_rows(found)[:_ROWS]
    ]
    table = Table(
        "Candidates, the best first",
        [("setting", ""), *((each["label"], each["unit"]) for each in heads), ("first in", "of resamples")],
        lines,
    )
    return _output(
        f"Advice: {found['scenario']['title'] or found['scenario']['name']}",
        [found["scenario"]["name"], f"{plural(len(found['seeds']['fresh']), 'fresh seed')}"],
        [table],
        sentences=[words["headline"][0], *beside_headline(words)],
        warnings=words["warnings"],
        code=found["paste"]["toml"],
    )


def model_cell(result: ModelResult) -> str:
    """Return a fluid model: the mean and the standard deviation of each quantity."""
    scenario = result.manifest["scenario"]
    rows = result.rows()
    names = {row["quantity"]: row["unit"] for row in rows if row["mean"] is not None}
    lines = []
    for setting in result.settings[:_ROWS]:
        mine = {row["quantity"]: row for row in rows if row["setting"] == setting}
        lines.append(Row(setting, [Cell(_with_spread(mine[name])) for name in names]))
    more = len(result.settings) - _ROWS
    table = Table(
        "Mean (standard deviation over time)",
        [("setting", ""), *((name.replace("_", " "), unit) for name, unit in names.items())],
        lines,
        f"{more} more: rows()" if more > 0 else "",
    )
    equations = sorted({str(each["equations"]) for each in result.manifest["settings"]})
    return _output(
        f"Model: {scenario['title'] or scenario['name']}",
        [scenario["name"], f"fluid equations {', '.join(equations)}", clock(scenario["duration"])],
        [table],
    )


def _with_spread(row: Mapping[str, Any]) -> str:
    if row["mean"] is None:
        return "–"
    return brief(row["mean"], 4) + (f" ({spread(row)})" if row["std"] is not None else "")


def markov_cell(result: Solution) -> str:
    """Return a Markov model: each quantity under each setting."""
    tables = [
        Table(
            title,
            [(each, "") for each in heads],
            [Row(cells[0], [Cell(text) for text in cells[1:]]) for cells in rows[: 2 * _ROWS]],
        )
        for title, heads, rows in result.tables()
    ]
    return _output(
        f"Model: {result.scenario.title or result.scenario.name}",
        [result.scenario.name, "Markov model"],
        tables,
        warnings=result.notes,
    )


def validation_cell(result: Validation) -> str:
    """Return a validation: every quantity of all engines, and the differences."""
    scenario = result.simulation.manifest["scenario"]
    first, *others = [account.engine for account in result.accounts]
    rows = result.rows()
    printed = any(row["printed"] for row in rows)
    tables = []
    for setting in result.settings[:_ROWS]:
        lines = []
        for row in rows:
            if row["setting"] != setting:
                continue
            cells = [Cell(quantity(row[first]["mean"], row[first]["ci95"], row[first]["runs"]))]
            for engine in others:
                found = row[engine]
                cells += [
                    Cell(quantity(found["mean"], found["ci95"], found["runs"])),
                    Cell(difference(found)),
                ]
            if printed:
                cells.append(Cell(as_printed(row["printed"])))
            name = f"{row['label']} [{row['unit']}]" if row["unit"] else row["label"]
            lines.append(Row(name, cells))
        heads = [("", ""), (first, "")]
        for engine in others:
            heads += [(engine, ""), ("difference", "")]
        tables.append(Table(setting, [*heads, *([("printed", "(std)")] if printed else [])], lines))
    return _output(
        f"Validation: {scenario['title'] or scenario['name']}",
        [scenario["name"], f"{plural(len(result.simulation.seeds), 'run')} per setting"],
        tables,
    )
