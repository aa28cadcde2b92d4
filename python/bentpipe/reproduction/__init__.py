"""Papers, claim by claim: simulate what they printed, and say by rule what came out.

A paper is data (`bentpipe.reproduction.paper`); docs/reproduce.md says how it is written and read.
"""

import json
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from bentpipe import _core, files
from bentpipe.errors import UsageError
from bentpipe.reproduction.judged import Judged
from bentpipe.reproduction.paper import Paper
from bentpipe.reproduction.part import called, part
from bentpipe.reproduction.reading import load_paper, papers
from bentpipe.reproduction.runs import Cell, Library, Teller, plan, simulate
from bentpipe.reproduction.said import discussion
from bentpipe.reproduction.tuned import Search, Tuned, searches, with_winners
from bentpipe.runs.experiment import checked_jobs
from bentpipe.runs.store import core_digest

__all__ = ["MANIFEST", "Reproduction", "load_paper", "papers", "reproduce"]

_ABOUT = {"format": "bentpipe-reproduction", "format_version": 1}
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
    """Version of Bentpipe, digest of its core, date, runs, and simulated and elapsed time."""
    tuned: tuple[Tuned, ...] = ()
    """How the settings of tuned experiments were found."""

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
        from bentpipe.report.pages import write_page
        from bentpipe.reproduction.report import report_page

        self.folder.mkdir(parents=True, exist_ok=True)
        kept = {**self.about, "discussion": discussion(self.judged), "items": self.rows()}
        if self.tuned:
            kept["tuned"] = [each.as_row() for each in self.tuned]
        files.write_json(self.folder / VERDICTS, kept)
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
    alone, by their ids or as the paper counts them, `Figure 4.5`. Runs are kept in `out` and none is
    simulated twice, so that an interrupted reproduction goes on there. Raises `UsageError` and
    `ScenarioError` before anything runs.
    """
    jobs = checked_jobs(jobs)
    chosen = [load_paper(name) for name in names]
    taken = {RUNS}
    for paper in chosen:
        if paper.name in taken:
            raise UsageError(
                f"{paper.folder}: its report's folder would be {Path(out) / paper.name}, which is taken; give"
                " the paper's folder another name"
            )
        taken.add(paper.name)
    ids = called(chosen, only) if only else [name for paper in chosen for name in paper.ids]
    # Of all of a paper, too, nothing is simulated that is neither judged nor drawn.
    chosen = [part(paper, ids) for paper in chosen if not set(ids).isdisjoint(paper.ids)]
    planned = [plan(paper, quick=quick) for paper in chosen]
    searched = [searches(paper, quick=quick) for paper in chosen]
    folder = Path(out)
    start = time.monotonic()
    work = _Work(Library(folder / RUNS), jobs, told or (lambda *_: None))
    with _opened(folder):
        tuned_papers = work.all(chosen, searched, planned, quick=quick)
        elapsed = time.monotonic() - start
        found = []
        for paper, tuned, tried, cells in tuned_papers:
            every = {(cell.digest, seed): cell for cell in (*tried, *cells.values()) for seed in cell.seeds}
            wanted = {key: cell for key, cell in every.items() if not cell.fluid}
            about = {
                "paper": paper.name,
                "version": _core.__version__,
                "core": core_digest(),
                "date": datetime.now(UTC).date().isoformat(),
                "quick": quick,
                "runs": len(wanted),
                "simulated_seconds": sum(
                    each.scenario.duration + each.scenario.warmup for each in wanted.values()
                ),
                "solutions": len(every) - len(wanted),
                "new_runs": work.simulated,
                "elapsed_seconds": round(elapsed, 1),
            }
            name = paper.name + ("-part" if only else "") + ("-quick" if quick else "")
            judged = Judged(paper, cells, work.library)
            made = Reproduction(paper, judged, folder / name, quick, about, tuned)
            made.save()
            found.append(made)
    return found


_Cells = dict[tuple[str, str, str], Cell]


class _Work:
    """Simulates what papers need: what does not hang on results first, then what they choose."""

    def __init__(self, library: Library, jobs: int, told: Teller) -> None:
        self.library = library
        self.simulated = 0
        self._jobs = jobs
        self._told = told
        self._done = 0

    def all(
        self,
        papers: Sequence[Paper],
        searched: Sequence[Sequence[Search]],
        planned: Sequence[_Cells],
        *,
        quick: bool,
    ) -> list[tuple[Paper, tuple[Tuned, ...], list[Cell], _Cells]]:
        """Return each paper with its experiments tuned, how they were, what that took, and its cells."""
        every = [search for some in searched for search in some]
        given, later = list[Cell](), list[Cell]()
        for paper, cells in zip(papers, planned, strict=True):
            for cell in cells.values():
                (given if paper.experiments[cell.experiment].tuning is None else later).append(cell)
        # An interrupted one may have come further than to what is simulated first.
        decided = [self._decided(each) for each in every]
        second = sum(self._there(cells) for cells, _ in decided)
        third = sum(self._there(cells) for _, cells in decided)
        first = [*given, *(cell for each in every for cell in each.first)]
        self._simulate(first, second + third, sum(each.runs_again for each in every) + _runs(later))
        again = {id(each): each.again(self.library) for each in every}
        self._simulate([cell for cells in again.values() for cell in cells], third, _runs(later))
        made, last = [], list[Cell]()
        for paper, some, cells in zip(papers, searched, planned, strict=True):
            tuned = tuple(each.tuned(again[id(each)], self.library) for each in some)
            tried = [cell for each in some for cell in (*each.first, *again[id(each)])]
            final = with_winners(paper, tuned)
            # Those that are not tuned have been planned.
            known = cells if not some else plan(final, quick=quick)
            last += [cell for cell in known.values() if final.experiments[cell.experiment].tuning is not None]
            made.append((final, tuned, tried, known))
        self._simulate(last)
        return made

    def _decided(self, search: Search) -> tuple[list[Cell], list[Cell]]:
        """Return what runs again and what runs last, as far as the runs that are there decide it."""
        if self._there(search.first) < _runs(search.first):
            return [], []
        again = search.again(self.library)
        if self._there(again) < _runs(again):
            return again, []
        return again, search.last(search.tuned(again, self.library))

    def _there(self, cells: Sequence[Cell]) -> int:
        return len(
            {(cell.digest, seed) for cell in cells for seed in cell.seeds if self.library.has(cell, seed)}
        )

    def _simulate(self, cells: Sequence[Cell], ahead: int = 0, wanted_later: int = 0) -> None:
        """Simulate cells, and say where it is; `ahead` of the runs `wanted_later` are there already."""
        if not cells:
            return
        before = self._done

        def told(done: int, wanted: int, failed: int) -> None:
            self._done = before + done
            self._told(self._done + ahead, before + wanted + wanted_later, failed)

        self.simulated += simulate(cells, self.library, self._jobs, told)


def _runs(cells: Sequence[Cell]) -> int:
    return len({(cell.digest, seed) for cell in cells for seed in cell.seeds})


@contextmanager
def _opened(folder: Path) -> Iterator[None]:
    """Make the folder, or see that it is a reproduction's, and keep others from writing to it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = files.lock(folder)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None
    try:
        # A full disk may have left nothing but the folder.
        if files.is_empty(folder):
            files.write_json(folder / MANIFEST, _ABOUT)
        elif _manifest(folder) != _ABOUT:
            raise UsageError(f"{folder}: exists already and is not a reproduction's; choose another folder")
        files.remove_partials(folder)
        yield
    finally:
        os.close(handle)


def _manifest(folder: Path) -> object:
    with suppress(OSError, ValueError):
        return json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    return None
