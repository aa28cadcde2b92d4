"""Run `make test` repeatedly in fresh clones, and print a table of times and results.

    python tools/test_often.py [RUNS] [--first N] [--target TARGET] [--folder FOLDER] [--keep]

Of ten runs two are below /tmp and one is in a path with a space; every second run shares the machine with
four busy loops. `--first` continues a row that was cut, at run N. The logs stay in FOLDER. The exit code is 1
if a run failed.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUSY_LOOPS = 4
_FAILED = re.compile(
    r"^(?:FAILED|ERROR) (\S+)|^test (\S+).* \.\.\. FAILED|^---- (\S+) stdout ----", re.MULTILINE
)


@dataclass
class Run:
    """One `make test` in a clone."""

    number: int
    place: Path
    busy: bool
    code: int = -1
    seconds: float = 0.0
    failed: tuple[str, ...] = ()


def planned(count: int, folder: Path, below_tmp: Path) -> list[Run]:
    """Return the place of each run, and the runs beside busy loops."""
    runs = []
    for number in range(1, count + 1):
        name = "with a space" if number % 10 == 3 else "clone"
        parent = below_tmp if number % 5 == 1 else folder
        runs.append(Run(number, parent / f"run-{number}" / name, busy=number % 2 == 0))
    return runs


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """Run busy loops while the block runs."""
    loops = [subprocess.Popen(["yes"], stdout=subprocess.DEVNULL) for _ in range(count)]  # noqa: S607
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def share(target: Path, clone: Path) -> None:
    """Let `clone` build in `target`, where cargo takes what an earlier clone has built of the same files.

    Cargo compares times: a file has the time of the first clone with its content, which `target` remembers.
    """
    target.mkdir(parents=True, exist_ok=True)
    (clone / "target").symlink_to(target)
    known = target / "times.json"
    before = json.loads(known.read_text(encoding="utf-8")) if known.exists() else {}
    now = time.time()
    listed = subprocess.check_output(  # noqa: S603
        ["git", "-C", str(clone), "ls-files", "--stage", "-z"],  # noqa: S607
        text=True,
    )
    times = {}
    for entry in listed.split("\0")[:-1]:
        about, name = entry.split("\t", 1)
        content = about.split()[1]
        old, changed = before.get(name, (None, now))
        times[name] = (content, changed if old == content else now)
        os.utime(clone / name, (now, times[name][1]), follow_symlinks=False)
    known.write_text(json.dumps(times), encoding="utf-8")


def make_test(run: Run, log: Path, target: Path | None) -> None:
    """Clone, run `make test`, and store code, time and failed tests in `run`."""
    run.place.parent.mkdir(parents=True)
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(run.place)], check=True)  # noqa: S603, S607
    if target is not None:
        share(target, run.place)
    # Without variables of an outer `make` or an activated virtual environment.
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL", "VIRTUAL_ENV", "PYTHONPATH", "PYO3_PYTHON"}
    }
    if target is not None:
        # Programs built for one clone know this path, and not that of the clone.
        environment["CARGO_TARGET_DIR"] = str(target)
    begin = time.monotonic()
    with log.open("wb") as output, busy_loops(BUSY_LOOPS if run.busy else 0):
        process = subprocess.Popen(
            ["make", "test"],  # noqa: S607
            cwd=run.place,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
        try:
            run.code = process.wait()
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
    run.seconds = time.monotonic() - begin
    if run.code:
        found = _FAILED.findall(log.read_text(errors="replace"))
        run.failed = tuple(dict.fromkeys(name for names in found for name in names if name))


def show(runs: list[Run]) -> None:
    """Print the table of the runs so far."""
    width = max(len(str(run.place)) for run in runs)
    print(f"\nrun  {'clone':{width}}  busy loops  result  time [s]  failed")
    for run in runs:
        result = "passed" if run.code == 0 else "failed"
        loops = BUSY_LOOPS if run.busy else 0
        print(
            f"{run.number:3}  {run.place!s:{width}}  {loops:10}  {result:6}  {run.seconds:8.0f}"
            f"  {', '.join(run.failed)}",
            flush=True,
        )


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="?", type=int, default=10, help="number of runs (default: 10)")
    parser.add_argument(
        "--first", type=int, default=1, metavar="N", help="number of the first run (default: 1)"
    )
    parser.add_argument("--folder", type=Path, help="folder for clones and logs (default: one in ~/.cache)")
    parser.add_argument(
        "--target",
        type=Path,
        help="folder in which all clones build, so that only the first compiles (default: each in its own)",
    )
    parser.add_argument("--keep", action="store_true", help="keep the clones")
    given = parser.parse_args()
    if not 1 <= given.first <= given.runs:
        parser.error(f"--first {given.first}: allowed: from 1 to {given.runs}, the number of runs")
    signal.signal(signal.SIGTERM, signal.default_int_handler)

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    parent = given.folder or cache
    parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="bentpipe-test-often-", dir=parent)).resolve()
    below_tmp = Path(tempfile.mkdtemp(prefix="bentpipe-test-often-", dir="/tmp"))
    done: list[Run] = []
    try:
        for run in planned(given.runs, folder, below_tmp)[given.first - 1 :]:
            log = folder / f"run-{run.number}.log"
            print(f"run {run.number} of {given.runs}: {run.place}, log in {log}", flush=True)
            done.append(run)
            make_test(run, log, given.target.resolve() if given.target else None)
            if not given.keep:
                shutil.rmtree(run.place.parent)
            show(done)
    except KeyboardInterrupt:
        return 130
    finally:
        if not given.keep:
            shutil.rmtree(below_tmp, ignore_errors=True)
    return int(any(run.code for run in done))


if __name__ == "__main__":
    sys.exit(main())
