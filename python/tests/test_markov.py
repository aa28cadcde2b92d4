"""The Markov model of a scenario, compared with the simulator for the same MMPP, and its errors."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
import polars as pl
import pytest
from scipy.stats import t as student

import bentpipe as bp
from bentpipe.models import markov
from bentpipe.models.erlang_queue import solve
from bentpipe.models.mmpp import Mmpp, TwoState, fit, moments, superpose
from bentpipe.stats.metrics import METRICS

RUNS = 16

QUEUE = """
title = "MMPP/Erlang-4/1/L"
[run]
warmup = "10 s"
duration = "1600 s"
sample_interval = "1 s"
[host.a]
[host.b]
[router.r]
[link.in]
between = ["a", "r"]
[link.wire]
between = ["r", "b"]
rate = "1 Mbps"
queue = { limit = "20 packets", aqm = { algorithm = "droptail" } }
"""

# 125 packets/s are served. Lengths with a mean of 1000 B are rounded to bytes and at most 65535 B.
SMOOTH = """
[traffic.smooth]
kind = "mmpp"
from = "a"
to = "b"
packet = { erlang = { shape = 4, mean = "1000 B" } }
states = [{ rate = "300 kbps", sojourn = "500 ms" }, { rate = "600 kbps", sojourn = "500 ms" }]
"""
ROUGH = """
[traffic.rough]
kind = "mmpp"
from = "a"
to = "b"
packet = { erlang = { shape = 4, mean = "1000 B" } }
states = [
    { rate = "0 bps", sojourn = "300 ms" },
    { rate = "600 kbps", sojourn = "200 ms" },
    { rate = "1200 kbps", sojourn = "50 ms" },
]
transitions = [[0, 3, 1], [1, 0, 0], [1, 1, 0]]
"""
ON_OFF = """
[traffic.video]
kind = "on_off"
from = "a"
to = "b"
flows = 3
rate = "200 kbps"
packet = { erlang = { shape = 4, mean = "1000 B" } }
on = { exponential = "800 ms" }
off = { exponential = "200 ms" }
[traffic.web]
kind = "on_off"
from = "a"
to = "b"
flows = 4
rate = "250 kbps"
packet = { erlang = { shape = 4, mean = "1000 B" } }
on = { exponential = "200 ms" }
off = { exponential = "1 s" }
[traffic.ftp]
kind = "on_off"
from = "a"
to = "b"
rate = "600 kbps"
packet = { erlang = { shape = 4, mean = "1000 B" } }
on = { exponential = "500 ms" }
off = { exponential = "2 s" }
"""


def parsed(text: str) -> bp.Scenario:
    return bp.Scenario.parse(text, "test.toml", [])


class CountingDropTail(bp.Aqm):
    """Drop tail that counts arrivals, losses and waits of each flow after the warm-up."""

    copies: ClassVar[list[CountingDropTail]] = []

    def __init__(self) -> None:
        self.arrived, self.lost, self.left, self.waited = [0, 0], [0, 0], [0, 0], [0.0, 0.0]

    def __deepcopy__(self, _: dict[int, Any]) -> CountingDropTail:
        fresh = CountingDropTail()
        self.copies.append(fresh)
        return fresh

    def arrive(self, pkt: bp.Packet, cx: bp.Cx) -> bp.Verdict:
        self.arrived[pkt.flow] += cx.now >= 10
        return bp.Verdict.PASS

    def depart(self, pkt: bp.Packet, cx: bp.Cx) -> bp.Verdict:
        if pkt.arrival >= 10:
            self.left[pkt.flow] += 1
            self.waited[pkt.flow] += cx.now - pkt.arrival
        return bp.Verdict.PASS

    def overflowed(self, pkt: bp.Packet, cx: bp.Cx) -> None:
        self.lost[pkt.flow] += cx.now >= 10


def assert_within_interval(found: list[float], expected: float) -> None:
    """Check that the model lies within the narrow 99 % confidence interval of the runs' mean."""
    half = float(student.ppf(0.995, len(found) - 1)) * float(np.std(found, ddof=1)) / math.sqrt(len(found))
    assert abs(float(np.mean(found)) - expected) < half, f"{np.mean(found)} ± {half}, but {expected}"
    assert half < 0.1 * expected


def per_run(result: bp.Result, metric: str) -> list[float]:
    return result.metrics().filter(pl.col("metric") == metric)["value"].to_list()


@pytest.mark.long
def test_simulator_agrees_for_the_same_mmpp() -> None:
    scenario = parsed(QUEUE + SMOOTH + ROUGH)
    found = markov.of(scenario)
    assert (found.states, found.queue.places, found.notes) == (6, 21, ())
    CountingDropTail.copies.clear()
    result = bp.compare(scenario, [bp.Setting("spy", aqm=CountingDropTail())], runs=RUNS)
    books = [spy for spy in CountingDropTail.copies if sum(spy.arrived)]
    assert len(books) == RUNS
    assert_within_interval(per_run(result, "queue_time_average"), found.queue.queue_mean)
    assert_within_interval(per_run(result, "drop_rate"), 100 * found.queue.loss)
    assert_within_interval(per_run(result, "queue_delay_mean"), 1e3 * found.queue.wait)
    assert_within_interval(per_run(result, "throughput"), found.queue.utilization)
    for i, one in enumerate(found.queue.classes):
        assert_within_interval([book.arrived[i] / 1600 for book in books], one.offered)
        assert_within_interval([book.lost[i] / book.arrived[i] for book in books], one.loss)
        assert_within_interval([book.waited[i] / book.left[i] for book in books], one.wait)


@pytest.mark.parametrize("threshold", [0.25, 0.75])
def test_simulator_agrees_under_threshold_control(threshold: float) -> None:
    control = f'algorithm = "droptail", threshold = {threshold}'
    scenario = parsed((QUEUE + SMOOTH + ROUGH).replace('algorithm = "droptail"', control))
    found = markov.of(scenario)
    assert found.threshold == threshold
    result = bp.run(scenario, runs=RUNS)
    assert_within_interval(per_run(result, "queue_time_average"), found.queue.queue_mean)
    assert_within_interval(per_run(result, "drop_rate"), 100 * found.queue.loss)
    assert_within_interval(per_run(result, "mark_rate"), 100 * found.queue.marked)
    assert_within_interval(per_run(result, "queue_delay_mean"), 1e3 * found.queue.wait)


def test_scenario_is_converted_to_the_queue_model() -> None:
    """Two sources of 25 packets/s (200 kbit/s in 1000 B); service of 125 packets/s; 20 wait, one is sent."""
    smooth = SMOOTH.replace("[traffic.smooth]", "[traffic.smooth]\nflows = 2")
    found = markov.of(parsed(QUEUE + smooth + ROUGH), stages=2, threshold=0.5)
    one = Mmpp(np.array([[-2.0, 2], [2, -2]]), np.array([37.5, 75]), "smooth")
    # Transition probabilities over the mean stays of 0.3, 0.2 and 0.05 s.
    jumps = np.array([[0, 0.75, 0.25], [1, 0, 0], [0.5, 0.5, 0]]) / np.array([[0.3], [0.2], [0.05]])
    three = Mmpp(jumps - np.diag(jumps.sum(axis=1)), np.array([0, 75.0, 150]), "rough")
    marks = np.clip((np.maximum(np.arange(22) - 1, 0) / 20 - 0.5) / 0.5, 0, 1)
    by_hand = solve(superpose([one.alike(2), three]), 125.0, 2, 21, marks)
    assert found.queue.distribution == pytest.approx(by_hand.distribution, rel=1e-9)
    assert found.capacity == 1e6
    assert found.packet == 1000
    assert [note.split(":")[0] for note in found.notes] == ["traffic.smooth", "traffic.rough"]
    assert "coefficient of variation of 0.25, Erlang-2" in found.notes[0]


def test_on_off_sources_are_fitted_and_the_last_are_merged() -> None:
    scenario = parsed(QUEUE + ON_OFF)
    video, web = TwoState.on_off(25.0, 0.8, 0.2, 3), TwoState.on_off(31.25, 0.2, 1.0, 4)
    ftp = TwoState.on_off(75.0, 0.5, 2.0)
    eight = markov.of(scenario)
    assert eight.states == 8
    by_hand = solve(superpose([fit(moments([s])) for s in (video, web, ftp)]), 125.0, 4, 21)
    assert eight.queue.distribution == pytest.approx(by_hand.distribution, rel=1e-9)
    four = markov.of(scenario, states=4)
    assert [one.name for one in four.queue.classes] == ["video", "web + ftp"]
    by_hand = solve(superpose([fit(moments([video])), fit(moments([web, ftp]))]), 125.0, 4, 21)
    assert four.queue.distribution == pytest.approx(by_hand.distribution, rel=1e-9)
    assert four.queue.offered == pytest.approx(eight.queue.offered, rel=1e-9)
    assert markov.of(scenario, states=2).queue.classes[0].name == "video + web + ftp"
    with pytest.raises(bp.UsageError, match="states is 5, but merging the last classes gives 8, 4, 2"):
        markov.of(scenario, states=5)


def test_fit_is_close_to_the_exact_superposition() -> None:
    """The fit has three moments and 8 states; the superposition has 40."""
    scenario = parsed(QUEUE + ON_OFF)
    exact, fitted = markov.of(scenario, fitted=False), markov.of(scenario)
    assert (exact.states, fitted.states) == (40, 8)
    assert fitted.queue.offered == pytest.approx(exact.queue.offered, rel=1e-9)
    assert fitted.queue.loss == pytest.approx(exact.queue.loss, rel=0.1)
    assert fitted.queue.queue_mean == pytest.approx(exact.queue.queue_mean, rel=0.1)
    assert fitted.queue.loss != pytest.approx(exact.queue.loss, rel=1e-6)


def test_errors_of_the_fit_match_the_docs() -> None:
    """The shipped scenario at 125 packets/s: the four FTP sources lumped, or all classes fitted."""
    others = [
        TwoState.on_off(187.5, 0.8, 0.2, 4, "video"),
        TwoState.on_off(50.0, 0.4, 0.6, 6, "multimedia"),
        TwoState.on_off(62.5, 0.2, 1.8, 20, "web"),
    ]
    ftp = TwoState.on_off(250.0, 0.5, 1.5, 4, "ftp")
    classes = [fit(moments([source]), source.name) for source in others]
    lumped = solve(superpose([*classes, ftp.one.alike(4)]), 1250.0, 4, 101)
    assert lumped.states == 40
    assert [round(lumped.queue_mean, 1), round(1e3 * lumped.wait, 1)] == [24.7, 23.0]
    assert round(100 * lumped.loss, 2) == 2.20
    fitted = markov.of(bp.load("mmpp-queue")).queue
    assert [round(fitted.queue_mean, 1), round(1e3 * fitted.wait, 1)] == [26.7, 25.0]
    assert round(100 * fitted.loss, 2) == 2.50
    eight = markov.of(bp.load("mmpp-queue"), states=8).queue
    assert [round(eight.queue_mean, 1), round(1e3 * eight.wait, 1)] == [27.5, 25.8]
    assert round(100 * eight.loss, 2) == 2.57


def test_poisson_traffic_is_a_class_with_one_state() -> None:
    text = (
        QUEUE
        + '[traffic.x]\nkind = "poisson"\nfrom = "a"\nto = "b"\nflows = 3\nrate = "200 kbps"\npacket = "1 KB"'
    )
    found = markov.of(parsed(text))
    assert found.states == 1
    by_hand = solve(superpose([Mmpp.poisson(75.0)]), 125.0, 4, 21)
    assert found.queue.distribution == pytest.approx(by_hand.distribution, rel=1e-9)
    assert "lengths have a squared coefficient of variation of 0, Erlang-4 service has 0.25" in found.notes[0]


def test_different_packet_lengths_are_noted() -> None:
    text = QUEUE + SMOOTH + ROUGH.replace("1000 B", "500 B")
    found = markov.of(parsed(text))
    smooth, rough = found.queue.classes
    assert found.packet == pytest.approx((1000 * smooth.offered + 500 * rough.offered) / found.queue.offered)
    assert found.notes[1].startswith(
        "traffic.rough: packets with a mean of 500 B are served with the overall mean, "
    )


def test_rows_have_unique_names_and_units() -> None:
    found = markov.of(parsed(QUEUE + SMOOTH + ROUGH))
    rows = found.rows()
    assert {row["class"] for row in rows} == {"all", "smooth", "rough"}
    assert all(math.isfinite(row["value"]) for row in rows)
    assert len({(row["class"], row["quantity"]) for row in rows}) == len(rows)
    by = {(row["class"], row["quantity"]): row for row in rows}
    assert by["all", "throughput"]["value"] == pytest.approx(found.queue.utilization)
    assert by["all", "offered_load"]["value"] == pytest.approx(found.queue.offered * 8e-3)
    assert by["rough", "delay"]["unit"] == "s"
    # Quantities with a metric's name have its unit.
    units = {metric.name: metric.unit for metric in METRICS}
    for (name, quantity), row in by.items():
        assert name != "all" or row["unit"] == units.get(quantity, row["unit"]), quantity
    assert [row["packets"] for row in found.distribution()] == list(range(22))
    assert sum(row["probability"] for row in found.distribution()) == pytest.approx(1)


def test_lower_threshold_means_more_loss_and_less_delay() -> None:
    found = markov.control(parsed(QUEUE + ON_OFF), (0.25, 0.5, 0.95))
    assert [one.threshold for one in found] == [0.25, 0.5, 0.95]
    assert found[0].queue.loss > found[1].queue.loss > found[2].queue.loss
    assert found[0].queue.wait < found[1].queue.wait < found[2].queue.wait
    assert len(markov.THRESHOLDS) == 15
    assert (markov.THRESHOLDS[0], markov.THRESHOLDS[-1]) == (0.25, 0.95)


@pytest.mark.parametrize("setting", ["drop tail", "threshold 25 %", "threshold 75 %"])
@pytest.mark.parametrize("states", [None, 8])
def test_shipped_scenario_is_solved(setting: str, states: int | None) -> None:
    found = markov.of(bp.load("mmpp-queue").with_setting(setting), states=states)
    assert found.states == (states or 16)
    assert found.queue.places == 101
    assert [note.split(": ")[1] for note in found.notes] == [
        "Poisson while on, where a simulation sends at a constant rate"
    ]
    # The comment says 88 %.
    assert found.queue.offered / found.queue.service_rate == pytest.approx(0.876, abs=1e-9)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("20 packets", "20 KB", r"link\.wire\.queue\.limit: the Markov model takes a limit in packets"),
        ('"droptail"', '"red"', r"link\.wire\.queue\.aqm: red, but the Markov model takes only droptail"),
        ("queue = {", "loss = 0.1\nqueue = {", r"link\.wire\.loss: the Markov model takes"),
        ("queue = {", 'queue = { scheduler = "drr",', r"link\.wire\.queue\.scheduler: drr, but"),
        ('kind = "mmpp"', 'kind = "mmpp"\naway = [["1 s", "2 s"]]', r"traffic\.smooth\.away"),
        (
            'algorithm = "droptail"',
            'algorithm = "droptail", threshold = [["0 s", 0.5], ["9 s", 0.9]]',
            r"link\.wire\.queue\.aqm\.threshold: found one that changes",
        ),
        (
            'rate = "1 Mbps"',
            'rate = "1 Mbps"\nhandover = { interval = "15 s", delay = ["0 ms", "15 ms"] }',
            r"link\.wire\.handover: the Markov model takes a link without handovers",
        ),
        (
            'between = ["a", "r"]',
            'between = ["a", "r"]\nloss = 0.1',
            r"traffic\.smooth: link\.in, ahead of the subject, is more than a constant rate",
        ),
    ],
)
def test_unsupported_link_or_queue_is_rejected(old: str, new: str, text: str) -> None:
    whole = QUEUE + SMOOTH
    assert old in whole
    with pytest.raises(bp.UsageError, match=text):
        markov.of(parsed(whole.replace(old, new, 1)))


def test_merged_classes_are_solved_if_all_states_are_too_many() -> None:
    """Nine classes of two states make 512."""
    one = """
[traffic.o{}]
kind = "on_off"
from = "a"
to = "b"
rate = "20 kbps"
packet = "1000 B"
on = {{ exponential = "1 s" }}
off = {{ exponential = "1 s" }}
"""
    text = QUEUE + "".join(map(one.format, range(9)))
    with pytest.raises(bp.UsageError, match=r"states make 512, but at most 256 are allowed"):
        markov.both(parsed(text))
    (found,) = markov.both(parsed(f"{text}\n[model]\nstates = 8\n"))
    assert found.states == 8
    assert found.compared()[1]["mean"] == pytest.approx(0.09)


def test_source_that_is_never_off_is_rejected() -> None:
    changed = bp.load("mmpp-queue", ['traffic.ftp.off={ exponential = "0 s" }'])
    with pytest.raises(bp.UsageError, match=r"traffic\.ftp\.off: a mean of 0 s, but the Markov model takes"):
        markov.of(changed.with_setting("drop tail"))


@pytest.mark.parametrize(
    ("traffic", "text"),
    [
        (
            'kind = "bulk"\ntransport = "linux"',
            r"traffic\.x: kind bulk, but the Markov model takes poisson, on_off, mmpp",
        ),
        ('kind = "cbr"\nrate = "1 kbps"\npacket = "100 B"', r"traffic\.x: kind cbr, but"),
        (
            'kind = "poisson"\nrate = "1 kbps"\npacket = "100 B"\ntransport = "linux"',
            r"traffic\.x\.transport: ",
        ),
        (
            'kind = "on_off"\nrate = "1 kbps"\npacket = "100 B"\non = "1 s"\noff = { exponential = "1 s" }',
            r"traffic\.x\.on: fixed, but the Markov model takes only exponential times",
        ),
        (
            'kind = "poisson"\nrate = "1 kbps"\npacket = { normal = { mean = "100 B", std = "9 B" } }',
            r"traffic\.x\.packet: normal, but",
        ),
    ],
)
def test_unsupported_traffic_is_rejected(traffic: str, text: str) -> None:
    whole = f'{QUEUE}[transport.linux]\npreset = "linux"\n[traffic.x]\nfrom = "a"\nto = "b"\n{traffic}\n'
    with pytest.raises(bp.UsageError, match=text):
        markov.of(parsed(whole))


@pytest.mark.parametrize(
    ("start", "share"),
    [
        # The share of start times after 10 s, from the closed form of each distribution.
        ({"fixed": 10}, 0.0),
        ({"uniform": {"low": 0, "high": 40}}, 0.75),
        ({"exponential": 5}, 0.1353353),
        ({"normal": {"mean": 5, "std": 5}}, 0.1586553),
        ({"erlang": {"shape": 2, "mean": 10}}, 0.4060058),
        ({"pareto": {"shape": 2.0, "mean": 10}}, 0.25),
        ({"choice": [[0.5, {"fixed": 11}], [0.5, {"exponential": 5}]]}, 0.5676676),
    ],
)
def test_share_of_start_times_after_the_warm_up(start: dict[str, Any], share: float) -> None:
    assert markov._share_after(start, 10.0) == pytest.approx(share, rel=1e-6)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        # exp(-65535 / 20000) is 3.8 %.
        ('{ erlang = { shape = 4, mean = "1000 B" } }', '{ exponential = "20 KB" }', "3.8 % of the lengths"),
        ('kind = "mmpp"', 'kind = "mmpp"\nstart = "11 s"', "it begins after the warm-up"),
        (
            'kind = "mmpp"',
            'kind = "mmpp"\nstart = { uniform = ["0 s", "11 s"] }',
            "it begins after the warm-up",
        ),
        (
            'kind = "mmpp"',
            'kind = "mmpp"\nstart = { exponential = "2 s" }',
            "it begins after the warm-up",
        ),
        (
            'kind = "mmpp"',
            'kind = "mmpp"\nstart = { choice = [{ pareto = { shape = 1.5, mean = "1 s" } }, "0 s"] }',
            "it begins after the warm-up",
        ),
    ],
)
def test_differences_from_a_simulation_are_noted(old: str, new: str, text: str) -> None:
    whole = QUEUE + SMOOTH
    assert old in whole
    assert any(text in note for note in markov.of(parsed(whole.replace(old, new))).notes)
    assert not any(text in note for note in markov.of(parsed(whole)).notes)


def test_link_per_host_is_rejected() -> None:
    with pytest.raises(bp.UsageError, match=r"link\.wire: each of the 3 hosts of b has its own link"):
        markov.of(parsed((QUEUE + SMOOTH).replace("[host.b]", "[host.b]\ncount = 3")))


def test_gateway_as_subject_is_rejected() -> None:
    with pytest.raises(bp.UsageError, match=r"gateway\.gateway: the Markov model takes a link"):
        markov.of(bp.load("small-gateway"))


def test_link_ahead_of_the_subject_is_noted() -> None:
    text = (QUEUE + SMOOTH).replace('between = ["a", "r"]', 'between = ["a", "r"]\nrate = "9 Mbps"')
    assert markov.of(parsed(text)).notes[0].startswith("link.in is ignored")


@pytest.mark.parametrize("threshold", [None, 0.5])
def test_units_match_a_birth_death_chain(threshold: float | None) -> None:
    """250 packets/s (2 Mbit/s in 1000 B) arrive, 125 packets/s are served, 21 packets fit."""
    text = (
        '[traffic.x]\nkind = "poisson"\nfrom = "a"\nto = "b"\nflows = 10\nrate = "200 kbps"\npacket = "1 KB"'
    )
    model = markov.of(parsed(QUEUE + text), stages=1, threshold=threshold)
    shares = [0.0 if threshold is None else max((n - 1) / 20 - 0.5, 0) / 0.5 for n in range(22)]
    weights = [1.0]
    for n in range(21):
        weights.append(weights[-1] * 2 * (1 - shares[n]))
    p = [w / sum(weights) for w in weights]
    taken = [x * (1 - c) for x, c in zip(p[:-1], shares, strict=False)]
    mean = sum(x * max(n - 1, 0) for n, x in enumerate(p))
    square = sum(x * max(n - 1, 0) ** 2 for n, x in enumerate(p))
    expected = {
        "throughput": 1 - p[0],
        "offered_load": 2.0,
        "queue": mean,
        "queue_delay": 1e3 * sum(n * x for n, x in enumerate(taken)) / 125 / sum(taken),
        "mark_probability": 100 * sum(x * c for x, c in zip(p, shares, strict=True)),
        "loss_rate": 100 * (1 - sum(taken)),
        # There is one class, which has all losses.
        "loss_rate.x": 100 * (1 - sum(taken)),
    }
    compared = {row["quantity"]: row for row in model.compared()}
    assert {name: row["mean"] for name, row in compared.items()} == pytest.approx(expected, rel=1e-9)
    assert compared["queue"]["std"] == pytest.approx(math.sqrt(square - mean**2), rel=1e-9)
    rows = {row["quantity"]: row["value"] for row in model.rows() if row["class"] == "all"}
    for name, other in (
        ("throughput", "throughput"),
        ("offered_load", "offered_load"),
        ("queue_mean", "queue"),
        ("queue_delay_mean", "queue_delay"),
        ("mark_rate", "mark_probability"),
        ("drop_rate", "loss_rate"),
    ):
        assert rows[name] == pytest.approx(expected[other], rel=1e-9), name
    assert rows["queue_p95"] == next(n - 1 for n in range(22) if sum(p[: n + 1]) >= 0.95)
