"""The command `tune`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bentpipe.cli import console
from bentpipe.cli.exits import Failed
from bentpipe.cli.options import (
    changes,
    import_from_current_folder,
    integer_option,
    metric_names,
    scenario_names,
    scenario_options,
    setting_names,
    worker_options,
    workers_and_progress,
)
from bentpipe.format import likelihood, measured, plural, with_unit
from bentpipe.runs.plan import slug
from bentpipe.runs.store import REPORT, default_folder
from bentpipe.tuning.result import BEST, TRIALS, difference

if TYPE_CHECKING:
    from bentpipe.tuning.result import TuneResult

_SHOWN = 12
"""Maximum number of members of the front that are printed."""


@click.command
@click.argument("scenario", shell_complete=scenario_names)
@scenario_options
@click.option(
    "--aqm",
    required=True,
    metavar="NAME",
    shell_complete=setting_names,
    help="AQM to search, or a setting to start from.",
)
@click.option(
    "--metrics",
    required=True,
    metavar="METRIC:max|min,…",
    shell_complete=metric_names,
    help="Objectives, for example throughput:max,queue_delay_mean:min.",
)
@integer_option("--trials", help="Points to try; default: 100, or all points of a grid.")
@integer_option("--runs", default=5, help="Seeds of each trial.")
@integer_option("--seed", help="First seed; also determines the trials.")
@click.option(
    "--vary",
    metavar="KEY=VALUES",
    multiple=True,
    help="Search a parameter from LOW:HIGH, LOW:HIGH:log or in a list A,B,C; may be repeated. Default: the"
    " registry's ranges (bentpipe show NAME).",
)
@click.option("--fix", metavar="KEY=VALUE", multiple=True, help="Keep a parameter; may be repeated.")
@click.option(
    "--sampler",
    type=click.Choice(["tpe", "nsga2", "random", "grid"]),
    help="Sampler of the trials; default: tpe, or grid with --judge rank.",
)
@integer_option(
    "--generation", default=10, help="Trials per generation, sampled from the results of earlier generations."
)
@click.option(
    "--no-pruning", "pruning", flag_value=False, default=True, help="Finish trials that are certainly worse."
)
@click.option(
    "--judge",
    type=click.Choice(["front", "rank"]),
    default="front",
    show_default=True,
    help="Choose the winner by rank sums among the Pareto front, or among all trials of a grid.",
)
@integer_option(
    "--keep", metavar="K", help="Run the K best again before the choice; default: 1, or 3 with rank."
)
@integer_option("--fresh", default=10, help="Runs of the winner with seeds unused in the search.")
@click.option(
    "--storage",
    metavar="URL",
    help="Storage of the study: a file, sqlite:///FILE, postgresql://…; several processes may share it."
    " Default: a file in --out.",
)
@click.option("--study", metavar="NAME", help="Name of the study; default: the scenario's and the AQM's.")
@worker_options(
    "Folder of the result; an existing search is continued. Default: results/SCENARIO-tune-AQM-DATE-TIME."
)
@click.pass_context
def tune(
    context: click.Context,
    /,
    scenario: str,
    overrides: tuple[str, ...],
    duration: str | None,
    aqm: str,
    metrics: str,
    out: Path | None,
    form: str,
    jobs: int | None,
    cluster: str | None,
    storage: str | None,
    study: str | None,
    **options: Any,  # noqa: ANN401
) -> None:
    """Search the parameters of an AQM in SCENARIO for the best metrics, and test the winner on new seeds.

    A trial is a point of the parameters' ranges; all trials use the same seeds. The front holds the trials
    that no other trial dominates; the winner is one of them, and is simulated again with seeds that had no
    part in the search, beside the AQM's defaults. An interrupted search continues with the same command and
    --out (docs/tune.md).

    \b
    Examples:
      bentpipe tune byun2007-gateway --aqm red --metrics throughput:max,queue_delay_mean:min
      bentpipe tune small-gateway --aqm pi --metrics queue_delay_p95:min --vary q_ref=5:40 --fix w=170
      bentpipe tune byun-generic --aqm blue --metrics throughput:max,queue_std:min --judge rank
    """
    from bentpipe.tuning.tune import Tuning, execute

    import_from_current_folder([aqm])
    plan = Tuning.plan(scenario, aqm, metrics, overrides=changes(overrides, duration), **options)
    folder = out if out is not None else default_folder(f"{plan.scenario.name}-tune-{slug(aqm, ())}")
    err = console.stderr()
    console.warn(plan.space.as_given().warnings)
    with workers_and_progress(context, folder, jobs, cluster) as (workers, bar):
        result = execute(
            plan,
            folder,
            workers=workers,
            storage=storage,
            study=study,
            on_progress=bar.update,
            on_message=lambda text: err.print(text),
        )
    if form != "table":
        console.write(result.document(), form)
    else:
        _show(result)
    err.print(f"Result: {folder}")
    if result.winner is None:
        first = result.found["trials"][0]
        raise Failed(f"no trial completed; the first is {first['outcome']}: {first['note']}")
    failed = [each for each in result.found["trials"] if each["outcome"] == "failed"]
    if failed:
        raise Failed(
            f"{len(failed)} trials failed and have no part in the front; the first, trial"
            f" {failed[0]['number']}: {failed[0]['note']}"
        )


def _show(result: "TuneResult") -> None:
    out = console.stdout()
    found = result.found
    out.print(result.counted())
    if result.winner is None:
        out.print("No trial completed, so there is no winner.")
        return
    titles = [with_unit(each.metric, each.known.unit) for each in result.objectives]
    rows = []
    lines = result.front_rows()
    # The winner was possibly run again and need not be the first.
    lines.sort(key=lambda line: line["trial"] != found["winner"])
    for line in lines[:_SHOWN]:
        star = " *" if line["trial"] == found["winner"] else ""
        rows.append([f"{line['trial']}{star}", *line["cells"]])
    out.print(console.grid(["trial", *titles], rows, right=1))
    more = f" {len(lines) - _SHOWN} more are in {TRIALS}." if len(lines) > _SHOWN else ""
    winner = "* the winner."
    if found["winner"] not in found["front"]:
        winner = f"The winner, trial {found['winner']}, is not in the front."
    out.print(
        f"The front: trials to which none is better in one objective and as good in all.{more} {winner}"
        f" Mean ± 95 % interval over {plural(len(found['seeds']), 'run')} of the search (of 2, both values).",
    )
    cells = []
    for row in found["figures"]:
        name = f"trial {row['setting']}" if row["setting"].isdigit() else row["setting"]
        searched = "–" if row["searched"] is None else f"{row['searched']:.4g}"
        cells.append(
            [
                row["metric"],
                name,
                searched,
                measured(row),
                str(row["runs"]),
                difference(row),
                likelihood(row["p_holm"]),
            ]
        )
    heads = ["metric", "setting", "in the search", "on fresh seeds", "runs", "minus defaults", "p, corrected"]
    out.print(console.grid(heads, cells, right=2))
    point = ", ".join(f"{name} = {value}" for name, value in result.winner["point"].items())
    out.print(f"The winner: {point}")
    print(f"Setting: {result.folder / BEST}\nReport: {result.folder / REPORT}")
