"""The command `advise`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bentpipe.advice import advisor
from bentpipe.cli import console
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
from bentpipe.format import with_unit
from bentpipe.runs.store import default_folder

if TYPE_CHECKING:
    from bentpipe.advice.advisor import Advice


@click.command
@click.argument("scenario", shell_complete=scenario_names)
@scenario_options
@click.option(
    "--aqms",
    metavar="A,B,…",
    shell_complete=setting_names,
    help="AQMs or settings to choose from; default: a short list (docs/advise.md).",
)
@click.option(
    "--judge",
    type=click.Choice(advisor.JUDGES),
    help="classes: the worst-served class of traffic, then the mean over the classes, then power; power:"
    " throughput over response time; rank: rank sums of --metrics. Default: classes; power if no class has"
    " thresholds; rank with --metrics.",
)
@click.option(
    "--metrics",
    metavar="METRIC:max|min,…",
    shell_complete=metric_names,
    help="Metrics that --judge rank ranks, for example throughput:max,queue_delay_p95:min.",
)
@click.option(
    "--limit",
    "limits",
    multiple=True,
    metavar="METRIC<=VALUE",
    shell_complete=metric_names,
    help="Limit to meet first, for example queue_delay_p95<=50; may be repeated.",
)
@integer_option("--trials", help="Points of each AQM's parameters to try; default: 40.")
@integer_option("--search-runs", help="Seeds of each point; default: 2.")
@integer_option("--runs", help="New seeds for the decision; default: 10.")
@integer_option("--seed", help="First seed of the search; default: the scenario's.")
@worker_options(
    "Folder of the advice; runs in it are not repeated. Default: results/SCENARIO-advise-DATE-TIME."
)
@click.pass_context
def advise(
    context: click.Context,
    scenario: str,
    overrides: tuple[str, ...],
    duration: str | None,
    aqms: str | None,
    judge: str | None,
    metrics: str | None,
    limits: tuple[str, ...],
    trials: int | None,
    search_runs: int | None,
    runs: int | None,
    seed: int | None,
    jobs: int | None,
    cluster: str | None,
    out: Path | None,
    form: str,
) -> None:
    """Tune candidate AQMs on SCENARIO's link and recommend one, with its parameters and confidence.

    Short runs search each AQM's parameters; the best few points of each AQM run again at full length; the
    best of each AQM is compared with the current setting and with DropTail on new seeds. The answer is one
    page. An interrupted search continues with the same command and --out.

    \b
    Examples:
      bentpipe advise byun2007-gateway
      bentpipe advise small-gateway --aqms red,pi,avqred --limit "queue_delay_p95<=50"
      bentpipe advise my-link.toml --judge power
      bentpipe advise my-link.toml --metrics throughput:max,queue_delay_mean:min,loss_rate:min
    """
    names = None if aqms is None else aqms.split(",")
    import_from_current_folder(names or [])
    plan = advisor.AdvicePlan.plan(
        scenario,
        aqms=names,
        judge=judge,
        metrics=metrics,
        limits=limits,
        overrides=changes(overrides, duration),
        trials=advisor.TRIALS if trials is None else trials,
        runs=advisor.RUNS if search_runs is None else search_runs,
        fresh=advisor.FRESH if runs is None else runs,
        seed=seed,
    )
    folder = out if out is not None else default_folder(f"{plan.base.name}-advise")
    err = console.stderr()
    with workers_and_progress(context, folder, jobs, cluster) as (workers, bar):
        found = advisor.execute(
            plan,
            folder,
            workers=workers,
            on_progress=bar.update,
            on_message=lambda text: err.print(text),
        )
    if form != "table":
        console.write(found.found, form)
    else:
        _show(found)
    err.print(f"Page: {folder / advisor.REPORT}")


def _show(advice: "Advice") -> None:
    from bentpipe.report.advice import candidate_rows, change_rows, done, legend, score_names, split_heads

    out, found = console.stdout(), advice.found
    words = found["words"]
    for line in words["warnings"]:
        out.print(f"Warning: {line}")
    out.print(" ".join([advice.sentence, *words.get("reason", [])]))
    out.print()
    if found["changes"]:
        rows = [list(row.values()) for row in change_rows(found)]
        out.print(
            console.grid(["metric", "unit", found["present"], found["answer"], "change"], rows, right=2)
        )
    for line in [*words["sure"], *words["costs"]]:
        out.print(line)
    out.print()
    served, others = split_heads(found)
    power = found["judge"] != "rank"
    candidates = candidate_rows(found)
    if served:
        heads = ["who gets what", "first in", *["worst class", "mean"][: len(score_names(found))]]
        heads += [
            f"{each['class']}\n{console.folded(with_unit(each['label'], each['unit']))}" for each in served
        ]
        rows = [[_name(row), row["first"], *row["scores"], *map(_value, row["served"])] for row in candidates]
        out.print(console.folding(console.grid(heads, rows, right=1)))
    heads = ["candidate", *([] if served else ["first in"]), *(["power"] if power else [])]
    heads += [console.folded(with_unit(each["name"], each["unit"]), 14) for each in others]
    rows = [
        [
            _name(row),
            *([] if served else [row["first"]]),
            *([row["power"]] if power else []),
            *map(_value, row["cells"]),
        ]
        for row in candidates
    ]
    out.print(console.folding(console.grid(heads, rows, right=1)))
    for line in [legend(found, short=True), *done(found)]:
        out.print(line)
    if advice.toml:
        paste = found["paste"]
        out.print(
            f"\nTo use it, in place of aqm in [{paste['table']}]:\n\naqm = {paste['aqm']}",
            soft_wrap=True,
        )
        out.print(f"\nOr beside it, as a setting to compare:\n\n{advice.toml}", soft_wrap=True)
    out.print(f"\n{advice.command}", soft_wrap=True)


def _name(row: dict[str, Any]) -> str:
    """Return a candidate's name with its role."""
    note = ", ".join(each for each in (row["role"], row["behind"]) if each)
    return f"{row['name']} ({note})" if note else row["name"]


def _value(cell: dict[str, Any]) -> str:
    """Return a mean with its grade, and an asterisk if it differs significantly from the best."""
    grade = f" {cell['grade']}" if cell["grade"] else ""
    return f"{cell['mean']}{'*' if cell['behind'].endswith('*') else ' '}{grade}"
