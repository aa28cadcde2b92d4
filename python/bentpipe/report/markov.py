"""The page of a Markov model: distribution of its queue, and each class under threshold control."""

import math
from collections.abc import Callable, Sequence
from typing import Any

from bentpipe import _core
from bentpipe.format import brief, paragraphs
from bentpipe.models.erlang_queue import ClassResult
from bentpipe.models.markov import MarkovResult
from bentpipe.models.markov_result import Solution
from bentpipe.report import vega
from bentpipe.report.colours import of_settings
from bentpipe.report.decimate import rounded_up
from bentpipe.report.pages import page
from bentpipe.report.panels import Figure, Panel, Width

__all__ = ["control", "distribution", "figures", "markov_page"]

_LEAST = 1e-6
"""Smallest probability that is drawn."""
_DASHES = ([1, 0], [6, 3], [2, 2], [8, 3, 2, 3], [10, 4])


def markov_page(solution: Solution) -> str:
    """Return the report of a Markov model's solution as HTML."""
    scenario = solution.scenario
    one = next(iter(solution.results.values()))[0]
    queue = one.queue
    balances = [abs(each.queue.balance) for found in solution.results.values() for each in found]
    return page(
        "markov.html.j2",
        figures(solution),
        title=f"Markov model: {scenario.title or scenario.name}",
        kicker=f"Bentpipe {_core.__version__}",
        verdict=[
            f"{setting}: {brief(100 * found[0].queue.loss, 3)} % of the packets are lost,"
            f" the others stay {brief(1e3 * found[0].queue.delay, 3)} ms."
            for setting, found in solution.results.items()
        ],
        description=paragraphs(scenario.description),
        summary=[
            ("Scenario", scenario.name),
            ("Link", f"{one.link}, {one.capacity * 1e-6:g} Mbit/s"),
            ("Service", f"Erlang-{queue.stages}, {queue.service_rate:g} packets/s"),
            ("Places", f"{queue.places} packets, the one in service counted"),
            ("Parameters from", scenario.source),
        ],
        warnings=[],
        notes=solution.notes,
        tables=solution.tables(),
        balance=f"{max(balances):.1e}",
        text=scenario.text,
    )


def figures(solution: Solution) -> list[Figure]:
    """Return the queue's distribution, and each class's loss and delay under threshold control."""
    return [distribution(dict(solution.results)), *control(dict(solution.control))]


def distribution(settings: dict[str, Sequence[MarkovResult]], width: Width = "container") -> Figure:
    """Draw the distribution of packets in the system: a panel per setting, a curve per number of states."""
    names = list(dict.fromkeys(_states(one) for found in settings.values() for one in found))
    shown = [p for found in settings.values() for one in found for p in one.queue.distribution if p >= _LEAST]
    least = 10.0 ** math.floor(math.log10(min(shown)))
    panels = []
    for setting, found in settings.items():
        rows = [
            {"states": _states(one), "packets": row["packets"], "probability": row["probability"]}
            for one in found
            for row in one.distribution()
            if row["probability"] >= _LEAST
        ]
        chart = (
            vega.Chart(vega.InlineData(values=rows))
            .mark_line(strokeWidth=2, interpolate="step")
            .encode(
                x=vega.X(
                    "packets:Q",
                    title="packets in the system" if setting == list(settings)[-1] else None,
                    scale=vega.Scale(domain=[0, found[0].queue.places], nice=False),
                ),
                y=vega.Y(
                    "probability:Q",
                    title="probability",
                    scale=vega.Scale(type="log", domain=[least, 1], nice=False),
                    axis=vega.Axis(format="~g", values=[10.0**-e for e in range(7)]),
                ),
                color=_colour("states", names, names),
                strokeDash=_dash("states", names, names),
            )
            .properties(width=width, height=150, title=setting)
        )
        panels.append(Panel(chart))
    caption = (
        "Probability of the number of packets in the system, including the one in service."
        f" Probabilities below {_LEAST:f} are not drawn."
    )
    return Figure("queue-distribution", "Distribution of the queue", caption, tuple(panels))


def control(states: dict[int, Sequence[MarkovResult]], width: Width = "container") -> list[Figure]:
    """Draw each class's loss and delay against the threshold, a panel for each number of states."""
    half: Width = width if width == "container" else int(width * 0.46)
    loss = _against_threshold(
        "control-loss",
        "Loss of each class under threshold control",
        "loss [%]",
        "Share of each class's packets that is lost",
        lambda one: 100 * one.loss,
        states,
        half,
    )
    delay = _against_threshold(
        "control-delay",
        "Delay of each class under threshold control",
        "delay [ms]",
        "Mean time in the system of each class's packets that are not lost",
        lambda one: 1e3 * one.delay,
        states,
        half,
    )
    return [loss, delay]


def _against_threshold(
    name: str,
    title: str,
    axis: str,
    caption: str,
    of: Callable[[ClassResult], float],
    states: dict[int, Sequence[MarkovResult]],
    width: Width,
) -> Figure:
    rows: dict[int, list[dict[str, Any]]] = {
        m: [
            {"threshold": 100 * (one.threshold or 0.0), "class": each.name, "value": of(each)}
            for one in found
            for each in one.queue.classes
        ]
        for m, found in states.items()
    }
    names = list(dict.fromkeys(row["class"] for found in rows.values() for row in found))
    top = rounded_up(1.05 * max(row["value"] for found in rows.values() for row in found))
    panels = []
    for m, values in rows.items():
        classes = list(dict.fromkeys(row["class"] for row in values))
        chart = (
            vega.Chart(vega.InlineData(values=values))
            .mark_line(strokeWidth=2)
            .encode(
                x=vega.X(
                    "threshold:Q",
                    title="threshold [% of the buffer]",
                    scale=vega.Scale(domain=[25, 95], nice=False),
                    axis=vega.Axis(values=[25, 35, 45, 55, 65, 75, 85, 95]),
                ),
                y=vega.Y("value:Q", title=axis, scale=vega.Scale(domain=[0, top], nice=False)),
                color=_colour("class", classes, names),
                strokeDash=_dash("class", classes, names),
            )
            .properties(width=width, height=200, title=f"{m} states")
        )
        panels.append(Panel(chart))
    whole = f"{caption}. The marking probability rises from 0 at the threshold to 1 at a full buffer."
    return Figure(name, title, whole, tuple(panels), len(panels))


def _states(one: MarkovResult) -> str:
    return f"{one.states} states"


def _colour(field: str, names: Sequence[str], among: Sequence[str]) -> vega.Color:
    """Return the colours of `names`, which depend only on their position in `among`."""
    colour = of_settings(among, among)
    scale = vega.Scale(domain=list(names), range=[colour[name] for name in names])
    return vega.Color(f"{field}:N", title=None, scale=scale)


def _dash(field: str, names: Sequence[str], among: Sequence[str]) -> vega.StrokeDash:
    """Return dashes in the same way, to distinguish curves that coincide."""
    dash = {name: _DASHES[index % len(_DASHES)] for index, name in enumerate(among)}
    scale = vega.Scale(domain=list(names), range=[dash[name] for name in names])
    return vega.StrokeDash(f"{field}:N", title=None, scale=scale)
