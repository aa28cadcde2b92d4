"""A part of a paper: what people call its tables, claims and figures, and what those need simulated."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bentpipe.errors import UsageError
from bentpipe.reproduction.kinds import FIRST_RUN
from bentpipe.reproduction.paper import FIELD, Check, Claim, Experiment, Paper, Picture, Printed, Said

__all__ = ["called", "part"]


def called(papers: Sequence[Paper], texts: Sequence[str]) -> list[str]:
    """Return the ids that are meant by `texts`: `figure-4.5`, `Figure 4.5` and `4.5` mean the same.

    Raises `UsageError` for a text that means none, or several.
    """
    ids = {_plain(name): name for paper in papers for name in paper.ids}
    spoken: dict[str, dict[str, None]] = {}
    for paper in papers:
        tables = [(table.where, table.name) for table in paper.tables if not table.beside]
        for where, name in [*tables, *((each.where, each.name) for each in paper.shown)]:
            for text in (where, where.partition(" ")[2]):
                spoken.setdefault(_plain(text), {})[name] = None
    found: dict[str, None] = {}
    for text in texts:
        plain = _plain(text)
        meant = [ids[plain]] if plain in ids else list(spoken.get(plain, {}))
        if not meant:
            raise UsageError(f"--only {text}: there is none of that id; allowed: {_allowed(papers)}")
        if len(meant) > 1:
            raise UsageError(f"--only {text}: there are several; allowed: {', '.join(meant)}")
        found[meant[0]] = None
    return list(found)


def _plain(text: str) -> str:
    """Return what is left of an id when it does not matter how people write it: `fig. 4.5` is figure-4-5."""
    words = re.split(r"[\s._-]+", text.strip().lower())
    return "-".join("figure" if word == "fig" else word for word in words if word)


def _allowed(papers: Sequence[Paper]) -> str:
    """Return all ids, of a range of figures the first and the last."""
    parts = []
    for paper in papers:
        shown: dict[tuple[str, ...], list[str]] = {}
        for each in paper.shown:
            shown.setdefault((each.of, each.noun, *each.by), []).append(each.name)
        parts += [names[0] if len(names) == 1 else f"{names[0]} to {names[-1]}" for names in shown.values()]
        parts += [name for name in paper.ids if name not in {each.name for each in paper.shown}]
    return ", ".join(parts)


@dataclass(slots=True)
class _Need:
    """What is needed of an experiment."""

    cases: set[str] = field(default_factory=set)
    points: set[str] = field(default_factory=set)
    runs: int = 1


def part(paper: Paper, names: Sequence[str]) -> Paper:
    """Return the paper with these tables, claims and figures alone, and of its experiments what they need.

    `names` are ids; with a printed figure comes all that answers it. The discussion keeps what can be said by
    the same runs as of the whole paper.
    """
    shown = tuple(each for each in paper.shown if each.name in names)
    wanted = {*names, *(name for each in shown for name in each.by)}
    tables = tuple(each for each in paper.tables if each.name in wanted)
    claims = tuple(each for each in paper.claims if each.name in wanted)
    pictures = tuple(each for each in paper.pictures if each.name in wanted)
    needs: dict[str, _Need] = {}
    needed = [*_needed(paper, tables, claims, pictures)]
    if wanted.issuperset(paper.ids):
        needed += [each for said in paper.said.values() for each in _compared(said.checks)]
    for name, cases, points, every in needed:
        need = needs.setdefault(name, _Need())
        need.cases |= set(cases)
        need.points |= set(points)
        need.runs = max(need.runs, paper.experiments[name].runs if every else 1)
    experiments = {
        name: _reduced(each, needs[name]) for name, each in paper.experiments.items() if name in needs
    }
    said = {name: each for name, each in paper.said.items() if _can_be_said(paper, each, tables, needs)}
    discussion = tuple(each for each in paper.discussion if said.keys() >= set(re.findall(FIELD, each)))
    return replace(
        paper,
        shown=shown,
        tables=tables,
        claims=claims,
        pictures=pictures,
        experiments=experiments,
        said=said,
        discussion=discussion,
    )


def _can_be_said(paper: Paper, said: Said, tables: Sequence[Printed], needs: Mapping[str, _Need]) -> bool:
    """Whether all runs that a number of the discussion is computed from are needed anyway."""
    return set(said.tables) <= {table.name for table in tables} and all(
        name in needs
        and needs[name].runs == paper.experiments[name].runs
        and needs[name].cases.issuperset(cases)
        and needs[name].points.issuperset(points)
        for name, cases, points, _ in _compared(said.checks)
    )


_Needed = tuple[str, Iterable[str], Iterable[str], bool]
"""Experiment, cases, points, and whether all runs are needed or the first alone."""


def _compared(checks: Sequence[Check]) -> Iterator[_Needed]:
    for check in checks:
        yield check.experiment, [check.more, check.than], check.points, True
        if check.against:
            yield check.against, [check.than], check.points, True


def _needed(
    paper: Paper, tables: Sequence[Printed], claims: Sequence[Claim], pictures: Sequence[Picture]
) -> Iterator[_Needed]:
    """Yield what tables, claims and figures need."""
    for table in tables:
        for name in table.experiments:
            yield name, table.rows, [""], True
    for claim in claims:
        yield from _compared(claim.checks)
    for picture in pictures:
        for name in picture.experiments:
            known = [point.label for point in paper.experiments[name].points]
            first = picture.kind in FIRST_RUN
            points = picture.options.get("points") or known[:1] if first else known
            yield name, [*picture.cases, *picture.than], points, not first


def _reduced(experiment: Experiment, need: _Need) -> Experiment:
    if experiment.tuning is not None:
        # Its cases are found by ranking all of them.
        return experiment
    return replace(
        experiment,
        cases=tuple(each for each in experiment.cases if each.label in need.cases),
        points=tuple(each for each in experiment.points if each.label in need.points),
        quick_points=tuple(each for each in experiment.quick_points if each in need.points),
        runs=min(experiment.runs, need.runs),
        quick_runs=min(experiment.quick_runs, need.runs),
    )
