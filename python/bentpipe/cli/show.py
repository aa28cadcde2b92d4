"""The commands `list`, `show`, `report`, `verify` and `schema`."""

import json
from pathlib import Path
from typing import Any

import click

from bentpipe import _core, files
from bentpipe.cli import console, kinds
from bentpipe.cli.options import (
    form_option,
    format_option,
    given_options,
    import_from_current_folder,
    integer_option,
    jobs_option,
    load_scenario,
    names_or_file,
    path_option,
    scenario_options,
    setting_names,
)
from bentpipe.cli.schema import published
from bentpipe.errors import UsageError
from bentpipe.evaluation import is_evaluation
from bentpipe.format import brief, number, paragraphs
from bentpipe.models.validation import is_validation, open_validation
from bentpipe.pages import unwritable
from bentpipe.runs.plan import shipped, under
from bentpipe.runs.result import Result
from bentpipe.stats.class_metrics import CLASS_METRICS, ClassMetric
from bentpipe.stats.metrics import METRICS, Metric
from bentpipe.sweeps.file import request, shipped_sweeps
from bentpipe.sweeps.result import SweepResult, is_sweep
from bentpipe.tuning.result import is_tune, open_tune


@click.command("list")
@click.argument(
    "what",
    type=click.Choice(
        ["aqms", "schedulers", "markings", "transports", "traffic", "metrics", "scenarios", "sweeps"]
    ),
)
@click.option("--parameters", is_flag=True, help="Include every parameter and preset; not for scenarios.")
@format_option
def list_(what: str, *, parameters: bool, form: str) -> None:
    """List algorithms, transports and traffic for scenarios, metrics, shipped scenarios or sweep files.

    AQMs and schedulers manage queues; markings define the effect of an AQM's marks; transports, with their
    algorithms and presets, carry traffic of several kinds.

    \b
    Examples:
      bentpipe list aqms --parameters
      bentpipe list transports
      bentpipe list metrics
      bentpipe list scenarios
    """
    rows: list[dict[str, Any]]
    match what:
        case "scenarios":
            rows = _shipped()
        case "sweeps":
            rows = _sweeps()
        case "transports":
            rows = kinds.transports()
        case "traffic":
            rows = kinds.traffic()
        case "metrics":
            rows = _metrics()
        case _:
            rows = json.loads(_core.registry())[what]
    if form != "table":
        console.write(rows, form)
        return
    out = console.stdout()
    if what == "aqms":
        presets = [", ".join(preset["name"] for preset in row["presets"]) for row in rows]
        cells = [
            [
                row["name"],
                row["title"],
                row["placement"],
                "yes" if row["fluid_model"] else "no",
                row["source"],
                names,
            ]
            for row, names in zip(rows, presets, strict=True)
        ]
        heads = ["name", "what it is", "where it can stand", "fluid model", "source", "presets"]
        out.print(console.grid(heads, cells))
        schedulers = json.loads(_core.registry())["schedulers"]
        inside = ", ".join(row["name"] for row in schedulers if row["signals"])
        out.print(f"Schedulers with AQMs inside: {inside} (bentpipe list schedulers).")
        for row in rows if parameters else []:
            _print_parameters(out, row)
    elif what in {"transports", "traffic"}:
        cells = [[row["name"], row["title"], f'{row["key"]} = "{row["name"]}"'] for row in rows]
        out.print(console.grid(["name", "what it is", "chosen by"], cells))
        if what == "transports":
            out.print("Packets whose traffic names no transport are plain datagrams (UDP).")
        for row in rows if parameters else []:
            _print_keys(out, row)
    elif what == "metrics":
        cells = [[row["name"], row["unit"], row["better"] or "", row["description"]] for row in rows]
        out.print(console.grid(["name", "unit", "better", "what it is"], cells))
        out.print("CLASS is a class of the scenario's traffic, as in voice.mos.")
    elif what == "sweeps":
        cells = [[row["name"], row["title"], row["scenario"], ", ".join(row["vary"])] for row in rows]
        out.print(console.grid(["name", "what it shows", "scenario", "varies"], cells))
    else:
        cells = [[row["name"], row["title"], row["source"]] for row in rows]
        out.print(console.grid(["name", "what it is", "source"], cells))
        for row in rows if parameters and what in {"schedulers", "markings"} else []:
            _print_parameters(out, row)


def _print_parameters(out: Any, row: dict[str, Any]) -> None:  # noqa: ANN401

    if not row["params"]:
        return
    out.print(f"{row['name']}: parameters", style="bold")
    cells = [
        [
            each["name"] if each["symbol"] == each["name"] else f"{each['name']} ({each['symbol']})",
            each["unit"],
            f"{_plain(each['default'])}; {each['origin']}",
            each["range"],
            each["doc"],
        ]
        for each in row["params"]
    ]
    heads = ["name (symbol)", "unit", "default; where it comes from", "range", "what it is"]
    out.print(console.grid(heads, cells))
    for preset in row.get("presets", []):
        given = list(preset["values"].items())
        if preset["marking"]:
            given.append(("marking", preset["marking"]["name"]))
            given += [(f"marking.{name}", value) for name, value in preset["marking"]["values"].items()]
        values = ", ".join(f"{name} = {_plain(value)}" for name, value in given)
        out.print(f"  {preset['name']} ({preset['source']}): {values}")
    out.print()


def _print_keys(out: Any, row: dict[str, Any]) -> None:  # noqa: ANN401

    if not row["params"]:
        return
    out.print(f"{row['name']}: parameters", style="bold")
    cells = [[each[key] for key in ("name", "default", "range", "doc")] for each in row["params"]]
    out.print(console.grid(["name", "default", "range", "what it is"], cells))


def _plain(value: object) -> str:
    """Write a registry's value as TOML."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _shipped() -> list[dict[str, Any]]:

    scenarios = [(name, _core.Scenario.load(str(path), [])) for name, path in shipped().items()]
    return [{"name": name, "title": each.title, "source": each.source} for name, each in scenarios]


def _metrics() -> list[dict[str, Any]]:
    def row(name: str, metric: Metric | ClassMetric) -> dict[str, Any]:
        return {"name": name, "unit": metric.unit, "better": metric.better, "description": metric.doc}

    of_class = [row(f"CLASS.{each.name}", each) for each in CLASS_METRICS]
    return [*(row(each.name, each) for each in METRICS), *of_class]


def _sweeps() -> list[dict[str, Any]]:

    asked = [(name, request(path)) for name, path in shipped_sweeps().items()]
    return [
        {
            "name": name,
            "title": each.title,
            "scenario": each.scenario,
            "vary": [factor.key for factor in each.factors],
        }
        for name, each in asked
    ]


def _kinds() -> dict[str, list[dict[str, Any]]]:
    """Return all algorithms, transports and kinds of traffic, by what they are."""
    registry = json.loads(_core.registry())
    return {
        "AQM": registry["aqms"],
        "scheduler": registry["schedulers"],
        "marking": registry["markings"],
        "transport": kinds.transports(),
        "traffic": kinds.traffic(),
    }


def _names() -> list[str]:
    return sorted({row["name"] for rows in _kinds().values() for row in rows})


@click.command
@click.argument("scenario", metavar="SCENARIO | ALGORITHM", shell_complete=names_or_file(shipped, _names))
@scenario_options
@click.option(
    "--setting",
    "--settings",
    "setting",
    metavar="NAME",
    shell_complete=setting_names,
    help="Under this setting instead of the scenario's own AQM.",
)
@click.option(
    "--picture",
    is_flag=False,
    flag_value="",
    metavar="[FILE.svg]",
    help="Draw the scenario instead; default: SCENARIO.svg beside its file.",
)
@click.option("--force", is_flag=True, help="Replace the picture.")
@format_option
@click.pass_context
def show(
    context: click.Context,
    scenario: str,
    *,
    overrides: tuple[str, ...],
    duration: str | None,
    setting: str | None,
    picture: str | None,
    force: bool,
    form: str,
) -> None:
    """Show every effective parameter of SCENARIO, with its unit and its origin, or draw SCENARIO.

    ALGORITHM is the name of an AQM, scheduler, marking, transport or kind of traffic (`bentpipe list aqms`).
    Its parameters are shown: unit, default, range and presets.

    \b
    Examples:
      bentpipe show byun2007-gateway
      bentpipe show red
      bentpipe show byun2007-gateway --setting "AVQRED" --set run.duration="5 min"
      bentpipe show my-scenario.toml --picture
    """
    if not Path(scenario).exists() and scenario not in shipped() and (found := _algorithms(scenario)):
        foreign = [each for each in given_options(context) if each not in {"--format", "--quiet"}]
        if foreign:
            raise UsageError(f"{', '.join(foreign)}: has no effect on {scenario}, which is an algorithm")
        _show_algorithms(found, form)
        return
    import_from_current_folder([] if setting is None else [setting])
    loaded = load_scenario(scenario, overrides, duration, [] if setting is None else [setting])
    if setting is not None:
        loaded = under(loaded, setting)
    if picture is not None:
        _draw(scenario, loaded, picture, force=force)
        return
    rows = loaded.effective()
    if form != "table":
        console.write(rows, form)
        return
    out = console.stdout()
    out.print(loaded.title or loaded.name, style="bold")
    for paragraph in paragraphs(loaded.description):
        out.print(paragraph)
    cells = [[row["key"], row["value"], row["origin"], row["note"]] for row in rows]
    out.print(console.grid(["key", "value", "from", "note"], cells))
    if loaded.settings:
        out.print(f"Compared by default: {', '.join(loaded.settings)}")
    for warning in loaded.warnings:
        out.print(f"warning: {warning}")


def _algorithms(name: str) -> dict[str, dict[str, Any]]:
    """Return what has this name, in upper or lower case, by its kind."""
    return {
        kind: row for kind, rows in _kinds().items() for row in rows if row["name"].lower() == name.lower()
    }


def _show_algorithms(found: dict[str, dict[str, Any]], form: str) -> None:
    """Print all that is known of one or several algorithms of the same name."""
    if form == "csv":
        console.write(
            [{"algorithm": row["name"], **each} for row in found.values() for each in row["params"]], form
        )
        return
    if form == "json":
        console.write(found, form)
        return
    out = console.stdout()
    for kind, row in found.items():
        out.print(f"{row['name']} ({kind}): {row['title']}", style="bold")
        if "source" in row:
            out.print(f"Source: {row['source']}")
        if "placement" in row:
            out.print(f"Where it can stand: {row['placement']}")
        if "key" in row:
            out.print(f'Chosen by: {row["key"]} = "{row["name"]}"')
            _print_keys(out, row)
        else:
            _print_parameters(out, row)


def _draw(scenario: str, loaded: _core.Scenario, picture: str, *, force: bool) -> None:
    """Write the picture of a scenario to the file `picture`, or beside the scenario if that is empty."""
    from bentpipe.report import picture as drawing

    path = Path(picture or f"{loaded.name}.svg")
    if not picture and Path(scenario).exists():
        path = Path(scenario).with_suffix(".svg")
    if path.suffix != ".svg":
        raise UsageError(f'--picture: found "{path}"; allowed: a file name that ends in .svg')
    if path.exists() and not force:
        raise UsageError(
            f"{path}: exists already; choose another --picture FILE.svg, or replace it with --force"
        )
    try:
        files.write(path, drawing.picture(loaded).encode())
    except OSError as error:
        raise unwritable(path, error) from None
    print(f"Picture: {path}")


@click.command
@click.argument("result", type=click.Path(path_type=Path))
@path_option("--figures", help="Also write every figure to this folder.")
@click.option(
    "--as",
    "formats",
    default="svg",
    show_default=True,
    metavar="svg,png,pdf",
    help="Formats of the figures.",
)
@click.option("--force", is_flag=True, help="Replace figures that exist.")
@click.pass_context
def report(context: click.Context, result: Path, figures: Path | None, formats: str, *, force: bool) -> None:
    """Write the report of the result, sweep, search or evaluation in RESULT again, or its figures as files.

    \b
    Examples:
      bentpipe report results/byun2007-gateway-20260102-150405
      bentpipe report results/red-avqred --figures figures --as svg,pdf
    """
    from bentpipe.report.comparison import check_formats, write_figures

    chosen = check_formats([form.strip() for form in formats.split(",")])
    for option in ("--as", "--force"):
        if figures is None and option in given_options(context):
            raise UsageError(f"{option}: found without --figures DIR; allowed: with it")
    if is_validation(result):
        if figures is not None:
            raise UsageError(f"--figures: {result} is a validation; give the folder simulation in it")
        print(f"Report: {open_validation(result).report()}")
        return
    if is_tune(result):
        if figures is not None:
            raise UsageError(f"--figures: {result} is a search, whose figures are in its report alone")
        print(f"Report: {open_tune(result).report()}")
        return
    if is_evaluation(result):
        from bentpipe.evaluation.result import open_evaluation
        from bentpipe.report.evaluation import write_reports

        if figures is not None:
            raise UsageError(f"--figures: {result} is an evaluation, whose figures are in its report alone")
        print(f"Report: {write_reports(open_evaluation(result))}")
        return
    if is_sweep(result):
        from bentpipe.report import sweep as sweep_report

        swept = SweepResult(result)
        if figures is not None:
            written = sweep_report.write_figures(swept, figures, chosen, force=force)
            print(f"Figures: {len(written)} files in {figures}")
        print(f"Report: {swept.report()}")
        return
    opened = Result(result)
    if figures is not None:
        written = write_figures(opened, figures, chosen, force=force)
        print(f"Figures: {len(written)} files in {figures}")
    print(f"Report: {opened.report()}")


@click.command
@click.argument("what", type=click.Choice(["truth"]))
@path_option(
    "--table",
    "tables",
    metavar="FILE",
    multiple=True,
    help="Reference figures instead of the shipped ones; may be repeated.",
)
@click.option(
    "--only",
    metavar="TEXT",
    multiple=True,
    help="Only experiments whose name contains this; may be repeated.",
)
@integer_option("--seeds", default=5, help="Runs per experiment.")
@jobs_option
@form_option("a list of cells, and nothing else.")
@click.pass_context
def verify(
    context: click.Context,
    what: str,
    tables: tuple[Path, ...],
    only: tuple[str, ...],
    seeds: int,
    jobs: int | None,
    form: str,
) -> None:
    """Repeat experiments of ns-2.35 and compare each figure with its results.

    A figure passes within the larger of 5 % and 2.5 standard deviations of ns-2's over its seeds (a single
    session: 10 % and 3; mean queue and drop rate: 10 %). "differs" marks figures outside these bounds that
    need not pass, because they are artefacts of ns-2's timing. Exit code 1 if a required figure fails.

    \b
    Examples:
      bentpipe verify truth
      bentpipe verify truth --only RED --format json
      bentpipe verify truth --table my-cells.csv
    """
    del what
    from bentpipe.reproduction import ns2

    files = list(tables) or ns2.shipped()
    found = [each for table in files for each in ns2.experiments(table)]
    wanted = [each for each in found if not only or any(text in each.name for text in only)]
    if not wanted:
        raise UsageError(f"--only {' --only '.join(only)}: no experiment of {len(found)} has such a name")
    bar = console.Rate(console.stderr())
    try:
        cells = ns2.verify(wanted, seeds=seeds, jobs=jobs, on_progress=bar.update)
    finally:
        bar.close()
    failed = sum(cell.verdict == "fail" for cell in cells)
    if form != "table":
        console.write([cell.row() for cell in cells], form)
    else:
        out = console.stdout()
        headings = ["experiment", "figure", "unit", "ns-2", "ours", "difference", "allowed", "verdict"]
        out.print(console.grid(headings, map(_cell, cells), right=3))
        differ = sum(cell.verdict == "differs" for cell in cells)
        passed = len(cells) - failed - differ
        out.print(f"{passed} of {len(cells)} figures pass, {failed} fail, {differ} differ where they may.")
    if failed:
        context.exit(1)


def _cell(cell: Any) -> list[str]:  # noqa: ANN401

    target = cell.target
    share = f"{100 * cell.difference / target.mean:+.1f} %".replace("-", "−") if target.mean else "–"
    allowed = f"{100 * target.tolerance / target.mean:.1f} %" if target.mean else brief(target.tolerance)
    return [
        cell.experiment,
        target.metric,
        target.unit,
        f"{number(target.mean)} ± {brief(target.std, 2)}",
        number(cell.mean) + (f" ± {brief(cell.std, 2)}" if len(cell.values) > 1 else ""),
        share,
        allowed,
        cell.verdict,
    ]


@click.command
@click.argument("what", type=click.Choice(["scenario", "sweep"]), default="scenario")
def schema(what: str) -> None:
    """Print the JSON Schema of a scenario file, or of a sweep file, for editors and validators.

    \b
    Examples:
      bentpipe schema > scenario.schema.json
      bentpipe schema sweep > sweep.schema.json

    An editor with TOML support checks and completes a file whose first line is
    `#:schema ./scenario.schema.json`, if the schema lies beside it.
    """
    click.echo(published(what), nl=False)
