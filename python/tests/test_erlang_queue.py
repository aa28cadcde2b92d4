"""The MMPP/Erlang-k/1/L queue against closed forms and other solution methods."""

import math
import time
from fractions import Fraction

import numpy as np
import pytest
from scipy.linalg import null_space

from bentpipe import UsageError
from bentpipe.models.erlang_queue import QueueResult, ramp, solve
from bentpipe.models.mmpp import Arrivals, Matrix, Mmpp, TwoState, fit, moments, superpose


def poisson(rate: float) -> Arrivals:
    return superpose([Mmpp.poisson(rate, "data")])


def modulated(k: int = 1) -> Arrivals:
    """Two classes with two and three states, including states without arrivals."""
    two = TwoState.on_off(30.0 * k, 0.3, 0.2, name="on-off").one
    three = Mmpp(np.array([[-3.0, 1, 2], [4, -4, 0], [0, 5, -5]]), np.array([0.0, 4, 12]), "three")
    return superpose([two, three])


def dense(arrivals: Arrivals, mu: float, k: int, places: int, marks: Matrix) -> Matrix:
    """Return the probability of (packets, stage in service, state), by the null space of the generator.

    Stages are numbered by those completed; the solver numbers them by those left.
    """
    m, rate = arrivals.states, arrivals.rates.sum(axis=0)
    index = {(0, 0): 0} | {(n, j): 1 + (n - 1) * k + j for n in range(1, places + 1) for j in range(k)}
    g = np.zeros((len(index) * m, len(index) * m))
    for (n, j), at in index.items():
        for i in range(m):
            here = at * m + i
            for other in range(m):
                if other != i:
                    g[here, at * m + other] += arrivals.generator[i, other]
            if n < places:
                g[here, index[n + 1, j] * m + i] += rate[i] * (1 - marks[n])
            if n:
                after = (n, j + 1) if j + 1 < k else (n - 1, 0)
                g[here, index[after] * m + i] += k * mu
    g -= np.diag(g.sum(axis=1))
    null = null_space(g.T)
    assert null.shape[1] == 1
    p = (null[:, 0] / null[:, 0].sum()).reshape(-1, m)
    packets = np.zeros((places + 1, m))
    for (n, _), at in index.items():
        packets[n] += p[at]
    return packets


def sound(found: QueueResult) -> None:
    """Check properties of every solution."""
    assert found.residual < 1e-10
    assert abs(found.balance) < 1e-10
    assert (found.distribution >= 0).all()
    assert found.distribution.sum() == pytest.approx(1, abs=1e-12)
    # Little's law for each class, whose delays follow from the queue that its packets find.
    assert sum(c.packets for c in found.classes) == pytest.approx(found.packets, rel=1e-10)
    assert sum(c.offered * c.loss for c in found.classes) == pytest.approx(
        found.offered * found.loss, rel=1e-10
    )
    assert found.utilization * found.service_rate == pytest.approx(
        found.offered * (1 - found.loss), rel=1e-10
    )
    assert found.packets == pytest.approx(found.queue_mean + found.utilization, rel=1e-10)
    assert found.packets == pytest.approx(found.utilization * found.service_rate * found.delay, rel=1e-9)
    assert found.delay == pytest.approx(found.wait + 1 / found.service_rate, rel=1e-12)


@pytest.mark.parametrize("load", [0.1, 0.7, 1.0, 1.3, 20.0])
@pytest.mark.parametrize("places", [1, 2, 100])
def test_m_m_1_l_matches_its_closed_form(load: float, places: int) -> None:
    found = solve(poisson(load * 50), 50.0, 1, places)
    weights = np.array([load**n for n in range(places + 1)])
    assert found.distribution == pytest.approx(weights / weights.sum(), rel=1e-10)
    assert found.loss == pytest.approx(weights[-1] / weights.sum(), rel=1e-10)
    waiting = [max(n - 1, 0) for n in range(places + 1)]
    first, second = (
        sum(w * n**j for n, w in zip(waiting, weights, strict=True)) / weights.sum() for j in (1, 2)
    )
    assert found.queue_std == pytest.approx(math.sqrt(second - first**2), rel=1e-6, abs=1e-9)
    sound(found)


def embedded(arrivals: list[Fraction], load: Fraction, places: int) -> list[Fraction]:
    """Solve M/G/1/L by the chain embedded at departures; `arrivals`: P(0), P(1), … in a service.

    With pi_n the share of departures that leave n packets, p_n = pi_n / (pi_0 + load) for n < L.
    """
    left = [Fraction(1)]
    for n in range(places - 1):
        inward = left[0] * arrivals[n] + sum(left[j] * arrivals[n + 1 - j] for j in range(1, n + 1))
        left.append((left[n] - inward) / arrivals[0])
    total = sum(left, Fraction(0))
    pi = [x / total for x in left]
    p = [x / (pi[0] + load) for x in pi]
    return [*p, 1 - sum(p, Fraction(0))]


@pytest.mark.parametrize("k", [1, 2, 4, 9])
@pytest.mark.parametrize("load", [Fraction(1, 2), Fraction(9, 10), Fraction(3, 2)])
def test_m_e_k_1_l_matches_the_embedded_chain(k: int, load: Fraction) -> None:
    """Exact fractions; the arrivals in a sum of k exponential stages are negative binomial."""
    places = 30
    stage = k / (k + load)
    arrivals = [math.comb(k + j - 1, j) * stage**k * (1 - stage) ** j for j in range(places)]
    expected = [float(p) for p in embedded(arrivals, load, places)]
    found = solve(poisson(float(load) * 80), 80.0, k, places)
    assert found.distribution == pytest.approx(expected, rel=1e-10)
    assert found.loss == pytest.approx(expected[-1], rel=1e-10)
    sound(found)


def test_many_stages_approach_deterministic_service() -> None:
    """M/D/1/L has Poisson arrivals in a service. The error of k stages falls as 1 / k."""
    load, places = 0.8, 12
    arrivals = [Fraction(math.exp(-load) * load**j / math.factorial(j)) for j in range(places)]
    expected = [float(p) for p in embedded(arrivals, Fraction(load), places)]
    errors = [
        abs(solve(poisson(load * 10), 10.0, k, places).distribution - expected).max() for k in (50, 100, 200)
    ]
    assert errors[2] < 1e-3
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.05)
    assert errors[1] / errors[2] == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize(("k", "places"), [(1, 7), (3, 6), (4, 1), (2, 10)])
@pytest.mark.parametrize("threshold", [None, 0.25, 0.6])
def test_modulated_arrivals_match_a_direct_solution_with_and_without_control(
    k: int, places: int, threshold: float | None
) -> None:
    arrivals, mu = modulated(), 20.0
    marks = np.zeros(places + 1) if threshold is None else ramp(places, threshold)
    found = solve(arrivals, mu, k, places, marks)
    p = dense(arrivals, mu, k, places, marks)
    assert found.distribution == pytest.approx(p.sum(axis=1), abs=1e-10)
    gone = marks.copy()
    gone[-1] = 1
    for name, rates, one in zip(arrivals.names, arrivals.rates, found.classes, strict=True):
        met = p @ rates
        assert one.name == name
        assert one.offered == pytest.approx(met.sum(), rel=1e-10)
        assert one.loss == pytest.approx(met @ gone / met.sum(), rel=1e-10)
    assert found.marked == pytest.approx((p @ arrivals.rates.sum(axis=0)) @ marks / found.offered, rel=1e-10)
    sound(found)


def test_delay_of_exponential_service_follows_from_the_packets_found() -> None:
    """With k = 1, a packet accepted behind n packets waits n / mu."""
    arrivals, mu, places = modulated(), 20.0, 8
    p = dense(arrivals, mu, 1, places, np.zeros(places + 1))
    for rates, one in zip(arrivals.rates, solve(arrivals, mu, 1, places).classes, strict=True):
        met = (p @ rates)[:-1]
        assert one.wait == pytest.approx(met @ np.arange(places) / met.sum() / mu, rel=1e-10)
        assert one.delay == pytest.approx(one.wait + 1 / mu, rel=1e-12)


def test_one_state_under_control_is_a_birth_death_process() -> None:
    """p_n is the product of the (1 - c) lambda / mu below it."""
    marks = ramp(100, 0.5)
    found = solve(poisson(120.0), 100.0, 1, 100, marks)
    weights = np.cumprod(np.append(1, 1.2 * (1 - marks[:-1])))
    assert found.distribution == pytest.approx(weights / weights.sum(), rel=1e-10)
    sound(found)


def test_identical_states_do_not_change_the_result() -> None:
    one = solve(poisson(70.0), 80.0, 4, 50)
    same = superpose([TwoState(70.0, 70.0, 0.3, 0.8).one])
    assert solve(same, 80.0, 4, 50).distribution == pytest.approx(one.distribution, rel=1e-10)


def test_ramp_is_linear_from_threshold_to_capacity() -> None:
    assert ramp(8, 0.5) == pytest.approx([0, 0, 0, 0, 0, 0.25, 0.5, 0.75, 1])
    assert ramp(4, 0.25) == pytest.approx([0, 0, 1 / 3, 2 / 3, 1])
    # Five in the system, four of them waiting.
    assert ramp(5, 0.25, of_waiting=True) == pytest.approx([0, 0, 0, 1 / 3, 2 / 3, 1])
    assert ramp(1, 0.5, of_waiting=True) == pytest.approx([0, 0])


def sixteen() -> Arrivals:
    """Four classes, at a mean load of 0.96."""
    sources = [
        TwoState.on_off(250.0, 0.8, 0.2, 4, "video"),
        TwoState.on_off(60.0, 0.4, 0.6, 6, "multimedia"),
        TwoState.on_off(100.0, 0.2, 1.0, 8, "web"),
        TwoState.on_off(200.0, 0.5, 2.0, 3, "ftp"),
    ]
    return superpose([fit(moments([source]), source.name) for source in sources])


def test_100_packets_are_solved_in_less_than_a_second() -> None:
    """Takes about 11 ms; the bound allows for a slow processor."""
    arrivals = sixteen()
    start = time.process_time()
    found = solve(arrivals, 1250.0, 4, 100)
    assert time.process_time() - start < 1
    assert (found.states, found.stages, found.places) == (16, 4, 100)
    sound(found)


@pytest.mark.parametrize("mu", [1e-6, 1.0, 100.0, 1e4, 1e9])
@pytest.mark.parametrize("threshold", [None, 0.95])
def test_extreme_loads_are_solved(mu: float, threshold: float | None) -> None:
    marks = None if threshold is None else ramp(100, threshold)
    sound(solve(sixteen(), mu, 4, 100, marks))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.95, 0.999])
def test_waiting_returns_quantiles(share: float) -> None:
    found = solve(poisson(90.0), 100.0, 2, 40)
    waiting = found.waiting(share)
    assert found.distribution[: waiting + 2].sum() >= share
    assert waiting == 0 or found.distribution[: waiting + 1].sum() < share


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"service_rate": 0.0}, "service_rate is 0.0 packets/s"),
        ({"service_rate": math.nan}, "service_rate is nan packets/s"),
        ({"stages": 0}, "stages is 0"),
        ({"places": 0}, "places is 0 packets"),
        ({"places": 100_000, "stages": 1000}, "but 6.7e\\+07 and 2e\\+07 are the most"),
        ({"marking": np.ones(3)}, "marking has 3 numbers, but 11 are needed"),
        ({"marking": np.full(11, math.nan)}, "each from 0 to 1"),
        ({"marking": np.ones(11)}, "marking is 1 for an empty system"),
        ({"arrivals": poisson(0.0)}, "data: nothing arrives"),
    ],
)
def test_invalid_parameters_are_named(change: dict[str, object], text: str) -> None:
    good: dict[str, object] = {"arrivals": poisson(5.0), "service_rate": 10.0, "stages": 2, "places": 10}
    with pytest.raises(UsageError, match=text):
        solve(**(good | change))  # type: ignore[arg-type]


@pytest.mark.parametrize("threshold", [-0.1, 1.0, math.nan])
def test_threshold_of_one_is_rejected(threshold: float) -> None:
    with pytest.raises(UsageError, match="threshold is"):
        ramp(10, threshold)


def test_too_many_steps_are_rejected_immediately() -> None:
    with pytest.raises(UsageError, match="1 states, 1000 stages and 21 places take"):
        solve(poisson(1.0), 1.0, 1000, 21)
