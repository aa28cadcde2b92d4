"""The command `live`."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bentpipe.cli import console
from bentpipe.cli.exits import Failed, Interrupted
from bentpipe.cli.options import (
    check_counts,
    form_option,
    integer_option,
    load_scenario,
    out_option,
    path_option,
    scenario_names,
    scenario_options,
    seed_option,
    settings_option,
    warmup_option,
)
from bentpipe.errors import LiveError, UsageError
from bentpipe.format import clock
from bentpipe.live_runs import privileges
from bentpipe.live_runs.processes import programs
from bentpipe.live_runs.run import plan_and_chain, required_programs, run_all
from bentpipe.live_runs.session import versions
from bentpipe.runs.store import LIVE, REPORT, Store, made_folder
from bentpipe.stats.warmup import warmup_warnings

if TYPE_CHECKING:
    from bentpipe.live_runs.chain import Chain
    from bentpipe.runs.plan import Plan


@click.command
@click.argument("scenario", shell_complete=scenario_names)
@scenario_options
@settings_option("Settings to run; default: the scenario's.")
@warmup_option
@integer_option("--runs", default=1, help="Runs per setting, one after another.")
@seed_option
@out_option("live-")
@click.option("--force", is_flag=True, help="Replace the result in --out.")
@path_option(
    "--keep",
    help="Keep configurations, records and logs of everything that ran in this folder.",
)
@click.option(
    "--check",
    is_flag=True,
    help="Only report whether SCENARIO can run live, its differences from a simulation, and what this machine"
    " lacks (exit code 1).",
)
@form_option("a list of {setting, metric, unit, mean, …} as of compare, and nothing else.")
@click.pass_context
def live(
    context: click.Context,
    scenario: str,
    overrides: tuple[str, ...],
    duration: str | None,
    settings: list[str] | None,
    warmup: str | None,
    runs: int,
    seed: int | None,
    out: Path | None,
    keep: Path | None,
    form: str,
    *,
    force: bool,
    check: bool,
) -> None:
    """Run SCENARIO live, one setting after the other, and write the result and its report.

    Servers, gateway, terminal and clients are network namespaces of this machine, with the live gateway, the
    kernel's TCP, a web server, and emulated links with the delay, rate and loss of SCENARIO. A run takes its
    duration in real time. `bentpipe compare` compares the result with a simulation. Needs root, or a system
    that allows user namespaces (docs/live.md).

    \b
    Examples:
      bentpipe live live-gateway
      bentpipe live my-scenario.toml --check
      bentpipe live live-gateway --settings "RED 4" --duration "20 s" --out results/live
      bentpipe compare live-gateway --settings "RED 4" --out results/simulated
      bentpipe compare results/simulated results/live
    """
    check_counts(runs, None, force=force, resume=False, out=out)
    if warmup is not None:
        overrides = (*overrides, f"run.warmup={warmup}")
    loaded = load_scenario(scenario, overrides, duration)
    plan, chain = plan_and_chain(loaded, settings, runs, seed)
    warnings = [*plan.warnings, *chain.notes]
    if check:
        missing = _missing(chain)
        _print_support(plan, warnings, missing, form)
        if missing:
            context.exit(1)
        return
    command = privileges.user_namespace_command(sys.argv[1:])
    if isinstance(command, str):
        raise UsageError(command)
    if command is not None:
        os.environ[privileges.IN_USER_NAMESPACE] = "1"
        os.execvp(command[0], command)  # noqa: S606
    if os.environ.pop(privileges.IN_USER_NAMESPACE, None):
        privileges.prepare()
    found = required_programs(chain, keep)
    console.warn(warnings)
    engine = versions(found)
    folder, store = made_folder(
        out,
        f"{loaded.name}-live",
        lambda folder: Store.create(folder, plan, force=force, engine=LIVE, versions=engine),
    )
    watcher = console.watcher("Running live")
    try:
        result = run_all(store, chain, found, watcher, keep)
        watcher.close()
        result.report()
    except KeyboardInterrupt:
        watcher.close()
        store.discard()
        raise Interrupted("everything was stopped; a live result cannot be resumed") from None
    except LiveError as error:
        raise Failed(str(error)) from None
    except OSError as error:
        watcher.close()
        raise Failed(f"{error.filename or folder}: {error.strerror or error}") from None
    finally:
        watcher.close()
        store.close()
    console.warn([*result.invalid, *result.late, *warmup_warnings(result.settled)])
    if form != "table":
        console.write(result.rows(), form)
        console.stderr().print(f"Result: {folder}")
        return
    out_console = console.stdout()
    out_console.print(console.metrics_table(result))
    if loaded.overrides:
        out_console.print(f"Changed from the file: {', '.join(loaded.overrides)}.")
    print(f"Result: {folder}\nReport: {folder / REPORT}")


def _missing(chain: "Chain") -> str:
    """Return what this machine lacks to run a chain, and what to do; empty if it lacks nothing."""
    command = privileges.user_namespace_command([])
    if isinstance(command, str):
        return command
    reason = None if command else privileges.missing_permission()
    reason = reason or privileges.missing_congestion_control(chain.congestions)
    if reason is not None:
        return reason
    try:
        programs()
    except UsageError as error:
        return str(error)
    return ""


def _print_support(plan: "Plan", notes: list[str], missing: str, form: str) -> None:
    """Report that a plan can run live, its duration, its differences, and what this machine lacks."""
    scenario, settings = plan.scenario, [each.name for each in plan.settings]
    seconds = (scenario.warmup + scenario.duration) * plan.total
    if form != "table":
        found = {"scenario": scenario.name, "settings": settings, "seconds": seconds, "notes": notes}
        console.write(found | {"missing": missing}, form)
        return
    print(f"{scenario.name} can be live: {clock(seconds)} for {', '.join(settings)}")
    for note in notes:
        print(f"note: {note}")
    if missing:
        print(f"missing on this machine: {missing}")
