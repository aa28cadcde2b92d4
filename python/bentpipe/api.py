"""The functions of the package that run something."""

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from bentpipe._core import Scenario
from bentpipe.advice.advisor import advise
from bentpipe.live_runs.run import live
from bentpipe.models.fluid import model
from bentpipe.models.validation import validate
from bentpipe.runs.compare import compare, run
from bentpipe.runs.plan import listed, load, overrides_from
from bentpipe.runs.progress import OnProgress, reported
from bentpipe.runs.python_aqm import Setting
from bentpipe.runs.workers import workers_from
from bentpipe.sweeps.file import request
from bentpipe.sweeps.result import SweepResult
from bentpipe.sweeps.sweep import Precision, execute

__all__ = ["advise", "compare", "live", "load", "model", "run", "sweep", "validate"]


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
