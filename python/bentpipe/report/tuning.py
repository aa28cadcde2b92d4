"""The page of a search: the winner on fresh seeds, the Pareto front and the importance of parameters."""

import json
import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

from bentpipe.format import (
    and_list,
    brief,
    clock,
    likelihood,
    measured,
    number_of,
    plural,
    quantity,
    uncapitalized,
    with_unit,
)
from bentpipe.report import vega
from bentpipe.report.colours import AXIS, INK, LINE, PAPER
from bentpipe.report.pages import page
from bentpipe.report.panels import Figure, Panel
from bentpipe.stats.intervals import LEVEL, summarise
from bentpipe.stats.objectives import Objective
from bentpipe.tuning.result import AS_GIVEN, DEFAULTS, TuneResult, difference

__all__ = ["figures", "tune_page"]

_TRIAL, _STOPPED, _FRONT, _WINNER, _FRESH = (
    "complete trial",
    "stopped trial, mean so far",
    "member of the front",
    "winner in the search",
    "winner on fresh seeds, 95 % interval",
)
_COLOURS = {
    _TRIAL: AXIS,
    _STOPPED: "#c8a98c",
    _FRONT: "#0072B2",
    _WINNER: "#E69F00",
    _FRESH: "#D55E00",
    DEFAULTS: "#009E73",
    AS_GIVEN: "#CC79A7",
}
_SHAPES = {
    _TRIAL: "circle",
    _STOPPED: "circle",
    _FRONT: "circle",
    _WINNER: "diamond",
    _FRESH: "diamond",
    DEFAULTS: "square",
    AS_GIVEN: "triangle-up",
}
_SIZES = {_TRIAL: 22, _STOPPED: 22, _FRONT: 48, _WINNER: 150, _FRESH: 150, DEFAULTS: 95, AS_GIVEN: 95}
_GAP = 0.08
"""Margin on either side of a parameter as a share of its width."""
_MEMBERS = 15
"""Members of the front that the table shows without unfolding."""


def tune_page(result: TuneResult) -> str:
    """Return the report of a search as HTML."""
    found = result.found
    scenario = found["scenario"]
    titles = {each.metric: each.known for each in result.objectives}
    return page(
        "tune.html.j2",
        figures(result),
        title=f"Search: {found['aqm']} in {scenario['title'] or scenario['name']}",
        kicker=f"Bentpipe {found['core']['version']} · {found['finished'][:10]}",
        description=_lead(result),
        summary=_summary(result),
        warnings=_warnings(result),
        metrics=[
            {"name": name, "label": metric.label, "unit": metric.unit} for name, metric in titles.items()
        ],
        verdict=_findings(result),
        winner=result.winner,
        winner_rows=_winner_rows(result),
        references=list(found["references"]),
        best=result.best(),
        fresh=len(found["seeds_fresh"]),
        searched=len(found["seeds"]),
        again=found["again"],
        front=_front_rows(result),
        shown=_MEMBERS,
        names=result.parameters,
        parameters=_parameter_rows(result),
        importance=bool(found["importance"]),
        objectives=[str(each) for each in result.objectives],
        pruning=_pruning(result),
        scenario=scenario,
        fixed=found["fixed"],
        notes=[each for each in found["trials"] if each["outcome"] in {"valueless", "impossible", "failed"}],
    )


def figures(result: TuneResult) -> list[Figure]:
    """Return the figures of a search that has data for them: the front, and the parameters."""
    parameters = _parameters(result)
    front = _front(result, _points(result))
    return [front] if parameters is None else [front, parameters]


def _lead(result: TuneResult) -> list[str]:
    aims = [f"{'high' if each.direction == 'max' else 'low'} {_named(each)}" for each in result.objectives]
    return [
        f"Which parameters of {result.found['algorithm']} give {and_list(aims)} in this scenario?"
        f" {result.counted()}"
    ]


def _named(objective: Objective) -> str:
    """Return a metric's label within a sentence."""
    label, comma, rest = objective.known.label.partition(", ")
    return uncapitalized(label) + (f" ({rest})" if comma else "")


def _summary(result: TuneResult) -> list[tuple[str, str]]:
    found = result.found
    scenario = found["scenario"]
    how = {
        "tpe": "Optuna's tree-structured Parzen estimator",
        "nsga2": "Optuna's NSGA-II",
        "random": "at random",
        "grid": "a grid",
    }[found["sampler"]]
    again = found["seeds_again"]
    return [
        ("Scenario", scenario["name"]),
        ("Measured", f"{clock(scenario['duration'])} after {clock(scenario['warmup'])} of warm-up"),
        ("Changed from the file", ", ".join(scenario["overrides"])),
        ("Trials", f"{how}, {plural(found['generation'], 'trial')} at a time"),
        ("Seeds", f"{_span(found['seeds'])}, the same for all trials"),
        ("Winner by", _judged(found)),
        ("Repeated", f"the first {len(found['again'])}, with seeds {_span(again)}" if again else ""),
        ("Fresh seeds", _span(found["seeds_fresh"])),
    ]


def _judged(found: Mapping[str, Any]) -> str:
    if len(found["objectives"]) == 1 and found["judge"] == "front":
        return "the best mean"
    among = "the front's members" if found["judge"] == "front" else "all complete trials"
    return f"lowest sum of 2^rank over the metrics, among {among} (Byun & Baras)"


def _span(seeds: Sequence[int]) -> str:
    return str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"


def _warnings(result: TuneResult) -> list[str]:
    found, lines = result.found, []
    outcomes = [each["outcome"] for each in found["trials"]]
    if outcomes.count("failed"):
        lines.append(f"{plural(outcomes.count('failed'), 'trial')} failed and are not in the front.")
    if outcomes.count("valueless"):
        lines.append(
            f"{plural(outcomes.count('valueless'), 'trial')} had no value in some objective, for example"
            " because no packet passed, and are not in the front."
        )
    if len(found["seeds"]) < 3:
        lines.append(f"{plural(len(found['seeds']), 'run')} per trial: intervals are wide or missing.")
    edges = _at_edges(result)
    if edges:
        lines.append(
            f"The winner has {and_list(edges)} within 2 % of an end of its range:"
            " a wider --vary may find better."
        )
    return lines


def _at_edges(result: TuneResult) -> list[str]:
    winner = result.winner
    if winner is None:
        return []
    found = []
    for row in result.found["space"]:
        share = _share(row, winner["point"][row["name"]])
        if "low" in row and share is not None and not 0.02 <= share <= 0.98:
            found.append(row["name"])
    return found


def _share(row: Mapping[str, Any], value: str) -> float | None:
    """Return a parameter's position in its range, 0 to 1, on the search's scale; None if off it."""
    if "low" not in row:
        last = max(1, len(row["values"]) - 1)
        return row["values"].index(value) / last if value in row["values"] else None
    number = number_of(value)
    if number is None or number[1] != row["unit"]:
        return None
    low, high, at = float(row["low"]), float(row["high"]), number[0]
    if row["scale"] == "log":
        return math.log(at / low) / math.log(high / low) if at > 0 else None
    return (at - low) / (high - low)


def _points(result: TuneResult) -> list[dict[str, Any]]:
    """Return the points of the front's panels: the mean of each objective by trial and reference."""
    found = result.found
    rows = []
    for each in found["trials"]:
        if each["outcome"] not in {"complete", "stopped"}:
            continue
        number = each["number"]
        kind = _STOPPED if each["outcome"] == "stopped" else _FRONT if number in found["front"] else _TRIAL
        kind = _WINNER if number == found["winner"] else kind
        row: dict[str, Any] = {"kind": kind, "trial": number, "name": f"trial {number}"}
        row |= {each.metric: result.summary(number, each.metric).mean for each in result.objectives}
        rows.append(row)
    for name, samples in found["references"].items():
        row = {"kind": name, "trial": None, "name": name}
        rows.append(row | {metric: summarise(values).mean for metric, values in samples.items()})
    winner = found["winner"]
    if winner is not None:
        row = {"kind": _FRESH, "trial": winner, "name": "fresh seeds"}
        for metric, values in found["fresh"][str(winner)].items():
            summary = summarise(values)
            row |= {metric: summary.mean, f"{metric} low": summary.low, f"{metric} high": summary.high}
        rows.append(row)
    order = list(_COLOURS)
    for row in rows:
        row["size"] = _SIZES[row["kind"]]
    return sorted(rows, key=lambda row: order.index(row["kind"]))


def _front(result: TuneResult, points: Sequence[Mapping[str, Any]]) -> Figure:
    kinds = [name for name in _COLOURS if any(row["kind"] == name for row in points)]
    legend = tuple((name, _COLOURS[name]) for name in kinds)
    objectives = result.objectives
    seeds = plural(len(result.found["seeds"]), "seed")
    if len(objectives) == 1:
        return Figure(
            "front",
            "Every trial",
            f"Means over {seeds}, in the order of the search. {_better(objectives[0])} is better. Outliers"
            " are cut off.",
            (Panel(_over_trials(objectives[0], points)),),
            legend=legend,
        )
    aims = "; ".join(_better(each) for each in objectives)
    edge = "" if len(objectives) == 2 else "; they need not lie on the edge of a panel"
    return Figure(
        "front",
        "All trials and the front among them"
        if len(objectives) == 2
        else "The front, two objectives at a time",
        f"Means over {seeds}. Better is: {aims}. Members of the front are trials that no complete trial"
        f" dominates (better in one objective, at least as good in all){edge}. Outliers are cut off.",
        tuple(Panel(_pair(x, y, points)) for x, y in combinations(objectives, 2)),
        columns=1 if len(objectives) == 2 else 2,
        legend=legend,
    )


def _better(objective: Objective) -> str:
    return f"{objective.known.label}, {'higher' if objective.direction == 'max' else 'lower'}"


def _title(objective: Objective) -> str:
    arrow = "↑" if objective.direction == "max" else "↓"
    return f"{with_unit(objective.known.label, objective.known.unit)} {arrow}"


def _domain(metric: str, points: Sequence[Mapping[str, Any]]) -> list[float]:
    """Return the span of an axis: the front, the references and nine in ten of the trials."""
    must = [row for row in points if row["kind"] not in {_TRIAL, _STOPPED}]
    kept = [
        row[key]
        for row in must
        for key in (metric, f"{metric} low", f"{metric} high")
        if row.get(key) is not None
    ]
    others = sorted(row[metric] for row in points if row[metric] is not None)
    if others:
        cut = len(others) // 20
        kept += [others[cut], others[-1 - cut]]
    low, high = min(kept, default=0.0), max(kept, default=1.0)
    margin = 0.05 * (high - low) or abs(high) * 0.05 or 1.0
    return [low - margin, high + margin]


def _channel(
    objective: Objective,
    points: Sequence[Mapping[str, Any]],
    cls: Any,  # noqa: ANN401
    field: str,
) -> Any:  # noqa: ANN401
    scale = vega.Scale(domain=_domain(objective.metric, points), nice=False, zero=False)
    return cls(f"{field}:Q", title=_title(objective), scale=scale)


def _encoded() -> dict[str, Any]:
    names = list(_COLOURS)
    return {
        "color": vega.Color(
            "kind:N", scale=vega.Scale(domain=names, range=[_COLOURS[name] for name in names]), legend=None
        ),
        "shape": vega.Shape(
            "kind:N", scale=vega.Scale(domain=names, range=[_SHAPES[name] for name in names]), legend=None
        ),
        "size": vega.Size("size:Q", scale=None),
    }


def _pair(x: Objective, y: Objective, points: Sequence[Mapping[str, Any]]) -> vega.Chart:
    horizontal, vertical = _channel(x, points, vega.X, "x"), _channel(y, points, vega.Y, "y")
    # Vega would take the point in the name of a class's metric for a nested field.
    keys = {
        f"{field}{end}": f"{each.metric}{end}"
        for field, each in (("x", x), ("y", y))
        for end in ("", " low", " high")
    }
    data = vega.InlineData(
        values=[
            {key: row[key] for key in ("kind", "name", "size")}
            | {field: row.get(key) for field, key in keys.items()}
            for row in points
        ]
    )
    fresh = (
        vega.Chart(data)
        .transform_filter(f"datum.kind === '{_FRESH}'")
        .mark_rule(color=_COLOURS[_FRESH], strokeWidth=1.6, clip=True)
    )
    across = fresh.encode(x=_channel(x, points, vega.X, "x low"), x2=vega.X2("x high:Q"), y=vertical)
    along = fresh.encode(y=_channel(y, points, vega.Y, "y low"), y2=vega.Y2("y high:Q"), x=horizontal)
    marks = (
        vega.Chart(data)
        .mark_point(filled=True, opacity=0.9, stroke=PAPER, strokeWidth=0.7, clip=True)
        .encode(x=horizontal, y=vertical, tooltip=["name:N"], **_encoded())
    )
    drawing: vega.Chart = vega.layer(marks, across, along).properties(width="container", height=260)
    return drawing


def _over_trials(objective: Objective, points: Sequence[Mapping[str, Any]]) -> vega.Chart:
    rows = [
        {key: row[key] for key in ("kind", "name", "size", "trial")} | {"value": row[objective.metric]}
        for row in points
    ]
    trials = [row for row in rows if row["trial"] is not None]
    lines = [row for row in rows if row["trial"] is None]
    vertical = _channel(objective, points, vega.Y, "value")
    horizontal = vega.X("trial:Q", title="trial", scale=vega.Scale(zero=False))
    marks = (
        vega.Chart(vega.InlineData(values=trials))
        .mark_point(filled=True, opacity=0.9, stroke=PAPER, strokeWidth=0.7, clip=True)
        .encode(x=horizontal, y=vertical, tooltip=["name:N"], **_encoded())
    )
    layers: list[Any] = [marks]
    if lines:
        rules = vega.Chart(vega.InlineData(values=lines)).mark_rule(strokeWidth=1.6)
        layers.append(rules.encode(y=vertical, color=_encoded()["color"]))
    drawing: vega.Chart = vega.layer(*layers).properties(width="container", height=300)
    return drawing


def _parameters(result: TuneResult) -> Figure | None:
    """Draw every parameter against every objective, as shares of the ranges."""
    found = result.found
    space = found["space"]
    names = [row["name"] for row in space]
    points = _points(result)
    panels = []
    for index, objective in enumerate(result.objectives):
        rows: list[dict[str, Any]] = []
        for each in found["trials"]:
            if each["outcome"] != "complete":
                continue
            number = each["number"]
            kind = _FRONT if number in found["front"] else _TRIAL
            kind = _WINNER if number == found["winner"] else kind
            for place, row in enumerate(space):
                share = _share(row, each["point"][row["name"]])
                value = result.summary(number, objective.metric).mean
                if share is not None:
                    at = place + _GAP + (1 - 2 * _GAP) * share
                    rows.append(
                        {
                            "at": at,
                            "value": value,
                            "kind": kind,
                            "size": _SIZES[kind] * 0.7,
                            "name": f"trial {number}",
                        }
                    )
        if not rows:
            return None
        rows.sort(key=lambda row: list(_COLOURS).index(row["kind"]))
        scale = vega.Scale(domain=_domain(objective.metric, points), nice=False, zero=False)
        last = index == len(result.objectives) - 1
        axis = vega.Axis(
            values=[place + 0.5 for place in range(len(names))],
            labelExpr=f"{json.dumps(names)}[floor(datum.value)]",
            labelFontSize=12,
            labelColor=INK,
            labels=last,
            ticks=False,
            labelOverlap=False,
        )
        across = vega.X("at:Q", title=None, scale=vega.Scale(domain=[0, len(names)], nice=False), axis=axis)
        marks = (
            vega.Chart(vega.InlineData(values=rows))
            .mark_point(filled=True, opacity=0.85, stroke=PAPER, strokeWidth=0.5, clip=True)
            .encode(
                x=across,
                y=vega.Y("value:Q", title=None, scale=scale, axis=vega.Axis(minExtent=44)),
                tooltip=["name:N"],
                **_encoded(),
            )
        )
        between = [{"at": place} for place in range(1, len(names))]
        rules = vega.Chart(vega.InlineData(values=between)).mark_rule(color=LINE).encode(x=across)
        drawing = vega.layer(rules, marks).properties(width="container", height=130, title=_title(objective))
        panels.append(Panel(drawing))
    return Figure(
        "parameters",
        "Each parameter against each objective",
        "Complete trials. Within its column each parameter runs from the lowest value searched, on the left,"
        " to the highest, on the scale of the search; the table has the ranges. The search concentrates on"
        " good values, so points are not evenly spaced. Outliers are cut off.",
        tuple(panels),
        legend=tuple((name, _COLOURS[name]) for name in (_TRIAL, _FRONT, _WINNER)),
    )


def _winner_rows(result: TuneResult) -> list[dict[str, Any]]:
    found, winner = result.found, result.found["winner"]
    if winner is None:
        return []
    figures = {(row["setting"], row["metric"]): row for row in found["figures"]}
    rows = []
    for objective in result.objectives:
        mine = figures[str(winner), objective.metric]
        searched = result.summary(winner, objective.metric)
        others = []
        for name in found["references"]:
            row = figures[name, objective.metric]
            others.append(measured(row))
        rows.append(
            {
                "label": f"{objective.known.label} {'↑' if objective.direction == 'max' else '↓'}",
                "unit": objective.known.unit,
                "searched": quantity(searched.mean, searched.ci95, searched.runs),
                "fresh": measured(mine),
                "others": others,
                "difference": difference(mine),
                "p": likelihood(mine["p_holm"]),
                "certain": mine["p_holm"] is not None and mine["p_holm"] <= LEVEL,
            }
        )
    return rows


def _findings(result: TuneResult) -> list[str]:
    """Return sentences on the winner's differences from the defaults on fresh seeds."""
    found, winner = result.found, result.found["winner"]
    if winner is None:
        return ["No trial completed, so there is no winner."]
    figures = {row["metric"]: row for row in found["figures"] if row["setting"] == str(winner)}
    better, worse, unseen, kinder = list[str](), list[str](), list[str](), list[str]()
    for objective in result.objectives:
        row, name, unit = figures[objective.metric], _named(objective), objective.known.unit
        if row["p_holm"] is None or row["p_holm"] > LEVEL or not row["difference"]:
            unseen.append(name)
        else:
            change = "more" if row["difference"] > 0 else "less"
            text = f"{brief(abs(row['difference']), 3)} {unit} {change} {name}".replace("  ", " ")
            (better if objective.gain(row["difference"], 0.0) > 0 else worse).append(text)
        if None not in (row["searched"], row["mean"]) and objective.gain(row["searched"], row["mean"]) > 0:
            kinder.append(name)
    lines = []
    if better:
        lines.append(f"Better than the defaults: {and_list(better)}.")
    if worse:
        lines.append(f"Worse than the defaults: {and_list(worse)}.")
    if unseen:
        lines.append(f"No significant difference from the defaults in {and_list(unseen)}.")
    if kinder:
        lines.append(
            f"The search's values of the winner are better than those on fresh seeds in {and_list(kinder)}:"
            " the best of many trials is partly chosen by luck. Quote the values on fresh seeds."
        )
    return lines


def _front_rows(result: TuneResult) -> list[dict[str, Any]]:
    found = result.found
    places = {each["trial"]: each for each in found["order"]}
    rows = []
    for row in result.front_rows():
        place = places.get(row["trial"])
        rows.append(
            row
            | {
                "winner": row["trial"] == found["winner"],
                "place": "–" if place is None else str(place["place"]),
            }
        )
    return rows


def _parameter_rows(result: TuneResult) -> list[dict[str, Any]]:
    found, winner = result.found, result.winner
    rows = []
    for row in found["space"]:
        unit = f" {row['unit']}" if row["unit"] else ""
        if "low" in row:
            values = f"{brief(row['low'], 4)} to {brief(row['high'], 4)}{unit}"
            values += ", log" if row["scale"] == "log" else ""
        else:
            values = ", ".join(row["values"])
        importance = found["importance"].get(row["name"])
        rows.append(
            {
                "name": row["name"],
                "doc": row["doc"],
                "range": values,
                "default": _short(row["default"]),
                "winner": "–" if winner is None else winner["point"][row["name"]],
                "importance": "–" if importance is None else f"{importance:.0%}".replace("%", " %"),
                "correlations": [
                    _signed(_correlation(result, row, each.metric)) for each in result.objectives
                ],
            }
        )
    return rows


def _short(value: str) -> str:
    """Return a default with at most five digits."""
    number = number_of(value)
    return value if number is None else f"{brief(number[0], 5)} {number[1]}".strip()


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}".replace("-", "−")


def _correlation(result: TuneResult, row: Mapping[str, Any], metric: str) -> float | None:
    """Return Spearman's rank correlation of a parameter with an objective over the complete trials."""
    from scipy.stats import spearmanr

    shares, values = [], []
    for each in result.found["trials"]:
        share = _share(row, each["point"][row["name"]])
        if each["outcome"] != "complete" or share is None:
            continue
        mean = result.summary(each["number"], metric).mean
        if mean is not None:
            shares.append(share)
            values.append(mean)
    if len(shares) < 5 or len(set(shares)) < 2 or len(set(values)) < 2:
        return None
    return float(spearmanr(shares, values).statistic)


def _pruning(result: TuneResult) -> str:
    found = result.found
    if not found["pruning"]:
        return "No trial was stopped early."
    runs = found["runs"]
    if len(found["objectives"]) == 1:
        how = "Wilcoxon's signed-rank test on the same seeds found it worse than the best, p < 0.1"
    else:
        how = (
            "a member of the front was significantly better in every objective on the same seeds: the largest"
            " of the one-sided p-values of Student's paired tests was at most 5 %, divided by the number of"
            " members and of interim analyses per trial"
        )
    return (
        f"A trial was stopped once {how}. This saved {runs['saved']} of {runs['wanted']} runs."
        " Stopped trials are never in the front."
    )
