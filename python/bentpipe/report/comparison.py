"""The report of a comparison: one HTML file that opens offline, and its figures as files for papers."""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bentpipe import files
from bentpipe.errors import FolderExistsError, UsageError
from bentpipe.format import (
    brief,
    clock,
    convert,
    likelihood,
    measured,
    number,
    paragraphs,
    plural,
    quantity,
    uncapitalized,
)
from bentpipe.pages import unwritable
from bentpipe.report import vega
from bentpipe.report.charts import figures
from bentpipe.report.colours import INK, of_settings
from bentpipe.report.flow_charts import flow_figures
from bentpipe.report.pages import dated, page, parameters, script_json, specification
from bentpipe.report.panels import Figure, Width
from bentpipe.report.scripts import VEGA_LITE
from bentpipe.report.state_charts import state_figures
from bentpipe.report.terminal_charts import (
    group_table,
    terminal_figures,
    worst_served,
    worst_terminals,
)
from bentpipe.report.terminal_series import terminal_series_figures
from bentpipe.report.traces import trace_figures
from bentpipe.runs.result import Result
from bentpipe.runs.store import LIVE
from bentpipe.stats.bottlenecks import limits
from bentpipe.stats.caveats import caveats, tail_drop
from bentpipe.stats.intervals import LEVEL
from bentpipe.stats.metrics import GROUPS, METRICS, Metric
from bentpipe.stats.ranking import BEHIND_PEP, CRITERIA, MANY, drawn, ranking
from bentpipe.stats.services import findings, served, services, verdict

__all__ = [
    "FORMATS",
    "check_formats",
    "joined",
    "picture",
    "render",
    "report_figures",
    "write_figures",
    "write_pictures",
]

FORMATS = ("svg", "png", "pdf")
_FIGURE_WIDTH = 620


def report_figures(result: Result, width: Width = "container") -> Iterator[Figure]:
    """Yield all figures of a report; `width` is that of one column's panels [pixels]."""
    drawings = (
        figures,
        terminal_figures,
        terminal_series_figures,
        state_figures,
        flow_figures,
        trace_figures,
    )
    for draw in drawings:
        yield from draw(result, width)


def render(result: Result) -> str:
    """Return the report of a result as HTML."""
    manifest, groups = result.manifest, _metric_rows(result)
    return page(
        "report.html.j2",
        report_figures(result),
        manifest=manifest,
        scenario=manifest["scenario"],
        description=paragraphs(manifest["scenario"]["description"]),
        settings=result.settings,
        colours=of_settings(result.settings, drawn(result)),
        behind={name for name in result.settings if result.setting_info(name).get("behind_pep")},
        behind_pep=BEHIND_PEP,
        tail_drop={
            each["name"]: tail
            for each in manifest["settings"]
            if (tail := tail_drop(each["effective"], behind_pep=each.get("behind_pep", False)))
        },
        verdict=_verdict(result),
        served=_served(result),
        thresholds=_thresholds(result),
        limited=_limited(result),
        terminal_groups=group_table(result),
        worst=worst_terminals(result),
        worst_served=worst_served(result),
        ranking=_ranking(result),
        seeds=result.seeds,
        methods=sorted({row["method"] for row in result.rows()} - {None}),
        runs=plural(len(result.seeds), "run"),
        summary=_summary(result),
        groups=groups,
        definitions=_definitions(groups),
        printed=any(row["setting"] in result.settings for row in manifest["printed"]),
        calibrated=any(row["calibrated"] for row in manifest["printed"]),
        sources=sorted({row["source"] for row in manifest["printed"] if row["source"]}),
        differences=_difference_rows(result),
        parameters=parameters(manifest["settings"]),
        warnings=_warnings(result),
        settled=_settled(result),
        title=manifest["scenario"]["title"] or manifest["scenario"]["name"],
        kicker=dated(manifest),
    )


def _verdict(result: Result) -> list[str]:
    """Return the sentences that a page begins with: who is served best, then the first by rank.

    A single setting has its throughput, queueing delay and loss rate, and the grade of each class.
    """
    if len(result.settings) == 1:
        parts = []
        for name in ("throughput", "queue_delay_p95", "loss_rate"):
            row = next(row for row in result.rows() if row["metric"] == name)
            if row["mean"] is not None:
                label = next(metric.label for metric in METRICS if metric.name == name)
                parts.append(f"{uncapitalized(label)} {number(row['mean'])} {row['unit']}".rstrip())
        graded = [_graded(each) for row in _served(result) for each in row if each["text"] != "–"]
        return [f"{result.settings[0]}: {'; '.join(parts)}."] * bool(parts) + graded
    people = [each for each in [verdict(result)] if each] + findings(result)
    ranks = []
    if len(result.settings) > 2:
        ranked = ranking(result)
        first = [each.setting for each in ranked if each.place == 1]
        by = f"by mean rank over {len(CRITERIA)} metrics of the queue and the link"
        if len(first) < len(ranked):
            second = ranked[len(first)]
            before = f"before {second.setting} ({brief(second.mean, 3)})"
            ranks.append(f"{' and '.join(first)}: first {by} ({brief(ranked[0].mean, 3)}), {before}.")
        else:
            ranks.append(f"All settings are equal {by}.")
    elif (found := _difference_rows(result)) and found["family"]:
        ranks.append(
            f"{found['certain']} of {found['family']} differences between {' and '.join(result.settings)} are"
            " significant."
        )
    return people + ranks


def _graded(found: Mapping[str, Any]) -> str:
    """Return what a class gets and its grade as a sentence."""
    service, grade = found["service"], found["grade"]
    text = f"{service.traffic_class}: {found['figure']} {found['text']} {service.metric.unit}".rstrip()
    return f"{text}, {grade}." if grade else f"{text}."


def _merged(rows: Sequence[Mapping[str, Any]], group: str = "") -> list[dict[str, Any]]:
    """Return the rows of a table of metrics with identical ones as one, with all their `metrics`.

    Rows that are zero under every setting are only merged with their neighbours: they often have nothing else
    in common. Labels lose the name of their `group`.
    """
    found: dict[str, dict[str, Any]] = {}
    before, run = "", 0
    for row in rows:
        same = script_json([row["metric"].unit, row["cells"]])
        run += same != before
        before = same
        zero = all(set(cell["text"]) <= set("0 ,±") for cell in row["cells"])
        entry = found.setdefault(f"{same}{run if zero else ''}", {"metrics": [], "cells": row["cells"]})
        label = row["metric"].label.removeprefix(f"{group}: ")
        entry["metrics"].append({"metric": row["metric"], "label": label[:1].upper() + label[1:]})
    return list(found.values())


def _limited(result: Result) -> dict[str, Any] | None:
    """Return what limits each class of TCP or QUIC flows under each setting; None without such classes."""
    found = {
        setting: {each.traffic_class: each for each in limits(result, setting)} for setting in result.settings
    }
    classes = list(dict.fromkeys(name for row in found.values() for name in row))
    rows = [
        {"setting": setting, "cells": [row[name].text() if name in row else "–" for name in classes]}
        for setting, row in found.items()
    ]
    return {"classes": classes, "rows": rows} if classes else None


def check_formats(names: Sequence[str]) -> list[str]:
    """Return the figure formats without duplicates; `UsageError` for an unknown one."""
    for name in names:
        if name not in FORMATS:
            raise UsageError(f'figure format "{name}" is unknown; allowed: {", ".join(FORMATS)}')
    return list(dict.fromkeys(names))


def write_figures(
    result: Result, folder: Path, formats: Sequence[str] = ("svg",), *, force: bool = False
) -> list[Path]:
    """Write every figure to `folder` in every format; return the paths.

    Raises `UsageError` for an unknown format, a file that exists (unless `force`), or a folder that cannot
    be written.
    """
    return write_pictures(list(report_figures(result, _FIGURE_WIDTH)), folder, formats, force=force)


def write_pictures(
    made: Sequence[Figure], folder: Path, formats: Sequence[str] = ("svg",), *, force: bool = False
) -> list[Path]:
    """Write figures to `folder`, as `write_figures` does."""
    formats = check_formats(formats)
    paths = {(figure.name, form): folder / f"{figure.name}.{form}" for figure in made for form in formats}
    if not force:
        for path in paths.values():
            if path.exists():
                raise FolderExistsError(path, ", or replace it with force=True")
    try:
        files.make_folder(folder)
        for figure in made:
            spec = specification(joined(figure))
            for form in formats:
                files.write(paths[figure.name, form], _draw(spec, form))
    except OSError as error:
        raise unwritable(folder, error) from None
    return list(paths.values())


def picture(figure: Figure, form: str = "svg") -> bytes:
    """Return one figure in a format of `FORMATS`."""
    return _draw(specification(joined(figure)), form)


def _draw(spec: dict[str, Any], form: str) -> bytes:
    # Imported here because only files need it, and it takes 9 MB.
    import vl_convert

    if form == "svg":
        return vl_convert.vegalite_to_svg(spec, vl_version=VEGA_LITE).encode()
    if form == "png":
        return vl_convert.vegalite_to_png(spec, vl_version=VEGA_LITE, scale=2)
    return vl_convert.vegalite_to_pdf(spec, vl_version=VEGA_LITE)


def joined(figure: Figure) -> vega.Chart:
    """Return the panels of a figure as one chart with its legend, on white."""
    charts = [panel.chart for panel in figure.panels]
    if len(charts) == 1 and not figure.legend:
        return charts[0].properties(background="white", padding=8)
    together: vega.Chart = vega.concat(*charts, columns=figure.columns, spacing=14)
    together = together.resolve_scale(color="independent")
    if not figure.legend:
        return together.properties(background="white", padding=8)
    named: vega.Chart = vega.vconcat(_legend(figure.legend), together, spacing=10)
    named = named.resolve_scale(color="independent")
    return named.properties(background="white", padding=8)


def _legend(entries: Sequence[tuple[str, str]]) -> vega.Chart:
    """Draw the legend that pages have above a figure: names and colours, in lines as wide as a figure."""
    places, right, line, most = list[dict[str, Any]](), 8, 0, 0
    for name, colour in entries:
        if places and right + 34 + 7 * len(name) > _FIGURE_WIDTH:
            right, line = 8, line + 1
        places.append({"at": right, "line": line, "name": name, "colour": colour})
        right += 34 + 7 * len(name)
        most = max(most, right)
    scale = vega.Scale(domain=[0, most], nice=False)
    base = vega.Chart(vega.InlineData(values=places)).encode(
        x=vega.X("at:Q", scale=scale, axis=None), y=vega.Y("line:O", axis=None)
    )
    return vega.layer(
        base.mark_point(filled=True, size=90, opacity=1).encode(color=vega.Color("colour:N", scale=None)),
        base.mark_text(align="left", dx=10, fontSize=12, color=INK).encode(text="name:N"),
    ).properties(width=most, height=18 * (line + 1))


def _served(result: Result) -> list[list[dict[str, Any]]]:
    """Return who gets what: a list of classes per setting; empty without classes."""
    return [
        [
            {
                "service": each.service,
                "setting": each.setting,
                "figure": each.service.metric.label.partition(": ")[2],
                "text": quantity(each.found.mean, each.found.ci95, each.found.runs),
                "grade": each.grade,
            }
            for each in row
        ]
        for row in served(result)
        if row
    ]


def _thresholds(result: Result) -> list[str]:
    """Return the limits of good and bad of the figures of a result's classes, with their sources."""
    lines = []
    for service in services(result.traffic, result.thresholds):
        limits = service.threshold
        if limits is None:
            continue
        unit = f" {limits.unit}" if limits.unit else ""
        best, worst = ("from", "below") if limits.higher else ("up to", "above")
        lines.append(
            f"{service.traffic_class}: good {best} {number(limits.good)}{unit}, bad {worst}"
            f" {number(limits.bad)}{unit} ({limits.source})"
        )
    return lines


def _summary(result: Result) -> list[tuple[str, str]]:
    scenario, manifest = result.manifest["scenario"], result.manifest
    time = "real" if result.engine == LIVE else "simulated"
    capacities = sorted({setting["capacity"] for setting in manifest["settings"]})
    seeds = f"seed{'s' * (len(result.seeds) > 1)} {', '.join(map(str, result.seeds))}"
    return [
        ("Scenario", scenario["name"]),
        (
            "Measured",
            f"{clock(scenario['duration'])} of {time} time after {clock(scenario['warmup'])} of warm-up",
        ),
        ("Engine", _engine(result)),
        ("Deviations from the scenario", "; ".join(result.notes)),
        ("Runs", f"{plural(len(result.seeds), 'run')} per setting, {seeds}"),
        ("Link", " and ".join(f"{capacity * 1e-6:g} Mbit/s" for capacity in capacities)),
        ("Parameters from", scenario["source"]),
        ("Changed from the file", ", ".join(scenario["overrides"])),
    ]


def _engine(result: Result) -> str:
    """Return a live result's system; empty for a simulation."""
    if result.engine != LIVE:
        return ""
    versions = result.manifest.get("versions", {})
    return f"live: Linux {versions.get('kernel', 'unknown')}, {plural(int(versions.get('cpus', 0)), 'core')}"


def _warnings(result: Result) -> list[str]:
    lines = caveats(result)
    scenario = result.manifest["scenario"]
    if (
        scenario["overrides"]
        and not result.manifest["printed"]
        and "printed" in tomllib.loads(scenario["text"])
    ):
        lines.append("The scenario was changed, so values printed in its source are not shown.")
    return lines


def _settled(result: Result) -> list[dict[str, Any]]:
    """Return MSER-5's check of the warm-up: a row for each setting and quantity."""
    return [
        {
            "setting": each.setting,
            "label": each.quantity.label,
            "unit": each.quantity.unit,
            "end": "not in the first half" if each.detected is None else f"{brief(each.detected)} s",
            "before": number(each.before),
            "after": number(each.after),
            "certain": each.clear,
        }
        for each in result.settled
    ]


def _ranking(result: Result) -> dict[str, Any] | None:
    """Return the settings in rank order with their values; None for fewer than three settings."""
    if len(result.settings) < 3:
        return None
    stats = {(row["setting"], row["metric"]): row for row in result.rows()}
    rows = []
    for ranked in ranking(result):
        cells = []
        for metric in CRITERIA:
            row = stats[ranked.setting, metric.name]
            cells.append(
                {
                    "text": measured(row),
                    "brief": number(row["mean"]),
                    "rank": ranked.ranks[metric.name],
                }
            )
        rows.append(
            {"place": ranked.place, "setting": ranked.setting, "mean": brief(ranked.mean, 3), "cells": cells}
        )
    return {"criteria": CRITERIA, "rows": rows, "many": len(rows) > MANY}


def _metric_rows(result: Result) -> list[dict[str, Any]]:
    """Return the table of metrics by group, each cell with its interval and the printed value."""
    stats = {(row["setting"], row["metric"]): row for row in result.rows()}
    groups = []
    for group in (*GROUPS, *result.classes):
        rows = []
        for metric in result.known_metrics:
            if metric.group != group:
                continue
            if metric.group not in GROUPS and all(
                stats[setting, metric.name]["mean"] is None for setting in result.settings
            ):
                continue
            cells = [
                {
                    "text": measured(stats[setting, metric.name]),
                    "note": stats[setting, metric.name]["note"] or "",
                    "printed": _printed(result, setting, metric),
                }
                for setting in result.settings
            ]
            rows.append({"metric": metric, "cells": cells})
        groups.append({"name": group, "rows": _merged(rows, group)})
    return groups


def _definitions(groups: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """Return the label, name and definition of each metric; one for the same metric of all classes."""
    found = {}
    for group in groups:
        for row in group["rows"]:
            for metric in (each["metric"] for each in row["metrics"]):
                of_class, point, name = metric.name.partition(".")
                label = metric.label.removeprefix(f"{of_class}: ")
                key = f"CLASS.{name}" if point else of_class
                found[key] = {"label": label[:1].upper() + label[1:], "name": key, "text": metric.doc}
    return list(found.values())


def _printed(result: Result, setting: str, metric: Metric) -> dict[str, Any] | None:
    for row in result.manifest["printed"]:
        if row["setting"] != setting or row["metric"] != metric.name:
            continue
        value = convert(float(row["value"]), row["unit"], metric.unit)
        std = None if row["std"] is None else convert(float(row["std"]), row["unit"], metric.unit)
        text = f"{brief(float(row['value']))} {row['unit']}" if value is None else brief(value)
        if std is not None:
            text += f" (std {brief(std)})"
        return {"text": text, "source": row["source"], "calibrated": bool(row["calibrated"])}
    return None


def _difference_rows(result: Result) -> dict[str, Any] | None:
    """Return the other settings' paired differences from the first one."""
    if len(result.settings) < 2:
        return None
    shown = [metric for metric in METRICS if metric.headline and metric in result.known_metrics]
    table = result.differences(result.settings[0], [metric.name for metric in shown])
    found = {(row["setting"], row["metric"]): row for row in table.iter_rows(named=True)}
    others = result.settings[1:]
    rows, family, alone, certain = [], 0, 0, 0
    for metric in shown:
        cells = []
        for setting in others:
            row = found[setting, metric.name]
            p, p_holm = row["p"], row["p_holm"]
            text = measured(row, "difference", signed=True)
            corrected = f", corrected {likelihood(p_holm)}"
            cell = {
                "text": text,
                "certain": p_holm is not None and p_holm <= LEVEL,
                "alone": p is not None and p <= LEVEL < p_holm,
                "title": "" if p is None else f"{row['verdict']}: p {likelihood(p)}{corrected}",
            }
            family += p is not None
            alone += bool(cell["alone"])
            certain += bool(cell["certain"])
            cells.append(cell)
        rows.append({"metric": metric, "cells": cells})
    return {
        "baseline": result.settings[0],
        "others": others,
        "rows": _merged(rows),
        "family": family,
        "alone": alone,
        "certain": certain,
    }
