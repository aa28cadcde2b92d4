"""The command `evaluate`: AQMs and congestion controls in the cases that RFCs ask for."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bentpipe.cli import console
from bentpipe.cli.exits import Failed
from bentpipe.cli.options import (
    Function,
    given_options,
    import_from_current_folder,
    integer_option,
    seed_option,
    set_option,
    settings_option,
    split_names,
    worker_options,
    workers_and_progress,
)
from bentpipe.errors import UsageError
from bentpipe.evaluation import RUNS
from bentpipe.format import plural
from bentpipe.runs.store import default_folder

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bentpipe.evaluation.result import EvaluationResult


@click.group
def evaluate() -> None:
    """Evaluate algorithms in the cases that RFCs ask for, on the ground and over satellites.

    \b
    Examples:
      bentpipe evaluate aqm --settings droptail,red,avqred,fq_codel --profile geo
      bentpipe evaluate cc --controls newreno,cubic,bbr3
      bentpipe evaluate media
    """


def _common(folder: str) -> Callable[[Function], Function]:
    """Return the options of every evaluation; `folder` is the help of --out."""

    def add(function: Function) -> Function:
        for option in (
            worker_options(folder),
            click.option("--write", is_flag=True, help="Write the scenario files to --out, and run nothing."),
            set_option("all scenarios"),
            seed_option,
            integer_option("--runs", default=RUNS, help="Runs of each setting in each case."),
            click.option(
                "--section",
                "sections",
                metavar="N",
                multiple=True,
                help="Only cases of this section, for example 8 or 8.2.3; may be repeated.",
            ),
        ):
            function = option(function)
        return function

    return add


def _profiles(names: str) -> Callable[[Function], Function]:
    return click.option(
        "--profile",
        "profiles",
        metavar="NAME",
        multiple=True,
        callback=split_names,
        help=f"Network: {names}; may be repeated. Default: all.",
    )


_OUT = (
    "Folder of scenario files, runs and reports; an existing one is continued, and its scenario files are"
    " used as they are. Default: results/{}-evaluation-DATE-TIME."
)


@evaluate.command(short_help="Evaluate AQMs and schedulers by RFC 7928.")
@settings_option(
    'Settings to evaluate, for example "RED 4,avqred,fq_codel", all for every algorithm, or mypkg.MyAqm for'
    " an AQM written in Python; default: all."
)
@_profiles("terrestrial, geo, meo or leo")
@_common(_OUT.format("aqm"))
@click.pass_context
def aqm(
    context: click.Context,
    /,
    settings: list[str] | None,
    **options: Any,  # noqa: ANN401
) -> None:
    """Evaluate AQMs and schedulers in the cases of RFC 7928, and in cases for satellites (section S).

    Every case is a scenario file in the folder, which can be opened, run alone and changed (--write). Runs in
    the folder are not repeated: an interrupted evaluation continues with the same command.

    \b
    Examples:
      bentpipe evaluate aqm --settings droptail,red,avqred,fq_codel --profile geo
      bentpipe evaluate aqm --settings avqred,mypkg.MyAqm --section 8 --runs 3
      bentpipe evaluate aqm --write --out my-evaluation
      bentpipe evaluate aqm --cluster tcp://10.0.0.7:8786
    """
    import_from_current_folder(settings or [])
    _run(context, "aqm", settings or ["all"], **options)


@evaluate.command(short_help="Evaluate congestion controls by RFC 9743.")
@click.option(
    "--controls",
    metavar="A,B,…",
    multiple=True,
    callback=split_names,
    help="Congestion controls to evaluate, for example cubic,bbr3; may be repeated. Default: all.",
)
@_profiles("terrestrial or geo")
@_common(_OUT.format("cc"))
@click.pass_context
def cc(
    context: click.Context,
    /,
    controls: list[str] | None,
    **options: Any,  # noqa: ANN401
) -> None:
    """Evaluate congestion controls over TCP in the cases of RFC 9743, and in test cases of BBR (section B).

    Every case is a scenario file in the folder, which can be opened, run alone and changed (--write); the
    evaluated control is that of its transport "new".

    \b
    Examples:
      bentpipe evaluate cc --controls newreno,cubic,bbr3
      bentpipe evaluate cc --controls cubic,hybla --section 5.2 --profile geo
    """
    _run(context, "cc", _chosen("cc", controls), **options)


@evaluate.command(short_help="Evaluate controls of real-time media by RFC 8867.")
@click.option(
    "--controls",
    metavar="A,B,…",
    multiple=True,
    callback=split_names,
    help="Controls of the rate to evaluate: nada, loss, fixed; may be repeated. Default: all.",
)
@_profiles("terrestrial or geo")
@_common(_OUT.format("media"))
@click.pass_context
def media(
    context: click.Context,
    /,
    controls: list[str] | None,
    **options: Any,  # noqa: ANN401
) -> None:
    """Evaluate controls of real-time media over RTP in the cases of RFC 8867.

    nada is RFC 8698, loss the controller of Busse et al. (1996), fixed a source that does not adapt. Every
    case is a scenario file in the folder, which can be opened, run alone and changed (--write).

    \b
    Examples:
      bentpipe evaluate media
      bentpipe evaluate media --controls nada --section 5.6 --set link.bottleneck.queue.aqm.algorithm=codel
    """
    _run(context, "media", _chosen("media", controls), **options)


def _chosen(kind: str, given: list[str] | None) -> list[str]:
    """Return the controls that are asked for, or all."""
    from bentpipe.evaluation.cases import controls

    return list(dict.fromkeys(given or controls(kind)))


_OF_FILES = ("--write", "--out", "--profile", "--section", "--quiet")


def _run(
    context: click.Context,
    kind: str,
    settings: list[str],
    *,
    profiles: list[str] | None,
    sections: tuple[str, ...],
    runs: int,
    seed: int | None,
    overrides: tuple[str, ...],
    write: bool,
    jobs: int | None,
    cluster: str | None,
    out: Path | None,
    form: str,
) -> None:
    """Write the scenario files of an evaluation, run it, and show the result."""
    from bentpipe.evaluation.cases import profile
    from bentpipe.evaluation.cases import profiles as known
    from bentpipe.evaluation.evaluate import execute, make_plan, write_scenarios

    networks = [profile(kind, name) for name in dict.fromkeys(profiles or ())] or list(known(kind).values())
    folder = out if out is not None else default_folder(f"{kind}-evaluation")
    if write:
        if out is None:
            raise UsageError("--write needs --out DIR, the folder for the scenario files")
        useless = [each for each in given_options(context) if each not in _OF_FILES]
        if useless:
            raise UsageError(
                f"{', '.join(useless)}: has no effect with --write, which runs nothing; allowed:"
                f" {', '.join(_OF_FILES[1:])}"
            )
        found = write_scenarios(folder, networks, sections or None)
        console.stderr().print(f"{plural(len(found), 'scenario file')}: {folder / 'scenarios'}")
        return
    plan = make_plan(
        kind,
        folder,
        networks,
        settings,
        sections=sections or None,
        runs=runs,
        seed=seed,
        overrides=overrides,
    )
    console.warn(plan.left_out, "left out")
    with workers_and_progress(context, folder, jobs, cluster) as (workers, bar):
        result = execute(plan, workers, bar.update)
    _show(result, form)


def _show(result: "EvaluationResult", form: str) -> None:
    """Print where each setting stands, and write the reports."""
    from bentpipe.evaluation.findings import verdict
    from bentpipe.evaluation.result import PARTS
    from bentpipe.report.evaluation import write_reports

    if form != "table":
        console.write(result.rows(), form)
    else:
        stdout = console.stdout()
        for entry in result.profiles:
            name = entry["name"]
            parts = result.parts(name)
            cells = [_cells(result, name, [None, *parts], setting) for setting in result.ranked(name)]
            stdout.print(f"\n{entry['title']}: comparisons won less lost, in percent")
            stdout.print(console.grid(["setting", "all", *parts], cells, right=1))
        sections = [f"{part} {title}" for part, title in PARTS[result.kind].items()]
        stdout.print(f"Sections: {'; '.join(sections)}.")
        for line in verdict(result):
            stdout.print(line)
    err = console.stderr()
    err.print(f"Evaluation: {result.folder}")
    err.print(f"Report: {write_reports(result)}")
    if failed := result.manifest.get("failed"):
        raise Failed(f"{plural(failed, 'run')} failed and will be tried again by the same command")


def _cells(
    result: "EvaluationResult", profile: str, parts: "Sequence[str | None]", setting: str
) -> list[str]:
    return [setting, *(f"{100 * result.standing(profile, part)[setting].net:+z.0f}" for part in parts)]
