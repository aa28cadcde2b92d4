"""Comparisons that are stored in a folder, and their values on generated pages."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import altair as alt
import vl_convert

import bentpipe as bp
from bentpipe import Result, Scenario
from bentpipe.report.panels import CONFIG
from bentpipe.runs.store import core_digest
from bentpipe.stats.metrics import named_metric

__all__ = ["RUNS", "SEED", "Runs", "Values", "draw", "head", "known"]

SEED, RUNS = 9001, 10
"""Seeds of evidence, which no choice has used."""

Values = Mapping[str, Mapping[str, Sequence[float | None]]]
"""Values of each run, by setting and metric."""


class Runs:
    """Comparisons stored in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of(
        self,
        name: str,
        scenario: Scenario,
        settings: Sequence[str],
        runs: int = RUNS,
        *,
        seed: int = SEED,
        live: bool = False,
    ) -> Result:
        """Return a comparison, a stored one if there is; simulations of another build are repeated."""
        out = self.folder / name
        if (out / "manifest.json").exists():
            stored = bp.open(out)
            if live or stored.manifest["core"]["sha256"] == core_digest():
                print(f"{name}: stored runs, {out}; remove the folder to repeat them", flush=True)
                return stored
            shutil.rmtree(out)
        print(f"{name}: {len(settings) * runs} runs", flush=True)
        run = bp.live if live else bp.compare
        run(scenario, settings=list(settings), runs=runs, seed=seed, out=out)
        return bp.open(out)


def head(name: str) -> str:
    """Return a metric's label with its unit."""
    metric = named_metric(name)
    return metric.label + (f" [{metric.unit}]" if metric.unit else "")


def known(values: Values, setting: str, metric: str) -> list[float]:
    """Return the values of a metric, all of which exist."""
    found = values[setting][metric]
    return [x for x in found if x is not None]


def draw(path: Path, chart: alt.Chart | alt.VConcatChart) -> None:
    """Write a chart as SVG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shown = chart.properties(background="white").configure(**CONFIG)
    path.write_text(vl_convert.vegalite_to_svg(shown.to_dict()) + "\n", encoding="utf-8")
