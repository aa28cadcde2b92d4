"""The functions `run` and `compare`: plan the runs of a scenario, simulate them and open the result."""

import shutil
import tempfile
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from bentpipe._core import Scenario
from bentpipe.runs.capture import Capture, Captures
from bentpipe.runs.experiment import checked_jobs, execute
from bentpipe.runs.plan import Plan, load, make_plan
from bentpipe.runs.python_aqm import Setting
from bentpipe.runs.result import Result
from bentpipe.runs.store import Store

__all__ = ["compare", "run"]


def compare(
    scenario: Scenario | str | Path,
    settings: Sequence[str | Setting] | None = None,
    *,
    runs: int | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    trace: str | Sequence[str] = (),
    pcap: Capture | str | Path | None = None,
) -> Result:
    """Simulate a scenario under several settings, each with the same seeds, and return the result.

    A setting is a name, a class in a module (`"mypkg.MyAqm"`), or a `Setting`, which holds a user's AQM.
    `settings` and `runs` default to the scenario's; the seeds are `seed`, `seed + 1`, …; `jobs` is the number
    of concurrent runs (default: one per core) and does not change the result. Files go to `out`, which must
    not exist, or to a temporary folder that lives as long as the result. `trace` names flows, as `flow:17` or
    `traffic:NAME:3`, whose windows and timers are recorded (`Result.trace`); `pcap` is a folder for packet
    captures of the subject's link, or a `Capture` with more options.

    Raises `ScenarioError` if the scenario or a setting is wrong, `UsageError` if another argument is,
    `SimulationError` if the simulator contradicts itself, and `AlgorithmError` from an exception of a user's
    AQM, with its time.
    """
    if isinstance(settings, str):
        settings = settings.split(",")
    loaded = _loaded(scenario)
    chosen: Sequence[str | Setting] = loaded.settings if settings is None else list(settings)
    plan = make_plan(loaded, settings=chosen, runs=runs, seed=seed, trace=_listed(trace))
    return _do(plan, jobs, out, pcap)


def run(
    scenario: Scenario | str | Path,
    *,
    runs: int = 1,
    seed: int | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    trace: str | Sequence[str] = (),
    pcap: Capture | str | Path | None = None,
) -> Result:
    """Simulate a scenario unchanged, with `runs` seeds; otherwise like `compare`."""
    loaded = _loaded(scenario)
    plan = make_plan(loaded, settings=None, runs=runs, seed=seed, trace=_listed(trace))
    return _do(plan, jobs, out, pcap)


def _loaded(scenario: Scenario | str | Path) -> Scenario:
    return scenario if isinstance(scenario, Scenario) else load(scenario)


def _listed(trace: str | Sequence[str]) -> Sequence[str]:
    return [trace] if isinstance(trace, str) else trace


def _do(plan: Plan, jobs: int | None, out: str | Path | None, pcap: Capture | str | Path | None) -> Result:
    jobs = checked_jobs(jobs)
    captures = None
    if pcap is not None:
        captures = Captures(pcap if isinstance(pcap, Capture) else Capture(pcap), plan)
    if out is not None:
        return _simulate(plan, jobs, Path(out), captures)
    temporary = Path(tempfile.mkdtemp(prefix="bentpipe-"))
    try:
        return Result(_simulate(plan, jobs, temporary / "result", captures).folder, temporary=temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _simulate(plan: Plan, jobs: int, folder: Path, captures: Captures | None) -> Result:
    with captures.prepared() if captures else nullcontext():
        store = Store.create(folder, plan)
        try:
            result = execute(store, jobs, captures=captures)
        finally:
            store.close()
    for warning in captures.warnings if captures else ():
        warnings.warn(warning, stacklevel=4)
    return result
