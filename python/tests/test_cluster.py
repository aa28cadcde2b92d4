"""Sweeps on a Dask cluster of real worker processes over TCP; some workers are killed."""

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dask
import psutil  # type: ignore[import-untyped]
import pytest
from clusters import SPY, Processes
from conftest import command_line, environment
from patience import PATIENCE, wait_for

from bentpipe import _core
from bentpipe.api import sweep
from bentpipe.errors import UsageError
from bentpipe.runs import cluster, local_cluster, worker_tasks, workers
from bentpipe.runs.cluster import Cluster
from bentpipe.runs.dataset import Run
from bentpipe.runs.plan import load
from bentpipe.runs.workers import Outcome, measure, workers_from
from bentpipe.sweeps.result import SweepResult
from bentpipe.sweeps.sweep import Sweep, execute

SHORT = ["run.duration=2 s", "run.warmup=1 s"]
VARY = {"gateway.pep.delay": "0 ms:40 ms:2", "gateway.aqm.w_q": "0.02,0.2"}

UNTIL_SHOWN = """
def until_shown(file):
    for _ in range(1200):
        if os.path.exists(file):
            break
        time.sleep(0.1)
    return 0
"""
"""For a run that lasts until the test creates a file, two minutes at most."""

OTHER_BUILD = """
from bentpipe.runs import worker_tasks

worker_tasks.build_digest = lambda: "0" * 64
"""

DYING = """
import os, signal
from bentpipe.runs import worker_tasks

worker_tasks.build_digest = lambda: os.kill(os.getpid(), signal.SIGKILL)
"""


def small(out: Path, **more: object) -> SweepResult:
    settings = {"settings": ["red", "avqred"], "runs": 3, "set": SHORT, **more}
    return sweep("small-gateway", VARY, out=out, **settings)  # type: ignore[arg-type]


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def by_threads(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("sweep") / "threads"
    small(folder, jobs=2)
    return content(folder)


@pytest.fixture
def processes(tmp_path: Path) -> Iterator[Processes]:
    folder = tmp_path / "processes"
    folder.mkdir()
    with closing(Processes(folder)) as found:
        yield found


def begun(log: Path) -> list[tuple[str, ...]]:
    """Return the log of the spy: process and run."""
    return [tuple(line.split(" ", 1)) for line in log.read_text().splitlines()] if log.exists() else []


def local_pids() -> list[int]:
    """Return the process ids of the local workers of this process."""
    children = psutil.Process().children()
    return [each.pid for each in children if "distributed.cli.dask_worker" in each.cmdline()]


def alive(process: psutil.Process) -> bool:
    """Return True if a process runs; an ended one stays listed as a zombie until its parent waits for it."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def test_cluster_gives_the_same_dataset_as_threads(
    by_threads: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    calls: list[tuple[int, int, int]] = []
    small(tmp_path / "cluster", cluster="local:2", on_progress=lambda *each: calls.append(each))
    assert content(tmp_path / "cluster") == by_threads
    assert list(here.iterdir()) == []
    assert local_pids() == []
    # Of 24 runs, six stand for two points each.
    assert calls[0] == (6, 24, 0)
    assert calls[-1] == (24, 24, 0)


@pytest.mark.long
def test_unfinished_task_of_a_dead_worker_is_repeated_once(
    processes: Processes, by_threads: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "log"
    # The victim stays in its fourth run until it is killed.
    stays = "600 if begun.append(seed) or len(begun) == 4 else 0.02"
    victim = processes.worker("begun = []" + SPY.format(log=str(log), killer=None, sleep=stays))
    processes.worker(SPY.format(log=str(log), killer=None, sleep=0.02))
    processes.wait(2)
    arrived: set[str] = set()
    arrived_before_death: set[str] = set()
    results = Cluster.results

    def noted(self: Cluster, runs: Iterable[Run]) -> Generator[tuple[Run, Outcome] | None]:
        for each in results(self, runs):
            if each is not None:
                run = each[0]
                arrived.add(" ".join([str(run.seed), run.scenario.aqm, *run.scenario.overrides[-2:]]))
            yield each

    monkeypatch.setattr(Cluster, "results", noted)

    def victims_runs() -> list[str]:
        return [run for process, run in begun(log) if process == str(victim.pid)]

    def kill() -> None:
        wait_for(lambda: len(victims_runs()) == 4)
        arrived_before_death.update(arrived)
        victim.send_signal(signal.SIGKILL)

    thread = threading.Thread(target=kill)
    thread.start()
    small(tmp_path / "cluster", cluster=processes.address)
    thread.join()
    times = Counter(run for _, run in begun(log))
    assert len(times) == 18
    assert max(times.values()) == 2
    repeated = {run for run, count in times.items() if count == 2}
    assert victims_runs()[-1] in repeated
    assert repeated <= set(victims_runs()) - arrived_before_death
    assert content(tmp_path / "cluster") == by_threads


@pytest.mark.long
def test_local_workers_are_replaced(by_threads: dict[str, bytes], tmp_path: Path) -> None:
    killed: list[int] = []

    def kill(done: int, total: int, failed: int) -> None:
        del total, failed
        if done >= 8 and not killed:
            killed.extend(local_pids())
            for pid in killed:
                os.kill(pid, signal.SIGKILL)

    small(tmp_path / "cluster", cluster="local:2", on_progress=kill)
    assert len(killed) == 2
    assert content(tmp_path / "cluster") == by_threads


@pytest.mark.long
def test_runs_of_a_frozen_worker_are_given_to_another(
    by_threads: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_OVERDUE_SECONDS", 0.5)
    monkeypatch.setattr(cluster, "_OVERDUE_FACTOR", 0.1)
    frozen: list[psutil.Process] = []

    def freeze(done: int, total: int, failed: int) -> None:
        del total, failed
        if done >= 4 and not frozen:
            frozen.append(psutil.Process(local_pids()[0]))
            frozen[0].suspend()
            # So that it is frozen in the midst of a task or before one, and never returns it.
            wait_for(lambda: frozen[0].status() == psutil.STATUS_STOPPED)

    # Without this, Dask itself gives such a worker up after five minutes.
    with dask.config.set({"distributed.scheduler.worker-ttl": None}):
        small(tmp_path / "cluster", cluster="local:2", on_progress=freeze)
    assert len(frozen) == 1
    assert content(tmp_path / "cluster") == by_threads
    wait_for(lambda: not alive(frozen[0]))


@pytest.mark.long
def test_interruption_does_not_wait_for_a_frozen_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_CANCEL_SECONDS", 0.5)

    def freeze(done: int, total: int, failed: int) -> None:
        del done, total, failed
        psutil.Process(local_pids()[0]).suspend()
        raise KeyboardInterrupt

    with (
        dask.config.set({"distributed.scheduler.worker-ttl": None}),
        pytest.raises(KeyboardInterrupt),
    ):
        small(tmp_path / "cluster", cluster="local:2", on_progress=freeze)
    assert not local_pids()


@pytest.mark.long
def test_run_is_given_up_after_killing_three_workers(
    by_threads: dict[str, bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, spy = tmp_path / "log", tmp_path / "spy.py"
    killer = "2 red gateway.pep.delay=40 ms gateway.aqm.w_q=0.2"
    spy.write_text(SPY.format(log=str(log), killer=killer, sleep=0.0))
    monkeypatch.setattr(local_cluster, "_PRELOAD", str(spy))
    result = small(tmp_path / "cluster", settings=["red"], cluster="local:2")
    assert [(each["seed"], each["point"], each["error"]) for each in result.failures] == [
        (
            2,
            {"gateway.pep.delay": "40 ms", "gateway.aqm.w_q": "0.2"},
            "given up: 3 workers died while they simulated it",
        )
    ]
    # Three times beside other tasks, then three times alone.
    assert Counter(run for _, run in begun(log))[killer] == 6
    assert len(result.frame()) == 12 - 1
    monkeypatch.undo()
    small(tmp_path / "cluster", cluster="local:1")
    assert content(tmp_path / "cluster") == by_threads


def test_long_run_delays_only_the_runs_of_its_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, spy, release = tmp_path / "log", tmp_path / "spy.py", tmp_path / "release"
    waits = f"until_shown({str(release)!r}) if seed == 20 else 0.05"
    spy.write_text(SPY.format(log=str(log), killer=None, sleep=waits) + UNTIL_SHOWN)
    monkeypatch.setattr(local_cluster, "_PRELOAD", str(spy))
    monkeypatch.setattr(cluster, "_TASK_SECONDS", 0.5)
    plan = Sweep.plan(
        "small-gateway", {"gateway.pep.delay": "1 ms"}, settings=["red"], runs=40, overrides=SHORT
    )
    found: list[int] = []
    with closing(Cluster("local:2")) as both:
        for each in both.results(list(plan.runs())):
            if each is not None:
                found.append(each[0].seed)
            # A task has at most 0.5 s / 0.05 s = 10 runs.
            if len(found) == 30:
                release.touch()
    assert sorted(found) == plan.seeds
    assert found.index(20) >= 30, "other runs waited for run 20"


@pytest.mark.parametrize(
    ("run_seconds", "left", "threads", "length"),
    [
        (0.0, 1000, 2, 1),  # The duration of a run is unknown.
        (0.01, 100_000, 2, 200),  # 2 s of work
        (60.0, 1000, 2, 1),
        (0.01, 10_000_000, 400, 800),  # 8 s, so that 400 threads end fifty tasks per second
        (0.01, 200, 2, 50),  # Two tasks for each thread are left.
        (0.01, 8, 2, 10),  # 0.1 s at least
        (0.01, None, 2, 200),
    ],
)
def test_task_has_runs_for_two_seconds(
    run_seconds: float, left: int | None, threads: int, length: int
) -> None:
    assert cluster.task_length(run_seconds, left, threads) == length


def test_task_on_a_worker_of_another_build_is_refused() -> None:
    job = worker_tasks.Job("sweep", ("0.0.1", "1" * 64), [], [], [], 2.0)
    with pytest.raises(UsageError, match=r"a worker cannot take part: .* allowed: .* 0\.0\.1 of build 1{12}"):
        worker_tasks.work(pickle.dumps(job), {})


def test_files_of_scenarios_are_sent_to_workers(processes: Processes, tmp_path: Path) -> None:
    text = """
        title = "Pages of given sizes"
        [run]
        duration = "2 s"
        [host.server]
        [host.client]
        [link.wire]
        between = ["server", "client"]
        rate = "10 Mbps"
        queue = {}
        [traffic.t]
        kind = "pages"
        from = "server"
        to = "client"
        sessions = 2
        object_size = { trace = "sizes.dat" }
    """
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "my.toml").write_text(text)
    (folder / "sizes.dat").write_text("".join(f"{1000 + 37 * i}\n" for i in range(50)))

    def simulated(name: str, **where: object) -> dict[str, bytes]:
        plan = Sweep.plan(folder / "my.toml", {"link.wire.delay": "1 ms,2 ms"}, settings=["red"], runs=4)
        if where:
            (folder / "sizes.dat").unlink()
        with closing(workers_from(None, where.get("cluster"))) as theirs:  # type: ignore[arg-type]
            execute(plan, tmp_path / name, workers=theirs)
        return content(tmp_path / name)

    expected = simulated("threads")
    processes.worker(threads=2)
    processes.wait(1)
    assert simulated("cluster", cluster=processes.address) == expected


@pytest.mark.long
def test_interruption_frees_the_cluster(processes: Processes, tmp_path: Path) -> None:
    from distributed import Client

    processes.worker(threads=2)
    processes.wait(1)

    def stop(done: int, total: int, failed: int) -> None:
        del total, failed
        if done >= 1:
            raise KeyboardInterrupt

    # The second run would take minutes.
    with pytest.raises(KeyboardInterrupt):
        sweep(
            "byun2007-gateway",
            {"run.duration": "1 s,10000 min"},
            settings=["RED 4"],
            runs=1,
            out=tmp_path / "s",
            cluster=processes.address,
            on_progress=stop,
        )
    assert len(list((tmp_path / "s" / "journal").glob("*.parquet"))) == 1
    with Client(processes.address, set_as_default=False) as client:
        wait_for(lambda: not client.run_on_scheduler(lambda dask_scheduler: len(dask_scheduler.tasks)))
        busy = "lambda dask_worker: len(dask_worker.state.executing) + len(dask_worker.active_threads)"
        wait_for(lambda: not any(client.run(eval(busy)).values()))  # noqa: S307


@pytest.mark.long
def test_ctrl_c_ends_the_workers(tmp_path: Path) -> None:
    arguments = ["sweep", "small-gateway", "--vary", "run.duration=1 s,10000 min", "--settings", "red"]
    arguments += ["--runs", "1", "--cluster", "local:2", "--out", "s"]
    process = subprocess.Popen(
        command_line(*arguments), cwd=tmp_path, stderr=subprocess.PIPE, text=True, env=environment()
    )
    try:
        journal = tmp_path / "s" / "journal"
        wait_for(lambda: any(journal.glob("*.parquet")))
        children = psutil.Process(process.pid).children(recursive=True)
        assert len(children) == 2
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == 130
    assert "finished runs are kept. To continue:" in stderr
    assert "--cluster local:2" in stderr
    assert "Traceback" not in stderr
    assert not any(map(alive, children))
    assert [each.name for each in tmp_path.iterdir()] == ["s"]


def test_local_workers_end_with_their_sweep_and_leave_no_files(tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    arguments = ["sweep", "small-gateway", "--vary", "run.duration=1 s,10000 min", "--settings", "red"]
    arguments += ["--runs", "1", "--cluster", "local:1", "--out", "s"]
    process = subprocess.Popen(
        command_line(*arguments),
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
        env=environment() | {"TMPDIR": str(temporary)},
    )
    wait_for(lambda: any((tmp_path / "s" / "journal").glob("*.parquet")))
    children = psutil.Process(process.pid).children(recursive=True)
    assert any(temporary.glob("bentpipe-*"))
    process.kill()
    process.wait()
    wait_for(lambda: not any(map(alive, children)))
    # Dask's own folder stays until Dask starts there again.
    assert not any(temporary.glob("bentpipe-*"))


@pytest.mark.parametrize("where", ["local:0", "local:x", "local", "somewhere", "http://h:1", "tcp://h", ""])
def test_wrong_cluster_is_one_message(where: str) -> None:
    with pytest.raises(UsageError, match=rf"cluster {where}: allowed: local:N .* tcp://host:8786"):
        workers_from(None, where)


def test_jobs_and_cluster_exclude_each_other() -> None:
    with pytest.raises(UsageError, match="give one of them"):
        workers_from(2, "local:2")


def test_unreachable_scheduler_is_one_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_CONNECT_SECONDS", 1.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        # It accepts the connection and sends nothing.
        with pytest.raises(UsageError, match=rf"cluster {address}: no Dask scheduler answers there"):
            Cluster(address)
    with pytest.raises(UsageError, match=rf"cluster {address}: no Dask scheduler answers there"):
        Cluster(address)


def test_unusable_cluster_is_one_message(processes: Processes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "_CONNECT_SECONDS", 1.0)
    with pytest.raises(UsageError, match=r"a cluster without workers; allowed: at least one"):
        Cluster(processes.address)
    processes.worker()
    processes.worker(OTHER_BUILD)
    processes.wait(2)
    with pytest.raises(
        UsageError,
        match=r"worker tcp://.*: found Bentpipe \S+ of build 000000000000; allowed: the same as"
        r" the sweep's, .* \(1 of 2 workers cannot take part\)",
    ):
        Cluster(processes.address)


def test_worker_that_dies_while_it_is_checked_is_left_out(processes: Processes) -> None:
    processes.worker()
    processes.worker(DYING)
    processes.wait(2)
    with closing(Cluster(processes.address)) as found:
        wait_for(lambda: len(found.client.nthreads()) == 1)


def test_two_threads_are_at_least_1_8_times_as_fast_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """From shares of time, since wall time depends on other load; `make cluster` measures the speed."""
    scenario = load("byun2007-gateway", ["run.duration=60 min"]).with_setting("RED 4")
    progress = _core.Progress()
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(_core.simulate, scenario, 1, progress)
        # The core releases the interpreter's lock while it simulates, so this thread sees its progress.
        seen: set[float] = set()
        while len(seen) < 3 and not run.done():
            seen.add(progress.fraction())
            time.sleep(0.002)
        assert not run.done()
        progress.cancel()
    # Share of a thread's processor time outside the core.
    cores: list[float] = []

    def simulated(*given: Any) -> Any:  # noqa: ANN401
        done = _core.simulate(*given)
        cores.append(done.cpu_seconds)
        return done

    monkeypatch.setattr(workers, "_core", SimpleNamespace(simulate=simulated))
    scenario = load("byun2007-gateway", ["run.duration=1 min"]).with_setting("RED 4")
    start = time.thread_time()
    measure(scenario, 1, _core.Progress())
    share = 1 - cores[0] / (time.thread_time() - start)
    # Code that holds the lock is serial: two threads are at most 2 / (1 + share) times as fast (Amdahl).
    assert share >= 0
    assert 2 / (1 + share) >= 1.8


def test_help_does_not_load_slow_packages() -> None:
    code = (
        "import sys; from bentpipe.cli import app; app.cli.main(['sweep', '--help'], standalone_mode=False)"
    )
    slow = ["altair", "dask", "distributed", "numpy", "optuna", "scipy"]
    code += f"; assert not set({slow}) & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, timeout=PATIENCE)
