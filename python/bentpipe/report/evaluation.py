"""Pages of an evaluation: one with all settings, and one for each."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bentpipe import files
from bentpipe.evaluation.costs import controls, costs
from bentpipe.evaluation.findings import STRONG, WEAK, sentence, verdict
from bentpipe.evaluation.result import PARTS, REPORTS, CaseResult, EvaluationResult
from bentpipe.format import number, plural
from bentpipe.pages import write_text
from bentpipe.report import vega
from bentpipe.report.colours import PALETTE
from bentpipe.report.pages import page
from bentpipe.report.panels import Figure, Panel
from bentpipe.report.small_multiples import small_multiples
from bentpipe.runs.plan import slug
from bentpipe.runs.store import REPORT
from bentpipe.stats.metrics import named_metric

__all__ = ["multiples", "render", "render_setting", "write_reports"]

_SHOWN = {"aqm": ("5.1.1", "8.2.3", "9.1"), "cc": ("5.1.4", "5.2.1", "6.1"), "media": ("5.1", "5.4", "5.6")}
"""Sections whose ellipses stand in the small multiples."""
_MORE = {
    "aqm": ("5.1.1", "5.2", "8.2.2", "8.2.3", "8.2.4", "8.2.5", "9.1"),
    "cc": ("5.1.2", "5.1.4", "5.1.5", "5.2.1", "6.1", "7.1", "7.3"),
    "media": ("5.1", "5.2", "5.3", "5.4", "5.5", "5.6", "5.7"),
}
"""Sections whose ellipses stand on the page of a setting."""
_STEPS = 48


def write_reports(result: EvaluationResult) -> Path:
    """Write the page with all settings, and one for each; return the former's path.

    Raises `UsageError` if a file cannot be written.
    """
    folder = result.folder / REPORTS
    files.make_folder(folder)
    names = _files(result)
    for setting in result.settings:
        write_text(folder / names[setting], render_setting(result, setting))
    return write_text(result.folder / REPORT, render(result))


def _files(result: EvaluationResult) -> dict[str, str]:
    taken: set[str] = set()
    found = {}
    for setting in result.settings:
        name = slug(setting, taken)
        taken.add(name)
        found[setting] = f"{name}.html"
    return found


def render(result: EvaluationResult) -> str:
    """Return the page with all settings as HTML."""
    names = _files(result)
    measured = [_control(name) for name in result.settings] if result.kind == "aqm" else []
    return page(
        "evaluation.html.j2",
        [],
        title=_TITLES[result.kind],
        kicker=f"Bentpipe {result.manifest['core']['version']} · evaluation",
        verdict=verdict(result),
        summary=_summary(result),
        warnings=_warnings(result),
        profiles=[_profile(result, each, names) for each in result.profiles],
        controls=[each for each in measured if each],
        chosen=[(each["title"], each["chosen"]) for each in result.profiles],
        cases=_cases(result),
    )


_TITLES = {
    "aqm": "AQMs by RFC 7928",
    "cc": "Congestion controls by RFC 9743",
    "media": "Congestion controls of media by RFC 8867",
}


def _summary(result: EvaluationResult) -> list[tuple[str, str]]:
    seeds = result.manifest["cases"][0]["seeds"]
    return [
        ("Settings", plural(len(result.settings), "setting")),
        ("Profiles", ", ".join(each["title"] for each in result.profiles)),
        ("Cases", str(len(result.cases))),
        ("Runs", f"{len(seeds)} of each setting in each case, from seed {seeds[0]} on"),
    ]


def _warnings(result: EvaluationResult) -> list[str]:
    lines = []
    if failed := result.manifest.get("failed"):
        lines.append(f"{plural(failed, 'run')} failed; the means exclude them.")
    if len(result.manifest["cases"][0]["seeds"]) == 1:
        lines.append("One run of each: differences may be due to chance.")
    return lines


def _profile(result: EvaluationResult, entry: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    """Return the dominance table of a profile and its sentences."""
    name = entry["name"]
    parts = result.parts(name)
    standings = {part: result.standing(name, part) for part in (None, *parts)}
    rows = []
    for setting in result.ranked(name):
        cells = []
        for part in (None, *parts):
            found = standings[part][setting]
            cells.append(
                {
                    "net": f"{100 * found.net:+z.0f}",
                    "kind": "good" if found.net >= STRONG else "bad" if found.net <= WEAK else "",
                    "dominated": found.dominated,
                    "title": f"{found.won} won, {found.lost} lost of {found.compared} comparisons;"
                    f" dominates {found.dominates}, dominated by {found.dominated}",
                }
            )
        rows.append(
            {
                "setting": setting,
                "file": f"{REPORTS}/{names[setting]}",
                "cells": cells,
                "sentence": sentence(result, name, setting),
            }
        )
    titles = PARTS[result.kind]
    sections = (f"section {part}" if part[0].isdigit() else part for part in parts)
    heads = [("all", ""), *zip(sections, map(titles.__getitem__, parts), strict=True)]
    return {
        "title": entry["title"],
        "text": entry["text"],
        "heads": heads,
        "rows": rows,
        "multiples": multiples(result, entry),
        "caption": ELLIPSES,
    }


def _cases(result: EvaluationResult) -> list[dict[str, Any]]:
    """Return every case once, with the profiles that have it."""
    found: dict[str, dict[str, Any]] = {}
    titles = {each["name"]: each["title"] for each in result.profiles}
    for case in result.cases:
        entry = found.setdefault(
            case.name,
            {
                "section": case.section,
                "title": case.title,
                "text": case.text,
                "chosen": case.chosen,
                "figures": [f"{each.metric} ({'more' if each.is_more else 'less'})" for each in case.figures],
                "profiles": [],
            },
        )
        entry["profiles"].append((titles[case.profile], f"scenarios/{case.profile}/{case.name}.toml"))
    return list(found.values())


def _control(setting: str) -> dict[str, Any] | None:
    """Return what RFC 7928, sections 11 and 12, ask of an algorithm; None for other settings."""
    known = controls().get(setting)
    if known is None:
        return None
    cost = costs().get(setting)
    params = known["params"]
    return {
        "name": setting,
        "title": known["title"],
        "source": known["source"],
        "place": known.get("placement", "scheduler, signals itself" if known.get("signals") else "scheduler"),
        "cost": None if cost is None else {key: number(value) for key, value in cost.items()},
        "params": params,
        "derived": sum(isinstance(each["default"], str) and "link" in each["default"] for each in params),
        "tunable": sum(each["tune"] is not None for each in params),
    }


def render_setting(result: EvaluationResult, setting: str) -> str:
    """Return the page of one setting as HTML."""
    profiles = []
    for entry in result.profiles:
        rows = []
        for case in result.cases_of(entry["name"]):
            if setting not in case.settings:
                continue
            rows += _rows(case, setting)
        profiles.append(
            {
                "title": entry["title"],
                "sentence": sentence(result, entry["name"], setting),
                "rank": result.ranked(entry["name"]).index(setting) + 1,
                "rows": rows,
            }
        )
    return page(
        "evaluation_setting.html.j2",
        [_ellipses(result, each, setting) for each in result.profiles],
        title=f"{setting}: {_TITLES[result.kind]}",
        kicker=f"Bentpipe {result.manifest['core']['version']} · evaluation",
        verdict=[
            f"{each['title']}: place {each['rank']} of {len(result.settings)}. {each['sentence']}"
            for each in profiles
        ],
        summary=_summary(result),
        warnings=_warnings(result),
        profiles=profiles,
        control=_control(setting) if result.kind == "aqm" else None,
    )


def _rows(case: CaseResult, setting: str) -> list[dict[str, Any]]:
    """Return a row for each figure of a case: the value, its rank, and the best setting."""
    rows = []
    place = case.settings.index(setting)
    for figure in case.figures:
        metric = named_metric(figure.metric)
        means = {name: case.mean(figure.metric, name) for name in case.settings}
        known = {name: value for name, value in means.items() if value is not None}
        if not known:
            continue
        best = (max if figure.is_more else min)(known, key=lambda name: known[name])
        rank = 1 + int(case.better[figure.metric][:, place].sum())
        rows.append(
            {
                "section": case.section,
                "title": case.title,
                "label": metric.label,
                "unit": metric.unit,
                "value": number(means[setting]),
                "rank": rank,
                "of": len(case.settings),
                "best": best,
                "best_value": number(known[best]),
            }
        )
    return rows


# ----- figures ----------------------------------------------------------------------------------------------


def multiples(result: EvaluationResult, profile: dict[str, Any]) -> str:
    """Return the ellipses of all settings in a profile as an SVG document (RFC 7928, section 2.7)."""
    shown = _shown(result, profile, _SHOWN[result.kind])
    panels = {
        setting: {title: _ellipse(case, setting) for title, case in shown.items()}
        for setting in result.ranked(profile["name"])
    }
    return small_multiples(panels, list(shown), f"Delay and goodput of each setting, {profile['title']}")


def _shown(
    result: EvaluationResult, profile: dict[str, Any], sections: Sequence[str]
) -> dict[str, CaseResult]:
    """Return the first case of each section by its title."""
    found: dict[str, CaseResult] = {}
    for case in result.cases_of(profile["name"]):
        if case.section in sections and all(case.section != each.section for each in found.values()):
            found[f"{case.section} {case.title}"] = case
    return found


def _ellipses(result: EvaluationResult, profile: dict[str, Any], setting: str) -> Figure:
    """Draw the ellipses of one setting."""
    shown = _shown(result, profile, _MORE[result.kind])
    points = [
        {"case": title, "delay": x, "rate": y, "order": order}
        for title, case in shown.items()
        for order, (x, y) in enumerate(_ellipse(case, setting))
    ]
    colours = [PALETTE[number % len(PALETTE)] for number in range(len(shown))]
    chart = (
        vega.Chart(vega.InlineData(values=points))
        .mark_line(strokeWidth=1.8)
        .encode(
            x=vega.X("delay:Q", title="one-way delay [ms]", scale=vega.Scale(type="sqrt", nice=True)),
            y=vega.Y("rate:Q", title="goodput [Mbit/s]", scale=vega.Scale(zero=True)),
            order="order:Q",
            color=vega.Color("case:N", scale=vega.Scale(domain=list(shown), range=colours), legend=None),
            detail="case:N",
        )
        .properties(width="container", height=240)
    )
    return Figure(
        slug(f"ellipses {profile['name']}", ()),
        f"Delay and goodput, {profile['title']}",
        ELLIPSES,
        (Panel(chart),),
        legend=tuple(zip(shown, colours, strict=True)),
    )


ELLIPSES = (
    "One-way delay from application to application and goodput, of the flows whose data pass the bottleneck:"
    " means over the runs with the ellipse of one standard deviation between samples of 100 ms. A flat one"
    " keeps the rate, a narrow one keeps the delay. Up and to the left is better; the axis of delay is a"
    " square root."
)


def _ellipse(case: CaseResult, setting: str) -> list[tuple[float, float]]:
    """Return the ellipse of one standard deviation about the means of delay [ms] and goodput [Mbit/s]."""
    names = (
        "one_way_delay_mean",
        "goodput_total",
        "one_way_delay_std",
        "goodput_total_std",
        "delay_goodput_correlation",
    )
    delay, rate, wide, high, together = (case.mean(name, setting) for name in names)
    if delay is None or rate is None:
        return []
    wide, high, together = wide or 0.0, high or 0.0, together or 0.0
    rest = math.sqrt(max(0.0, 1 - together**2))
    angles = np.linspace(0, 2 * math.pi, _STEPS)
    return [
        (
            max(0.0, delay + wide * math.cos(angle)),
            max(0.0, rate + high * (together * math.cos(angle) + rest * math.sin(angle))),
        )
        for angle in angles
    ]
