"""Compare the two sets of fluid equations for a gateway with the simulator over a grid of settings.

`python tools/gateway_models.py docs/models-gateway.md`, or `make gateway-models`, renews page and CSV file.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import blocks
from bentpipe.models.fluid import model
from bentpipe.runs.compare import compare
from bentpipe.runs.plan import load
from reference import with_generated

__all__ = ["CASES", "MODELS", "POINTS", "SETTINGS", "Found", "changes", "modelled", "simulated", "tables"]

SCENARIO = "byun2007-gateway"
MODELS: dict[str, "Change"] = {
    "gateway": {"model.equations": "gateway"},
    "timeouts": {"model.equations": "timeouts"},
    "timeouts, no delay": {"model.equations": "timeouts", "model.feedback": "none"},
}
"""The equations as printed, with timeouts, and with timeouts and immediate feedback."""
SETTINGS = ("RED 1", "RED 4", "AVQ", "AVQRED", "pi")
POINTS = ((50, 60), (100, 60), (200, 60), (400, 60), (100, 200), (400, 40), (400, 200))
"""Sessions and mean round trip [ms]; as in the scenario, round trips are up to a third shorter or longer."""

Change = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Found:
    """Results of a simulation or a model."""

    load: float
    """Offered load [Mbit/s]."""
    throughput: float
    """[Mbit/s]."""
    p: float
    """Share that is dropped [%]."""
    queue: float
    """Mean [packets]."""
    std: float
    """Standard deviation of the queue over time [packets]."""


def changes(sessions: int, round_trip: int) -> Change:
    """Return the overrides of a grid point; the scenario also starts faster and runs two minutes."""
    return {
        "run.warmup": "1 min",
        "run.duration": "2 min",
        "traffic.web.sessions": sessions,
        "traffic.web.ramp.over": "1 s",
        "traffic.web.ramp.pause": "0 s",
        "link.ingress.delay.uniform": [f"{round_trip / 3} ms", f"{2 * round_trip / 3} ms"],
    }


def simulated(change: Change, settings: tuple[str, ...] = SETTINGS) -> dict[str, Found]:
    """Simulate the scenario with `change` under `settings`, one run each."""
    result = compare(load(SCENARIO, set=dict(change)), settings=list(settings), runs=1)
    rows = {
        (row["setting"], row["metric"]): float(row["mean"])
        for row in result.rows()
        if row["mean"] is not None
    }
    metrics = ("offered_load", "throughput", "drop_rate", "queue_mean", "queue_std")
    return {each: Found(*(rows[each, metric] for metric in metrics)) for each in settings}


def modelled(change: Change, settings: tuple[str, ...] = SETTINGS) -> dict[str, Found]:
    """Solve the equations that `change` names for the scenario with `change` under `settings`."""
    result = model(load(SCENARIO, set=dict(change)), list(settings))
    moments = {(row["setting"], row["quantity"]): (row["mean"], row["std"]) for row in result.rows()}
    found = {}
    for each, table in result.tables.items():
        # Of all packets, as a simulation counts, not the mean of the samples' shares.
        load_, marked = table["offered_load"], table["offered_load"] * table["mark_probability"]
        found[each] = Found(
            moments[each, "offered_load"][0],
            moments[each, "throughput"][0],
            100.0 * float(marked.fill_nan(0.0).sum()) / float(load_.sum()),
            *moments[each, "queue"],
        )
    return found


@dataclass(frozen=True, slots=True)
class Case:
    """A single change of the scenario or the model."""

    name: str
    change: Change
    modelled: bool


CASES = (
    Case("simulator: the scenario unchanged", {}, False),
    Case(
        "simulator: objects of 1 GB, so that connections never end",
        {"traffic.web.object_size": "1 GB"},
        False,
    ),
    Case("simulator: all round-trip times 60 ms", {"link.ingress.delay": "30 ms"}, False),
    Case("simulator: unbounded windows", {"transport.byun2007.receive_window": "1 MB"}, False),
    Case("simulator: timeouts of two round-trip times", {"transport.byun2007.min_rto": "120 ms"}, False),
    Case("gateway: as printed", {}, True),
    Case("gateway: feedback after R", {"model.feedback": "round_trip"}, True),
    Case("gateway: RED's actual marking", {"model.laws": "actual"}, True),
    Case("timeouts", {"model.equations": "timeouts"}, True),
    Case("timeouts: immediate feedback", {"model.equations": "timeouts", "model.feedback": "none"}, True),
    Case("timeouts: RED's actual marking", {"model.equations": "timeouts", "model.laws": "actual"}, True),
    Case(
        "timeouts: of two round-trip times",
        {"model.equations": "timeouts", "transport.byun2007.min_rto": "120 ms"},
        True,
    ),
)
"""Single changes."""

CASE_SETTINGS = ("RED 4", "AVQRED")


def _one_at_a_time() -> str:
    heads = [
        f"{each}: {what}" for each in CASE_SETTINGS for what in ("load [Mbit/s]", "p [%]", "queue [packets]")
    ]
    rows = []
    for case in CASES:
        change = {"run.duration": "5 min", **case.change}
        found = (modelled if case.modelled else simulated)(change, CASE_SETTINGS)
        cells = [
            cell
            for x in found.values()
            for cell in (f"{x.load:.1f}", f"{x.p:.1f}", f"{x.queue:.0f} ± {x.std:.0f}")
        ]
        rows.append([case.name, *cells])
    return blocks.table(["case", *heads], rows)


def _grid(found: Mapping[tuple[int, int], Mapping[str, Mapping[str, Found]]]) -> str:
    """Return all points as CSV: p [%] and queue [packets]."""
    whose = {"simulator": "simulator", **{name: name.replace(", ", "_").replace(" ", "_") for name in MODELS}}
    heads = [f"{what}_{who}" for what in ("p", "queue", "queue_std") for who in whose.values()]
    lines = [",".join(["sessions", "round_trip_ms", "aqm", *heads])]
    for (sessions, round_trip), by in found.items():
        for setting in SETTINGS:
            all_ = [by[who][setting] for who in whose]
            cells = (
                [f"{x.p:.1f}" for x in all_]
                + [f"{x.queue:.0f}" for x in all_]
                + [f"{x.std:.0f}" for x in all_]
            )
            lines.append(",".join([str(sessions), str(round_trip), setting, *cells]))
    return "\n".join(lines) + "\n"


def _summary(found: Mapping[tuple[int, int], Mapping[str, Mapping[str, Found]]]) -> str:
    def off(who: str, setting: str, of: str, relative: bool) -> str:
        every = []
        for by in found.values():
            x, true = getattr(by[who][setting], of), getattr(by["simulator"][setting], of)
            every.append(abs(x - true) * (100.0 / true if relative else 1.0))
        return f"{median(every):.0f} ({max(every):.0f})"

    kinds = (
        ("load", "offered load [%]", True),
        ("throughput", "throughput [%]", True),
        ("p", "p [%]", True),
        ("queue", "queue [packets]", False),
        ("std", "queue, std [packets]", False),
    )
    rows = [
        [setting, label, *(off(who, setting, of, relative) for who in MODELS)]
        for setting in SETTINGS
        for of, label, relative in kinds
    ]
    return blocks.table(["AQM", "quantity", *MODELS], rows, texts=2)


def tables() -> tuple[str, str]:
    """Simulate and solve all; return the page's tables, and the points of the grid as CSV."""
    found: dict[tuple[int, int], dict[str, dict[str, Found]]] = {}
    for point in POINTS:
        change = changes(*point)
        found[point] = {"simulator": simulated(change)}
        for name, of in MODELS.items():
            found[point][name] = modelled({**change, **of})
    page = "\n".join(
        [
            "### Single changes\n",
            _one_at_a_time(),
            "\nMean ± standard deviation over time; five minutes each, one run.\n",
            "### Over the grid\n",
            "Difference from the simulator (relative, queues absolute): median over the grid (maximum):\n",
            _summary(found),
            "\nTwo minutes each, one run. [models-gateway.csv](models-gateway.csv)"
            " has p and queue at each point.\n",
        ]
    )
    return page, _grid(found)


if __name__ == "__main__":
    page = Path(sys.argv[1])
    made, points = tables()
    page.write_text(with_generated(page.read_text(encoding="utf-8"), made, page), encoding="utf-8")
    page.with_suffix(".csv").write_text(points, encoding="utf-8")
