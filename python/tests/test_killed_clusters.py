"""Sweeps on a Dask cluster whose workers and schedulers are killed at random (`make faults`)."""

import os
import random
import subprocess
import time
from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from clusters import SPY, Processes
from conftest import command_line
from patience import PATIENCE

import bentpipe as bp

KILLS = 100
WORKERS = 2
SCHEDULER = 0.15
"""Probability that a scheduler is the victim, and not a worker."""
SWEEP = (
    *("sweep", "small-gateway", "--vary", "gateway.pep.delay=0 ms:40 ms:5", "--settings", "red,avqred"),
    *("--set", "run.duration=2 s", "--set", "run.warmup=1 s", "--runs", "6"),
)


class Cluster:
    """A scheduler and two workers, which delay each run, until the next kill."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        folder.mkdir()
        self.processes = stack.enter_context(closing(Processes(folder)))
        self.workers = [self._worker() for _ in range(WORKERS)]
        self.processes.wait(WORKERS)

    def _worker(self) -> "subprocess.Popen[bytes]":
        return self.processes.worker(SPY.format(log=os.devnull, killer=None, sleep=0.05))

    @property
    def is_alive(self) -> bool:
        return self.processes.processes[0].poll() is None

    def kill(self, rng: random.Random) -> str:
        """Kill the scheduler, or a worker, which is replaced."""
        if rng.random() < SCHEDULER:
            victim, name = self.processes.processes[0], "scheduler"
        else:
            place = rng.randrange(WORKERS)
            victim, name = self.workers[place], "worker"
            self.workers[place] = self._worker()
        victim.kill()
        victim.wait()
        return name


def rows(out: Path) -> list[tuple[object, ...]]:
    """Return the metrics of the runs that a sweep has stored; none before it has any."""
    if not (out / "manifest.json").exists() or not any(out.rglob("*.parquet")):
        return []
    return sorted(bp.open_sweep(out).frame().drop("cpu_seconds", strict=False).rows(), key=repr)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[object, ...]]:
    """The rows of the sweep without a cluster."""
    folder = tmp_path_factory.mktemp("whole")
    subprocess.run(
        command_line(*SWEEP, "--out", "s"), cwd=folder, capture_output=True, timeout=PATIENCE, check=True
    )
    return rows(folder / "s")


@pytest.mark.skipif("FAULTS" not in os.environ, reason="only with FAULTS=1")
def test_sweeps_keep_their_runs_whoever_is_killed(tmp_path: Path, whole: list[tuple[object, ...]]) -> None:
    rng = random.Random(1)  # noqa: S311
    kills: Counter[str] = Counter()
    codes: Counter[int] = Counter()
    sweeps = 0
    while kills.total() < KILLS:
        sweeps += 1
        out = tmp_path / f"s{sweeps}"
        before: list[tuple[object, ...]] = []
        code = -1
        while code != 0:
            with ExitStack() as stack:
                cluster = Cluster(tmp_path / f"cluster-{sweeps}-{kills.total()}-{codes.total()}", stack)
                command = command_line(*SWEEP, "--out", str(out), "--cluster", cluster.processes.address)
                process = subprocess.Popen(
                    command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
                )
                stack.callback(process.kill)
                while process.poll() is None and cluster.is_alive and kills.total() < KILLS:
                    time.sleep(rng.uniform(0.2, 2.0))
                    kills[cluster.kill(rng)] += 1
                _, said = process.communicate(timeout=PATIENCE)
            code = process.returncode
            codes[code] += 1
            # Scheduler or workers may be killed before the sweep has connected.
            is_early = code == 2 and (b"no Dask scheduler answers" in said or b"without workers" in said)
            assert code in (0, 1) or is_early, said.decode()
            assert b"Traceback" not in said, said.decode()
            assert code == 0 or said.count(b"error: ") <= 1, said.decode()
            after = rows(out)
            assert set(before) <= set(after)
            before = after
        assert before == whole
    assert kills["worker"] > kills["scheduler"] > 0
    print(f"{kills}, {sweeps} sweeps, exit codes {codes}")
