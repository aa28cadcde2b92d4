"""The functions `run` and `compare`: plan the runs of a scenario, simulate them and open the result."""

import shutil
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from bentpipe._core import Scenario
from bentpipe.runs.capture import Capture, Captures
from bentpipe.runs.experiment import checked_jobs, execute
from bentpipe.runs.plan import Plan, listed, load, make_plan
from bentpipe.runs.progress import OnProgress, Reporter, reported
from bentpipe.runs.python_aqm import Setting
from bentpipe.runs.qlog import Qlog, Qlogs
from bentpipe.runs.result import Result
from bentpipe.runs.store import Store

__all__ = ["compare", "run"]


def compare(
    scenario: Scenario | str | Path,
    settings: str | Sequence[str | Setting] | None = None,
    *,
    set: Mapping[str, object] | Sequence[str] | None = None,  # noqa: A002
    runs: int | None = None,
    seed: int | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    trace: str | Sequence[str] = (),
    pcap: Capture | str | Path | None = None,
    qlog: Qlog | str | Path | None = None,
    progress: bool | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Simulate a scenario under several settings, each with the same seeds, and return the result.

    `scenario` is a path, a shipped name or a loaded scenario; `set` overrides its keys as in `load`. A
    setting is a name, a class in a module (`"mypkg.MyAqm"`), or a `Setting`, which holds a user's AQM; a
    text holds names separated by commas. `settings` and `runs` default to the scenario's; the seeds are
    `seed`, `seed + 1`, …; `jobs` is the number of concurrent runs (default: one per core) and does not
    change the result. Files go to `out`, which must not exist, or to a temporary folder that lives as long
    as the result. `trace` names flows, as `flow:17` or `traffic:NAME:3`, whose windows and timers are
    recorded (`Result.trace`); `pcap` is a folder for packet captures of the subject's link, or a `Capture`
    with more options; `qlog` is a folder for logs of the connections, or a `Qlog`. `on_progress` is called
    with the numbers of finished, wanted and failed runs. Without it, a notebook shows a progress bar unless
    `progress=False`; `progress=True` shows it in a terminal too.

    Raises `ScenarioError` if the scenario, an override or a setting is wrong, `UsageError` if another
    argument is, `SimulationError` if the simulator contradicts itself, and `AlgorithmError` from an
    exception of a user's AQM, with its time.
    """
    chosen = listed(settings)
    loaded = load(scenario, set, chosen)
    plan = make_plan(
        loaded,
        settings=loaded.settings if chosen is None else chosen,
        runs=runs,
        seed=seed,
        trace=_listed(trace),
    )
    with reported(progress, on_progress) as reporter:
        return _do(plan, jobs, out, (pcap, qlog), reporter)


def run(
    scenario: Scenario | str | Path,
    *,
    set: Mapping[str, object] | Sequence[str] | None = None,  # noqa: A002
    runs: int = 1,
    seed: int | None = None,
    jobs: int | None = None,
    out: str | Path | None = None,
    trace: str | Sequence[str] = (),
    pcap: Capture | str | Path | None = None,
    qlog: Qlog | str | Path | None = None,
    progress: bool | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Simulate a scenario unchanged, with `runs` seeds, and return the result.

    The arguments are those of `compare`. Raises `ScenarioError` if the scenario or an override is wrong,
    `UsageError` if another argument is, and the errors of the runs, as `compare`.
    """
    loaded = load(scenario, set)
    plan = make_plan(loaded, settings=None, runs=runs, seed=seed, trace=_listed(trace))
    with reported(progress, on_progress) as reporter:
        return _do(plan, jobs, out, (pcap, qlog), reporter)


def _listed(trace: str | Sequence[str]) -> Sequence[str]:
    return [trace] if isinstance(trace, str) else trace


def _do(
    plan: Plan,
    jobs: int | None,
    out: str | Path | None,
    watched: tuple[Capture | str | Path | None, Qlog | str | Path | None],
    reporter: Reporter,
) -> Result:
    jobs = checked_jobs(jobs)
    pcap, qlog = watched
    captures, qlogs = None, None
    if pcap is not None:
        captures = Captures(pcap if isinstance(pcap, Capture) else Capture(pcap), plan)
    if qlog is not None:
        qlogs = Qlogs(qlog if isinstance(qlog, Qlog) else Qlog(qlog), plan)
    if out is not None:
        return _simulate(plan, jobs, Path(out), captures, qlogs, reporter)
    temporary = Path(tempfile.mkdtemp(prefix="bentpipe-"))
    try:
        found = _simulate(plan, jobs, temporary / "result", captures, qlogs, reporter)
        return Result(found.folder, temporary=temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def _simulate(
    plan: Plan, jobs: int, folder: Path, captures: Captures | None, qlogs: Qlogs | None, reporter: Reporter
) -> Result:
    with (
        captures.prepared() if captures else nullcontext(),
        qlogs.prepared() if qlogs else nullcontext(),
    ):
        store = Store.create(folder, plan)
        try:
            result = execute(store, jobs, reporter, captures, qlogs)
        finally:
            store.close()
    for warning in captures.warnings if captures else ():
        warnings.warn(warning, stacklevel=4)
    for warning, _ in qlogs.warnings if qlogs else ():
        warnings.warn(warning, stacklevel=4)
    return result
