"""Congestion control for satellite gateways: simulate it, compare it, believe it.

Quick start: half a minute of the 2007 satellite gateway under two settings, two seeds each.

>>> import bentpipe as bp
>>> scenario = bp.load("byun2007-gateway", set={"run.duration": "30 s"})
>>> r = bp.compare(scenario, settings=["RED 4", "AVQRED"], runs=2)
>>> r.settings
['RED 4', 'AVQRED']
>>> table = r.table()
>>> table.columns[:7]
['setting', 'metric', 'unit', 'mean', 'std', 'ci95', 'runs']
>>> queue = r.series("transmit_queue")
>>> queue.columns
['setting', 'seed', 'time', 'value']
>>> r.report("report.html").name  # doctest: +SKIP
'report.html'

The frames are polars'; `r.table().to_pandas()` and `pyarrow.table(r.table())` work where those are installed.
In notebooks, scenarios and results show themselves, and `r.plot("transmit_queue")` draws. Errors that the
caller can correct are `bp.ScenarioError`, `bp.UsageError` and `bp.ResultError`; their text is complete.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from bentpipe._core import __version__
from bentpipe.errors import (
    AlgorithmError,
    BentpipeError,
    ClusterError,
    LiveError,
    ModelError,
    ResultError,
    ScenarioError,
    SimulationError,
    UsageError,
)
from bentpipe.tuning.quiet import without_widget_warning

if TYPE_CHECKING:
    from bentpipe._core import Scenario
    from bentpipe.advice.advisor import Advice
    from bentpipe.api import advise, compare, live, load, model, run, sweep, validate
    from bentpipe.models.fluid import ModelResult
    from bentpipe.models.validation import Validation
    from bentpipe.runs.capture import Capture
    from bentpipe.runs.python_aqm import (
        Aqm,
        Context,
        Packet,
        Param,
        QueueSlot,
        QueueState,
        Rng,
        Setting,
        Verdict,
    )
    from bentpipe.runs.qlog import Qlog
    from bentpipe.runs.result import Result
    from bentpipe.runs.result import open_result as open  # noqa: A004
    from bentpipe.sweeps.result import SweepResult, open_sweep
    from bentpipe.sweeps.sweep import Precision
    from bentpipe.tuning.result import TuneResult, open_tune
    from bentpipe.tuning.tune import tune

__all__ = [
    "Advice",
    "AlgorithmError",
    "Aqm",
    "BentpipeError",
    "Capture",
    "ClusterError",
    "Context",
    "LiveError",
    "ModelError",
    "ModelResult",
    "Packet",
    "Param",
    "Precision",
    "Qlog",
    "QueueSlot",
    "QueueState",
    "Result",
    "ResultError",
    "Rng",
    "Scenario",
    "ScenarioError",
    "Setting",
    "SimulationError",
    "SweepResult",
    "TuneResult",
    "UsageError",
    "Validation",
    "Verdict",
    "__version__",
    "advise",
    "compare",
    "live",
    "load",
    "model",
    "open",
    "open_sweep",
    "open_tune",
    "run",
    "sweep",
    "tune",
    "validate",
]


_MODULES = {
    "advice.advisor": "Advice",
    "api": "advise compare live load model run sweep validate",
    "models.fluid": "ModelResult",
    "models.validation": "Validation",
    "runs.capture": "Capture",
    "runs.python_aqm": "Aqm Context Packet Param QueueSlot QueueState Rng Setting Verdict",
    "runs.qlog": "Qlog",
    "runs.result": "Result open",
    "runs.source": "Scenario",
    "sweeps.result": "SweepResult open_sweep",
    "sweeps.sweep": "Precision",
    "tuning.result": "TuneResult open_tune",
    "tuning.tune": "tune",
}
"""Modules that are imported when one of their names is used, so that a command imports only what it needs."""


def __getattr__(name: str) -> Any:  # noqa: ANN401
    for module, names in _MODULES.items():
        if name in names.split():
            with without_widget_warning():
                imported = import_module(f"bentpipe.{module}")
            globals()[name] = found = getattr(imported, "open_result" if name == "open" else name)
            return found
    raise AttributeError(f"module 'bentpipe' has no attribute '{name}'")


def __dir__() -> list[str]:
    return sorted([*__all__, "__all__", "__doc__", "__file__", "__name__", "__path__"])
