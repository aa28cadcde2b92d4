"""Dask cluster on this machine: a scheduler in this process and worker processes that end with it."""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Container
from pathlib import Path

from bentpipe.errors import UsageError
from bentpipe.runs.worker_preload import PARENT

__all__ = ["LocalWorkers"]

_CALM = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": "500 ms",
    "distributed.admin.system-monitor.interval": "10 s",
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Dask's settings: no HTTP server, and monitoring intervals that cost less processor time."""

_PRELOAD = "bentpipe.runs.worker_preload"
"""Module that workers import before they join."""
_START_SECONDS = 60.0
_END_SECONDS = 3.0
_MOST_STARTS = 3
"""Consecutive workers that may end before joining."""


class LocalWorkers:
    """A scheduler in this process and a number of worker processes, over TCP on 127.0.0.1."""

    def __init__(self, count: int) -> None:
        """Start scheduler and workers; `UsageError` if they do not start."""
        import dask
        from distributed import LocalCluster

        self._folder = Path(tempfile.mkdtemp(prefix="bentpipe-workers-"))
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._started = self._failed = 0
        self._cluster: LocalCluster | None = None
        try:
            with dask.config.set(_CALM):
                self._cluster = LocalCluster(
                    n_workers=0,
                    threads_per_worker=1,
                    host="127.0.0.1",
                    protocol="tcp",
                    dashboard_address=None,
                    scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
                    silence_logs=logging.CRITICAL,
                )
            self.address: str = self._cluster.scheduler_address
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
                env=os.environ | calm | {PARENT: str(os.getpid())},
            )

    def _joined(self) -> set[str]:
        scheduler = self._cluster.scheduler if self._cluster is not None else None
        return {str(each.name) for each in list(scheduler.workers.values())} if scheduler else set()

    def _wait(self, count: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while len(self._joined()) < count:
            for name, process in self._processes.items():
                if process.poll() is not None:
                    raise UsageError(f"a worker process ended while it started: {self._last_words(name)}")
            if time.monotonic() > deadline:
                raise UsageError(f"worker processes have not started within {_START_SECONDS:.0f} s")
            time.sleep(0.02)

    def _last_words(self, name: str) -> str:
        text = (self._folder / f"{name}.log").read_text(encoding="utf-8", errors="replace")
        return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "it said nothing")

    def replace_dead(self, seen: Container[str]) -> None:
        """Replace every worker that has ended.

        Raises `UsageError` if several in a row end before they work, that is, are missing in `seen`.
        """
        for name, process in list(self._processes.items()):
            if process.poll() is None:
                continue
            self._failed = 0 if name in seen else self._failed + 1
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
