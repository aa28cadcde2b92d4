"""Dask cluster on this machine: a scheduler in this process and worker processes that end with it."""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import dask
from distributed import LocalCluster, Scheduler, SchedulerPlugin

from bentpipe.errors import UsageError
from bentpipe.runs.worker_preload import FOLDER, PARENT

__all__ = ["LocalWorkers"]

_CALM = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "500 ms",
    "distributed.admin.system-monitor.interval": "10 s",
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
    "distributed.scheduler.allowed-failures": 2,
}
"""Dask's settings: no HTTP server, monitoring intervals that cost less processor time, and two repetitions of
the task of a worker that died."""

_PRELOAD = "bentpipe.runs.worker_preload"
"""Module that workers import before they join."""
_START_SECONDS = 60.0
_END_SECONDS = 3.0
_MOST_STARTS = 3
"""Consecutive workers that may end before joining."""


class _Names(SchedulerPlugin):
    """Notes the name of each worker that joins."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        self._names.add(str(scheduler.workers[worker].name))


class LocalWorkers:
    """A scheduler in this process and a number of worker processes, over TCP on 127.0.0.1."""

    def __init__(self, count: int) -> None:
        """Start scheduler and workers; `UsageError` if they do not start."""
        self._folder = Path(tempfile.mkdtemp(prefix="bentpipe-workers-"))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._started = self._failed = 0
        self._joined: set[str] = set()
        """Names of all workers that have ever joined."""
        self._cluster: LocalCluster | None = None
        try:
            with dask.config.set(_CALM):
                cluster = self._cluster = LocalCluster(
                    n_workers=0,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    protocol="tcp",
                    dashboard_address=None,
                    scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
                    silence_logs=logging.CRITICAL,
                )
            if cluster.scheduler is not None:
                cluster.scheduler.add_plugin(_Names(self._joined))
            self.address: str = cluster.scheduler_address
            for _ in range(count):
                self._start()
            self._wait(count)
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        name = f"local-{self._started}"
        self._started += 1
        # A plain process: multiprocessing would run the caller's script again. Its own session, because
        # Ctrl-C must reach only this process, which then ends the workers.
        command = [sys.executable, "-P", "-m", "distributed.cli.dask_worker", self.address, "--no-nanny"]
        command += ["--name", name, "--nthreads", "1", "--memory-limit", "0", "--no-dashboard"]
        command += ["--host", "127.0.0.1", "--death-timeout", "60", "--preload", _PRELOAD]
        command += ["--local-directory", str(self._folder)]
        calm = {
            f"DASK_{key.replace('.', '__').replace('-', '_').upper()}": str(value)
            for key, value in _CALM.items()
        }
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes[name] = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | calm | {PARENT: str(os.getpid()), FOLDER: str(self._folder)},
            )

    def _wait(self, count: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while len(self._joined) < count:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise UsageError(f"a worker process ended while it started: {self._last_words(name)}")
            if time.monotonic() > deadline:
                raise UsageError(f"worker processes have not started within {_START_SECONDS:.0f} s")
            time.sleep(0.02)

    def _last_words(self, name: str) -> str:
        text = (self._folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")

    def replace_dead(self) -> None:
        """Replace every worker that has ended; `UsageError` if several in a row end before they join."""
        for name, process in list(self._processes.items()):
            if process.poll() is None:
                continue
            self._failed = 0 if name in self._joined else self._failed + 1
            if self._failed == _MOST_STARTS:
                raise UsageError(
                    f"worker processes end as soon as they are started: {self._last_words(name)}"
                )
            del self._processes[name]
            self._start()

    def close(self) -> None:
        """End all workers and the scheduler."""
        for process in self._processes.values():
            process.terminate()
        deadline = time.monotonic() + _END_SECONDS
        for process in self._processes.values():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes.clear()
        if self._cluster is not None:
            self._cluster.close()
            self._cluster = None
        shutil.rmtree(self._folder, ignore_errors=True)
