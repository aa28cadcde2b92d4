"""The figure by which the users of each class of traffic judge their service, its grade and its score."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from bentpipe.format import and_list, number
from bentpipe.qoe.thresholds import Grade, Limits, Threshold, of_scenario
from bentpipe.stats.class_metrics import class_metric
from bentpipe.stats.experience import GRADED
from bentpipe.stats.intervals import Summary, paired
from bentpipe.stats.recorded import Metric, Traffic

__all__ = ["Served", "Service", "findings", "scored", "served", "services", "verdict"]

_FIGURES: Mapping[str, tuple[str, str | None]] = {
    **{kind: GRADED[kind] for kind in ("voip", "dash")},
    "game": ("lost_or_late", "game.loss"),
    "iot": ("lost_or_late", "iot.loss"),
    **{kind: GRADED[kind] for kind in ("rendered pages", "pages")},
    "probe": ("rpm", "responsiveness"),
    "files": ("fct_p95", "download.time"),
    "bulk": ("flow_goodput", None),
}
"""Metric of a class and measure of its thresholds, by kind of traffic, in the order of precedence."""
_PACKETS = ("loss_rate", "game.loss")
"""The same for packets of an unknown application, which may bear any delay but hardly any loss."""


class Graded(Protocol):
    """A result with classes of traffic, as `bentpipe.Result`."""

    @property
    def traffic(self) -> list[tuple[str, str, str]]:
        """Name, class and kind of each traffic entry."""

    @property
    def thresholds(self) -> Limits:
        """Limits of good and bad that the scenario sets."""

    @property
    def settings(self) -> list[str]:
        """Names of the settings."""

    def values(self) -> dict[str, dict[str, list[float | None]]]:
        """Return every metric of every setting: one value per seed."""

    def summary(self, setting: str, metric: str) -> Summary:
        """Return the mean of a metric of a setting with its interval."""


@dataclass(frozen=True, slots=True)
class Service:
    """A class of traffic, and the figure by which its users judge it."""

    traffic_class: str
    metric: Metric
    threshold: Threshold | None
    """None if the figure has no grades, as the goodput of an endless transfer."""

    def grade(self, value: float | None) -> Grade | None:
        """Return the grade of a value; None without a value or thresholds."""
        return None if value is None or self.threshold is None else self.threshold.grade(value)

    def score(self, value: float | None) -> float | None:
        """Return the score of a value; None without thresholds, 0 without a value (`scored`)."""
        if self.threshold is None:
            return None
        return 0.0 if value is None else scored(self.threshold, value)


@dataclass(frozen=True, slots=True)
class Served:
    """One class under one setting."""

    service: Service
    setting: str
    found: Summary

    @property
    def grade(self) -> Grade | None:
        """Grade of the mean."""
        return self.service.grade(self.found.mean)


_ENDS: Mapping[str, tuple[float, float]] = {"voice.mos": (1.0, 4.5), "video.mos": (1.0, 5.0)}
"""Worst and best value of the measures that have them: ITU-T G.107, Annex B, and P.1203."""


def scored(limits: Threshold, value: float) -> float:
    """Return the place of a value on a scale that all measures share, from 0 to 3, higher is better.

    The limit of bad is 1, that of good 2; between them the scale is linear. Above 2 it is linear to 3 at the
    best value, and below 1 to 0 at the worst value. A measure without a worst value, as a time, has the limit
    over the value below 1; one without a best value approaches 3 in the same way.
    """
    if not limits.higher:
        if value <= limits.good:
            return 3.0 - value / limits.good if limits.good > 0 else 3.0
        if value <= limits.bad:
            return 2.0 - (value - limits.good) / (limits.bad - limits.good)
        return max(0.0, limits.bad / value)
    worst, best = _ENDS.get(limits.measure, (0.0, math.inf))
    if value >= limits.good:
        if math.isinf(best):
            return 3.0 - limits.good / value if value > 0 else 2.0
        return min(3.0, 2.0 + (value - limits.good) / (best - limits.good)) if best > limits.good else 3.0
    if value >= limits.bad:
        return 1.0 + (value - limits.bad) / (limits.good - limits.bad)
    return max(0.0, (value - worst) / (limits.bad - worst)) if limits.bad > worst else 0.0


def services(traffic: Traffic, limits: Limits = ()) -> list[Service]:
    """Return the service of each class, in order, graded by the defaults and the `limits` of a scenario."""
    found, thresholds = [], of_scenario(limits)
    for traffic_class in dict.fromkeys(each[1] for each in traffic):
        kinds = {kind for _, of, kind in traffic if of == traffic_class}
        figure, measure = next((_FIGURES[kind] for kind in _FIGURES if kind in kinds), _PACKETS)
        metric = class_metric(f"{traffic_class}.{figure}")
        if metric is not None:
            found.append(Service(traffic_class, metric, thresholds[measure] if measure else None))
    return found


def served(result: Graded) -> list[list[Served]]:
    """Return each class under each setting: a list per setting."""
    known = services(result.traffic, result.thresholds)
    return [
        [Served(each, setting, result.summary(setting, each.metric.name)) for each in known]
        for setting in result.settings
    ]


def verdict(result: Graded) -> str:
    """Return the sentence on which settings serve every class, and on what the best of them costs.

    The best has the fewest bad classes, then the highest score of its worst class, then the highest mean
    score. Empty for one setting, or without a class that has grades.
    """
    scores: dict[str, dict[Service, float]] = {}
    bad: dict[str, list[str]] = {}
    rows = served(result)
    known = {each.service for row in rows for each in row if each.found.mean is not None}
    for row in rows:
        graded = {each.service: each for each in row if each.service.threshold and each.service in known}
        if not graded or len(result.settings) < 2:
            return ""
        setting = row[0].setting
        scores[setting] = {key: each.service.score(each.found.mean) or 0.0 for key, each in graded.items()}
        bad[setting] = [each.service.traffic_class for each in graded.values() if each.grade in {"bad", None}]

    def order(setting: str) -> tuple[float, ...]:
        found = scores[setting].values()
        return len(bad[setting]), -min(found), -sum(found)

    best = min(result.settings, key=order)
    clean = [setting for setting in result.settings if not bad[setting]]
    cost = _cost(result, best)
    if not clean and any(len(bad[setting]) > len(bad[best]) for setting in result.settings):
        fewest = [setting for setting in result.settings if len(bad[setting]) == len(bad[best])]
        how = "the fewest" if fewest == [best] else "as few as any"
        return f"Every setting makes a class bad, {best} {how}: {_listed(bad[best], 'classes')}.{cost}"
    worst = min(scores[best], key=scores[best].__getitem__)
    figure = (
        f"{_figure(worst)} {number(mean)}{_unit(worst)}{_graded(worst, mean)}"
        if (mean := result.summary(best, worst.metric.name).mean) is not None
        else "no values"
    )
    if clean == [best]:
        return f"Only {best} keeps every class out of bad ({worst.traffic_class}: {figure}).{cost}"
    if not clean:
        text = "Every setting makes a class bad"
    elif len(clean) == len(result.settings):
        text = "No class is bad under any setting"
    else:
        text = f"{_listed(clean)} keep every class out of bad"
    runs = {setting: _worst_scores(result, setting, list(scores[best])) for setting in result.settings}
    rivals = [each for each in clean or result.settings if each != best]
    alike = [each for each in rivals if not _differ(runs[best], runs[each])]
    untold = f"; {_listed(alike)} cannot be told apart from it" if alike else ""
    text += f"; {best} serves the worst-served class best ({worst.traffic_class}: {figure}){untold}"
    return f"{text}.{cost}"


def _worst_scores(result: Graded, setting: str, known: Sequence[Service]) -> list[float]:
    """Return the score of the worst-served class in each run of a setting."""
    columns = [
        [each.score(value) or 0.0 for value in result.values()[setting][each.metric.name]] for each in known
    ]
    return [min(row) for row in zip(*columns, strict=True)]


def _cost(result: Graded, best: str) -> str:
    """Return how much less a setting carries than another, empty if none is seen to carry more."""
    values = result.values()
    means = {setting: result.summary(setting, "throughput") for setting in result.settings}
    most = max(means, key=lambda setting: means[setting].mean or 0.0)
    if most == best or not _differ(values[most]["throughput"], values[best]["throughput"]):
        return ""
    return f" It carries {number(means[best].mean)} Mbit/s, {most} {number(means[most].mean)}."


def findings(result: Graded) -> list[str]:
    """Return sentences on which setting serves whom best, and on what cannot be told apart.

    A setting is as good as the best if the 95 % interval of their paired difference includes zero. One run
    per setting has no interval and decides nothing.
    """
    if len(result.settings) < 2:
        return []
    values = result.values()
    sentences, alike, untold = list[str](), list[str](), False
    for service in services(result.traffic, result.thresholds):
        name = service.metric.name
        means = {
            setting: mean
            for setting in result.settings
            if (mean := result.summary(setting, name).mean) is not None
        }
        if not means:
            continue
        best = (max if service.metric.better == "more" else min)(means, key=means.__getitem__)
        equal = [
            setting
            for setting in means
            if setting == best or not _differ(values[best][name], values[setting][name])
        ]
        bad = [setting for setting in means if service.grade(means[setting]) == "bad"]
        badly = "bad under " + ("every setting" if len(bad) == len(means) else _listed(bad)) if bad else ""
        if max(result.summary(setting, name).runs for setting in means) < 2:
            untold = True
            sentences += [f"{service.traffic_class}: {badly}."] if badly else []
            continue
        end = f"; {badly}" if badly else ""
        if len(equal) == len(means):
            if end:
                sentences.append(f"{service.traffic_class}: no difference can be seen{end}.")
            else:
                alike.append(service.traffic_class)
            continue
        figure = f"{_figure(service)} {number(means[best])}{_unit(service)}{_graded(service, means[best])}"
        others = [setting for setting in equal if setting != best]
        alike_best = f"; {_listed(others)} cannot be told apart from it" if others else ""
        sentences.append(f"{service.traffic_class}: best under {best} ({figure}){alike_best}{end}.")
    if alike:
        sentences.append(f"{_listed(alike, 'classes')}: no difference between the settings can be seen.")
    if untold:
        sentences.append("One run per setting cannot tell which is best: simulate more with --runs.")
    return sentences


def _differ(ours: Sequence[float | None], theirs: Sequence[float | None]) -> bool:
    found = paired(list(ours), list(theirs))
    return found.low is not None and found.high is not None and not found.low <= 0 <= found.high


def _figure(service: Service) -> str:
    return service.metric.label.partition(": ")[2]


def _unit(service: Service) -> str:
    return f" {service.metric.unit}" if service.metric.unit else ""


def _graded(service: Service, value: float) -> str:
    grade = service.grade(value)
    return f", {grade}" if grade else ""


def _listed(names: Sequence[str], of: str = "settings") -> str:
    """Write `a`, `a and b`, `a, b and c`; many names as their number, `7 settings`."""
    return f"{len(names)} {of}" if len(names) > _MANY else and_list(names)


_MANY = 6
