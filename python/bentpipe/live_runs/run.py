"""`live`: a scenario on real TCP and QUIC connections, between network namespaces of this machine."""

import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bentpipe._core import Scenario
from bentpipe.errors import LiveError, UsageError
from bentpipe.live_runs.chain import Chain, check
from bentpipe.live_runs.privileges import missing_congestion_control, missing_permission
from bentpipe.live_runs.processes import Programs, interruptible, programs
from bentpipe.live_runs.session import Session, versions
from bentpipe.runs.experiment import Silent, Watcher
from bentpipe.runs.plan import Plan, load, make_plan
from bentpipe.runs.progress import OnProgress, reported
from bentpipe.runs.result import Result
from bentpipe.runs.store import LIVE, Store, pairs

__all__ = ["live", "plan_and_chain", "required_programs", "run_all"]


def live(
    scenario: Scenario | str | Path,
    settings: Sequence[str] | str | None = None,
    *,
    set: Mapping[str, object] | Sequence[str] | None = None,  # noqa: A002
    runs: int = 1,
    seed: int | None = None,
    out: str | Path | None = None,
    keep: str | Path | None = None,
    progress: bool | None = None,
    on_progress: OnProgress | None = None,
) -> Result:
    """Run a scenario live under several settings, one after the other, in real time, and return the result.

    The arguments are those of `compare`, with one run per setting by default. `keep` is a folder for the
    configurations and logs of the programs. Needs root (docs/live.md).

    Raises the errors of `compare`, `UsageError` also if the scenario is not supported live, a program is
    missing or permissions are missing, and `LiveError` if a run fails.
    """
    loaded = load(scenario, set)
    names = settings.split(",") if isinstance(settings, str) else settings
    plan, chain = plan_and_chain(loaded, names, runs, seed)
    found = required_programs(chain, None if keep is None else Path(keep))
    temporary = None if out is not None else Path(tempfile.mkdtemp(prefix="bentpipe-"))
    folder = Path(out) if out is not None else Path(str(temporary)) / "result"
    try:
        store = Store.create(folder, plan, engine=LIVE, versions=versions(found))
        try:
            with reported(progress, on_progress, "Running live") as reporter:
                run_all(store, chain, found, reporter, None if keep is None else Path(keep))
        finally:
            store.close()
        return Result(folder, temporary=temporary)
    except BaseException:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)
        raise


def plan_and_chain(
    scenario: Scenario, settings: Sequence[str] | None, runs: int, seed: int | None
) -> tuple[Plan, Chain]:
    """Return the plan and its chain; `settings` default to those of the scenario."""
    names = list(scenario.settings if settings is None else settings) or None
    plan = make_plan(scenario, settings=names, runs=runs, seed=seed)
    return plan, check(plan)


def required_programs(chain: Chain, keep: Path | None) -> Programs:
    """Return the programs of a run, and make the folder `keep`.

    Raises `UsageError` if permissions, programs or kernel features are missing, or the folder cannot be made.
    """
    reason = missing_permission() or missing_congestion_control(chain.congestions)
    if reason is not None:
        raise UsageError(reason)
    found = programs()
    if keep is not None:
        try:
            keep.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{keep}: cannot be created: {error.strerror}") from None
    return found


def run_all(
    store: Store,
    chain: Chain,
    found: Programs,
    watcher: Watcher | None = None,
    keep: Path | None = None,
) -> Result:
    """Run every setting of the store's plan and complete the result; SIGTERM acts like Ctrl-C."""
    watcher = watcher or Silent()
    plan = store.plan
    total = plan.total
    watcher.begin(total, 0)
    with interruptible():
        for done, (setting, seed) in enumerate(pairs(plan)):

            def progress(share: float, done: int = done) -> None:
                watcher.progress((done + share) / total)

            start = time.perf_counter()
            session = Session(setting, chain, seed, found)
            try:
                run = session.run(progress, None if keep is None else keep / setting.slug / str(seed))
            except LiveError:
                store.discard()
                raise
            store.add(setting, seed, run)
            wall = time.perf_counter() - start
            cpu = run.live.get("cpu", {})
            known = dict(run.live) | ({"notes": list(chain.notes)} if chain.notes else {})
            store.note(setting, seed, wall, sum(cpu.values()) if cpu else 0.0, known)
            watcher.finished(setting.name, seed, wall)
    result = Result(store.folder, unfinished=True)
    store.finish(result.metrics(), result.rows(), result.warmup().rows(named=True))
    return Result(store.folder)
