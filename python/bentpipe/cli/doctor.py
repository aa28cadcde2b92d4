"""The command `doctor`."""

import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib import metadata

import click

from bentpipe import _core
from bentpipe.cli import console
from bentpipe.cli.options import format_option
from bentpipe.errors import BentpipeError
from bentpipe.live_runs import privileges, processes
from bentpipe.runs.experiment import cores
from bentpipe.runs.plan import load, shipped

_CONGESTION_CONTROLS = ("reno", "cubic", "bbr", "dctcp")
"""Congestion controls of the kernel that live runs may ask for."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that Bentpipe uses, and its state on this machine."""

    part: str
    works: bool
    needed: bool
    """True if nothing works without it."""
    found: str
    remedy: str = ""
    """Action that makes it work."""


@click.command
@format_option
@click.pass_context
def doctor(context: click.Context, form: str) -> None:
    """Report what works on this machine, what is missing, and the command that fixes it.

    Exit code 1 if simulations do not work; what is missing for live runs alone leaves 0.

    \b
    Examples:
      bentpipe doctor
      bentpipe doctor --format json
    """
    checks = [_simulator(), _workers(), _figures(), _programs(), _permission(), _congestion_controls()]
    if form != "table":
        console.write([asdict(each) for each in checks], form)
    else:
        out = console.stdout()
        cells = [[each.part, "works" if each.works else "missing", each.found] for each in checks]
        out.print(console.grid(["part", "state", "found"], cells))
        for each in checks:
            if not each.works:
                out.print(f"{each.part}: {each.remedy}")
    if any(each.needed and not each.works for each in checks):
        context.exit(1)


def _simulator() -> Check:
    part, remedy = "simulations and models", "install Bentpipe again"
    try:
        scenario = load("small-gateway", {"run.duration": "1 s", "run.warmup": "0 s"})
        results = _core.simulate(scenario, scenario.seed, _core.Progress())
    except (BentpipeError, _core.SimulationError, OSError) as error:
        return Check(part, works=False, needed=True, found=str(error), remedy=remedy)
    del results
    found = f"Bentpipe {_core.__version__}, Python {platform.python_version()}, {len(shipped())} scenarios"
    return Check(part, works=True, needed=True, found=found)


def _workers() -> Check:
    found = f"{cores()} cores; Dask's scheduler {metadata.version('distributed')} for --cluster"
    return Check("concurrent runs", works=True, needed=False, found=found)


def _figures() -> Check:
    part = "figures as PNG and PDF"
    try:
        found = f"vl-convert {metadata.version('vl-convert-python')}"
    except metadata.PackageNotFoundError as error:
        remedy = f'pip install "{error.name}"'
        return Check(part, works=False, needed=False, found=f"{error.name} is not installed", remedy=remedy)
    return Check(part, works=True, needed=False, found=found)


def _programs() -> Check:
    return _live("live runs: programs", lambda: f"{processes.programs().gateway}, nginx, ip, iptables")


def _permission() -> Check:
    def tried() -> str:
        command = privileges.user_namespace_command([])
        reason = command if isinstance(command, str) else None if command else privileges.missing_permission()
        if reason is not None:
            raise BentpipeError(reason)
        return "in a user namespace" if command else "as root"

    return _live("live runs: permission", tried)


def _congestion_controls() -> Check:
    there = [name for name in _CONGESTION_CONTROLS if privileges.missing_congestion_control([name]) is None]
    missing = [name for name in _CONGESTION_CONTROLS if name not in there]
    return Check(
        "live runs: congestion control",
        works=not missing,
        needed=False,
        found=f"the kernel's TCP has {', '.join(there)}" + (f", not {', '.join(missing)}" if missing else ""),
        remedy=f"only scenarios with {', '.join(missing)} need them: sudo modprobe tcp_{missing[0]}"
        if missing
        else "",
    )


def _live(part: str, tried: Callable[[], str]) -> Check:
    """Return the check of a part that raises `BentpipeError`, whose message says what to do."""
    try:
        return Check(part, works=True, needed=False, found=tried())
    except BentpipeError as error:
        first, _, rest = str(error).partition("\n")
        return Check(part, works=False, needed=False, found=first, remedy=rest.strip() or first)
