"""Papers, claim by claim: simulate what they printed, and say by rule what came out.

A paper is data (`bentpipe.reproduction.paper`); docs/reproduce.md says how it is written and read.
"""

import fcntl
import json
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bentpipe import _core, files
from bentpipe.errors import UsageError
from bentpipe.experiment import checked_jobs
from bentpipe.reproduction.judged import Judged
from bentpipe.reproduction.paper import Paper, load_paper, papers
from bentpipe.reproduction.runs import Library, Teller, plan, simulate

__all__ = ["MANIFEST", "Reproduction", "load_paper", "papers", "reproduce"]

FORMAT = "bentpipe-reproduction"
MANIFEST = "reproduction.json"
RUNS = "runs"
REPORT = "report.html"
VERDICTS = "verdicts.json"


@dataclass(frozen=True)
class Reproduction:
    """A paper with what came out."""

    paper: Paper
    judged: Judged
    folder: Path
    """Where its report is, or will be."""
    quick: bool
    """Whether runs were fewer and shorter than the paper's data ask for."""
    about: dict[str, Any]
    """Version of Bentpipe, date, runs, and simulated and elapsed time."""

    def rows(self) -> list[dict[str, Any]]:
        """Return every item as a JSON object, with the paper and whether it was quick."""
        label = {"paper": self.paper.name, "quick": self.quick}
        return [label | item.as_row() for item in self.judged.items]

    @property
    def report(self) -> Path:
        """Where the report is written."""
        return self.folder / REPORT

    def save(self) -> Path:
        """Write the verdicts and the report to the folder and return the report's path."""
        from bentpipe.pages import write_page
        from bentpipe.reproduction.report import report_page

        self.folder.mkdir(parents=True, exist_ok=True)
        files.write_json(self.folder / VERDICTS, {**self.about, "items": self.rows()})
        return write_page(self.report, report_page(self))


def reproduce(
    names: Sequence[str | Path],
    *,
    out: str | Path,
    quick: bool = False,
    only: Sequence[str] = (),
    jobs: int | None = None,
    told: Teller | None = None,
) -> list[Reproduction]:
    """Simulate what the papers printed, judge it, and write a report of each below `out`.

    `quick`: fewer and shorter runs, said wherever results are shown; `only`: these tables, claims and figures
    alone, by their ids. Runs are kept in `out` and none is
    simulated twice, so that an interrupted reproduction goes on there. Raises `UsageError` and
    `ScenarioError` before anything runs.
    """
    jobs = checked_jobs(jobs)
    chosen = [load_paper(name) for name in names]
    if only:
        known = [each for paper in chosen for each in paper.ids]
        for each in only:
            if each not in known:
                raise UsageError(f"--only {each}: there is none of that id; allowed: {', '.join(known)}")
        chosen = [paper.only(only) for paper in chosen]
    planned = [plan(paper, quick=quick) for paper in chosen]
    folder = Path(out)
    start = time.monotonic()
    with _opened(folder):
        library = Library(folder / RUNS)
        simulated = simulate([cell for cells in planned for cell in cells.values()], library, jobs, told)
    elapsed = time.monotonic() - start
    found = []
    for paper, cells in zip(chosen, planned, strict=True):
        wanted = {(cell.digest, seed): cell for cell in cells.values() for seed in cell.seeds}
        about = {
            "paper": paper.name,
            "version": _core.__version__,
            "date": datetime.now(UTC).date().isoformat(),
            "quick": quick,
            "runs": len(wanted),
            "simulated_seconds": sum(
                each.scenario.duration + each.scenario.warmup for each in wanted.values()
            ),
            "new_runs": simulated,
            "elapsed_seconds": round(elapsed, 1),
        }
        name = paper.name + ("-part" if only else "") + ("-quick" if quick else "")
        made = Reproduction(paper, Judged(paper, cells, library), folder / name, quick, about)
        made.save()
        found.append(made)
    return found


@contextmanager
def _opened(folder: Path) -> Iterator[None]:
    """Make the folder, or see that it is a reproduction's, and keep others from writing to it."""
    try:
        if folder.is_dir() and any(folder.iterdir()):
            manifest = None
            with suppress(OSError, ValueError):
                manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
            if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
                raise UsageError(
                    f"{folder}: exists already and is not a reproduction's; choose another folder"
                )
        else:
            folder.mkdir(parents=True, exist_ok=True)
            files.write_json(folder / MANIFEST, {"format": FORMAT, "format_version": 1})
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        for partial in folder.glob(f"{RUNS}/*/*/{files.PARTIAL}*"):
            shutil.rmtree(partial, ignore_errors=True)
        yield
    except BlockingIOError:
        raise UsageError(f"{folder}: another Bentpipe is writing to this folder") from None
    finally:
        os.close(handle)
