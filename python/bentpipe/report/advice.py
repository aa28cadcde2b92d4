"""The page of a recommendation, made to fit one printed sheet, and its tables for the terminal."""

import math
from collections.abc import Mapping
from typing import Any

from bentpipe.format import brief, clock, number, percent, plural, quantity, uncapitalized
from bentpipe.report.pages import page
from bentpipe.stats.intervals import LEVEL
from bentpipe.stats.metrics import named_metric
from bentpipe.stats.objectives import Limit
from bentpipe.tuning.holdout import RESAMPLES

__all__ = [
    "advice_page",
    "beside_headline",
    "candidate_rows",
    "change_rows",
    "done",
    "legend",
    "score_names",
    "split_heads",
]

_ROLES = {"tuned": "", "as it is": "defaults", "present": "current", "reference": "no AQM"}


def advice_page(found: Mapping[str, Any]) -> str:
    """Return the page as HTML; `found` is what `advice.json` holds."""
    words, scenario = found["words"], found["scenario"]
    served, others = split_heads(found)
    return page(
        "advice.html.j2",
        [],
        title=f"Advice: {scenario['title'] or scenario['name']}",
        kicker=f"Bentpipe {found['core']['version']} · {scenario['name']} · {found['finished'][:10]}",
        verdict=[f"{words['headline'][0]}."],
        description=[
            *(beside_headline(words) if found["changes"] else words["answer"]),
            *words.get("reason", []),
        ],
        changes=change_rows(found),
        present=found["present"],
        answer=found["answer"],
        sure=[*words["sure"], *words["costs"]],
        warnings=words["warnings"],
        seeds=plural(len(found["seeds"]["fresh"]), "fresh seed"),
        power=found["judge"] != "rank",
        scores=score_names(found),
        served=served,
        metrics=others,
        candidates=candidate_rows(found),
        legend=legend(found),
        paste=found["paste"],
        toml=found["paste"]["toml"],
        command=found["paste"]["command"],
        done=done(found),
    )


def beside_headline(words: Mapping[str, list[str]]) -> list[str]:
    """Return the sentences of the answer without the one that begins with the headline."""
    return [each for each in words["answer"] if not each.startswith(words["headline"][0])]


def metric_heads(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return name, label and unit of each metric in the tables."""
    known = [named_metric(name, "advice") for name in found["metrics"]]
    return [
        {"name": each.name, "label": each.label.removesuffix(", mean"), "unit": each.unit} for each in known
    ]


def split_heads(found: Mapping[str, Any]) -> tuple[list[dict[str, str]], list[dict[str, str]]]:
    """Return the heads of the figures by which users judge, with their `class`, and those of other metrics.

    An advice of an earlier version has only others.
    """
    names, heads = found.get("services", []), metric_heads(found)
    served = [
        each | {"class": each["name"].rpartition(".")[0], "label": each["label"].partition(": ")[2]}
        for each in heads
        if each["name"] in names
    ]
    return served, [each for each in heads if each["name"] not in names]


def change_rows(found: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the formatted changes from the current setting to the advised one."""
    heads = {each["name"]: each for each in metric_heads(found)}
    return [
        {
            "label": heads[each["metric"]]["label"],
            "unit": heads[each["metric"]]["unit"],
            "before": number(each["before"]),
            "after": number(each["after"]),
            "words": each["words"],
        }
        for each in found["changes"]
    ]


def candidate_rows(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the formatted candidates in rank order; an asterisk marks a significant difference."""
    served, others = split_heads(found)
    return [
        {
            "name": each["setting"],
            "role": "" if each["setting"].endswith(" defaults") else _ROLES[each["role"]],
            "chosen": each["setting"] == found["answer"],
            "behind": "behind PEP" if each["behind_pep"] else "tail drop" if each.get("tail_drop") else "",
            "first": percent(each["first_in"]),
            "power": number(each["power"]),
            "scores": [number(each[name], 2) for name in score_names(found)],
            "served": [_cell(each["metrics"][head["name"]]) for head in served],
            "cells": [_cell(each["metrics"][head["name"]]) for head in others],
        }
        for each in found["candidates"]
    ]


def score_names(found: Mapping[str, Any]) -> list[str]:
    """Return the keys of the scores of a candidate: none for other judges, one for a single class."""
    if found["judge"] != "classes":
        return []
    return ["worst_score", "mean_score"][: len(found["services"])]


def _cell(cell: Mapping[str, Any]) -> dict[str, Any]:
    behind = cell["behind_best"]
    return {
        "mean": _mean(cell["mean"], cell["ci95"], cell["runs"]),
        "behind": "" if behind is None else _signed(behind) + ("*" if cell["certain"] else ""),
        "grade": cell.get("grade"),
    }


def _mean(mean: float | None, ci95: float | None, runs: int) -> str:
    """Return a mean with its half-width, with at most five digits of the mean; the values of two runs."""
    if mean is None or ci95 is None or runs == 2 or mean == 0 or ci95 >= 1e-3 * abs(mean):
        return quantity(mean, ci95, runs)
    decimals = 4 - math.floor(math.log10(abs(mean)))
    decimals = max(0, decimals if ci95 == 0 else min(decimals, -math.floor(math.log10(ci95))))
    half = number(ci95, decimals) if ci95 >= 0.5 * 10.0**-decimals else "0"
    return f"{number(mean, decimals)} ± {half}"


def _signed(value: float) -> str:
    return "0" if value == 0 else f"{'+' if value > 0 else ''}{brief(value, 3)}"


def legend(found: Mapping[str, Any], *, short: bool = False) -> str:
    """Return the explanation of the table of candidates; `short` for a table without differences."""
    if found["judge"] == "rank":
        names = ", ".join(f"{each['metric']}:{each['direction']}" for each in found["objectives"])
        share = f"{100 * found['margin']:g} %"
        judge = (
            f"Ordered by the sum of 2^rank over {names}; values within {share} of each other share a rank."
        )
    else:
        trip = found["round_trip"]
        time = (
            "the PEP delay"
            if trip is None
            else f"the round trip, {clock(float(f'{trip:.3g}'))} without queues, plus the queueing delay"
        )
        power = f"power, the link's throughput divided by the response time ({time})"
        judge = f"Ordered by {power}."
        if found["judge"] == "classes":
            judge = (
                "Ordered by the score of the worst-served class, then by the mean score of the classes, then"
                f" by {power}, without what repeats data over the satellite. A score is 1 at the limit of bad"
                f" and 2 at that of good, at most 3; differences of up to {found['tolerance']:g}, or within"
                " their interval, do not decide."
            )
    bounds = [str(Limit(each["metric"], each["sign"], each["bound"])) for each in found["limits"]]
    if bounds:
        judge += f" Candidates that meet the limits {' and '.join(bounds)} rank first."
    runs = len(found["seeds"]["fresh"])
    drops = dict.fromkeys(each["tail_drop"] for each in found["candidates"] if each.get("tail_drop"))
    tail = "".join(f" Tail drop: {text}." for text in drops)
    below = "" if short else "below, the difference from the best; "
    means = "The values of two runs" if runs == 2 else f"Means over {runs} runs with 95 % intervals"
    return (
        f"{means}; {below}an asterisk marks a significant"
        f" difference from the best in that metric (paired, p ≤ {LEVEL:g} after Holm's correction). {judge}"
        f" First in: share of {RESAMPLES} resamples of the seeds in which the candidate ranks first.{tail}"
    )


def done(found: Mapping[str, Any]) -> list[str]:
    """Return sentences on the search and the holdout runs."""
    scenario, seeds = found["scenario"], found["seeds"]
    searched = [each for each in found["tried"] if each["trials"]]
    as_it_is = [each["aqm"] for each in found["tried"] if not each["trials"]]
    short, long = (clock(round(scenario[key], 3)) for key in ("search_duration", "duration"))
    lines = []
    if searched:
        trials = sum(each["trials"] for each in searched)
        shortened = f" instead of {long}" if scenario["search_duration"] < scenario["duration"] else ""
        lines.append(
            f"The search simulated {trials} parameter sets of {', '.join(each['aqm'] for each in searched)}"
            f" with {plural(len(seeds['search']), 'run')} each, measured for {short}{shortened}. The best few"
            f" of each AQM were repeated {len(seeds['again'])} times for {long}, and the remaining candidates"
            f" {len(seeds['fresh'])} times on seeds that the search did not use (from {seeds['fresh'][0]}"
            " on). Another search (--seed) may find other parameters and, if candidates are close, another"
            " AQM."
        )
    if as_it_is:
        lines.append(f"Not tuned, with defaults: {', '.join(as_it_is)}.")
    chosen = next(each for each in found["candidates"] if each["setting"] == found["answer"])
    parts = []
    for head in metric_heads(found):
        cell = chosen["metrics"][head["name"]]
        if cell["searched"] is not None:
            values = f"{number(cell['searched'])} against {number(cell['mean'])} {head['unit']}"
            parts.append(f"{uncapitalized(head['label'])} {values}".rstrip())
    if parts:
        lines.append(f"{found['answer']} in the search against fresh seeds: {'; '.join(parts)}.")
    return lines
