"""Options shared by several commands, and messages that say how to continue after an interruption."""

import shlex
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from bentpipe import _core
from bentpipe.cli import console
from bentpipe.cli.exits import Failed, Interrupted
from bentpipe.errors import AlgorithmError, BentpipeError, ClusterError, ScenarioError, UsageError
from bentpipe.runs.plan import load, shipped
from bentpipe.runs.python_aqm import is_path
from bentpipe.runs.store import RUNS
from bentpipe.runs.workers import workers_from
from bentpipe.stats.metrics import metrics_of

if TYPE_CHECKING:
    from bentpipe.cli.console import Bar, Lines, Rate
    from bentpipe.runs.store import Store
    from bentpipe.runs.workers import Workers

Function = TypeVar("Function", bound=Callable[..., Any])


def integer_option(*names: str, metavar: str = "N", **more: Any) -> Callable[[Function], Function]:  # noqa: ANN401
    """Return an option for an integer; `more` are options of `click.option`. The help shows a default."""
    return click.option(*names, type=int, metavar=metavar, show_default="default" in more, **more)


def path_option(*names: str, metavar: str = "DIR", **more: Any) -> Callable[[Function], Function]:  # noqa: ANN401
    """Return an option for a path, as `integer_option`."""
    kind = click.Path(path_type=Path)
    return click.option(*names, type=kind, metavar=metavar, show_default="default" in more, **more)


def metric_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the last metric of a list, with those of the classes of the scenario named before."""
    del parameter
    before, comma, last = incomplete.rpartition(",")
    # Click leaves arguments unassigned while an option has no value.
    named = context.params.get("scenario") or next(iter(context.args), None)
    try:
        traffic = load(named).traffic if named else []
    except (BentpipeError, ScenarioError):
        traffic = []
    return [
        f"{before}{comma}{each.name}"
        for each in metrics_of(traffic, terminals=True, returns=True)
        if each.name.startswith(last)
    ]


def names_or_file(*known: Callable[[], Iterable[str]]) -> Callable[..., list[Any]]:
    """Return the completion of one of the `known` names, or of a file."""

    def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[Any]:
        del context, parameter
        names = [name for each in known for name in each() if name.startswith(incomplete)]
        return [CompletionItem(name) for name in names] or [CompletionItem(incomplete, type="file")]

    return complete


scenario_names = names_or_file(shipped)
"""Complete a scenario: a shipped name, or a file."""


def setting_names(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
    """Complete the last setting of a list: a setting of the scenario named before, or an AQM."""
    del parameter
    before, comma, last = incomplete.rpartition(",")
    named = context.params.get("scenario") or next(iter(context.args), None)
    try:
        names = load(named).all_settings()[0] if named else []
    except (BentpipeError, ScenarioError):
        names = []
    return [f"{before}{comma}{each}" for each in names if each.lower().startswith(last.lower())]


jobs_option = integer_option("--jobs", help="Number of concurrent runs; default: one per core.")

seed_option = integer_option("--seed", help="Seed of the first run; the others follow consecutively.")


def settings_option(help_text: str) -> Callable[[Function], Function]:
    """Return the option for settings, as a list of names or None."""
    return click.option(
        "--settings",
        "--setting",
        "settings",
        metavar="A,B,…",
        multiple=True,
        shell_complete=setting_names,
        callback=split_names,
        help=f"{help_text} May be repeated.",
    )


def split_names(
    context: click.Context, parameter: click.Parameter, given: tuple[str, ...]
) -> list[str] | None:
    """Return the names of a repeated option, each a list separated by commas; None if it is not given."""
    del context, parameter
    return [each.strip() for names in given for each in names.split(",")] or None


warmup_option = click.option("--warmup", metavar="TIME", help="Warm-up time, not measured (run.warmup).")


def form_option(json: str, *, csv: bool = True) -> Callable[[Function], Function]:
    """Return the options for the output: its format, and --quiet.

    `json` says what JSON holds; without `csv` that is more than a list.
    """
    forms = ["table", "json", *(["csv"] if csv else [])]
    text = f"json: {json}" + (" csv: the same, for spreadsheets." if csv else "")

    def add(function: Function) -> Function:
        function = click.option(
            "--quiet",
            "-q",
            is_flag=True,
            expose_value=False,
            callback=_set_quiet,
            help="Show no progress; warnings stay.",
        )(function)
        return click.option("--format", "form", type=click.Choice(forms), default="table", help=text)(
            function
        )

    return add


def _set_quiet(context: click.Context, parameter: click.Parameter, quiet: bool) -> None:
    del parameter
    context.meta[console.QUIET] = quiet


def out_option(suffix: str = "") -> Callable[[Function], Function]:
    """Return the option for a result's folder, whose default name ends in `suffix` and the time."""
    return path_option("--out", help=f"Folder of the result; default: results/SCENARIO-{suffix}DATE-TIME.")


format_option = form_option("for programs.")


def set_option(of: str = "the scenario") -> Callable[[Function], Function]:
    """Return the option for overrides of keys `of` a scenario."""
    return click.option(
        "--set",
        "overrides",
        metavar="KEY=VALUE",
        multiple=True,
        help=f"Override a key of {of}; may be repeated.",
    )


def scenario_options(function: Function) -> Function:
    """Add the options that change a scenario."""
    for option in (
        click.option("--duration", metavar="TIME", help='Measured time, for example "2 min" (run.duration).'),
        set_option(),
    ):
        function = option(function)
    return function


def run_options(function: Function) -> Function:
    """Add the options of commands that simulate and write a result."""
    for option in (
        warmup_option,
        form_option(
            "a list of {setting, metric, unit, mean, std, ci95, runs, ci_low, ci_high, method, note}, and"
            " nothing else."
        ),
        integer_option("--qlog-events", help="Limit of events per file; default: 1000000, about 300 MB."),
        integer_option(
            "--qlog-connections", help="Limit of connections per run; default: 100, in the order of opening."
        ),
        click.option(
            "--qlog-flow",
            "qlog_flows",
            metavar="FLOW",
            multiple=True,
            help="Flow to log, as in --trace; may be repeated. Default: all flows over TCP and QUIC.",
        ),
        path_option(
            "--qlog",
            help="Log connections to this folder as qlog: one folder per run, one file per end.",
        ),
        integer_option(
            "--pcap-snap",
            metavar="BYTES",
            help="Bytes to keep of each packet; default: its headers. Payload is zeros.",
        ),
        integer_option("--pcap-packets", help="Limit of packets per file; default: 1000000, about 100 MB."),
        click.option(
            "--pcap-link",
            "pcap_links",
            metavar="NAME",
            multiple=True,
            help="Link to capture; may be repeated. Default: the subject's link.",
        ),
        path_option(
            "--pcap",
            help="Write the packets on a link to this folder, one pcapng file per run and link.",
        ),
        click.option(
            "--trace",
            metavar="FLOW",
            multiple=True,
            help="Record a flow's windows and timers over time: flow:17, or traffic:NAME:3 for the flows of a"
            " session; may be repeated.",
        ),
        click.option("--resume", is_flag=True, help="Continue the interrupted result in --out."),
        click.option(
            "--force",
            is_flag=True,
            help="Replace the result in --out, captures in --pcap, and logs in --qlog.",
        ),
        out_option(),
        jobs_option,
        seed_option,
    ):
        function = option(function)
    return function


def worker_options(folder: str, *, csv: bool = False) -> Callable[[Function], Function]:
    """Return the options of commands that simulate on workers and can be continued.

    `folder` is the help text of --out; with `csv` the output is a list.
    """

    def add(function: Function) -> Function:
        for option in (
            form_option("for programs.", csv=csv),
            path_option("--out", help=folder),
            click.option(
                "--cluster",
                metavar="ADDRESS",
                help="Simulate on a Dask cluster, by its scheduler's address (tcp://host:8786), or on N"
                " processes of this machine (local:N).",
            ),
            jobs_option,
        ):
            function = option(function)
        return function

    return add


def given_options(context: click.Context) -> list[str]:
    """Return the options given on the command line."""
    return [
        parameter.opts[0]
        for parameter in context.command.params
        if isinstance(parameter, click.Option)
        and context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
    ]


def import_from_current_folder(names: Iterable[str]) -> None:
    """Make modules of the current folder importable, as `python -m` does, if a name may be a class in one."""
    here = str(Path.cwd())
    if here not in sys.path and any(is_path(name.strip()) for name in names):
        sys.path.insert(0, here)


def how_to_continue(context: click.Context, store: "Store", folder: Path) -> str:
    """Return how many runs are kept, and the command that continues."""
    done = sum(1 for _ in (store.folder / RUNS).glob("*/[0-9]*"))
    command = resume_command(context, folder)
    return f"{done} of {store.plan.total} runs are finished and kept. To continue:\n    {command}"


def resume_command(context: click.Context, folder: Path) -> str:
    """Return the command that continues in `folder`: the given one, with --out and --resume."""
    words = context.command_path.split()
    for parameter in context.command.params:
        name = str(parameter.name)
        if name in {"out", "force", "resume"}:
            continue
        if context.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            continue
        if isinstance(parameter, click.Option) and parameter.is_flag:
            words.append(parameter.opts[0])
            continue
        value = context.params[name]
        if isinstance(value, list):
            value = ",".join(value)
        for each in value if isinstance(value, tuple) else (value,):
            words += [parameter.opts[0], str(each)] if isinstance(parameter, click.Option) else [str(each)]
    return shlex.join([*words, "--out", str(folder), "--resume"])


def how_to_repeat(context: click.Context, folder: Path) -> str:
    """Return that finished runs are kept, and the command that continues: the same one, with --out."""
    command = resume_command(context, folder).removesuffix(" --resume")
    return f"finished runs are kept. To continue:\n    {command}"


def changes(overrides: Iterable[str], duration: str | None) -> list[str]:
    """Return the overrides of --set and --duration."""
    return [*overrides, *([] if duration is None else [f"run.duration={duration}"])]


def load_scenario(
    scenario: str, overrides: tuple[str, ...], duration: str | None, settings: Iterable[str] = ()
) -> _core.Scenario:
    """Read a scenario with overrides, which may name parameters of `settings` written in Python."""
    return load(scenario, changes(overrides, duration), settings)


def check_counts(runs: int | None, jobs: int | None, *, force: bool, resume: bool, out: Path | None) -> None:
    """Raise `UsageError` for numbers out of range or an unusable folder."""
    if runs is not None and runs < 1:
        raise UsageError(f"--runs {runs}: at least 1 is needed")
    if jobs is not None and jobs < 1:
        raise UsageError(f"--jobs {jobs}: at least 1 is needed")
    if force and resume:
        raise UsageError("--force replaces a result and --resume continues it: give one of them")
    if resume and out is None:
        raise UsageError("--resume needs --out DIR, the folder of the result to continue")


@contextmanager
def resumable(
    context: click.Context, store: "Store", folder: Path, *others: Path | None
) -> Iterator["Bar | Lines"]:
    """Show the progress of a simulation; interruptions become a message that says how to continue.

    `others` are folders that the runs write to besides the result's.
    """
    watcher = console.watcher()
    try:
        yield watcher
    except KeyboardInterrupt:
        watcher.close()
        raise Interrupted(how_to_continue(context, store, folder)) from None
    except AlgorithmError as error:
        done = sum(1 for _ in (store.folder / RUNS).glob("*/[0-9]*"))
        kept = f"\n{done} of {store.plan.total} runs are finished and kept in {folder}" if done else ""
        raise AlgorithmError(f"{error}{kept}") from error.__cause__
    except OSError as error:
        watcher.close()
        reason = error.strerror or str(error)
        name = str(error.filename or "")
        where = next((other for other in others if other is not None and name.startswith(str(other))), folder)
        raise Failed(f"{where}: {reason}\n{how_to_continue(context, store, folder)}") from None
    finally:
        watcher.close()
        store.close()


@contextmanager
def workers_and_progress(
    context: click.Context, folder: Path, jobs: int | None, cluster: str | None, *, open_end: bool = False
) -> Iterator[tuple["Workers", "Rate"]]:
    """Provide workers and a progress line; interruptions become a message that says how to continue.

    The command continues without --resume. With `open_end` more runs may follow.
    """
    bar = console.Rate(console.stderr(), open_end=open_end)

    try:
        with closing(workers_from(jobs, cluster)) as workers:
            yield workers, bar
    except KeyboardInterrupt:
        bar.close()
        raise Interrupted(how_to_repeat(context, folder)) from None
    except ClusterError as error:
        bar.close()
        raise Failed(f"{error}\n{how_to_repeat(context, folder)}") from None
    except OSError as error:
        bar.close()
        raise Failed(f"{folder}: {error.strerror or error}\n{how_to_repeat(context, folder)}") from None
    finally:
        bar.close()
