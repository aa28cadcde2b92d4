"""The command `bentpipe`.

Exit codes: 0; 2 for anything the caller can mend, with one message on stderr; 130 after Ctrl-C; 1 for
everything else.
"""

import json
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from bentpipe import _core
from bentpipe.errors import AlgorithmError, BentpipeError, ModelError, ScenarioError, UsageError

if TYPE_CHECKING:
    from bentpipe.comparing import Comparison
    from bentpipe.console import Bar, Lines
    from bentpipe.metrics import Metric
    from bentpipe.store import Store

__all__ = ["cli", "main"]

_Function = TypeVar("_Function", bound=Callable[..., Any])

_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Interrupted(Exception):  # noqa: N818
    """Ctrl-C came while simulating; the text says how to go on."""


class _Failed(Exception):  # noqa: N818
    """Something outside Bentpipe failed while simulating, for example the disk is full."""


@click.group(context_settings=_HELP, no_args_is_help=False, invoke_without_command=True)
@click.version_option(_core.__version__, prog_name="bentpipe", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Congestion control for satellite gateways: simulate it, compare it, believe it.

    \b
    Examples:
      bentpipe compare byun2007-gateway
      bentpipe compare byun2007-gateway --settings "RED 4,AVQRED" --duration "2 min"
      bentpipe run my-scenario.toml --set gateway.aqm.max_p=0.5
      bentpipe list aqms
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def _scenario_options(function: _Function) -> _Function:
    for option in (
        click.option("--duration", metavar="TIME", help='Measured time, for example "2 min" (run.duration).'),
        click.option(
            "--set",
            "overrides",
            metavar="KEY=VALUE",
            multiple=True,
            help="Override a key of the scenario; may be repeated.",
        ),
    ):
        function = option(function)
    return function


def _run_options(function: _Function) -> _Function:
    for option in (
        click.option(
            "--warmup",
            metavar="TIME",
            help="Time that is discarded before measuring (run.warmup).",
        ),
        click.option(
            "--format",
            "form",
            type=click.Choice(["table", "json"]),
            default="table",
            help="json: a list of {setting, metric, unit, mean, std, ci95, runs, ci_low, ci_high, method,"
            " note}, and nothing else.",
        ),
        click.option(
            "--pcap-snap",
            type=int,
            metavar="BYTES",
            help="Bytes of each packet that are kept; default: its headers. Payload is zeros.",
        ),
        click.option(
            "--pcap-packets",
            type=int,
            metavar="N",
            help="Packets of a file, after which it ends; default: 1000000, about 100 MB.",
        ),
        click.option(
            "--pcap-link",
            "pcap_links",
            metavar="NAME",
            multiple=True,
            help="Link to capture; may be repeated. Default: the link that metrics describe.",
        ),
        click.option(
            "--pcap",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="Write the packets on a link to this folder, one pcapng file per run and link.",
        ),
        click.option(
            "--trace",
            metavar="FLOW",
            multiple=True,
            help="Keep a flow's windows and timers over time: flow:17, or traffic:NAME:3 for the flows of a"
            " session; may be repeated.",
        ),
        click.option("--resume", is_flag=True, help="Go on with the interrupted result in --out."),
        click.option(
            "--force", is_flag=True, help="Replace the result that is in --out, and captures in --pcap."
        ),
        click.option(
            "--out",
            type=click.Path(path_type=Path),
            metavar="DIR",
            help="Folder of the result; default: results/SCENARIO-DATE-TIME.",
        ),
        click.option("--jobs", type=int, metavar="N", help="Runs at a time; default: one per core."),
        click.option("--seed", type=int, metavar="N", help="Seed of the first run; the next ones count on."),
    ):
        function = option(function)
    return function


@cli.command(short_help="Simulate a scenario as it is.")
@click.argument("scenario")
@_scenario_options
@_run_options
@click.option(
    "--runs", type=int, default=1, show_default=True, metavar="N", help="Runs, each with its own seed."
)
@click.pass_context
def run(context: click.Context, /, **options: Any) -> None:  # noqa: ANN401
    """Simulate SCENARIO as it is and write the result and its report.

    SCENARIO is a file, or the name of a shipped scenario (`bentpipe list scenarios`).

    \b
    Examples:
      bentpipe run byun2007-gateway --duration "2 min"
      bentpipe run my-scenario.toml --set gateway.aqm.max_p=0.5 --runs 5 --format json
    """
    _simulate(context, settings=None, **options)


@cli.command(short_help="Simulate a scenario under several settings, or compare results that are there.")
@click.argument("operands", nargs=-1, required=True, metavar="SCENARIO | RESULT [RESULT | SETTING]…")
@_scenario_options
@_run_options
@click.option(
    "--metric",
    "metrics",
    metavar="NAME",
    multiple=True,
    help="Say whether settings differ in this metric, each with each; may be repeated. Default for results:"
    " the metrics that rank settings.",
)
@click.option("--runs", type=int, metavar="N", help="Runs per setting; default: the scenario's.")
@click.option(
    "--settings",
    metavar="A,B,…",
    help='Settings to compare, for example "RED 4,AVQ,AVQRED", all for every algorithm, or mypkg.MyAqm for an'
    " AQM written in Python; default: the scenario's.",
)
@click.pass_context
def compare(
    context: click.Context,
    /,
    operands: tuple[str, ...],
    settings: str | None,
    metrics: tuple[str, ...],
    **options: Any,  # noqa: ANN401
) -> None:
    """Simulate SCENARIO under several settings, print how they compare and write the report.

    Every setting meets the same seeds, so that they are compared under the same traffic. SCENARIO is a
    file, or the name of a shipped scenario (`bentpipe list scenarios`).

    RESULT, a folder, is not simulated again: its settings are compared each with each, or only those SETTINGs
    that are named; or, given another RESULT, with those of the same name there. "No difference seen" is the
    verdict unless the p-value, corrected over all comparisons that are shown, is at most 5 %
    (docs/statistics.md).

    \b
    Examples:
      bentpipe compare byun2007-gateway
      bentpipe compare byun2007-gateway --settings "RED 4,AVQRED" --runs 5 --out results/red-avqred
      bentpipe compare byun2007-gateway --settings all
      bentpipe compare byun2007-gateway --out results/red-avqred --resume
      bentpipe compare byun2007-gateway --settings AVQRED,mypkg.MyAqm
      bentpipe compare results/red-avqred --metric queue_mean --metric utilization
      bentpipe compare results/before results/after --metric queue_delay_p95
    """
    from bentpipe.comparing import chosen

    named = [each.strip() for metric in metrics for each in metric.split(",")]
    # A misspelt metric is told before anything is simulated.
    wanted = chosen(named or None)
    first, *others = operands
    names = [] if settings is None else settings.split(",")
    if Path(first).is_dir():
        foreign = [option for option in _given(context) if option not in _FOR_RESULTS]
        if foreign:
            raise UsageError(f"{', '.join(foreign)}: has no effect on {first}, which is simulated already")
        _compare_results(Path(first), others, names, wanted, options["form"])
        return
    if others:
        raise UsageError(
            f"{first}: is no folder of a result, to compare with {others[0]};"
            " scenarios are simulated one at a time"
        )
    _simulate(context, scenario=first, settings=names, metrics=wanted if named else None, **options)


_FOR_RESULTS = ("--metric", "--settings", "--format")


def _given(context: click.Context) -> list[str]:
    """Return the options that stand on the command line."""
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if isinstance(parameter, click.Option)
        and context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
    ]


def _compare_results(
    folder: Path, others: list[str], settings: list[str], metrics: "list[Metric]", form: str
) -> None:
    """Compare the settings of a result with each other, or with those of another one."""
    from bentpipe.comparing import between, within
    from bentpipe.result import Result

    result = Result(folder)
    names = [*(name.strip() for name in settings), *(name for name in others if name in result.settings)]
    rest = [name for name in others if name not in result.settings]
    if len(rest) > 1:
        raise UsageError(f"{', '.join(rest)}: only two results are compared at a time")
    if rest and not Path(rest[0]).is_dir():
        raise UsageError(
            f"{rest[0]}: is neither a folder nor a setting of {folder};"
            f" there are {', '.join(result.settings)}"
        )
    if rest:
        _tell(between(result, Result(Path(rest[0])), metrics, names or None), form)
    else:
        _tell(within(result, metrics, names or None), form)


def _tell(comparisons: "list[Comparison]", form: str) -> None:
    from bentpipe import console
    from bentpipe.comparing import INDEPENDENT, NOTHING_SEEN, PAIRED, document
    from bentpipe.wording import plural

    found = document(comparisons)
    if form == "json":
        click.echo(json.dumps(found, indent=2, ensure_ascii=False, allow_nan=False))
        return
    out = console.stdout()
    out.print(console.comparison_table(comparisons))
    how = {
        PAIRED: "Runs with the same seed met the same traffic and are compared in pairs.",
        INDEPENDENT: "Runs without the same seeds and traffic are compared as independent ones (Welch).",
    }
    for kind, text in how.items():
        if any(each.pairing == kind for each in comparisons):
            out.print(text)
    if not found["family"]:
        out.print("One run of a setting cannot tell a difference from chance: simulate more with --runs.")
        return
    comparing = plural(found["family"], "comparison")
    out.print(f"Differences with 95 % intervals; p-values corrected after Holm over {comparing}.")
    if any(each.verdict == NOTHING_SEEN for each in comparisons):
        out.print("Where no difference is seen there may yet be one, as large as its interval allows.")


def _simulate(
    context: click.Context,
    *,
    scenario: str,
    overrides: tuple[str, ...],
    duration: str | None,
    warmup: str | None,
    settings: list[str] | None,
    metrics: "list[Metric] | None" = None,
    runs: int | None,
    seed: int | None,
    jobs: int | None,
    out: Path | None,
    force: bool,
    resume: bool,
    form: str,
    trace: tuple[str, ...],
    pcap: Path | None,
    pcap_links: tuple[str, ...],
    pcap_packets: int | None,
    pcap_snap: int | None,
) -> None:
    from bentpipe import console
    from bentpipe.capture import PACKETS, Capture, Captures
    from bentpipe.comparing import within
    from bentpipe.experiment import cores, execute
    from bentpipe.plan import make_plan
    from bentpipe.ranking import BEHIND_PEP
    from bentpipe.statistics import BOOTSTRAP
    from bentpipe.store import REPORT, Store, default_folder, pairs, run_folder
    from bentpipe.warmup import warnings as unsettled
    from bentpipe.wording import plural

    _check_counts(runs, jobs, force=force, resume=resume, out=out)
    if pcap is None and (pcap_links or pcap_packets is not None or pcap_snap is not None):
        raise UsageError(
            "--pcap-link, --pcap-packets and --pcap-snap need --pcap DIR, the folder to write to"
        )
    if warmup is not None:
        overrides = (*overrides, f"run.warmup={warmup}")
    loaded = _load(scenario, overrides, duration)
    # None: the scenario as it is; no names: those that the scenario compares.
    names = loaded.settings if settings == [] else settings
    _look_here(names or [])
    plan = make_plan(loaded, settings=names, runs=runs, seed=seed, trace=trace)
    if metrics is not None and len(plan.settings) < 2:
        raise UsageError(f"--metric compares settings, but there is only {plan.settings[0].name}")
    captures = None
    if pcap is not None:
        packets = PACKETS if pcap_packets is None else pcap_packets
        captures = Captures(Capture(pcap, pcap_links, packets, pcap_snap), plan)
    folder = out if out is not None else default_folder(loaded.name)
    missing = [
        (each, n) for each, n in pairs(plan) if not (resume and run_folder(folder, each.slug, n).is_dir())
    ]
    with captures.prepared(force=force, missing=missing) if captures else nullcontext():
        store = Store.resume(folder, plan) if resume else Store.create(folder, plan, force=force)
        err = console.stderr()
        for warning in dict.fromkeys(warning for each in plan.settings for warning in each.scenario.warnings):
            err.print(f"warning: {warning}", markup=False)
        for reason in plan.left_out:
            err.print(f"left out: {reason}", markup=False)
        with _resumable(context, store, folder, pcap) as watcher:
            result = execute(store, jobs or cores(), watcher, captures)
            watcher.close()
            result.report()
    for warning in captures.warnings if captures else ():
        err.print(f"warning: {warning} (--pcap-packets)", markup=False)
    for warning in unsettled(result.settled):
        err.print(f"warning: {warning}", markup=False)
    if form == "json":
        if metrics is None:
            click.echo(json.dumps(result.rows(), indent=2, ensure_ascii=False, allow_nan=False))
        else:
            _tell(within(result, metrics), form)
        err.print(f"Result: {folder}", markup=False)
        return
    out_console = console.stdout()
    out_console.print(console.metrics_table(result))
    if behind := [name for name in result.settings if result.setting_info(name).get("behind_pep")]:
        out_console.print(f"* {BEHIND_PEP}: {', '.join(behind)}.", markup=False)
    if len(result.seeds) > 1:
        skew = any(row["method"] == BOOTSTRAP for row in result.rows())
        out_console.print(
            f"Mean ± 95 % confidence interval over {len(result.seeds)} runs per setting"
            + ("; in brackets, by the bootstrap, where they are not normal." if skew else "."),
            markup=False,
        )
    elif any(row["ci95"] is not None for row in result.rows()):
        out_console.print("Mean ± 95 % confidence interval of one run's mean, from batches of its samples.")
    if metrics is not None:
        _tell(within(result, metrics), form)
    if loaded.overrides:
        out_console.print(f"Changed from the file: {', '.join(loaded.overrides)}.", markup=False)
    print(f"Result: {folder}\nReport: {folder / REPORT}")
    if captures is not None:
        print(f"Packets: {plural(len(captures.written), 'file')} in {pcap}")


def _check_counts(runs: int | None, jobs: int | None, *, force: bool, resume: bool, out: Path | None) -> None:
    if runs is not None and runs < 1:
        raise UsageError(f"--runs {runs}: at least 1 is needed")
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}: at least 1 is needed")
    if force and resume:
        raise UsageError("--force replaces a result and --resume goes on with it: give one of them")
    if resume and out is None:
        raise UsageError("--resume needs --out DIR, the folder of the result to go on with")


@contextmanager
def _resumable(
    context: click.Context, store: "Store", folder: Path, pcap: Path | None = None
) -> Iterator["Bar | Lines"]:
    """Show how a simulation goes on; what interrupts it becomes a message that says how to resume."""
    from bentpipe import console
    from bentpipe.store import RUNS

    watcher = console.watcher()
    try:
        yield watcher
    except KeyboardInterrupt:
        watcher.close()
        raise _Interrupted(_how_to_go_on(context, store, folder)) from None
    except AlgorithmError as error:
        done = sum(1 for _ in (store.folder / RUNS).glob("*/[0-9]*"))
        kept = f"\n{done} of {store.plan.total} runs are finished and kept in {folder}" if done else ""
        raise AlgorithmError(f"{error}{kept}") from error.__cause__
    except OSError as error:
        watcher.close()
        reason = error.strerror or str(error)
        capturing = pcap is not None and str(error.filename or "").startswith(str(pcap))
        raise _Failed(
            f"{pcap if capturing else folder}: {reason}\n{_how_to_go_on(context, store, folder)}"
        ) from None
    finally:
        watcher.close()
        store.close()


def _look_here(names: list[str]) -> None:
    """Let modules of the current folder be found, as `python -m` does, if a name may mean a class in one."""
    from bentpipe.algorithm import is_path

    here = str(Path.cwd())
    if here not in sys.path and any(is_path(name.strip()) for name in names):
        sys.path.insert(0, here)


def _how_to_go_on(context: click.Context, store: "Store", folder: Path) -> str:
    from bentpipe.store import RUNS

    done = sum(1 for _ in (store.folder / RUNS).glob("*/[0-9]*"))
    return (
        f"{done} of {store.plan.total} runs are finished and kept. To go on:\n    {_command(context, folder)}"
    )


def _command(context: click.Context, folder: Path) -> str:
    """Return the command that goes on with `folder`: the one that was given, with --out and --resume."""
    words = ["bentpipe", str(context.info_name)]
    for parameter in context.command.params:
        name = str(parameter.name)
        if name in {"out", "force", "resume"}:
            continue
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        value = context.params[name]
        for each in value if isinstance(value, tuple) else (value,):
            words += [parameter.opts[0], str(each)] if isinstance(parameter, click.Option) else [str(each)]
    return shlex.join([*words, "--out", str(folder), "--resume"])


def _load(scenario: str, overrides: tuple[str, ...], duration: str | None) -> _core.Scenario:
    from bentpipe.plan import load

    changed = list(overrides)
    if duration is not None:
        changed.append(f"run.duration={duration}")
    return load(scenario, changed)


class _WithDefault(click.Group):
    """A group that takes what is none of its commands for the arguments of its default command."""

    default = "solve"

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put the default command in front, unless one is named or help is asked for."""
        if args and args[0] not in self.commands and args[0] not in {"-h", "--help"}:
            args = [self.default, *args]
        return super().parse_args(ctx, args)


@cli.group("model", cls=_WithDefault, short_help="Solve a scenario's fluid or Markov model.")
def model_() -> None:
    """Solve a model of a scenario in place of a simulation: `bentpipe model SCENARIO`.

    \b
    Examples:
      bentpipe model byun2007-gateway
      bentpipe model byun2007-gateway --settings "RED 4,AVQRED" --format json
      bentpipe model solve --help
      bentpipe model capture byun2007-gateway
      bentpipe model stability byun2007-gateway --settings "RED 4,avqred" --map
    """


@model_.command("solve", short_help="Solve it; the default.")
@click.argument("scenario")
@_scenario_options
@click.option(
    "--settings",
    metavar="A,B,…",
    help='Settings to solve it under, for example "RED 4,AVQ,AVQRED"; default: the scenario\'s.',
)
@click.option("--seed", type=int, metavar="N", help="Draws what is random in the capacity.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the result; default: results/SCENARIO-model-DATE-TIME.",
)
@click.option("--force", is_flag=True, help="Replace the model's result that is in --out.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    help="json: a list of {setting, quantity, unit, mean, std}, and nothing else; of a Markov model,"
    " {setting, states, quantity, class, unit, value}.",
)
def model_solve(
    scenario: str,
    overrides: tuple[str, ...],
    duration: str | None,
    settings: str | None,
    seed: int | None,
    out: Path | None,
    form: str,
    *,
    force: bool,
) -> None:
    """Solve the model of SCENARIO under its settings: mean and deviation of each quantity.

    Its key model.kind says whether that is the fluid equations or the Markov model of a queue. By default it
    is the latter where all traffic is datagrams.

    \b
    Examples:
      bentpipe model byun2007-gateway
      bentpipe model byun2007-gateway --settings "RED 4,AVQRED" --set model.step="0.5 ms"
      bentpipe model mmpp-queue --set model.erlang_stages=2
    """
    from bentpipe import console
    from bentpipe.model import QUANTITIES, kind_of, model
    from bentpipe.store import REPORT, default_folder
    from bentpipe.wording import brief, spread

    loaded = _load(scenario, overrides, duration)
    names = None if settings is None else settings.split(",")
    folder = out if out is not None else default_folder(f"{loaded.name}-model")
    if kind_of(loaded) == "markov":
        _solve_markov(loaded, names, folder, form, force=force)
        return
    result = model(loaded, names, seed=seed)
    result.save(folder, force=force)
    if form == "json":
        click.echo(json.dumps(result.rows(), indent=2, ensure_ascii=False, allow_nan=False))
        console.stderr().print(f"Result: {folder}", markup=False)
        return
    cells = {(row["setting"], row["quantity"]): row for row in result.rows()}
    rows = []
    for each in QUANTITIES:
        found = [cells[setting, each.name] for setting in result.settings]
        values = [
            "–"
            if row["mean"] is None
            else brief(row["mean"], 4) + (f" ± {spread(row)}" if row["std"] is not None else "")
            for row in found
        ]
        rows.append([each.label, each.unit, *values])
    console.stdout().print(console.grid(["quantity", "unit", *result.settings], rows, right=2))
    print(f"Mean ± standard deviation over time.\nResult: {folder}\nReport: {folder / REPORT}")


@model_.command("stability", short_help="Say how far it is from oscillation.")
@click.argument("scenario")
@_scenario_options
@click.option(
    "--settings",
    metavar="A,B,…",
    help='Settings to analyse, for example "RED 4,pi,avqred"; default: the scenario\'s, for a map those that'
    " are covered and pi.",
)
@click.option(
    "--vary",
    metavar="KEY=LOW:HIGH:N",
    multiple=True,
    help="N values of connections, round_trip [s] or pep_delay [s]; may be repeated.",
)
@click.option("--map", "mapped", is_flag=True, help="Draw a map over two of these, with simulations over it.")
@click.option("--no-sim", is_flag=True, help="Draw the map without simulations.")
@click.option(
    "--sim-points",
    type=click.IntRange(2, 20),
    default=5,
    show_default=True,
    metavar="N",
    help="Simulate N by N points of the map under each setting.",
)
@click.option("--out", type=click.Path(path_type=Path), metavar="DIR", help="Folder of the map.")
@click.option("--force", is_flag=True, help="Replace the map that is in --out; its simulations are kept.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    help="json: a list of points, and nothing else.",
)
def model_stability(
    scenario: str,
    overrides: tuple[str, ...],
    duration: str | None,
    settings: str | None,
    vary: tuple[str, ...],
    out: Path | None,
    form: str,
    sim_points: int,
    *,
    mapped: bool,
    no_sim: bool,
    force: bool,
) -> None:
    """Linearize the fluid equations of SCENARIO and say how far they are from oscillation.

    The margins are those of Nyquist's criterion at the operating point, under each setting: by how much the
    loop's gain may grow, how much more it may lag, as a phase and as a delay. Below 1, or below 0, it
    oscillates. `--set model.feedback=round_trip` lets senders hear of marks a round trip later.

    \b
    Examples:
      bentpipe model stability red-dumbbell --settings "RED 60/120,pi,avqred"
      bentpipe model stability byun2007-gateway --settings avqred --vary connections=20:140:7
      bentpipe model stability byun2007-gateway --settings "RED 4,avqred" --map --no-sim
    """
    from bentpipe import console
    from bentpipe import stability as analysis
    from bentpipe.store import default_folder

    changed = list(overrides) + ([] if duration is None else [f"run.duration={duration}"])
    loaded = _load(scenario, overrides, duration)
    chosen = None if settings is None else settings.split(",")
    varied = dict(analysis.parsed(each) for each in vary)
    if not mapped:
        table = analysis.margins(loaded, chosen, vary=varied)
        rows = table.to_dicts()
        if form == "json":
            click.echo(json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False))
            return
        heads, cells, notes = analysis.shown(table, list(varied))
        if notes and table["stable"].is_null().all():
            raise ModelError(f"{loaded.name}: {notes[0]}")
        console.stdout().print(console.grid(heads, cells, right=1))
        for note in notes:
            print(note)
        return
    folder = out if out is not None else default_folder(f"{loaded.name}-stability")
    x, y = analysis.axes(loaded, varied)
    found = analysis.stability_map(loaded, x=x, y=y, settings=chosen)
    analysis.open_folder(folder, force=force)
    if not no_sim:
        found = analysis.with_simulations(
            found, scenario, changed, sim_points, folder, console.stderr().print if form == "table" else None
        )
    found.save(folder)
    if form == "json":
        click.echo(json.dumps(found.table.to_dicts(), indent=2, ensure_ascii=False, allow_nan=False))
        return
    print(f"{len(found.table)} points, {len(found.simulated)} simulations.\nMap: {folder / 'map.html'}")


@model_.command("capture", short_help="Measure the series that drive a fluid model.")
@click.argument("scenario")
@click.option(
    "--set",
    "overrides",
    metavar="KEY=VALUE",
    multiple=True,
    help="Override a key of the scenario; may be repeated.",
)
@click.option("--points", type=int, default=500, show_default=True, metavar="N", help="Points to measure.")
@click.option(
    "--interval", type=float, default=0.1, show_default=True, metavar="SECONDS", help="Time between them."
)
@click.option(
    "--harmonics", type=int, default=8, show_default=True, metavar="N", help="Waves to fit beside the mean."
)
@click.option("--seed", type=int, metavar="N", help="Seed of the run; default: the scenario's.")
@click.option("--as-it-is", is_flag=True, help="Leave the AQM and the bottleneck in place.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="File to write; default: series/SCENARIO.json.",
)
@click.option("--figure", is_flag=True, help="Draw the series beside the file, as .svg.")
@click.option("--force", is_flag=True, help="Replace the file, and the figure.")
def model_capture(
    scenario: str,
    overrides: tuple[str, ...],
    points: int,
    interval: float,
    harmonics: int,
    seed: int | None,
    out: Path | None,
    *,
    as_it_is: bool,
    figure: bool,
    force: bool,
) -> None:
    """Measure what drives a fluid model of SCENARIO: PEP delay, load ratio and new connections.

    They come from a simulation whose gateway has neither AQM nor bottleneck, after the scenario's warm-up,
    and are fitted by Fourier series. A scenario names the file by its key model.series, as a path from its
    own folder.

    \b
    Examples:
      bentpipe model capture byun2007-gateway --figure
      bentpipe model capture my-scenario.toml --points 300 --interval 1 --out series/my-scenario.json
    """
    from bentpipe import console
    from bentpipe.series import capture, check_free
    from bentpipe.wording import number

    path = out if out is not None else Path("series") / f"{Path(scenario).stem}.json"
    drawing = path.with_suffix(".svg") if figure and path.name else None
    check_free(path, drawing, force=force)
    captured = capture(
        scenario,
        points=points,
        interval=interval,
        harmonics=harmonics,
        seed=seed,
        set=overrides,
        as_it_is=as_it_is,
    )
    captured.write(path, drawing, force=force)
    rows = [
        [
            name,
            series.unit,
            number(series.mean),
            number(series.rms),
            "–" if series.explained is None else f"{100 * series.explained:.1f} %",
        ]
        for name, series in captured.series.items()
    ]
    err = console.stderr()
    for warning in captured.warnings:
        err.print(f"warning: {warning}", markup=False)
    heads = ["series", "unit", "mean", "left by the fit (rms)", "explained"]
    console.stdout().print(console.grid(heads, rows, right=2))
    noise = 100 * captured.pep_delay.noise
    print(f"{harmonics} harmonics explain {noise:.1f} % of white noise.\nSeries: {path}")
    if drawing is not None:
        print(f"Figure: {drawing}")


def _solve_markov(
    scenario: _core.Scenario, settings: list[str] | None, folder: Path, form: str, *, force: bool
) -> None:
    from bentpipe import console, markov_result
    from bentpipe.store import REPORT

    result = markov_result.solve(scenario, settings)
    result.save(folder, force=force)
    if form == "json":
        click.echo(json.dumps(result.rows(), indent=2, ensure_ascii=False, allow_nan=False))
        console.stderr().print(f"Result: {folder}", markup=False)
        return
    for title, headings, rows in result.tables():
        print(title)
        console.stdout().print(console.grid(headings, rows, right=2))
    for note in result.notes:
        print(f"Note: {note}.")
    print(f"Report: {folder / REPORT}")


@cli.command(short_help="Simulate a scenario, solve its model, and set both side by side.")
@click.argument("scenario")
@_scenario_options
@click.option(
    "--settings",
    metavar="A,B,…",
    help='Settings to look at, for example "RED 4,AVQ,AVQRED", or all that the model covers; default: the'
    " scenario's.",
)
@click.option("--runs", type=int, metavar="N", help="Runs per setting; default: the scenario's.")
@click.option("--seed", type=int, metavar="N", help="Seed of the first run; the next ones count on.")
@click.option("--jobs", type=int, metavar="N", help="Runs at a time; default: one per core.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the result; default: results/SCENARIO-validate-DATE-TIME.",
)
@click.option("--force", is_flag=True, help="Replace the validation that is in --out.")
@click.option("--resume", is_flag=True, help="Go on with the interrupted validation in --out.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    help="json: a list of {setting, quantity, label, unit, printed, simulator, model}, and nothing else.",
)
@click.pass_context
def validate(
    context: click.Context,
    /,
    scenario: str,
    overrides: tuple[str, ...],
    duration: str | None,
    settings: str | None,
    runs: int | None,
    seed: int | None,
    jobs: int | None,
    out: Path | None,
    form: str,
    *,
    force: bool,
    resume: bool,
) -> None:
    """Simulate SCENARIO and solve its model under the same settings: mean and deviation side by side.

    The model comes first: where it does not cover a setting, nothing is simulated.

    \b
    Examples:
      bentpipe validate red-dumbbell
      bentpipe validate byun2007-gateway --settings "RED 4,AVQRED" --runs 5 --duration "5 min"
    """
    from bentpipe import console
    from bentpipe.experiment import cores, execute
    from bentpipe.store import REPORT, default_folder
    from bentpipe.validate import begun, dropped, finished, planned

    _check_counts(runs, jobs, force=force, resume=resume, out=out)
    loaded = _load(scenario, overrides, duration)
    plan, model = planned(loaded, None if settings is None else settings.split(","), runs, seed)
    folder = out if out is not None else default_folder(f"{loaded.name}-validate")
    store = begun(folder, plan, model, force=force, resume=resume)
    err = console.stderr()
    for warning in dict.fromkeys(warning for each in plan.settings for warning in each.scenario.warnings):
        err.print(f"warning: {warning}", markup=False)
    for reason in plan.left_out:
        err.print(f"left out: {reason}", markup=False)
    with _resumable(context, store, folder) as watcher:
        try:
            execute(store, jobs or cores(), watcher)
        finally:
            dropped(folder)
        watcher.close()
        result = finished(folder, plan)
        result.report()
    if form == "json":
        click.echo(json.dumps(result.rows(), indent=2, ensure_ascii=False, allow_nan=False))
        err.print(f"Result: {folder}", markup=False)
        return
    console.stdout().print(console.validation_table(result))
    print(
        "Mean over the runs ± its 95 % interval; std: standard deviation over time. Differences are\n"
        "from the simulator's mean, with what its interval makes of them."
    )
    if loaded.overrides:
        console.stdout().print(f"Changed from the file: {', '.join(loaded.overrides)}.", markup=False)
    print(f"Result: {folder}\nReport: {folder / REPORT}")


@cli.command(short_help="Simulate many points of a scenario.")
@click.argument("scenario")
@_scenario_options
@click.option(
    "--vary",
    metavar="KEY=VALUES",
    multiple=True,
    help="A key to vary: a list as 0.1,0.5, or a range as 10 ms:60 ms:6 or 0.01:0.2:log:8; may be repeated.",
)
@click.option("--settings", metavar="A,B,…", help="Settings at each point; default: the scenario's.")
@click.option("--runs", type=int, metavar="N", help="Runs of each; default: the scenario's.")
@click.option("--seed", type=int, metavar="N", help="Seed of the first run; the next ones count on.")
@click.option(
    "--design",
    type=click.Choice(["grid", "lhs", "sobol"]),
    default="grid",
    show_default=True,
    help="Every combination; a Latin hypercube or a Sobol sequence of --points points.",
)
@click.option("--points", "count", type=int, metavar="N", help="Points of the designs lhs and sobol.")
@click.option(
    "--metric",
    "metrics",
    multiple=True,
    metavar="NAME",
    help="Metric to print; may be repeated. Default: utilization, queue_delay_mean.",
)
@click.option(
    "--until-ci",
    metavar="SHARE",
    help="Add runs until the 95 % interval of the first --metric is this narrow, for example 2%.",
)
@click.option("--max-runs", type=int, default=100, show_default=True, help="With --until-ci, runs at most.")
@click.option("--jobs", type=int, metavar="N", help="Runs at a time; default: one per core.")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder of the dataset; one that is there is gone on with."
    " Default: results/SCENARIO-sweep-DATE-TIME.",
)
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="json: for programs."
)
@click.pass_context
def sweep(
    context: click.Context,
    scenario: str,
    overrides: tuple[str, ...],
    duration: str | None,
    vary: tuple[str, ...],
    settings: str | None,
    runs: int | None,
    seed: int | None,
    design: str,
    count: int | None,
    metrics: tuple[str, ...],
    until_ci: str | None,
    max_runs: int,
    jobs: int | None,
    out: Path | None,
    form: str,
) -> None:
    """Simulate SCENARIO at many points, under the same settings and seeds at each, into one dataset.

    What is in the dataset already is not simulated again, so an interrupted sweep goes on with the same
    command, and a larger one adds to it.

    \b
    Examples:
      bentpipe sweep byun2007-gateway --vary "gateway.pep.delay=0 ms:60 ms:7" --settings "RED 4,AVQRED"
      bentpipe sweep small-gateway --vary gateway.aqm.w_q=0.01:0.2:log:8 --settings red --until-ci 2%
    """
    from bentpipe import console
    from bentpipe import sweep as sweeping
    from bentpipe.store import default_folder
    from bentpipe.wording import quantity

    changes = [*overrides, *([f"run.duration={duration}"] if duration is not None else [])]
    shown = list(dict.fromkeys(metrics)) or ["utilization", "queue_delay_mean"]
    sweeping.check_metrics(shown)
    precision = None if until_ci is None else sweeping.precision_from(until_ci, shown[0], max_runs)
    names = None if settings is None else settings.split(",")
    plan = sweeping.Sweep.plan(
        scenario, vary, settings=names, overrides=changes, runs=runs, seed=seed, design=design, count=count
    )
    folder = out if out is not None else default_folder(f"{Path(plan.scenario).stem}-sweep")
    bar = console.Rate(console.stderr())
    try:
        result = sweeping.execute(plan, folder, jobs=jobs, precision=precision, told=bar.tell)
    except KeyboardInterrupt:
        bar.close()
        raise _Interrupted(
            f"what is finished is kept. To go on:\n    {_command(context, folder).removesuffix(' --resume')}"
        ) from None
    finally:
        bar.close()
    rows = result.rows(shown)
    if form == "json":
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        found: dict[tuple[str, ...], dict[str, str]] = {}
        counts: dict[tuple[str, ...], int] = {}
        for row in rows:
            place = (row["setting"], *(row[key] for key in result.factors))
            found.setdefault(place, {})[row["metric"]] = quantity(row["mean"], row["ci95"])
            counts[place] = max(counts.get(place, 0), row["runs"])
        units = {row["metric"]: row["unit"] for row in rows}
        heads = [f"{name}, {units[name]}" if units.get(name) else name for name in shown]
        cells = [
            [*place, str(counts[place]), *(of.get(name, "–") for name in shown)]
            for place, of in found.items()
        ]
        table = console.grid(["setting", *result.factors, "runs", *heads], cells, right=1)
        console.stdout().print(table)
    console.stderr().print(f"Dataset: {folder}", markup=False)
    if result.failures:
        first = result.failures[0]
        raise _Failed(
            f"{len(result.failures)} runs failed, listed in {folder / sweeping.FAILURES}; the first, under"
            f" {first.run.setting} with seed {first.run.seed}: {first.error}"
        )


@cli.command("list", short_help="List algorithms or shipped scenarios.")
@click.argument(
    "what", type=click.Choice(["aqms", "schedulers", "markings", "transports", "traffic", "scenarios"])
)
@click.option("--parameters", is_flag=True, help="Also every parameter and preset; not with scenarios.")
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="json: for programs."
)
def list_(what: str, *, parameters: bool, form: str) -> None:
    """List what a scenario can use, or the scenarios that come with Bentpipe.

    AQMs and schedulers watch and serve its queues, and markings are what an AQM's marks do; transports, with
    their algorithms and presets, carry its traffic, of which there are several kinds.

    \b
    Examples:
      bentpipe list aqms --parameters
      bentpipe list transports
      bentpipe list scenarios
    """
    from bentpipe import console, kinds

    rows: list[dict[str, Any]]
    match what:
        case "scenarios":
            rows = _shipped()
        case "transports":
            rows = kinds.transports()
        case "traffic":
            rows = kinds.traffic()
        case _:
            rows = json.loads(_core.registry())[what]
    if form == "json":
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    out = console.stdout()
    if what == "aqms":
        presets = [", ".join(preset["name"] for preset in row["presets"]) for row in rows]
        cells = [
            [
                row["name"],
                row["title"],
                row["placement"],
                "yes" if row["law"] else "no",
                row["source"],
                names,
            ]
            for row, names in zip(rows, presets, strict=True)
        ]
        heads = ["name", "what it is", "where it can stand", "fluid law", "source", "presets"]
        out.print(console.grid(heads, cells))
        for row in rows if parameters else []:
            _print_parameters(out, row)
    elif what in {"transports", "traffic"}:
        cells = [[row["name"], row["title"], f'{row["key"]} = "{row["name"]}"'] for row in rows]
        out.print(console.grid(["name", "what it is", "chosen by"], cells))
        if what == "transports":
            out.print("Packets whose traffic names no transport are plain datagrams (UDP).")
        for row in rows if parameters else []:
            _print_keys(out, row)
    else:
        cells = [[row["name"], row["title"], row["source"]] for row in rows]
        out.print(console.grid(["name", "what it is", "source"], cells))
        for row in rows if parameters and what in {"schedulers", "markings"} else []:
            _print_parameters(out, row)


def _print_parameters(out: Any, row: dict[str, Any]) -> None:  # noqa: ANN401
    from bentpipe import console

    if not row["params"]:
        return
    out.print(f"{row['name']}: parameters", style="bold", markup=False)
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
        out.print(f"  {preset['name']} ({preset['source']}): {values}", markup=False)
    out.print()


def _print_keys(out: Any, row: dict[str, Any]) -> None:  # noqa: ANN401
    from bentpipe import console

    if not row["params"]:
        return
    out.print(f"{row['name']}: parameters", style="bold", markup=False)
    cells = [[each[key] for key in ("name", "default", "range", "doc")] for each in row["params"]]
    out.print(console.grid(["name", "default", "range", "what it is"], cells))


def _plain(value: object) -> str:
    """Write a registry's value as a scenario file would."""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.12g}" if isinstance(value, float) else str(value)


def _shipped() -> list[dict[str, Any]]:
    from bentpipe.plan import shipped

    scenarios = [(name, _core.Scenario.load(str(path), [])) for name, path in shipped().items()]
    return [{"name": name, "title": each.title, "source": each.source} for name, each in scenarios]


@cli.command(short_help="Show a scenario's parameters in force.")
@click.argument("scenario")
@_scenario_options
@click.option("--setting", metavar="NAME", help="Under this setting instead of the scenario's own AQM.")
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="json: for programs."
)
def show(
    scenario: str, overrides: tuple[str, ...], duration: str | None, setting: str | None, form: str
) -> None:
    """Show every parameter of SCENARIO in force, with its unit and where it comes from.

    \b
    Examples:
      bentpipe show byun2007-gateway
      bentpipe show byun2007-gateway --setting "AVQRED" --set run.duration="5 min"
    """
    from bentpipe import console
    from bentpipe.plan import under
    from bentpipe.wording import paragraphs

    loaded = _load(scenario, overrides, duration)
    if setting is not None:
        _look_here([setting])
        loaded, _ = under(loaded, setting)
    rows = loaded.effective()
    if form == "json":
        click.echo(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    out = console.stdout()
    out.print(loaded.title or loaded.name, style="bold", markup=False)
    for paragraph in paragraphs(loaded.description):
        out.print(paragraph, markup=False)
    cells = [[row["key"], row["value"], row["origin"], row["note"]] for row in rows]
    out.print(console.grid(["key", "value", "from", "note"], cells))
    if loaded.settings:
        out.print(f"Compared by default: {', '.join(loaded.settings)}", markup=False)
    for warning in loaded.warnings:
        out.print(f"warning: {warning}", markup=False)


@cli.command(short_help="Write a result's report again, or its figures as files.")
@click.argument("result", type=click.Path(path_type=Path))
@click.option(
    "--figures",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Also write every figure to this folder.",
)
@click.option(
    "--as",
    "formats",
    default="svg",
    show_default=True,
    metavar="svg,png,pdf",
    help="Formats of the figures.",
)
@click.option("--force", is_flag=True, help="Replace figures that exist.")
def report(result: Path, figures: Path | None, formats: str, *, force: bool) -> None:
    """Write the report of the result in folder RESULT again, and its figures as files for a paper.

    \b
    Examples:
      bentpipe report results/byun2007-gateway-20260102-150405
      bentpipe report results/red-avqred --figures figures --as svg,pdf
    """
    from bentpipe.report import check_formats, write_figures, write_report
    from bentpipe.result import Result
    from bentpipe.validate import is_validation, open_validation

    chosen = check_formats([form.strip() for form in formats.split(",")])
    if is_validation(result):
        if figures is not None:
            raise UsageError(f"--figures: {result} is a validation; give the folder simulation in it")
        print(f"Report: {open_validation(result).report()}")
        return
    opened = Result(result)
    if figures is not None:
        written = write_figures(opened, figures, chosen, force=force)
        print(f"Figures: {len(written)} files in {figures}")
    print(f"Report: {write_report(opened)}")


@cli.command(short_help="Compare the simulator with another one.")
@click.argument("what", type=click.Choice(["truth"]))
@click.option(
    "--table",
    "tables",
    type=click.Path(path_type=Path),
    metavar="FILE",
    multiple=True,
    help="Figures to meet, instead of those that come with Bentpipe; may be repeated.",
)
@click.option(
    "--only",
    metavar="TEXT",
    multiple=True,
    help="Only experiments whose name contains this; may be repeated.",
)
@click.option("--seeds", type=int, default=5, show_default=True, metavar="N", help="Runs per experiment.")
@click.option("--jobs", type=int, metavar="N", help="Runs at a time; default: one per core.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    help="json: a list of cells, and nothing else.",
)
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
    """Repeat the experiments that ns-2.35 was run on and compare, figure by figure.

    A figure passes within the larger of 5 % and 2.5 standard deviations of ns-2's over its seeds (a single
    session: 10 % and 3; mean queue and drop rate: 10 %). "differs": it does not, but need not, for it is an
    artefact of ns-2's timing. Exit code 1 if a figure that must be met is not.

    \b
    Examples:
      bentpipe verify truth
      bentpipe verify truth --only RED --format json
      bentpipe verify truth --table my-cells.csv
    """
    del what
    from bentpipe import console
    from bentpipe import verify as verifying

    files = list(tables) or verifying.shipped()
    found = [each for table in files for each in verifying.experiments(table)]
    wanted = [each for each in found if all(text in each.name for text in only)]
    if not wanted:
        raise UsageError(f"--only {' --only '.join(only)}: no experiment of {len(found)} has such a name")
    bar = console.watcher()
    bar.begin(len(wanted) * seeds, 0)
    try:
        cells = verifying.verify(wanted, seeds=seeds, jobs=jobs, told=bar.progress)
    finally:
        bar.close()
    failed = sum(cell.verdict == "fail" for cell in cells)
    if form == "json":
        click.echo(json.dumps([cell.row() for cell in cells], indent=2, ensure_ascii=False, allow_nan=False))
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
    from bentpipe.wording import brief, number

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


@cli.command(short_help="Print the JSON Schema of a scenario file.")
def schema() -> None:
    """Print the JSON Schema of a scenario file, for editors and checkers.

    \b
    Example:
      bentpipe schema > scenario.schema.json
    """
    click.echo(_core.schema())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and leave with its exit code."""
    sys.exit(_main(arguments))


def _main(arguments: list[str] | None) -> int:
    try:
        code = cli.main(arguments, prog_name="bentpipe", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        return _say(f"error: {error.format_message()}", 2)
    except (BentpipeError, ScenarioError) as error:
        return _say(f"error: {error}", 2)
    except AlgorithmError as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        return _say(f"error: {error}", 2)
    except _Interrupted as error:
        return _say(f"interrupted: {error}", 130)
    except _Failed as error:
        return _say(f"error: {error}", 1)
    except (KeyboardInterrupt, click.Abort):
        return _say("interrupted", 130)
    except OSError as error:
        # Nobody reads the output any more, or it has no room: what is still buffered must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 1
        where = f"{error.filename}: " if error.filename else "output: "
        return _say(f"error: {where}{error.strerror or error}", 1)
    except Exception as error:
        traceback.print_exc()
        return _say(f"internal error: {error}\nThis is a defect in Bentpipe; the lines above say where.", 1)
    return code if isinstance(code, int) else 0


def _say(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code
