"""Run make targets as the parts of one job, and print their times.

    python tools/run_parts.py STAGE...

A stage is one argument: lanes that run in parallel, separated by `|`, each with targets that run one after
the other. The next stage begins when all lanes of the former have succeeded. The output of a part is printed
when it ends.
"""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path


@dataclass
class Part:
    """Result of a target."""

    name: str
    code: int
    wall: float
    """Duration [s]."""
    cpu: float
    """Processor time of all its processes, user and system [s]."""


class Job:
    """Running and finished parts."""

    def __init__(self) -> None:
        """Start without parts."""
        self.parts: list[Part] = []
        self._running: set[int] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run_lane(self, names: list[str]) -> None:
        """Run targets one after the other until one fails, or cannot be run."""
        for name in names:
            if self._stopped:
                return
            cause = ""
            try:
                part = self._run(name)
            except Exception as error:
                # It would end this thread only.
                part, cause = Part(name, 1, 0.0, 0.0), f"-- {name} cannot be run: {error}"
            with self._lock:
                self.parts.append(part)
            if cause:
                print(cause, file=sys.stderr, flush=True)
            if part.code:
                return

    def stop(self) -> None:
        """End all running parts."""
        with self._lock:
            self._stopped = True
            for pid in self._running:
                os.killpg(pid, signal.SIGTERM)

    def _run(self, name: str) -> Part:
        begin = time.monotonic()
        with tempfile.TemporaryFile() as output:
            with self._lock:
                print(f"-- {name} begins", flush=True)
                process = subprocess.Popen(  # noqa: S603
                    [os.environ.get("MAKE", "make"), name],
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
                self._running.add(process.pid)
            # `Popen.wait` does not return the processor time.
            _, status, used = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            part = Part(name, process.returncode, time.monotonic() - begin, used.ru_utime + used.ru_stime)
            output.seek(0)
            shown = output.read().decode(errors="replace")
            with self._lock:
                self._running.discard(process.pid)
                state = "failed" if part.code else "passed"
                print(f"{shown}-- {name} {state} after {part.wall:.0f} s", flush=True)
        return part


def run(stages: list[str]) -> int:
    """Run stages; return 1 if a part failed."""
    job = Job()
    begin = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        for stage in stages:
            lanes = [threading.Thread(target=job.run_lane, args=(lane.split(),)) for lane in stage.split("|")]
            for lane in lanes:
                lane.start()
            for lane in lanes:
                lane.join()
            if any(part.code for part in job.parts):
                break
    except KeyboardInterrupt:
        job.stop()
        return 130
    width = max(len(part.name) for part in job.parts)
    print(f"\n{'part':{width}}  result    wall [s]  CPU [s]")
    for part in job.parts:
        result = "failed" if part.code else "passed"
        print(f"{part.name:{width}}  {result:8}  {part.wall:8.0f}  {part.cpu:7.0f}")
    cpu = sum(part.cpu for part in job.parts)
    print(f"{'all':{width}}  {'':8}  {time.monotonic() - begin:8.0f}  {cpu:7.0f}")
    return int(any(part.code for part in job.parts))


if __name__ == "__main__":
    if sys.argv[1:] in ([], ["--help"]):
        print(__doc__)
        sys.exit(2)
    os.chdir(Path(__file__).parents[1])
    sys.exit(run(sys.argv[1:]))
