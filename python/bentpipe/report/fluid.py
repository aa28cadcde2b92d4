"""The pages of a fluid model and of a validation."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from bentpipe import _core
from bentpipe.format import as_printed, brief, clock, difference, paragraphs, plural, quantity, spread
from bentpipe.models.domain import domain_warnings
from bentpipe.models.engines import QUANTITIES, with_spread
from bentpipe.models.findings import findings, known_failures, left_out
from bentpipe.models.fluid import ModelResult
from bentpipe.models.validation import Stationary, Validation
from bentpipe.report.overlays import engine_colours, over_time, ratios
from bentpipe.report.pages import dated, page, parameters
from bentpipe.report.panels import one_run

__all__ = ["model_page", "validation_page"]

_ONE_RUN = "One run per setting: there are no confidence intervals, and differences may be due to chance."


def model_page(result: ModelResult) -> str:
    """Return the report of a model's result as HTML."""
    manifest = result.manifest
    scenario = manifest["scenario"]
    account = result.account()
    found = {(row["setting"], row["quantity"]): row for row in result.rows()}
    rows = [
        {
            "label": each.label,
            "unit": each.unit,
            "cells": [with_spread(found[setting, each.name]) for setting in result.settings],
        }
        for each in QUANTITIES
    ]
    return page(
        "model.html.j2",
        over_time(
            [account],
            result.settings,
            _capacity(result),
            scenario["duration"],
            scenario["sample_interval"],
            "",
        ),
        title=f"Model: {scenario['title'] or scenario['name']}",
        verdict=_verdict(result, found),
        kicker=f"Bentpipe {manifest['core']['version']}",
        description=paragraphs(scenario["description"]),
        summary=_summary(result),
        warnings=[*known_failures(result.manifest["settings"], result.rows()), *_warnings(result)],
        settings=result.settings,
        rows=rows,
        interval=_interval(scenario),
        used=_equations(result),
        parameters=parameters(manifest["settings"]),
        scenario=scenario,
    )


def validation_page(result: Validation) -> str:
    """Return the report of a validation as HTML."""
    manifest = result.simulation.manifest
    scenario, seeds = manifest["scenario"], result.simulation.seeds
    accounts, rows = result.accounts, result.rows()
    runs = len(seeds)
    capacity = {entry["name"]: entry["capacity"] * 1e-6 for entry in manifest["settings"]}
    interval = scenario["sample_interval"]
    run = one_run(seeds[0], runs)
    drawn = over_time(accounts, result.settings, capacity, scenario["duration"], interval, run)
    summed_up = ratios(accounts, rows)
    fluid = result.model if isinstance(result.model, ModelResult) else None
    notes = [f"{note}." for note in result.model.notes] if isinstance(result.model, Stationary) else []
    inputs = {entry["name"]: entry for entry in fluid.manifest["settings"]} if fluid else {}
    printed = [row["printed"] for row in rows if row["printed"]]
    summary_of = findings(rows, [account.engine for account in accounts], inputs)
    few = [_ONE_RUN] if runs == 1 else []
    summary = [
        *(_summary(fluid, equations=False) if fluid else _looked_at(scenario)),
        ("Runs", f"{plural(runs, 'run')} per setting, seeds {', '.join(map(str, seeds))}"),
        *((account.engine.capitalize(), account.title) for account in accounts),
    ]
    return page(
        "validation.html.j2",
        [*([summed_up] if summed_up else []), *drawn],
        title=f"Validation: {scenario['title'] or scenario['name']}",
        verdict=list(summary_of.summary),
        kicker=dated(manifest),
        description=paragraphs(scenario["description"]),
        summary=summary,
        warnings=(_all_warnings(fluid) if fluid else notes) + few,
        engines=accounts,
        colours=engine_colours(accounts),
        settings=result.settings,
        seeds=seeds,
        runs=plural(runs, "run"),
        interval=_interval(scenario),
        findings=summary_of,
        groups=_groups(rows, [account.engine for account in accounts], result.settings),
        printed=bool(printed),
        calibrated=any(each["calibrated"] for each in printed),
        sources=sorted({each["source"] for each in printed if each["source"]}),
        used=_equations(fluid) if fluid else [],
        parameters=parameters(manifest["settings"]),
        scenario=scenario,
    )


def _verdict(result: ModelResult, found: Mapping[tuple[str, str], Mapping[str, Any]]) -> list[str]:
    """Return sentences on the queue and the throughput of each setting, as the model has them."""
    lines = []
    for setting in result.settings:
        queue, rate = found[setting, "queue"], found[setting, "throughput"]
        lines.append(
            f"{setting}: a queue of {with_spread(queue)} {queue['unit']},"
            f" a throughput of {with_spread(rate)} {rate['unit']}."
        )
    return lines


def _groups(
    rows: Sequence[Mapping[str, Any]], engines: Sequence[str], settings: Sequence[str]
) -> list[dict[str, Any]]:
    """Return the table's rows, grouped by setting."""
    first = engines[0]
    groups = []
    for setting in settings:
        lines = []
        for row in rows:
            if row["setting"] != setting:
                continue
            cells = []
            for engine in engines:
                entry = row[engine]
                cell: dict[str, Any] = {
                    "mean": quantity(entry["mean"], entry["ci95"], entry["runs"]),
                    "std": spread(entry),
                }
                if engine != first:
                    base, half = row[first]["mean"], row[first]["ci95"]
                    apart = None not in (entry["mean"], base, half) and abs(entry["mean"] - base) > half
                    cell |= {"difference": difference(entry), "certain": apart}
                cells.append(cell)
            lines.append(
                {
                    "label": row["label"],
                    "unit": row["unit"],
                    "cells": cells,
                    "printed": as_printed(row["printed"]),
                    "calibrated": bool(row["printed"] and row["printed"]["calibrated"]),
                }
            )
        groups.append({"setting": setting, "rows": lines})
    return groups


def _capacity(result: ModelResult) -> dict[str, float]:
    """Return the mean rate of each setting's link [Mbit/s]."""
    found = {}
    for setting, table in result.tables.items():
        mean = table["capacity"].mean()
        found[setting] = float(mean) * 1e-6 if isinstance(mean, int | float) else 0.0
    return found


def _interval(scenario: Mapping[str, Any]) -> str:
    return f"{scenario['sample_interval'] * 1e3:g} ms"


def _looked_at(scenario: Mapping[str, Any]) -> list[tuple[str, str]]:
    over = f"{clock(scenario['duration'])} after {clock(scenario['warmup'])} of warm-up"
    return [
        ("Scenario", scenario["name"]),
        ("Measured", over),
        ("Parameters from", scenario["source"]),
        ("Changed from the file", ", ".join(scenario["overrides"])),
    ]


def _summary(result: ModelResult, *, equations: bool = True) -> list[tuple[str, str]]:
    model = result.manifest["model"]
    names = sorted({entry["equations"] for entry in result.manifest["settings"]})
    return [
        *_looked_at(result.manifest["scenario"]),
        *([("Equations", ", ".join(names))] if equations else []),
        ("Step", f"{model['step'] * 1e-6:g} ms, history {model['history'] * 1e-9:g} s"),
        ("Driven by", _driven(model.get("series"))),
    ]


def _driven(series: Mapping[str, Any] | None) -> str:
    """Return a description of the measured series."""
    if not series:
        return "no measured series: constant load and mean PEP delay"
    digest = str(series["digest"])[:12]
    return f"measured series with a period of {series['period']:g} s, SHA-256 {digest}…"


def _warnings(result: ModelResult) -> list[str]:
    """Return warnings about inputs that the source does not give."""
    lines = []
    made_up = dict.fromkeys(each["title"] for each in _equations(result) if each["reconstructed"])
    if made_up:
        lines.append(f"Reconstructed equations: {', '.join(made_up)}. Their source only describes them.")
    if any(row["calibrated"] for row in result.manifest["printed"]):
        lines.append(
            "Some of the scenario's parameters were fitted to values printed in its source: see the comments"
            " in the scenario file."
        )
    if result.manifest["model"].get("series"):
        lines.append(
            "The equations are driven by series measured in a simulation without AQM and bottleneck, so model"
            " and simulation are not independent."
        )
    return lines


def _all_warnings(result: ModelResult) -> list[str]:
    settings = result.manifest["settings"]
    return [*domain_warnings(settings), *left_out(settings), *_warnings(result)]


def _equations(result: ModelResult) -> list[dict[str, Any]]:
    """Return the equations with their inputs and the settings that use them."""
    docs = _docs()
    found: dict[str, dict[str, Any]] = {}
    for entry in result.manifest["settings"]:
        given = json.dumps([entry["equations"], entry["inputs"]], sort_keys=True)
        if given not in found:
            doc = docs.get(entry["equations"], "")
            found[given] = {
                "title": entry["equations"],
                "doc": doc,
                "reconstructed": "reconstructed" in doc,
                "inputs": [row | {"value": _value(row["value"])} for row in entry["inputs"]],
                "settings": [],
            }
        found[given]["settings"].append(entry["name"])
    return list(found.values())


def _value(value: float | None) -> str:
    return "unlimited" if value is None else brief(value, 4)


def _docs() -> dict[str, str]:
    """Return the schema's description of each kind of equations."""
    kinds = json.loads(_core.schema())["$defs"]["Equations"]["oneOf"]
    return {kind["const"]: kind["description"] for kind in kinds}
