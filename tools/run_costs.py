"""Measure the processor time around runs, and compare it with its targets: `make run-costs`.

    python tools/run_costs.py [RUNS]

RUNS is the length of the sweep of short runs, 10,000 unless given. Processor time is the least of several
tries, with that of child processes. It depends on the machine and on other load; test_run_costs.py counts
what does not. The exit code is 1 if a target is missed.
"""

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import bentpipe as bp
from bentpipe import _core
from bentpipe.runs import workers
from bentpipe.runs.workers import Threads
from bentpipe.sweeps.sweep import Sweep, execute

SETTINGS = ("red", "ared", "avq", "avqred", "pi", "codel", "pie", "droptail", "fq_codel", "blue")
SHORT = ["run.duration=100 ms", "run.warmup=0 s"]
"""Runs so short that they mostly compute metrics."""
POINTS = 100
COMMAND = [sys.executable, "-m", "bentpipe"]


def processor_time(command: Sequence[str], folder: Path, tries: int) -> float:
    """Return the least processor time of a command [s]."""
    least = float("inf")
    for _ in range(tries):
        process = subprocess.Popen(  # noqa: S603
            command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{' '.join(command)}: exit code {process.returncode}")
        least = min(least, used.ru_utime + used.ru_stime)
    return least


def here(work: Callable[[], object]) -> float:
    """Return the processor time that `work` takes in this process [s]."""
    before = resource.getrusage(resource.RUSAGE_SELF)
    work()
    after = resource.getrusage(resource.RUSAGE_SELF)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def sweep_overhead(folder: Path, runs: int) -> float:
    """Return the processor time of each run of a sweep without that of its simulation [s]."""
    points = min(POINTS, runs)
    vary = {"gateway.pep.delay": f"1 ms:50 ms:{points}" if points > 1 else "1 ms"}
    plan = Sweep.plan("small-gateway", vary, settings=["red"], runs=runs // points, overrides=SHORT)
    seconds: list[float] = []

    def simulated(*given: Any) -> Any:  # noqa: ANN401
        done = _core.simulate(*given)
        seconds.append(done.cpu_seconds)
        return done

    def work() -> None:
        with closing(Threads()) as threads:
            execute(plan, folder, workers=threads)

    setattr(workers, "_core", SimpleNamespace(simulate=simulated, Progress=_core.Progress))  # noqa: B010
    return (here(work) - sum(seconds)) / len(seconds)


def main(arguments: Sequence[str]) -> int:
    """Print command, value and target of each measurement."""
    runs = int(arguments[0]) if arguments else 10_000
    missed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def show(what: str, value: float, target: float, unit: str = "s") -> None:
            nonlocal missed
            missed += value >= target
            judged = "missed" if value >= target else "met"
            print(f"{what:<56} {value:7.3f} {unit:<2}  target {target:g} {unit}: {judged}", flush=True)

        show("bentpipe --help", processor_time([*COMMAND, "--help"], folder, 7), 0.2)
        run = [*COMMAND, "run", "red-dumbbell", "--runs", "1", "--out", "run", "--force"]
        show("bentpipe run red-dumbbell --runs 1", processor_time(run, folder, 7), 0.5)
        bp.compare("red-dumbbell", settings=SETTINGS, runs=10, out=folder / "ten", progress=False)
        report = [*COMMAND, "report", "ten"]
        show("bentpipe report, 10 settings with 10 runs", processor_time(report, folder, 3), 5)
        overhead = sweep_overhead(folder / "sweep", runs)
        show(f"sweep of {runs:,} short runs, each without simulation", 1e3 * overhead, 2, "ms")
        opened = here(lambda: bp.open_sweep(folder / "sweep").table())
        show(f"bp.open_sweep(…).table() of {runs:,} runs", opened, 2)
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
