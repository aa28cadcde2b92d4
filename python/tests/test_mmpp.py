"""Sources and their fits, against moments from a matrix exponential."""

import math

import numpy as np
import pytest
from scipy.linalg import expm, null_space

from bentpipe import UsageError
from bentpipe.models.mmpp import Matrix, Mmpp, Moments, TwoState, fit, moments, stationary, superpose

VIDEO = TwoState.on_off(250.0, 0.8, 0.2, 4, "video")
WEB = TwoState.on_off(100.0, 0.2, 1.0, 8, "web")
FTP = TwoState.on_off(200.0, 0.5, 2.0, 3, "ftp")


def together(*sources: TwoState) -> Mmpp:
    """Return the chain of all mini-sources, by plain Kronecker sums."""
    q, rates = np.zeros((1, 1)), np.zeros(1)
    for source in sources:
        one = source.one
        for _ in range(source.flows):
            q = np.kron(q, np.eye(2)) + np.kron(np.eye(len(q)), one.generator)
            rates = np.kron(rates, np.ones(2)) + np.kron(np.ones(len(rates)), one.rates)
    return Mmpp(q, rates)


def balance(q: Matrix) -> Matrix:
    null = null_space(q.T)[:, 0]
    found: Matrix = null / null.sum()
    return found


def counted(source: Mmpp, t: float) -> tuple[float, float, float]:
    """Return mean, variance and third central moment of the number of arrivals in a time t.

    A block-triangular matrix exponential [C. F. Van Loan, IEEE Transactions on Automatic Control 23(3), 1978]
    gives E[Y^j] / j! of the rate's integral Y. The mean is subtracted from the rate to avoid cancellation.
    Given Y, counts are Poisson: the cumulants of N follow from those of Y.
    """
    m, pi = source.states, balance(source.generator)
    rate, scale = float(pi @ source.rates), float(source.rates.max())
    off = np.diag(source.rates - rate) / scale
    block = expm(t * (np.kron(np.eye(4), source.generator) + np.kron(np.eye(4, k=1), off)))
    _, second, third = (
        math.factorial(j) * scale**j * float((pi @ block[:m, j * m : (j + 1) * m]).sum()) for j in (1, 2, 3)
    )
    return rate * t, second + rate * t, third + 3 * second + rate * t


def counted_plainly(source: Mmpp, t: float) -> tuple[float, float, float]:
    """Return the same by factorial moments: derivatives of pi exp((Q + (z - 1) R) t) 1 at z = 1."""
    m, pi = source.states, balance(source.generator)
    block = expm(t * (np.kron(np.eye(4), source.generator) + np.kron(np.eye(4, k=1), np.diag(source.rates))))
    f1, f2, f3 = (math.factorial(j) * float((pi @ block[:m, j * m : (j + 1) * m]).sum()) for j in (1, 2, 3))
    second, third = f2 + f1, f3 + 3 * f2 + f1
    return f1, second - f1**2, third - 3 * f1 * second + 2 * f1**3


def long_run(source: Mmpp) -> float:
    """Return the limit of the index of dispersion, by the fundamental matrix."""
    pi, m = balance(source.generator), source.states
    rate = float(pi @ source.rates)
    fundamental = np.linalg.inv(np.outer(np.ones(m), pi) - source.generator)
    return 1 + 2 * (float((pi * source.rates) @ fundamental @ source.rates) - rate**2) / rate


def agree(source: Mmpp, wanted: Moments) -> None:
    mean, variance, _ = counted(source, wanted.t1)
    assert mean / wanted.t1 == pytest.approx(wanted.rate, rel=1e-9)
    assert variance / mean == pytest.approx(wanted.dispersion, rel=1e-9)
    assert long_run(source) == pytest.approx(wanted.dispersion_limit, rel=1e-9)
    assert counted(source, wanted.t2)[2] == pytest.approx(wanted.third, rel=1e-9)


@pytest.mark.parametrize(
    "sources",
    [
        [VIDEO],
        [TwoState.on_off(3.0, 2.0, 5.0)],
        [TwoState(20.0, 90.0, 0.3, 0.1, 5)],
        [TwoState.on_off(250.0, 0.8, 0.2, 3), TwoState(10.0, 40.0, 1.0, 3.0, 3)],
    ],
)
@pytest.mark.parametrize(("t1", "t2"), [(None, None), (0.02, 0.5), (3.0, 0.1)])
def test_moments_match_the_superposition_of_mini_sources(
    sources: list[TwoState], t1: float | None, t2: float | None
) -> None:
    agree(together(*sources), moments(sources, t1, t2))


@pytest.mark.parametrize("flows", [1, 2, 7, 40, 400])
def test_fit_has_the_moments_of_its_mini_sources(flows: int) -> None:
    for source in (
        TwoState.on_off(50.0, 0.8, 0.2, flows),
        TwoState.on_off(50.0, 0.2, 0.8, flows),
        TwoState.on_off(50.0, 0.5, 0.5, flows),
        TwoState(5.0, 50.0, 0.2, 0.1, flows),
    ):
        for t in (None, 0.01, 1.0):
            wanted = moments([source], t, t)
            found = fit(wanted)
            assert found.states == 2
            agree(found, wanted)
            # Equal mini-sources have one correlation time, so the fit is exact at every time.
            agree(found, moments([source], 0.37, 0.11))


def test_both_counting_methods_agree() -> None:
    for source in (TwoState.on_off(3.0, 2.0, 5.0).one, TwoState(1.0, 6.0, 0.5, 0.2).one.alike(3)):
        assert counted(source, 0.7) == pytest.approx(counted_plainly(source, 0.7), rel=1e-9)


def test_fit_of_different_sources_has_their_four_moments() -> None:
    wanted = moments([WEB, FTP], 0.2, 0.3)
    both = superpose([WEB.one.alike(8), FTP.one.alike(3)])
    agree(Mmpp(both.generator, both.rates.sum(axis=0)), wanted)
    agree(fit(wanted), wanted)
    # Moments at other times differ: the autocovariance is a sum of two exponentials, that of the fit is one.
    other = moments([WEB, FTP], 2.0, 2.0)
    assert counted(fit(wanted), 2.0)[1] != pytest.approx(other.dispersion * other.rate * 2, rel=1e-3)


def test_fit_recovers_a_single_mini_source() -> None:
    one = TwoState.on_off(250.0, 0.8, 0.2)
    found = fit(moments([one]))
    assert found.generator == pytest.approx(one.one.generator, rel=1e-9)
    assert found.rates == pytest.approx(one.one.rates, rel=1e-9)


@pytest.mark.parametrize("rate", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize(("on", "off"), [(1e-6, 1e-6), (1e-6, 1e3), (1e3, 1e-6), (1e3, 1e3)])
@pytest.mark.parametrize("flows", [1, 3, 1000])
def test_identical_sources_always_have_a_fit(rate: float, on: float, off: float, flows: int) -> None:
    """For few and for many packets per on time."""
    source = TwoState.on_off(rate, on, off, flows)
    found = fit(moments([source]))
    (low, high), q = found.rates, found.generator
    one = TwoState(float(low), float(high), 1 / q[0, 1], 1 / q[1, 0])
    for name in ("mean_rate", "variance", "third", "decay"):
        assert getattr(one, name) == pytest.approx(getattr(source, name), rel=1e-6)


def test_constant_rate_gives_a_poisson_process() -> None:
    for sources in ([TwoState(7.0, 7.0, 1.0, 1.0, 3)], [Mmpp.poisson(4.0), Mmpp.poisson(17.0)]):
        found = fit(moments(sources))
        assert found.states == 1
        assert found.mean_rate == pytest.approx(21.0, rel=1e-12)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"dispersion": 0.9}, "lies between 1 and"),
        ({"dispersion": 99.0}, "lies between 1 and"),
        ({"dispersion_limit": 0.5}, "indices of dispersion"),
        ({"dispersion_limit": 1.0}, "indices of dispersion"),
        ({"third": -1e6}, "requires a rate of -"),
        ({"third": math.nan}, "third = nan"),
        ({"rate": 0.0}, "rate = 0.0"),
        ({"t2": -1.0}, "t2 = -1.0"),
    ],
)
def test_impossible_moments_are_rejected(change: dict[str, float], text: str) -> None:
    good = moments([VIDEO], 0.1, 0.1)
    assert fit(
        Moments(good.rate, good.t1, good.dispersion, good.dispersion_limit, good.t2, good.third)
    ).rates == (pytest.approx(fit(good).rates, rel=1e-9))
    names = ("rate", "t1", "dispersion", "dispersion_limit", "t2", "third")
    with pytest.raises(UsageError, match=text) as caught:
        fit(Moments(**({name: getattr(good, name) for name in names} | change)), "video")
    assert str(caught.value).startswith("video: ")


@pytest.mark.parametrize("flows", [1, 2, 5])
def test_superposition_of_identical_sources_is_exact(flows: int) -> None:
    three = Mmpp(np.array([[-3.0, 1, 2], [4, -4, 0], [0, 5, -5]]), np.array([1.0, 10, 30]), "three")
    q, rates = np.zeros((1, 1)), np.zeros(1)
    for _ in range(flows):
        q = np.kron(q, np.eye(3)) + np.kron(np.eye(len(q)), three.generator)
        rates = np.kron(rates, np.ones(3)) + np.kron(np.ones(len(rates)), three.rates)
    lumped = three.alike(flows)
    assert lumped.states == (flows + 1) * (flows + 2) // 2
    assert counted(lumped, 0.4) == pytest.approx(counted(Mmpp(q, rates), 0.4), rel=1e-9)


def test_superposition_keeps_each_class() -> None:
    classes = [fit(moments([source]), source.name) for source in (VIDEO, WEB, FTP)]
    both = superpose(classes)
    assert (both.states, both.names) == (8, ("video", "web", "ftp"))
    assert both.generator.sum(axis=1) == pytest.approx(np.zeros(8), abs=1e-12)
    for row, one in zip(both.rates, classes, strict=True):
        assert counted(Mmpp(both.generator, row), 0.3) == pytest.approx(counted(one, 0.3), rel=1e-9)
    # The sources are independent, so cumulants add.
    whole = counted(Mmpp(both.generator, both.rates.sum(axis=0)), 0.3)
    assert whole == pytest.approx(np.sum([counted(one, 0.3) for one in classes], axis=0), rel=1e-9)


def test_stationary_distribution_solves_the_balance_equations() -> None:
    rng = np.random.default_rng(1)
    q = rng.random((9, 9)) * (rng.random((9, 9)) < 0.6) + np.eye(9, k=1) + np.eye(9, k=-8)
    q -= np.diag(q.sum(axis=1))
    assert stationary(q) == pytest.approx(balance(q), rel=1e-10)
    # Also for rare states: with rates of 1e-9 the third has 1e-18 of the probability of the first.
    rare = np.array([[0, 1e-9, 0], [1, 0, 1e-9], [0, 1, 0]])
    assert stationary(rare)[2] == pytest.approx(1e-18, rel=1e-8)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Mmpp(np.array([[-1.0, 1], [0, 0]]), np.ones(2), "ftp"), "ftp: state 2 of 2 cannot be left"),
        (
            lambda: Mmpp(np.array([[-1.0, 2], [1, -1]]), np.ones(2), "ftp"),
            "ftp: a row of the generator sums to 1",
        ),
        (lambda: Mmpp(np.array([[1.0, -1], [1, -1]]), np.ones(2), "ftp"), "ftp: transition rates are -1"),
        (lambda: Mmpp(np.zeros((2, 1)), np.ones(2), "ftp"), "ftp: generator is 2 x 1 and there are 2 rates"),
        (lambda: Mmpp(np.zeros((1, 1)), np.array([math.nan]), "ftp"), "ftp: rates are nan packets/s"),
        (
            lambda: Mmpp(np.array([[-1.0, 1.00001], [1, -1]]), np.ones(2), "ftp"),
            "ftp: a row of the generator sums to 1e-05",
        ),
        (lambda: Mmpp(np.zeros((1, 1)), np.array([-1.0]), "ftp"), "ftp: rates are -1 packets/s"),
        (lambda: TwoState.on_off(1.0, 0.0, 1.0, name="ftp"), "ftp: stays_high is 0.0 s"),
        (lambda: TwoState.on_off(math.inf, 1.0, 1.0, name="ftp"), "ftp: high is inf packets/s"),
        (lambda: TwoState.on_off(1.0, 1.0, 1.0, 0, name="ftp"), "ftp: flows is 0"),
        (lambda: moments([TwoState.on_off(0.0, 1.0, 1.0, name="ftp")]), "ftp: nothing arrives"),
        (lambda: moments([FTP], math.nan), "ftp: t1 is nan s"),
        (lambda: FTP.one.alike(256), "ftp: 256 flows with 2 states each make 257 states, but at most 256"),
        (lambda: superpose([]), "no class"),
        (
            lambda: superpose([FTP.one.alike(16), VIDEO.one.alike(16)]),
            r"17 \(ftp\) x 17 \(video\) states make 289",
        ),
    ],
)
def test_invalid_sources_are_rejected_by_name(make: object, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        make()  # type: ignore[operator]


def test_two_state_chain_has_the_moments_of_its_source() -> None:
    """The states last 5 s and 0.25 s."""
    source = TwoState(2.0, 30.0, 5.0, 0.25)
    assert moments([source.one], 0.3, 0.7) == moments([source], 0.3, 0.7)
    agree(source.one, moments([source.one], 0.3, 0.7))


def test_moments_may_use_different_intervals() -> None:
    """Fit from moments alone, as from measurements."""
    m = moments([VIDEO, WEB], 0.2, 1.5)
    bare = Moments(m.rate, m.t1, m.dispersion, m.dispersion_limit, m.t2, m.third)
    agree(fit(bare), bare)
