"""Reproduction of papers, claim by claim: simulates their experiments and computes verdicts by rules.

A paper is data (`bentpipe.reproduction.paper`); docs/reproduce-data.md describes how to write it.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from bentpipe import _core, files
from bentpipe.errors import UsageError
from bentpipe.reproduction.paper import resolve_ids, select
from bentpipe.reproduction.reading import load_paper, papers
from bentpipe.reproduction.report import Reproduction
from bentpipe.reproduction.runs import Library, PaperRuns, Simulation
from bentpipe.reproduction.verdicts import Verdicts
from bentpipe.runs.experiment import checked_jobs
from bentpipe.runs.store import core_digest
from bentpipe.runs.workers import OnProgress

__all__ = ["MANIFEST", "Reproduction", "load_paper", "papers", "reproduce"]

_FORMAT = {"format": "bentpipe-reproduction", "format_version": 1}
MANIFEST = "reproduction.json"
RUNS = "runs"


def reproduce(
    names: Sequence[str | Path],
    *,
    out: str | Path,
    quick: bool = False,
    only: Sequence[str] = (),
    jobs: int | None = None,
    on_progress: OnProgress = lambda *_: None,
) -> list[Reproduction]:
    """Simulate the experiments of papers, compute the verdicts, and write a report of each below `out`.

    `quick`: fewer and shorter runs; results are marked. `only`: ids of the tables, claims and figures to
    reproduce, or their printed numbers as `Figure 4.5`. Runs are stored in `out` and never repeated, so an
    interrupted reproduction continues. Raises `UsageError` and `ScenarioError` before anything runs.
    """
    jobs = checked_jobs(jobs)
    chosen = [load_paper(name) for name in names]
    taken = {RUNS}
    for paper in chosen:
        if paper.name in taken:
            raise UsageError(
                f"{paper.folder}: its report's folder would be {Path(out) / paper.name}, which is taken;"
                " rename the paper's folder"
            )
        taken.add(paper.name)
    ids = resolve_ids(chosen, only) if only else [name for paper in chosen for name in paper.ids]
    # Even of a whole paper, only runs that are judged or drawn are needed.
    chosen = [select(paper, ids) for paper in chosen if not set(ids).isdisjoint(paper.ids)]
    folder = Path(out)
    library = Library(folder / RUNS)
    simulation = Simulation(chosen, library, jobs, on_progress, quick=quick)
    start = time.monotonic()
    with _opened(folder):
        found = simulation.run()
        elapsed = round(time.monotonic() - start, 1)
        made = []
        for each in found:
            name = each.paper.name + ("-part" if only else "") + ("-quick" if quick else "")
            about = {
                "paper": each.paper.name,
                "version": _core.__version__,
                "core": core_digest(),
                "date": datetime.now(UTC).date().isoformat(),
                "quick": quick,
                **_cost(each),
                "new_runs": simulation.new_runs,
                "elapsed_seconds": elapsed,
            }
            ranked = {one.experiment: [trial.aqm for trial in one.again] for one in each.tuned}
            verdicts = Verdicts(each.paper, each.cases, library, ranked)
            made.append(Reproduction(each.paper, verdicts, folder / name, quick, about, each.tuned))
            made[-1].save()
        return made


def _cost(found: PaperRuns) -> dict[str, float]:
    """Return the number of runs, their simulated time, and the number of solved models."""
    every = {
        (case.digest, seed): case for case in (*found.trials, *found.cases.values()) for seed in case.seeds
    }
    runs = [case.scenario for case in every.values() if not case.fluid]
    return {
        "runs": len(runs),
        "simulated_seconds": sum(each.duration + each.warmup for each in runs),
        "solutions": len(every) - len(runs),
    }


@contextmanager
def _opened(folder: Path) -> Iterator[None]:
    """Create the folder, or check that it is a reproduction's, and lock it."""
    try:
        files.make_folder(folder)
        handle = files.lock(folder)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None
    try:
        # A full disk may have left an empty folder.
        if files.is_empty(folder):
            files.write_json(folder / MANIFEST, _FORMAT)
        elif _manifest(folder) != _FORMAT:
            raise UsageError(f"{folder}: not the folder of a reproduction; choose another folder")
        files.remove_partials(folder)
        yield
    finally:
        os.close(handle)


def _manifest(folder: Path) -> object:
    with suppress(OSError, ValueError):
        return json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return None
