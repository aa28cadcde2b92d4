"""Rules for the recommendation and its confidence, from the values of runs on hold-out seeds."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bentpipe.advice.judge import MARGIN, MEAN, WORST, Rule
from bentpipe.format import and_list, brief, number, percent, plural, uncapitalized
from bentpipe.stats.differences import NOTHING_SEEN
from bentpipe.stats.intervals import LEVEL, Summary, holm, paired, summarise
from bentpipe.stats.metrics import Metric, named_metric
from bentpipe.stats.objectives import Judged, Limit, Objective, Values, objectives_from
from bentpipe.stats.ranking import BEHIND_PEP
from bentpipe.stats.services import Service
from bentpipe.tuning.holdout import Samples, means, winners

__all__ = [
    "CLOSE",
    "Candidate",
    "Cell",
    "Change",
    "Decision",
    "decide",
    "rows",
    "sentences",
]

_TOLD = 3
"""Metrics in the first sentence; the table has the others."""
CLOSE = 0.9
"""Share of resamples below which the choice is called close."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A setting that may be recommended."""

    name: str
    """Name of the setting."""
    algorithm: str
    role: Literal["tuned", "as it is", "present", "reference"]
    """Role: tuned, with defaults, present setting, or DropTail."""
    table: Mapping[str, str] = field(default_factory=dict)
    """Contents of the setting's table, as TOML; empty if it needs none."""
    searched: Mapping[str, float | None] = field(default_factory=dict)
    """Values in the search, by metric."""
    trials: int = 0
    """Number of points searched."""
    behind_pep: bool = False
    """True if it drops packets that their senders deem delivered."""
    tail_drop: str = ""
    """Place of its drops behind a PEP, if it has no AQM; empty otherwise."""
    warnings: tuple[str, ...] = ()
    python: str = ""
    """Class of an AQM written in Python, `mypkg.MyAqm`; scenario files cannot name such an AQM."""

    @property
    def parameters(self) -> int:
        """Number of parameters to set."""
        return sum(1 for key in self.table if key not in {"algorithm", "scheduler", "preset"})

    @property
    def toml(self) -> str:
        """Table of the setting; empty if it needs none."""
        lines = [] if self.python else [f"{key} = {value}" for key, value in self.table.items()]
        return "\n".join([f"[setting.{json.dumps(self.name, ensure_ascii=False)}]", *lines]) if lines else ""

    @property
    def override(self) -> str:
        """Setting as an override; empty if it needs none."""
        return f"setting.{json.dumps(self.name, ensure_ascii=False)}={self.inline}" if self.inline else ""

    @property
    def inline(self) -> str:
        """Table on one line, as in a scenario; empty if it needs none."""
        inside = ", ".join(f"{key} = {value}" for key, value in self.table.items())
        return f"{{ {inside} }}" if inside and not self.python else ""

    @property
    def values(self) -> dict[str, str]:
        """Values of the parameters, without quotes."""
        return {key: value.strip('"') for key, value in self.table.items() if key != "algorithm"}


def _is_certain(found: Summary | None, p: float | None) -> bool:
    return found is not None and bool(found.mean) and p is not None and p <= LEVEL


@dataclass(frozen=True, slots=True)
class Cell:
    """One metric of one candidate."""

    searched: float | None
    found: Summary
    """Mean over the hold-out runs."""
    behind: Summary | None
    """Paired difference from the candidate with the best mean; None for that candidate, or without values."""
    p_holm: float | None = None
    best: str | None = None
    """Candidate with the best mean; None without a better direction."""

    @property
    def certain(self) -> bool:
        """True if the difference from the best is significant."""
        return _is_certain(self.behind, self.p_holm)


@dataclass(frozen=True, slots=True)
class Change:
    """One metric of the recommendation compared with the current setting."""

    metric: Metric
    before: float | None
    after: float | None
    found: Summary
    """Paired difference."""
    p_holm: float | None

    @property
    def certain(self) -> bool:
        """True if the difference is significant."""
        return _is_certain(self.found, self.p_holm)

    @property
    def words(self) -> str:
        """Size of the change: `−42 %, 95 % interval −45 to −39`."""
        return _by(self).strip(" ()")

    def relative(self, value: float | None) -> float | None:
        """Return a difference as a share of the former value [%]; None if that is zero."""
        return None if value is None or not self.before else 100 * value / abs(self.before)


@dataclass(frozen=True, slots=True)
class Decision:
    """Conclusion from the hold-out runs."""

    answer: str
    """Recommended candidate."""
    first: str
    """First candidate by the rule; differs from `answer` only if the two cannot be distinguished."""
    alike: tuple[str, ...]
    """Candidates that cannot be distinguished from the first."""
    order: tuple[Judged, ...]
    shares: Mapping[str, float]
    """Share of paired resamples of the hold-out seeds in which each candidate is first."""
    cells: Mapping[str, Mapping[str, Cell]]
    """Cells by candidate and metric."""
    changes: tuple[Change, ...]
    """Changes from the current setting to the recommendation; empty if they are the same, or without one."""
    rule: Rule
    bad: Mapping[str, tuple[Limit, ...]] = field(default_factory=dict)
    """Guards that each candidate breaks: the classes whose service it makes bad."""
    scores: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Scores of each candidate (`Rule.scores`), means over the runs."""

    def equal(self, *steps: str) -> list[str]:
        """Candidates that differ from the first in none of these scores, nor in the classes that are bad."""
        return [
            each.name
            for each in self.order
            if each.name != self.first
            and each.excess == self.order[0].excess
            and len(self.bad[each.name]) == len(self.bad[self.first])
            and all(self.rule.equal(step, self.first, each.name, self.scores) for step in steps)
        ]

    def worst(self, name: str) -> Service | None:
        """Return the worst-served class under a candidate; None without graded classes."""
        graded = [each for each in self.rule.services if each.threshold is not None]
        return min(graded, key=lambda each: each.score(self.mean(name, each)) or 0.0, default=None)

    def mean(self, name: str, service: Service) -> float | None:
        """Return the mean of the figure of a class under a candidate."""
        return self.cells[name][service.metric.name].found.mean

    @property
    def near(self) -> list[str]:
        """Candidates with almost the power of the first, the best first, without indistinguishable ones."""
        if self.rule.by != "power":
            return []
        least = self.order[0].total
        return [
            each.name
            for each in self.order[1:]
            if each.excess == 0 and each.name not in self.alike and least >= (1 - MARGIN) * each.total
        ]

    @property
    def kept(self) -> bool:
        """True if the recommendation meets all limits."""
        return next(each.excess for each in self.order if each.name == self.answer) == 0

    @property
    def rivals(self) -> list[tuple[str, float]]:
        """Other candidates that are first in at least 1 % of the resamples, the likeliest first."""
        found = [(name, share) for name, share in self.shares.items() if name != self.first and share >= 0.01]
        return sorted(found, key=lambda each: -each[1])


def decide(
    candidates: Sequence[Candidate], samples: Samples, rule: Rule, shown: Sequence[str] = ()
) -> Decision:
    """Decide from `samples`, the hold-out runs by candidate and metric, with the same seeds for all.

    A candidate is indistinguishable from the first if the first wins fewer than nine resamples of ten, and if
    their paired difference is not significant after Holm's correction: that of the power (and the scores are
    equal, if classes judge), or those of all objectives, where differences within the margin do not count. Of
    the indistinguishable candidates with the smallest excess over the limits, the one with the fewest
    parameters to set is recommended; the current setting and DropTail come first.
    """
    by_name = {each.name: each for each in candidates}
    known = {name: samples[name] for name in by_name}
    if rule.by == "classes":
        known = rule.with_scores(known)
        rule = rule.judging(known)
    order = rule.judge(means(known))
    first = order[0].name
    excess = {each.name: each.excess for each in order}
    averages = means(known)
    bad = {name: tuple(rule.broken(averages[name])) for name in by_name}
    shares = winners(known, rule.judge)
    alike = [
        name
        for name in (_alike if rule.by == "rank" else _same_power)(known, first, rule)
        if excess[name] <= excess[first] and len(bad[name]) <= len(bad[first]) and shares[first] < CLOSE
    ]
    scores = rule.scores(averages) if rule.by == "classes" else {}
    if scores:
        alike = [
            name for name in alike if all(rule.equal(step, first, name, scores) for step in (WORST, MEAN))
        ]
    answer = min([first, *alike], key=lambda name: (_burden(by_name[name]), name != first))
    judged_by = rule.metrics
    metrics = list(dict.fromkeys([*judged_by, *shown]))
    present = next((each.name for each in candidates if each.role == "present"), None)
    return Decision(
        answer,
        first,
        tuple(alike),
        tuple(order),
        shares,
        _cells(by_name, known, rule.objectives, metrics),
        () if present in {None, answer} else _changes(known, answer, str(present), metrics),
        rule,
        bad,
        scores,
    )


def _burden(candidate: Candidate) -> tuple[int, int]:
    """Return the effort of a candidate: none for the current setting, else its parameters to set."""
    place = {"present": 0, "reference": 1}.get(candidate.role, 2)
    return place, candidate.parameters


def _same_power(samples: Samples, first: str, rule: Rule) -> list[str]:
    def powers(name: str) -> list[float | None]:
        mine = samples[name]
        totals = [rule.inverse(dict(zip(mine, row, strict=True))) for row in zip(*mine.values(), strict=True)]
        return [total if math.isfinite(total) else None for total in totals]

    best = powers(first)
    others = [name for name in samples if name != first]
    found = [paired(powers(name), best) for name in others]
    corrected = holm([each.p for each in found])
    # A candidate without a value in any common run is certainly different.
    return [
        name
        for name, each, p in zip(others, found, corrected, strict=True)
        if each.mean is not None and (each.mean == 0 or (p is not None and p > LEVEL))
    ]


def _alike(samples: Samples, first: str, rule: Rule) -> list[str]:
    others = [name for name in samples if name != first]
    tests = [
        (name, paired(samples[name][each.metric], samples[first][each.metric]), each.metric)
        for name in others
        for each in rule.objectives
    ]
    corrected = holm([found.p for _, found, _ in tests])
    apart: set[str] = set()
    averages = means(samples)
    for (name, found, metric), p in zip(tests, corrected, strict=True):
        a, b = averages[name][metric], averages[first][metric]
        if a is None and b is None:
            continue
        if a is None or b is None or found.mean is None:
            apart.add(name)
            continue
        seen = p is None or p <= LEVEL
        if abs(a - b) > MARGIN * max(abs(a), abs(b)) and seen:
            apart.add(name)
    return [name for name in others if name not in apart]


def _cells(
    candidates: Mapping[str, Candidate],
    samples: Samples,
    objectives: Sequence[Objective],
    metrics: Sequence[str],
) -> dict[str, dict[str, Cell]]:
    # Metrics shown beside the objectives have a direction too, if they rank settings.
    extra = [name for name in metrics if named_metric(name, "advice").better]
    ways = {each.metric: each for each in (*objectives_from(extra or ["throughput"]), *objectives)}
    averages = means(samples)
    found: dict[tuple[str, str], Summary | None] = {}
    bests: dict[str, str | None] = {}
    for metric in metrics:
        way = ways.get(metric)
        bests[metric] = best = _best(averages, way) if way else None
        for name in samples:
            theirs = None if best in {None, name} else samples[str(best)][metric]
            found[name, metric] = None if theirs is None else paired(samples[name][metric], theirs)
    corrected = dict(zip(found, holm([each.p if each else None for each in found.values()]), strict=True))
    return {
        name: {
            metric: Cell(
                candidates[name].searched.get(metric),
                summarise(samples[name][metric]),
                found[name, metric],
                corrected[name, metric],
                bests[metric],
            )
            for metric in metrics
        }
        for name in samples
    }


def _best(averages: Values, way: Objective) -> str | None:
    sign = 1.0 if way.direction == "max" else -1.0
    known = {name: value for name, mine in averages.items() if (value := mine[way.metric]) is not None}
    return max(known, key=lambda name: sign * known[name]) if known else None


def _changes(samples: Samples, answer: str, present: str, metrics: Sequence[str]) -> tuple[Change, ...]:
    found = [paired(samples[answer][metric], samples[present][metric]) for metric in metrics]
    averages = means(samples)
    return tuple(
        Change(named_metric(metric, "advice"), averages[present][metric], averages[answer][metric], each, p)
        for metric, each, p in zip(metrics, found, holm([each.p for each in found]), strict=True)
        if each.mean is not None
    )


def sentences(decision: Decision, candidates: Sequence[Candidate], runs: int) -> dict[str, list[str]]:
    """Return the decision as sentences: `headline`, `answer`, `reason`, `sure`, `costs` and `warnings`."""
    by_name = {each.name: each for each in candidates}
    return {
        "headline": [_headline(by_name[decision.answer])],
        "answer": _answer(decision, by_name),
        "reason": _reason(decision),
        "sure": _sure(decision, by_name, runs),
        "costs": _costs(decision),
        "warnings": _warnings(candidates),
    }


def _answer(decision: Decision, candidates: Mapping[str, Candidate]) -> list[str]:
    mine = candidates[decision.answer]
    present = next((each for each in candidates.values() if each.role == "present"), None)
    head = _headline(mine)
    before, lines = _service(decision)
    if not decision.kept:
        bounds = and_list(map(str, decision.rule.limits))
        lines.append(
            f"It misses {bounds}, because every candidate that meets it serves a class badly."
            if any(each.excess == 0 for each in decision.order)
            else f"No candidate meets {bounds}; {decision.answer} comes nearest."
        )
    if present is None or not decision.changes:
        others = [name for name in candidates if name != mine.name]
        lines.insert(0, f"{head}: none of {plural(len(others), 'other candidate')} is better.")
        return before + lines
    parts = "; ".join(_change(each) for each in decision.changes[:_TOLD])
    lines.insert(0, f"{head}. Against {present.name}, the current setting: {parts}.")
    return before + lines


def _reason(decision: Decision) -> list[str]:
    """Write which step of the judge of classes decided; empty for other judges."""
    first = decision.first
    worst = decision.worst(first)
    if not decision.scores or worst is None or len(decision.order) < 2:
        return []
    mine = _served(decision, first, worst)
    only = sum(each.threshold is not None for each in decision.rule.services) == 1
    equal, both = decision.equal(WORST), decision.equal(WORST, MEAN)
    if both and only:
        return [
            f"{and_list([first, *both])} cannot be told apart by how they serve {worst.traffic_class}. Of"
            f" these, {first}, with {mine}, has the highest power, throughput over response time."
        ]
    if both:
        return [
            f"{and_list([first, *both])} cannot be told apart by how they serve the classes; the worst-served"
            f" class of {first} is {mine}. Of these, {first} has the highest power, throughput over response"
            " time."
        ]
    if equal:
        return [
            f"{and_list([first, *equal])} cannot be told apart by their worst-served class, which is {mine}"
            f" under {first}. Of these, {first} serves the classes best on average."
        ]
    next_best = max((each.name for each in decision.order[1:]), key=lambda name: decision.scores[name][WORST])
    if (
        len(decision.bad[next_best]) > len(decision.bad[first])
        or (theirs := decision.worst(next_best)) is None
    ):
        return [f"The worst-served class of {first} is {mine}."]
    if only:
        return [
            f"{first} serves {mine} best; {next_best} comes next with {_served(decision, next_best, theirs)}."
        ]
    return [
        f"The worst-served class of {first} is {mine}. Every other candidate serves its worst class worse;"
        f" {next_best} comes next with {_served(decision, next_best, theirs)}."
    ]


def _served(decision: Decision, name: str, service: Service) -> str:
    """Write a class with its figure and grade under a candidate: `voice (MOS 3.62, fair)`."""
    value = decision.mean(name, service)
    label = _lower(service.metric).rpartition(": ")[2]
    figure = f"{label} {_brief(value)} {service.metric.unit}".rstrip()
    return f"{service.traffic_class} ({figure}, {service.grade(value) or 'no value'})"


def _service(decision: Decision) -> tuple[list[str], list[str]]:
    """Write which classes are served badly: by every candidate, and by some."""
    mine = decision.bad.get(decision.answer, ())
    by_all, by_some = list[str](), list[str]()
    for guard in mine:
        what = f"{_class(guard)} well ({_cause(decision, decision.answer, guard)})"
        if all(guard in others for others in decision.bad.values()):
            by_all.append(
                f"No candidate serves {what}. More capacity, fewer subscribers, a plan for each subscriber or"
                " another scheduler may help."
            )
        else:
            by_some.append(
                f"It does not serve {what}, but every other candidate fails at least as many classes."
            )
    worse = [
        f"{name} ({', '.join(_class(guard) for guard in guards)})"
        for name, guards in decision.bad.items()
        if len(guards) > len(mine)
    ]
    if worse:
        by_some.append(f"Not advised, since they serve a class badly: {', '.join(worse)}.")
    return by_all, by_some


def _class(guard: Limit) -> str:
    return guard.metric.rpartition(".")[0]


def _cause(decision: Decision, name: str, guard: Limit) -> str:
    """Write the value of a candidate that breaks a guard, and the guard."""
    metric, sign = guard.known, "above" if guard.sign == "<=" else "below"
    unit = f" {metric.unit}" if metric.unit else ""
    value = _brief(decision.cells[name][guard.metric].found.mean)
    return f"{_lower(metric)} {value}{unit}, bad {sign} {guard.bound:g}{unit}"


def _headline(candidate: Candidate) -> str:
    if candidate.role == "present":
        return f"Keep {candidate.name}, the current setting"
    if candidate.role == "reference":
        return "Use no AQM (droptail)"
    if candidate.table:
        return f"Use {candidate.algorithm} with {_listed(candidate)}"
    return f"Use {candidate.name} with its defaults"


def _listed(candidate: Candidate) -> str:
    parts = [f"{key} = {value}" for key, value in candidate.table.items() if key != "algorithm"]
    return ", ".join(parts) or "its defaults"


def _change(change: Change) -> str:
    unit = f" {change.metric.unit}" if change.metric.unit else ""
    return f"{_lower(change.metric)} {_brief(change.before)} → {_brief(change.after)}{unit}{_by(change)}"


def _by(change: Change) -> str:
    """Write the size of a change, in parentheses."""
    if not change.certain:
        return f" ({NOTHING_SEEN})"
    middle, low, high = (
        change.relative(each) for each in (change.found.mean, change.found.low, change.found.high)
    )
    if middle is None or low is None or high is None:
        return ""
    if abs(middle) > 900:
        return f" (× {brief(1 + middle / 100, 2)})"
    # As many decimals as the interval justifies, at most one for large changes.
    decimals = max(0, min(1 if abs(middle) >= 10 else 2, -math.floor(math.log10((high - low) / 2 or 1))))
    ends = f"95 % interval {_signed(low, decimals)} to {_signed(high, decimals)}"
    return f" ({_signed(middle, decimals)} %, {ends})"


def _brief(value: float | None) -> str:
    return "–" if value is None else brief(value, 4)


def _signed(value: float, decimals: int) -> str:
    return f"{'+' if value > 0 else ''}{number(value, decimals)}"


def _lower(metric: Metric) -> str:
    of, colon, label = metric.label.removesuffix(", mean").rpartition(": ")
    return of + colon + uncapitalized(label)


def _sure(decision: Decision, candidates: Mapping[str, Candidate], runs: int) -> list[str]:
    share = decision.shares[decision.first]
    lines = [
        f"{decision.first} is first in {percent(share)} of the resamples of {plural(runs, 'fresh seed')}"
        + "".join(f", {name} in {percent(other)}" for name, other in decision.rivals[:3])
        + "."
    ]
    if decision.answer != decision.first:
        mine, other = candidates[decision.answer], candidates[decision.first]
        why = (
            "is the current setting"
            if mine.role == "present"
            else "needs no AQM"
            if mine.role == "reference"
            else f"has fewer parameters to set ({mine.parameters} against {other.parameters})"
        )
        lines.append(
            f"{decision.answer} cannot be told apart from it in what is judged, and {why}: so that is"
            " advised."
        )
    rest = [name for name in decision.alike if name != decision.answer]
    if rest:
        lines.append(
            f"Nor can {and_list(rest)} be told apart from {decision.first}."
            if decision.answer != decision.first
            else f"{and_list(rest)} cannot be told apart from it in what is judged, but"
            f" {'is' if len(rest) == 1 else 'are'} no simpler."
        )
    if decision.near:
        lines.append(
            f"Almost as good, with a power at most {100 * MARGIN:g} % lower: {', '.join(decision.near)}."
        )
    close = [name for name, other in decision.rivals if other >= 0.05 and name not in decision.alike]
    if share < CLOSE and close:
        lines.append(
            f"A close call: {and_list([decision.first, *close])} are good at different things, and"
            " which one is first changes with the seeds. Look at the metric that matters most to you."
        )
    return lines


def _costs(decision: Decision) -> list[str]:
    """Write what the recommendation costs against the best in each metric, if that is significant."""
    parts = []
    for name, cell in decision.cells[decision.answer].items():
        if cell.best is None or not cell.certain:
            continue
        metric, best = named_metric(name, "advice"), decision.cells[cell.best][name].found.mean
        unit = f" {metric.unit}" if metric.unit else ""
        parts.append(
            f"{_lower(metric)} {_brief(cell.found.mean)} against {_brief(best)}{unit} of {cell.best}"
        )
    return [f"What it costs against the best in each metric: {'; '.join(parts)}."] if parts else []


def _warnings(candidates: Sequence[Candidate]) -> list[str]:
    lines = []
    behind = [each.name for each in candidates if each.behind_pep]
    if behind:
        lines.append(f"{', '.join(behind)}: {BEHIND_PEP}.")
    by_warning: dict[str, list[str]] = {}
    for each in candidates:
        for warning in each.warnings:
            by_warning.setdefault(warning, []).append(each.name)
    for warning, names in by_warning.items():
        everywhere = len(names) == len(candidates)
        lines.append(warning if everywhere else f"{', '.join(names)}: {warning}")
    return lines


def rows(decision: Decision, candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
    """Return the candidates in the judge's order, ready for JSON."""
    by_name = {each.name: each for each in candidates}
    grades = {each.metric.name: each for each in decision.rule.services}
    found = []
    for place in decision.order:
        mine = by_name[place.name]
        found.append(
            {
                "setting": mine.name,
                "algorithm": mine.algorithm,
                "role": mine.role,
                "place": place.place,
                "rank_sum": place.total if decision.rule.by == "rank" else None,
                "ranks": place.ranks,
                "power": 1 / place.total if decision.rule.by != "rank" and place.total else None,
                "worst_score": decision.scores.get(mine.name, {}).get(WORST),
                "mean_score": decision.scores.get(mine.name, {}).get(MEAN),
                "worst_class": worst.traffic_class if (worst := decision.worst(mine.name)) else None,
                "bad": [_class(guard) for guard in decision.bad.get(mine.name, ())],
                "outside_limits": place.excess if math.isfinite(place.excess) else None,
                "first_in": decision.shares[mine.name],
                "alike": mine.name in decision.alike,
                "behind_pep": mine.behind_pep,
                "tail_drop": mine.tail_drop,
                "trials": mine.trials,
                "table": dict(mine.table),
                "metrics": {
                    metric: {
                        "searched": cell.searched,
                        "mean": cell.found.mean,
                        "ci95": cell.found.ci95,
                        "ci_low": cell.found.low,
                        "ci_high": cell.found.high,
                        "runs": cell.found.runs,
                        "behind_best": cell.behind.mean if cell.behind else None,
                        "behind_low": cell.behind.low if cell.behind else None,
                        "behind_high": cell.behind.high if cell.behind else None,
                        "p_holm": cell.p_holm,
                        "certain": cell.certain,
                        "grade": grades[metric].grade(cell.found.mean) if metric in grades else None,
                    }
                    for metric, cell in decision.cells[mine.name].items()
                },
            }
        )
    return found
