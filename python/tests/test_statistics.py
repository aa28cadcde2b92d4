import math

import interval_coverage
import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from bentpipe.stats.intervals import BOOTSTRAP, STUDENT, difference, half_width, holm, paired, summarise

Floats = npt.NDArray[np.float64]


def test_interval_of_three_values_matches_a_worked_example() -> None:
    # Mean 20, deviation 2, t(2; 0.975) = 4.302653: 4.302653 * 2 / sqrt(3).
    found = summarise([18.0, 20.0, 22.0])
    assert (found.mean, found.std, found.runs, found.method) == (20.0, 2.0, 3, STUDENT)
    assert found.ci95 == pytest.approx(4.968275, abs=1e-6)
    assert found.low == pytest.approx(15.031725, abs=1e-6)
    assert found.high == pytest.approx(24.968275, abs=1e-6)


@pytest.mark.parametrize(("runs", "quantile"), [(2, 12.7062), (5, 2.7764), (10, 2.2622), (31, 2.0423)])
def test_half_width_uses_the_printed_quantiles_of_student(runs: int, quantile: float) -> None:
    assert half_width(1.0, runs) * math.sqrt(runs) == pytest.approx(quantile, abs=1e-4)


def test_one_run_has_a_mean_and_no_interval() -> None:
    found = summarise([None, 3.5])
    assert (found.mean, found.std, found.ci95, found.runs) == (3.5, None, None, 1)
    assert (found.low, found.high, found.method, found.p) == (None, None, None, None)


def test_no_run_has_an_empty_summary() -> None:
    found = summarise([None, None])
    assert (found.mean, found.std, found.ci95, found.runs) == (None, None, None, 0)


def test_equal_values_have_an_interval_of_zero() -> None:
    found = summarise([0.1] * 7)
    assert found.mean == pytest.approx(0.1)
    assert found.ci95 == pytest.approx(0.0, abs=1e-15)


def test_paired_difference_equals_the_paired_t_test_of_scipy() -> None:
    ours, theirs = [3.1, 4.7, 5.2, 4.4], [2.9, 4.9, 4.1, 3.2]
    found = paired(ours, theirs)
    known = stats.ttest_rel(ours, theirs)
    interval = known.confidence_interval(0.95)
    assert found.p == pytest.approx(known.pvalue, rel=1e-12)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-12)
    assert paired([*ours, None, 7.0], [*theirs, 1.0, None]) == found


def test_independent_difference_equals_the_welch_test_of_scipy() -> None:
    ours, theirs = [3.1, 4.7, 5.2, 4.4, 9.0], [2.9, 4.9, 4.1]
    found = difference([*ours, None], theirs)
    known = stats.ttest_ind(ours, theirs, equal_var=False)
    interval = known.confidence_interval(0.95)
    assert (found.runs, found.method) == (3, STUDENT)
    assert found.p == pytest.approx(known.pvalue, rel=1e-12)
    assert (found.low, found.high) == pytest.approx((interval.low, interval.high), rel=1e-12)


@pytest.mark.parametrize(
    ("ours", "theirs", "gap", "p"),
    [
        ([0.1 + 0.2, 0.3], [0.3, 0.1 + 0.2], 0.0, 1.0),  # 0.1 + 0.2 != 0.3 in binary
        ([5.0, 6.0, 7.0], [4.0, 5.0, 6.0], 1.0, 0.0),
    ],
)
def test_constant_differences_have_an_interval_of_zero(
    ours: list[float], theirs: list[float], gap: float, p: float
) -> None:
    found = paired(ours, theirs)
    assert (found.mean, found.ci95, found.low, found.high, found.p) == (gap, 0.0, gap, gap, p)


@pytest.mark.parametrize(("ours", "theirs"), [([], [1.0, 2.0]), ([None], [1.0]), ([2.0], [1.0, 4.0, 3.0])])
def test_too_few_runs_have_no_interval(ours: list[float | None], theirs: list[float | None]) -> None:
    found = difference(ours, theirs)
    assert (found.ci95, found.p, found.method) == (None, None, None)


def test_holm_matches_a_worked_example() -> None:
    # Four tests: 4 * 0.01, 3 * 0.02 = 0.06, 2 * 0.022 = 0.044 but not below 0.06, 1 * 0.5.
    assert holm([0.022, 0.01, None, 0.5, 0.02]) == pytest.approx([0.06, 0.04, None, 0.5, 0.06])
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([None]) == [None]


def test_holm_equals_closed_testing_with_bonferroni() -> None:
    """The corrected p is the largest Bonferroni p over all sets of tests that contain the test."""
    values = [0.013, 0.2, 0.004, 0.04, 0.012]
    sets = [[i for i in range(5) if mask >> i & 1] for mask in range(1, 32)]
    for index, found in enumerate(holm(values)):
        worst = max(min(1.0, len(each) * min(values[i] for i in each)) for each in sets if index in each)
        assert found == pytest.approx(worst)


def lognormal(runs: int, seed: int) -> list[float]:
    return [float(each) for each in np.random.default_rng(seed).lognormal(0, 1, runs)]


def test_few_skewed_runs_use_student() -> None:
    for runs, method in ((19, STUDENT), (20, BOOTSTRAP), (1000, BOOTSTRAP), (1001, STUDENT)):
        values = [float(stats.lognorm.ppf((k + 0.5) / runs, 1)) for k in range(runs)]
        assert summarise(values).method == method


def test_normal_runs_use_student() -> None:
    values = [float(stats.norm.ppf((k + 0.5) / 40)) for k in range(40)]
    found = summarise(values)
    assert found.method == STUDENT
    known = stats.ttest_1samp(values, 0.0)
    assert found.p == pytest.approx(known.pvalue)


def test_bootstrap_interval_is_asymmetric_and_deterministic() -> None:
    values = lognormal(40, 3)
    found = summarise(values)
    assert found.mean is not None
    assert found.low is not None
    assert found.high is not None
    assert found.high - found.mean > 1.3 * (found.mean - found.low)
    assert found.ci95 == pytest.approx((found.high - found.low) / 2)
    assert summarise(values) == found


def test_bootstrap_agrees_with_scipy_for_many_runs() -> None:
    values = np.array(lognormal(800, 5))
    found = summarise(list(values))
    known = stats.bootstrap((values,), np.mean, method="BCa", rng=1).confidence_interval
    assert found.method == BOOTSTRAP
    # Both are of second order, so they differ less from each other than from Student's.
    assert (found.low, found.high) == pytest.approx((known.low, known.high), rel=0.01)
    assert found.high is not None
    assert abs(found.high - known.high) < abs(found.high - (values.mean() + half_width(values.std(), 800)))


def test_p_and_interval_of_the_bootstrap_agree() -> None:
    values = np.array(lognormal(30, 7))
    found = summarise(list(values))
    assert found.low is not None
    for shift, small in ((found.low * 0.999, True), (found.low * 1.001, False)):
        p = summarise(list(values - shift)).p
        assert p is not None
        assert (p <= 0.05) is small
        assert p == pytest.approx(0.05, abs=0.005)


def test_too_few_different_values_for_the_bootstrap_are_noted() -> None:
    found = summarise([0.0] * 24 + [1.0])
    assert found.method == STUDENT
    assert found.note is not None
    assert "too few different values" in found.note


@pytest.mark.parametrize("value", [1.0, 12.7])
def test_equal_values_in_a_resample_have_no_variance_even_if_rounded(value: float) -> None:
    found = summarise([value] * 24 + [0.3])
    assert found.method == STUDENT
    assert found.ci95 == pytest.approx(np.std([value] * 24 + [0.3], ddof=1) * 2.0639 / 5, rel=1e-3)


# --- Coverage on an M/M/1 queue, whose mean wait is r / (1 - r) with load r and mean service time 1.

LOAD = 0.6
WAIT = LOAD / (1 - LOAD)


def waits(random: np.random.Generator, queues: int, customers: int) -> Floats:
    """Return the waits of successive customers in `queues` queues in steady state, by Lindley's recursion."""
    found = np.empty((queues, customers))
    now = np.where(random.random(queues) < LOAD, random.exponential(1 / (1 - LOAD), queues), 0.0)
    for customer in range(customers):
        found[:, customer] = now
        now = np.maximum(0, now + random.exponential(1, queues) - random.exponential(1 / LOAD, queues))
    return found


@pytest.mark.parametrize(
    ("runs", "customers", "bootstrapped"), [(3, 5000, 0), (5, 5000, 0), (30, 400, 0.5), (60, 100, 0.9)]
)
def test_intervals_over_runs_cover_the_true_wait(runs: int, customers: int, bootstrapped: float) -> None:
    random = np.random.default_rng(1)
    means = waits(random, 200 * runs, customers).mean(axis=1).reshape(200, runs)
    found = [summarise(list(each)) for each in means]
    covered = sum(each.low <= WAIT <= each.high for each in found if each.low and each.high)
    assert 182 <= covered <= 196
    assert sum(each.method == BOOTSTRAP for each in found) >= bootstrapped * 200


def test_intervals_of_paired_differences_cover_the_true_one() -> None:
    """The same customers at a server of twice the speed, where the mean wait is r / (2 - r) / 2."""
    random = np.random.default_rng(2)
    runs, customers = 5, 4000
    slow, fast = np.zeros(200 * runs), np.zeros(200 * runs)
    sums = np.zeros((2, 200 * runs))
    for customer in range(customers + 200):
        if customer >= 200:
            sums += slow, fast
        service, gap = random.exponential(1, 200 * runs), random.exponential(1 / LOAD, 200 * runs)
        slow, fast = np.maximum(0, slow + service - gap), np.maximum(0, fast + service / 2 - gap)
    ours, theirs = (sums / customers).reshape(2, 200, runs)
    true = WAIT - LOAD / 2 / (1 - LOAD / 2) / 2
    for compare in (paired, difference):
        found = [compare(list(a), list(b)) for a, b in zip(ours, theirs, strict=True)]
        covered = sum(each.low <= true <= each.high for each in found if each.low and each.high)
        # The difference of independent runs ignores the common customers, so its interval is too wide.
        assert 182 <= covered <= (196 if compare is paired else 200)


def test_intervals_of_simulated_results_cover_the_true_queue_length() -> None:
    """A short form of `make coverage`: two hundred times five short runs of an M/M/1 queue."""
    runs = interval_coverage.all_runs(interval_coverage.RATE, 20, 1000)
    lengths = [metrics["queue_time_average"] for metrics, _ in runs]
    found = [summarise(lengths[5 * n : 5 * n + 5]) for n in range(200)]
    assert {each.method for each in found} == {STUDENT}
    _, good = interval_coverage.line(
        "queue", interval_coverage.true(interval_coverage.RATE)["queue_time_average"], found
    )
    assert good
