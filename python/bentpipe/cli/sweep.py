"""The command `sweep`."""

from pathlib import Path

import click

from bentpipe.cli import console
from bentpipe.cli.exits import Failed
from bentpipe.cli.options import (
    changes,
    import_from_current_folder,
    integer_option,
    metric_names,
    names_or_file,
    scenario_options,
    settings_option,
    split_names,
    worker_options,
    workers_and_progress,
)
from bentpipe.format import measured, plural
from bentpipe.runs.dataset import FAILURES
from bentpipe.runs.plan import shipped
from bentpipe.runs.store import default_folder
from bentpipe.sweeps.file import request, shipped_sweeps
from bentpipe.sweeps.result import check_metrics
from bentpipe.sweeps.sweep import execute

_MOST_ROWS = 1000
"""Maximum number of table rows on a terminal."""
_MOST_WARNINGS = 10
"""Maximum number of warnings; each point may have its own."""


@click.command
@click.argument("scenario", metavar="SCENARIO | SWEEP", shell_complete=names_or_file(shipped, shipped_sweeps))
@scenario_options
@click.option(
    "--vary",
    metavar="KEY=VALUES",
    multiple=True,
    help="A key to vary: a list as 0.1,0.5, or a range as 10 ms:60 ms:6 or 0.01:0.2:log:8; may be repeated.",
)
@settings_option("Settings at each point; default: the scenario's.")
@integer_option("--runs", help="Runs per setting and point; default: the scenario's.")
@integer_option("--seed", help="Seed of the first run; the others follow consecutively.")
@click.option(
    "--design",
    type=click.Choice(["grid", "lhs", "sobol"]),
    help="All combinations (the default); a Latin hypercube or a Sobol sequence of --points points.",
)
@integer_option("--points", help="Points of the designs lhs and sobol.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    shell_complete=metric_names,
    callback=split_names,
    help="Metric to print; may be repeated. Default: throughput, queue_delay_mean.",
)
@click.option(
    "--until-ci",
    metavar="SHARE",
    help="Add runs until the 95 % interval of the first --metric is this narrow, for example 2%.",
)
@integer_option("--max-runs", help="Limit of runs with --until-ci; default: 100.")
@worker_options(
    "Folder of the dataset; an existing one is continued. Default: results/SCENARIO-sweep-DATE-TIME.",
    csv=True,
)
@click.pass_context
def sweep(
    context: click.Context,
    scenario: str,
    overrides: tuple[str, ...],
    duration: str | None,
    vary: tuple[str, ...],
    settings: list[str] | None,
    runs: int | None,
    seed: int | None,
    design: str | None,
    points: int | None,
    metrics: list[str] | None,
    until_ci: str | None,
    max_runs: int | None,
    jobs: int | None,
    cluster: str | None,
    out: Path | None,
    form: str,
) -> None:
    """Simulate SCENARIO at many points, under the same settings and seeds, into one dataset.

    SWEEP is a file with all options in TOML, or the name of a shipped one (`bentpipe list sweeps`); options
    override it (docs/sweep.md).

    Runs in the dataset are not repeated: an interrupted sweep continues with the same command, and a larger
    one extends the dataset.

    \b
    Examples:
      bentpipe sweep byun2007-gateway --vary "gateway.pep.delay=0 ms:60 ms:7" --settings "RED 4,AVQRED"
      bentpipe sweep small-gateway --vary gateway.aqm.w_q=0.01:0.2:log:8 --settings red --until-ci 2%
      bentpipe sweep my-sweep.toml --runs 20
      bentpipe sweep my-sweep.toml --cluster tcp://10.0.0.7:8786
    """
    from bentpipe.report.sweep_charts import axes

    check_metrics(metrics or ())
    import_from_current_folder(settings or [])
    asked = request(
        scenario,
        vary,
        changes(overrides, duration),
        settings=settings,
        runs=runs,
        seed=seed,
        design=design,
        points=points,
        metrics=list(dict.fromkeys(metrics or ())) or None,
        until_ci=until_ci,
        max_runs=max_runs,
    )
    precision = asked.precision()
    plan = asked.plan()
    shown = plan.metrics
    folder = out if out is not None else default_folder(f"{asked.name}-sweep")
    console.warn(plan.warnings[:_MOST_WARNINGS])
    console.warn(plan.left_out, "left out")
    open_end = precision is not None
    with workers_and_progress(context, folder, jobs, cluster, open_end=open_end) as (workers, bar):
        result = execute(plan, folder, workers=workers, precision=precision, on_progress=bar.update)
    rows = result.rows(shown)
    if form != "table":
        console.write(rows, form)
    else:
        found: dict[tuple[str, ...], dict[str, str]] = {}
        counts: dict[tuple[str, ...], int] = {}
        for row in rows:
            place = (row["setting"], *(row[key] for key in result.factors))
            found.setdefault(place, {})[row["metric"]] = measured(row)
            counts[place] = max(counts.get(place, 0), row["runs"])
        units = {row["metric"]: row["unit"] for row in rows}
        heads = [f"{name}, {units[name]}" if units.get(name) else name for name in shown]
        written = [axis.written for axis in axes(result, result.frame())]
        cells = [
            [
                place[0],
                *(each[value] for each, value in zip(written, place[1:], strict=True)),
                str(counts[place]),
                *(of.get(name, "–") for name in shown),
            ]
            for place, of in found.items()
        ]
        stdout = console.stdout()
        stdout.print(console.grid(["setting", *result.factors, "runs", *heads], cells[:_MOST_ROWS], right=1))
        if len(cells) > _MOST_ROWS:
            stdout.print(f"The first {_MOST_ROWS} of {len(cells):,} rows; --format json prints all.")
    err = console.stderr()
    err.print(f"Dataset: {folder}")
    if rows:
        err.print(f"Report: {result.report()}")
    console.warn(result.shortfalls())
    failures = result.failures
    if failures:
        first = failures[0]
        where = "".join(f", {key} = {value}" for key, value in first["point"].items())
        raise Failed(
            f"{plural(len(failures), 'run')} failed and will be tried again by the same command, listed in"
            f" {folder / FAILURES}; the first, under {first['setting']}{where} with seed {first['seed']}:"
            f" {first['error']}"
        )
