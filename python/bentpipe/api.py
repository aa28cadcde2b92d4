"""The functions of the package that run something, and the reports of its results.

Report pages are imported when the first one is written: Altair and Jinja2 take half as long to import as the
whole package.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bentpipe._core import Scenario
from bentpipe.advice.advisor import Advice, advise
from bentpipe.live_runs.run import live
from bentpipe.models.fluid import ModelResult, model
from bentpipe.models.markov_result import Solution
from bentpipe.models.validation import Validation, validate
from bentpipe.pages import cell, chart, render
from bentpipe.runs.compare import compare, run
from bentpipe.runs.plan import listed, load, overrides_from
from bentpipe.runs.progress import OnProgress, reported
from bentpipe.runs.python_aqm import Setting
from bentpipe.runs.result import Result
from bentpipe.runs.source import described, from_dict, to_dict, to_toml
from bentpipe.runs.workers import workers_from
from bentpipe.sweeps.file import request
from bentpipe.sweeps.result import SweepResult
from bentpipe.sweeps.sweep import Precision, execute
from bentpipe.tuning.result import TuneResult

if TYPE_CHECKING:
    from bentpipe.pages import Plot

__all__ = ["advise", "compare", "live", "load", "model", "run", "sweep", "validate"]

for _name, _method in {
    "__repr__": described,
    "_repr_html_": cell,
    "from_dict": staticmethod(from_dict),
    "to_dict": to_dict,
    "to_toml": to_toml,
}.items():
    # Parts of the core's class that are written in Python.
    setattr(Scenario, _name, _method)


def sweep(
    scenario: Scenario | str | Path,
    vary: Sequence[str] | Mapping[str, str | Sequence[object]] = (),
    *,
    out: str | Path,
    settings: str | Sequence[str | Setting] | None = None,
    set: Mapping[str, object] | Sequence[str] | None = None,  # noqa: A002
    runs: int | None = None,
    seed: int | None = None,
    design: str | None = None,
    points: int | None = None,
    metrics: str | Sequence[str] | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    precision: Precision | None = None,
    progress: bool | None = None,
    on_progress: OnProgress | None = None,
) -> SweepResult:
    """Simulate every point of a design under every setting with the same seeds, into the dataset `out`.

    `scenario` is a path, a shipped name, a loaded scenario or a sweep file, whose keys other arguments
    override (docs/sweep.md). `vary` holds the factors, as `{"gateway.aqm.w_q": "0.01:0.2:log:8"}`; see
    `factors_from`. `set` overrides keys as in `load`; `metrics` are those that the report shows. Runs in
    the dataset are not repeated; `precision` adds runs where an interval is too wide. Runs execute on
    `jobs` threads, or on a `cluster`: `local:N` for N processes, or a scheduler's address. `on_progress` is
    called with the numbers of finished, wanted and failed runs; `progress` is that of `compare`. Raises
    `UsageError` and `ScenarioError` before anything runs; runs that fail later are listed in
    `SweepResult.failures`.
    """
    asked = request(
        scenario,
        vary,
        overrides_from(set),
        settings=listed(settings),
        runs=runs,
        seed=seed,
        design=design,
        points=points,
        metrics=metrics.split(",") if isinstance(metrics, str) else metrics,
    )
    plan, precision = asked.plan(), precision or asked.precision()
    with closing(workers_from(jobs, cluster)) as workers, reported(progress, on_progress) as reporter:
        return execute(plan, Path(out), workers=workers, precision=precision, on_progress=reporter.update)


_SHOWN: dict[type, tuple[str, str]] = {
    # Function of `bentpipe.report` that writes the page, and function of its `cells`.
    Result: ("comparison.render", "result_cell"),
    SweepResult: ("sweep.render", "sweep_cell"),
    TuneResult: ("tuning.tune_page", "tune_cell"),
    Advice: ("advice.advice_page", "advice_cell"),
    ModelResult: ("fluid.model_page", "model_cell"),
    Solution: ("markov.markov_page", "markov_cell"),
    Validation: ("fluid.validation_page", "validation_cell"),
}


def _drawn(name: str) -> Callable[[Any], str]:
    """Return `MODULE.FUNCTION` of `bentpipe.report`, imported when it is called."""
    module, function = name.split(".")

    def call(result: object) -> str:
        report = import_module(f"bentpipe.report.{module}")
        with import_module("bentpipe.report.panels").unchecked():
            text: str = getattr(report, function)(result.found if isinstance(result, Advice) else result)
        return text

    return call


for _kind, (_page, _cell) in _SHOWN.items():
    render.register(_kind, _drawn(_page))
    cell.register(_kind, _drawn(f"cells.{_cell}"))
cell.register(Scenario, _drawn("cells.scenario_cell"))


@chart.register(Result)
def _(result: Result, name: str, **options: Any) -> "Plot":  # noqa: ANN401
    from bentpipe.report import plots

    return plots.result_chart(result, name, **options)


@chart.register(SweepResult)
def _(result: SweepResult, name: str, *, x: str | None) -> "Plot":
    from bentpipe.report import plots

    return plots.sweep_chart(result, name, x=x)


@chart.register(TuneResult)
def _(result: TuneResult, name: str) -> "Plot":
    from bentpipe.report import plots

    return plots.tune_chart(result, name)


@chart.register(ModelResult)
def _(result: ModelResult, name: str, *, settings: str | Sequence[str] | None) -> "Plot":
    from bentpipe.report import plots

    return plots.accounts_chart([result.account()], name, result.settings, settings)


@chart.register(Validation)
def _(result: Validation, name: str, *, settings: str | Sequence[str] | None) -> "Plot":
    from bentpipe.report import plots

    return plots.accounts_chart(result.accounts, name, result.settings, settings)
