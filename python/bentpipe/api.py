"""The functions of the package that run something, and the reports of its results.

Report pages are imported when the first one is written: Altair and Jinja2 take half as long to import as the
whole package.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from bentpipe.advice.advisor import Advice, advise
from bentpipe.live_runs.run import live
from bentpipe.models.fluid import ModelResult, model
from bentpipe.models.markov_result import Solution
from bentpipe.models.validation import Validation, validate
from bentpipe.pages import render
from bentpipe.runs.compare import compare, run
from bentpipe.runs.plan import load, overrides_from
from bentpipe.runs.python_aqm import Setting
from bentpipe.runs.result import Result
from bentpipe.runs.workers import OnProgress, workers_from
from bentpipe.sweeps.file import request
from bentpipe.sweeps.result import SweepResult
from bentpipe.sweeps.sweep import Precision, execute
from bentpipe.tuning.result import TuneResult

__all__ = ["advise", "compare", "live", "load", "model", "run", "sweep", "validate"]


def sweep(
    scenario: str | Path,
    vary: Sequence[str] | Mapping[str, str | Sequence[object]] = (),
    *,
    out: str | Path,
    settings: Sequence[str | Setting] | None = None,
    set: Mapping[str, object] | Sequence[str] = (),  # noqa: A002
    runs: int | None = None,
    seed: int | None = None,
    design: str | None = None,
    points: int | None = None,
    metrics: Sequence[str] | None = None,
    jobs: int | None = None,
    cluster: str | None = None,
    precision: Precision | None = None,
    on_progress: OnProgress | None = None,
) -> SweepResult:
    """Simulate every point of a design under every setting with the same seeds, into the dataset `out`.

    `scenario` may be a sweep file too; other arguments override its keys (docs/sweep.md). `vary` holds the
    factors, as `{"gateway.aqm.w_q": "0.01:0.2:log:8"}`; see `factors_from`. `set` overrides keys as in
    `load`; `metrics` are those that the report shows. Runs in the dataset are not repeated; `precision` adds
    runs where an interval is too wide. Runs execute on `jobs` threads, or on a `cluster`: `local:N` for N
    processes, or a scheduler's address. Raises `UsageError` and `ScenarioError` before anything runs; runs
    that fail later are listed in `SweepResult.failures`.
    """
    asked = request(
        scenario,
        vary,
        overrides_from(set),
        settings=settings,
        runs=runs,
        seed=seed,
        design=design,
        points=points,
        metrics=metrics,
    )
    plan, precision = asked.plan(), precision or asked.precision()
    with closing(workers_from(jobs, cluster)) as workers:
        return execute(plan, Path(out), workers=workers, precision=precision, on_progress=on_progress)


@render.register
def _(result: Result) -> str:
    from bentpipe.report import comparison

    return comparison.render(result)


@render.register
def _(result: SweepResult) -> str:
    from bentpipe.report import sweep

    return sweep.render(result)


@render.register
def _(result: TuneResult) -> str:
    from bentpipe.report.tuning import tune_page

    return tune_page(result)


@render.register
def _(result: Advice) -> str:
    from bentpipe.report.advice import advice_page

    return advice_page(result.found)


@render.register
def _(result: ModelResult) -> str:
    from bentpipe.report.fluid import model_page

    return model_page(result)


@render.register
def _(result: Solution) -> str:
    from bentpipe.report.markov import markov_page

    return markov_page(result)


@render.register
def _(result: Validation) -> str:
    from bentpipe.report.fluid import validation_page

    return validation_page(result)
