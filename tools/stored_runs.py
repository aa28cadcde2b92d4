"""Comparisons that are stored in a folder, and their values on generated pages."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

import bentpipe as bp
from bentpipe import Result, ResultError, Scenario
from bentpipe.format import quantity, with_unit
from bentpipe.live_runs.processes import programs
from bentpipe.live_runs.session import versions
from bentpipe.report.panels import CONFIG
from bentpipe.runs.plan import make_plan
from bentpipe.runs.store import MANIFEST, core_digest
from bentpipe.stats.intervals import Summary
from bentpipe.stats.metrics import named_metric

__all__ = ["RUNS", "SEED", "Runs", "Values", "draw", "head", "known", "shown"]

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
        """Return a comparison: the stored one if scenario, settings, seeds and programs are the same."""
        out = self.folder / name
        plan = make_plan(scenario, settings=list(settings), runs=runs, seed=seed)
        wanted = {
            "settings": [{"name": each.name, "sha256": each.digest} for each in plan.settings],
            "seeds": list(plan.seeds),
            **({"versions": versions(programs())} if live else {"core": {"sha256": core_digest()}}),
        }
        if (out / MANIFEST).exists():
            stored = _opened(out)
            if stored is not None and _identity(stored.manifest, live=live) == _identity(wanted, live=live):
                print(f"{name}: stored runs, {out}; remove the folder to repeat them", flush=True)
                return stored
            print(f"{name}: repeated: scenario, settings, seeds or programs have changed", flush=True)
            shutil.rmtree(out)
        print(f"{name}: {plan.total} runs", flush=True)
        run = bp.live if live else bp.compare
        run(scenario, settings=list(settings), runs=runs, seed=seed, out=out)
        return bp.open(out)

    def of_both(
        self, prefix: str, scenario: Scenario, settings: Sequence[str], numbers: tuple[int, int], seed: int
    ) -> tuple[Result, Result]:
        """Return a comparison simulated and live, with `numbers` of runs; exits if a live run is invalid."""
        live = self.of(f"{prefix}live", scenario, settings, numbers[1], seed=seed, live=True)
        if live.invalid:
            raise SystemExit("; ".join(live.invalid))
        return self.of(f"{prefix}simulated", scenario, settings, numbers[0], seed=seed), live

    def write(self, name: str, text: str) -> Path:
        """Write a scenario to the folder, and return its path."""
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path


def _opened(folder: Path) -> Result | None:
    """Return the result in a folder; None for one of an interrupted call."""
    try:
        return bp.open(folder)
    except ResultError:
        return None


def _identity(manifest: Mapping[str, Any], *, live: bool) -> list[object]:
    """Return what identifies the runs of a manifest: settings, seeds, and the programs that made them."""
    settings = [(each["name"], each["sha256"]) for each in manifest["settings"]]
    found = manifest.get("versions", {}) if live else manifest["core"]
    made = [found.get(key) for key in (("bentpipe-gateway", "bentpipe-testbed") if live else ("sha256",))]
    return [settings, list(manifest["seeds"]), made]


def head(name: str) -> str:
    """Return a metric's label with its unit."""
    metric = named_metric(name)
    return with_unit(metric.label, metric.unit)


def known(values: Values, setting: str, metric: str) -> list[float]:
    """Return the values of a metric, all of which exist."""
    found = values[setting][metric]
    return [x for x in found if x is not None]


def shown(found: Iterable[Summary]) -> list[str]:
    """Return means with their 95 % intervals as cells of a table."""
    return [quantity(each.mean, each.ci95) for each in found]


def draw(path: Path, chart: alt.Chart | alt.VConcatChart) -> None:
    """Write a chart as SVG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    styled = chart.properties(background="white").configure(**CONFIG)
    path.write_text(vl_convert.vegalite_to_svg(styled.to_dict()) + "\n", encoding="utf-8")
