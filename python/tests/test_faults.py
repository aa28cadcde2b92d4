"""Every step by which a command changes its folder fails once; or power is lost before it.

Then the command is repeated, and its result has to be that of a command without a fault. `FAULTS=1` takes
every step, in place of a few (`make faults`).
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import faults
import pytest
from conftest import environment
from patience import PATIENCE
from preloaded import server

import bentpipe as bp
from bentpipe import files

ALL = bool(os.environ.get("FAULTS"))
SHORT = ("red-dumbbell", "--duration", "1 s", "--settings", "red,droptail", "--runs", "2", "--jobs", "1")
SEARCH = (
    *("red-dumbbell", "--duration", "1 s", "--aqm", "red", "--metrics", "throughput:max"),
    *("--trials", "3", "--generation", "2", "--runs", "2", "--fresh", "2", "--jobs", "1"),
)
MODEL = ("red-dumbbell", "--duration", "1 s", "--settings", "red")
VARY = "link.bottleneck.delay"
PAPER = """
title = "Small"
source = "nobody"
[quick]
runs = 2
[rule.least]
kind = "near"
within = 0.5
[experiment.short]
title = "One second"
scenario = "red-dumbbell"
set = { "run.duration" = "1 s", "run.warmup" = "1 s" }
runs = 2
cases = [{ label = "RED", setting = "red" }]
[[table]]
id = "table-1"
where = "Table I"
title = "Throughput"
file = "printed.csv"
key = "aqm"
experiments = ["short"]
columns = [{ column = "throughput", unit = "bit/s", measure = "throughput", rule = "least" }]
"""


@dataclass
class Job:
    """A command that writes to `work/out`, with the content of its result and its steps."""

    arguments: tuple[str, ...]
    base: Path
    content: Callable[[Path], object]
    resumes: str = ""
    """Flag with which it continues; empty if it always does."""
    has_heartbeat: bool = False
    """True if it also writes what it can do without."""
    every: tuple[int, int] = (31, 1)
    """Steps from one that is taken to the next; with `FAULTS=1`."""

    @property
    def stride(self) -> int:
        """Steps from one that is taken to the next; 0 if none is taken."""
        return self.every[ALL]

    def run(self, place: Path, step: int, how: str, *more: str) -> tuple[int, str]:
        """Run it in a folder with a fault; return exit code and what it says."""
        work = place / "work"
        work.mkdir(parents=True, exist_ok=True)
        variables = environment() | faults.request(work, step, how, place / "steps")
        command = (*self.arguments, "--out", "out", *more)
        done = server().run(*command, folder=work, environment=variables, timeout=PATIENCE)
        return done.returncode, done.stderr


def finished_runs(out: Path) -> object:
    """Return the tables of all runs of a result."""
    found = sorted(path for path in (out / "runs").rglob("*") if path.is_file())
    return {str(path.relative_to(out)): path.read_bytes() for path in found}


def swept(out: Path) -> object:
    """Return the metrics of all runs of a sweep."""
    frame = bp.open_sweep(out).frame()
    return frame.drop("cpu_seconds", strict=False).sort("setting", VARY, "seed").to_dict(as_series=False)


def searched(out: Path) -> object:
    """Return trials and figures of a search."""
    found = bp.open_tune(out)
    return [each.to_dict(as_series=False) for each in (found.frame(), found.figures())]


def solved(out: Path) -> object:
    """Return the quantities of a solved model."""
    return json.loads((out / "comparison.json").read_text())


def verdicts(out: Path) -> object:
    """Return the items of a reproduced paper."""
    return json.loads((out / "paper" / "verdicts.json").read_text())["items"]


def small_paper(folder: Path) -> Path:
    """Write a paper with one table of one number."""
    paper = folder / "paper"
    paper.mkdir()
    (paper / "claims.toml").write_text(PAPER)
    (paper / "printed.csv").write_text("aqm,throughput\nRED,1e7\n")
    return paper


JOBS: dict[str, Callable[[Path], Job]] = {
    "compare": lambda base: Job(("compare", *SHORT), base, finished_runs, "--resume"),
    "sweep": lambda base: Job(("sweep", *SHORT, "--vary", f"{VARY}=10 ms,20 ms"), base, swept),
    "tune": lambda base: Job(("tune", *SEARCH), base, searched, has_heartbeat=True, every=(0, 7)),
    "model": lambda base: Job(("model", *MODEL), base, solved, "--force", every=(0, 1)),
    "reproduce": lambda base: Job(
        ("reproduce", str(small_paper(base)), "--jobs", "1"), base, verdicts, every=(0, 1)
    ),
}


@pytest.fixture(scope="module", params=JOBS)
def job(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Job:
    found = JOBS[request.param](tmp_path_factory.mktemp("faults"))
    if not found.stride:
        pytest.skip("only with FAULTS=1")
    return found


@pytest.fixture(scope="module")
def whole(job: Job) -> tuple[object, list[str]]:
    """The content without a fault, and the steps."""
    place = job.base / "whole"
    code, said = job.run(place, 0, "fail")
    assert code == 0, said
    steps = (place / "steps").read_text().splitlines()
    assert not [step for step in steps if step.startswith(faults.NOT_SYNCED)]
    return job.content(place / "work" / "out"), steps


def places(job: Job, name: str, steps: list[str], *more: int) -> Iterator[tuple[int, str, Path]]:
    """Yield steps, and a folder for each, which is removed afterwards."""
    for step in sorted({*range(1, len(steps) + 1, job.stride), *more}):
        place = job.base / f"{name}-{step}"
        place.mkdir()
        yield step, steps[step - 1], place
        shutil.rmtree(place)


def after_manifests(steps: list[str]) -> list[int]:
    """Return the steps right after those that make a manifest durable."""
    written = ["rename out/manifest.json", "sync out"]
    return [end + 1 for end in range(2, len(steps)) if steps[end - 2 : end] == written]


def repeated(job: Job, place: Path) -> object:
    """Repeat a command after a fault, and return its content."""
    out = place / "work" / "out"
    code, said = job.run(place, 0, "fail", *([job.resumes] if job.resumes and out.exists() else []))
    assert code == 0, said
    assert not list((place / "work").rglob(".partial-*"))
    return job.content(out)


def check_noted_runs(out: Path, said: str) -> None:
    """Check that a manifest lists the runs said to be finished, and check the files of those it lists."""
    path = out / "manifest.json"
    manifest = json.loads(path.read_text()) if path.exists() else {}
    slugs = {each["name"]: each["slug"] for each in manifest.get("settings", [])}
    runs = manifest.get("runs", [])
    assert len(runs) >= said.count("is finished")
    for run in runs:
        folder = out / "runs" / slugs[run["setting"]] / str(run["seed"])
        assert (folder / files.SUMS).exists(), folder
        files.check(folder)


def check_journal(out: Path, steps: list[str]) -> None:
    """Check that a sweep has the row of each part of its journal that the steps made durable."""
    durable = steps.count("sync out/journal")
    if durable:
        assert bp.open_sweep(out).frame().height >= durable


def test_a_step_that_fails_is_one_message_and_can_be_resumed(
    job: Job, whole: tuple[object, list[str]]
) -> None:
    content, steps = whole
    for step, what, place in places(job, "fail", steps):
        code, said = job.run(place, step, "fail")
        assert code in ((0, 1, 2) if job.has_heartbeat else (1, 2)), (what, code, said)
        assert "Traceback" not in said, (what, said)
        errors = [line for line in said.splitlines() if "Input/output error" in line]
        assert len(errors) == (code != 0), (what, said)
        assert repeated(job, place) == content, what


@pytest.mark.long
@pytest.mark.parametrize("how", ["kill", "cut"])
def test_runs_that_were_reported_survive_a_kill_and_a_power_cut(
    how: str, job: Job, whole: tuple[object, list[str]]
) -> None:
    content, steps = whole
    for step, what, place in places(job, how, steps, *after_manifests(steps)):
        code, said = job.run(place, step, how)
        assert code == faults.CUT, (what, code, said)
        out = place / "work" / "out"
        match job.arguments[0]:
            case "compare":
                check_noted_runs(out, said)
            case "sweep":
                check_journal(out, steps[: step - 1])
        assert repeated(job, place) == content, what
