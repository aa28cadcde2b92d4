"""The report of a sweep: figures for its design, table of points, differences and failed runs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bentpipe.errors import ResultError
from bentpipe.format import likelihood, measured, number, paragraphs, plural
from bentpipe.report.comparison import write_pictures
from bentpipe.report.pages import page
from bentpipe.report.sweep_charts import Axis, axes, figures, setting_colours
from bentpipe.stats.intervals import BOOTSTRAP, LEVEL
from bentpipe.stats.metrics import Metric
from bentpipe.sweeps.result import SweepResult, check_metrics

__all__ = ["render", "write_figures"]

_FIGURE_WIDTH = 620
_MOST_ROWS = 1000
"""Maximum rows of a page's table."""
_MOST_FAILURES = 100
_DESIGNS = {"grid": "a grid", "lhs": "a Latin hypercube", "sobol": "a Sobol sequence"}


def render(result: SweepResult) -> str:
    """Return the report of a sweep as HTML; `ResultError` if it has no runs."""
    frame, metrics = result.frame(), check_metrics(result.metrics)
    if frame.is_empty():
        raise ResultError(f"{result.folder}: the sweep has no finished runs")
    rows = result.rows()
    factors = axes(result, frame)
    settings = list(dict.fromkeys(row["setting"] for row in rows))
    table = _table(rows, settings, factors, metrics)
    failures = result.failures
    manifest = result.manifest
    return page(
        "sweep.html.j2",
        figures(result, rows, frame, result.metrics),
        title=manifest.get("title") or f"Sweep of {manifest['scenario']['name']}",
        kicker=f"Bentpipe {manifest['core']['version']} · sweep",
        verdict=_verdict(rows, factors, metrics),
        description=paragraphs(manifest.get("description", "")),
        colours=setting_colours(settings),
        settings=settings,
        metrics=metrics,
        factors=factors,
        summary=_summary(result, factors, rows),
        warnings=_warnings(result, rows, failures),
        rows=table[:_MOST_ROWS],
        count=len(table),
        bootstrap=any(row["method"] == BOOTSTRAP for row in rows),
        differences=_differences(result, settings, factors, metrics, len(table)),
        failures=[each | {"where": _where(each["point"])} for each in failures[:_MOST_FAILURES]],
        failed=len(failures),
    )


def write_figures(
    result: SweepResult, folder: Path, formats: Sequence[str] = ("svg",), *, force: bool = False
) -> list[Path]:
    """Write all figures to `folder` in all formats; see `comparison.write_figures`."""
    made = figures(result, result.rows(), result.frame(), result.metrics, _FIGURE_WIDTH)
    return write_pictures(made, folder, formats, force=force)


def _summary(
    result: SweepResult, factors: Sequence[Axis], rows: Sequence[dict[str, Any]]
) -> list[tuple[str, str]]:
    manifest = result.manifest
    runs = sorted({row["runs"] for row in rows if row["runs"]})
    points = len({tuple(row[axis.key] for axis in factors) for row in rows})
    seeds = manifest.get("seeds", [])
    until = manifest.get("until")
    many = f"{runs[0]} to {runs[-1]}" if len(runs) > 1 else str(runs[0]) if runs else "no"
    varied = [f"{axis.key}: {_span(axis)}" for axis in factors]
    return [
        ("Scenario", manifest["scenario"]["name"]),
        ("Varied", "; ".join(varied)),
        ("Points", f"{points:,}, {_DESIGNS[manifest.get('design', 'grid')]}"),
        ("Runs", f"{many} of each setting at each point, from seed {seeds[0]} on" if seeds else many),
        (
            "Added until",
            f"the 95 % interval of {until['metric']} is within ±{until['share']:.3g} of the mean,"
            f" at most {until['most']} runs"
            if until
            else "",
        ),
        ("Changed from the file", ", ".join(manifest.get("overrides", []))),
    ]


def _verdict(rows: Sequence[dict[str, Any]], factors: Sequence[Axis], metrics: Sequence[Metric]) -> list[str]:
    """Return a sentence for each metric: where its mean is best, or its range without a better direction."""
    lines = []
    for metric in metrics:
        known = sorted(
            (row for row in rows if row["metric"] == metric.name and row["mean"] is not None),
            key=lambda row: row["mean"],
        )
        if not known:
            continue
        low, high = (_at(row, factors, metric) for row in (known[0], known[-1]))
        if metric.better:
            end, found = ("highest", known[::-1]) if metric.better == "more" else ("lowest", known)
            points = {tuple(row[axis.key] for axis in factors): row["setting"] for row in reversed(found)}
            first = [name for name in points.values() if name == found[0]["setting"]]
            share = f"{len(first)} of {plural(len(points), 'point')}"
            where = (
                f"; {found[0]['setting']} has the {end} mean at {share}"
                if len({row["setting"] for row in known}) > 1
                else ""
            )
            lines.append(f"{metric.label}: {end} {high if metric.better == 'more' else low}{where}.")
        else:
            lines.append(f"{metric.label}: from {low} to {high}.")
    return lines


def _at(row: dict[str, Any], factors: Sequence[Axis], metric: Metric) -> str:
    """Return a row's mean with its place: `2.1 Mbit/s (red, gateway.pep.delay = 20 ms)`."""
    place = [row["setting"], *(f"{axis.key} = {axis.written[row[axis.key]]}" for axis in factors)]
    return f"{number(row['mean'])} {metric.unit} ({', '.join(place)})".replace("  ", " ")


def _span(axis: Axis) -> str:
    unit = f" {axis.unit}" if axis.unit else ""
    labels = [axis.labels[value] for value in axis.values]
    if len(labels) <= 8:
        return f"{', '.join(labels)}{unit}"
    spread = ", on a logarithmic scale" if axis.log else ""
    return f"{len(labels)} values from {labels[0]} to {labels[-1]}{unit}{spread}"


def _warnings(
    result: SweepResult, rows: Sequence[dict[str, Any]], failures: Sequence[dict[str, Any]]
) -> list[str]:
    lines = []
    if not result.complete:
        lines.append("The sweep is incomplete; these are the results so far. The same command continues it.")
    if failures:
        lines.append(f"{plural(len(failures), 'run')} failed; the means exclude them. They are listed below.")
    if others := result.of_other_builds():
        lines.append(
            f"{plural(others, 'run')} come from another build of Bentpipe; no mean combines two builds."
        )
    if max((row["runs"] for row in rows), default=0) == 1:
        lines.append("One run at each point: there are no intervals, and differences may be due to chance.")
    lines += [f"{line}." for line in result.shortfalls()]
    if result.manifest.get("until"):
        lines.append(
            "Runs were added until an interval was narrow enough; such intervals are slightly too narrow."
            " The table gives the number of runs."
        )
    return lines


def _table(
    rows: Sequence[dict[str, Any]],
    settings: Sequence[str],
    factors: Sequence[Axis],
    metrics: Sequence[Metric],
) -> list[dict[str, Any]]:
    """Return a row for each setting and point, in the order of the factors' values."""
    order = [{value: index for index, value in enumerate(axis.values)} for axis in factors]
    found: dict[tuple[str, ...], dict[str, dict[str, Any]]] = {}
    for row in rows:
        found.setdefault((row["setting"], *(row[axis.key] for axis in factors)), {})[row["metric"]] = row
    return [
        {
            "setting": place[0],
            "point": [axis.labels[value] for axis, value in zip(factors, place[1:], strict=True)],
            "runs": max(row["runs"] for row in cells.values()),
            "cells": [measured(cells[metric.name]) for metric in metrics],
        }
        for place, cells in sorted(
            found.items(),
            key=lambda item: (
                settings.index(item[0][0]),
                [index[value] for index, value in zip(order, item[0][1:], strict=True)],
            ),
        )
    ]


def _differences(
    result: SweepResult,
    settings: Sequence[str],
    factors: Sequence[Axis],
    metrics: Sequence[Metric],
    places: int,
) -> list[dict[str, Any]]:
    """Return the other settings' differences from the first one at each point; empty if too long."""
    if len(settings) < 2 or places > _MOST_ROWS:
        return []
    found = []
    for other in settings[1:]:
        table = result.differences(other, settings[0], [metric.name for metric in metrics])
        family = table["p"].drop_nulls().len()
        if not family:
            continue
        lines: dict[tuple[str, ...], list[dict[str, Any]]] = {}
        for row in table.iter_rows(named=True):
            text, p = (
                measured(row, "difference", signed=True),
                (likelihood(row["p"]), likelihood(row["p_holm"])),
            )
            lines.setdefault(tuple(row[axis.key] for axis in factors), []).append(
                {
                    "text": text,
                    "certain": row["p_holm"] is not None and row["p_holm"] <= LEVEL,
                    "title": f"{row['verdict']}: p {p[0]}, corrected {p[1]}",
                }
            )
        found.append(
            {
                "setting": other,
                "baseline": settings[0],
                "family": family,
                "rows": [
                    {
                        "point": [axis.labels[value] for axis, value in zip(factors, point, strict=True)],
                        "cells": cells,
                    }
                    for point, cells in lines.items()
                ],
            }
        )
    return found


def _where(point: dict[str, str]) -> str:
    return ", ".join(f"{key} = {value}" for key, value in point.items())
