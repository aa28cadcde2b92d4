"""A Dask cluster of real processes, whose workers may log, delay and kill."""

import json
import subprocess
import sys
from pathlib import Path

from patience import PATIENCE, wait_for

__all__ = ["SPY", "Processes"]

SPY = """
import os, signal, time
from bentpipe.runs import worker_tasks, workers

measure = workers.measure

def spied(scenario, seed, progress):
    run = " ".join([str(seed), scenario.aqm, *scenario.overrides[-2:]])
    with open({log!r}, "a") as log:
        print(os.getpid(), run, file=log)
    if run == {killer!r}:
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep({sleep})
    return measure(scenario, seed, progress)

worker_tasks.measure = spied
"""
"""Logs each run that a worker begins, delays it, and lets one kill its worker."""


class Processes:
    """A scheduler and workers that a user has started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: list[subprocess.Popen[bytes]] = []
        about = folder / "scheduler.json"
        self._start("scheduler", "--host", "127.0.0.1", "--port", "0", "--scheduler-file", str(about))
        wait_for(lambda: about.exists() and about.read_text().endswith("}"))
        self.address: str = json.loads(about.read_text())["address"]

    def _start(self, what: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", f"distributed.cli.dask_{what}", "--no-dashboard"]
        command += ["--dashboard-address", "127.0.0.1:0", *arguments]
        with (self.folder / f"{len(self.processes)}.log").open("wb") as log:
            process = subprocess.Popen(command, cwd=self.folder, stdout=log, stderr=log)
        self.processes.append(process)
        return process

    def worker(self, preload: str = "", threads: int = 1) -> subprocess.Popen[bytes]:
        more = []
        if preload:
            file = self.folder / f"preload{len(self.processes)}.py"
            file.write_text(preload)
            more = ["--preload", str(file)]
        local = str(self.folder / "space")
        return self._start(
            "worker",
            self.address,
            "--no-nanny",
            "--nthreads",
            str(threads),
            "--local-directory",
            local,
            *more,
        )

    def wait(self, workers: int) -> None:
        from distributed import Client

        with Client(self.address, set_as_default=False) as client:
            client.wait_for_workers(workers, timeout=PATIENCE)

    def close(self) -> None:
        for process in self.processes:
            process.kill()
            process.wait()
