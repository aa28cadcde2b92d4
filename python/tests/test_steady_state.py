import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats
from test_statistics import WAIT, waits

from bentpipe.stats.intervals import BATCH_MEANS
from bentpipe.stats.steady import batch_means, mser, settling

Floats = npt.NDArray[np.float64]


def noise(seed: int, samples: int, correlation: float) -> Floats:
    """Return an autoregressive series of first order with mean 0, in steady state."""
    random = np.random.default_rng(seed)
    found = np.empty(samples)
    now = random.standard_normal() / np.sqrt(1 - correlation**2)
    for index in range(samples):
        found[index] = now
        now = correlation * now + random.standard_normal()
    return found


def mser_as_defined(series: Floats, batch: int) -> int:
    """Return the truncation with the least squared error of the remaining mean (White 1997)."""
    means = [float(series[k : k + batch].mean()) for k in range(0, len(series) - batch + 1, batch)]
    errors = []
    for cut in range(len(means) - 4):
        rest = np.array(means[cut:])
        errors.append(float(((rest - rest.mean()) ** 2).sum() / len(rest) ** 2))
    return batch * min(range(len(errors)), key=errors.__getitem__)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("batch", [1, 5])
def test_mser_equals_its_definition(seed: int, batch: int) -> None:
    series = noise(seed, 203, 0.5)
    series[:40] += np.linspace(6, 0, 40)
    best = mser_as_defined(series, batch)
    assert mser(series, batch) == (best if best // batch <= len(series) // batch // 2 else None)


def test_mser_matches_a_worked_example() -> None:
    # 8 | 2 1 2 1 …: only the first value is an outlier.
    assert mser([8.0, 2, 1, 2, 1, 2, 1, 2, 1, 2, 1], batch=1) == 1


@pytest.mark.parametrize("seed", range(5))
def test_mser_finds_the_end_of_a_transient(seed: int) -> None:
    series = noise(seed, 2000, 0.5)
    series[:300] += 10
    found = mser(series)
    assert found is not None
    assert 300 <= found <= 340


def test_mser_does_not_truncate_a_drift() -> None:
    assert mser(np.linspace(0, 10, 1000)) is None


@pytest.mark.parametrize("samples", [0, 4, 49])
def test_mser_gives_no_result_for_few_samples(samples: int) -> None:
    assert mser(np.arange(samples)) is None


def test_a_constant_series_is_settled_from_the_beginning() -> None:
    assert mser(np.full(100, 3.7)) == 0
    assert mser(4e6 * (1 + 1e-13 * np.linspace(0, 1, 1000))) == 0
    assert not settling([np.full(100, 3.7)]).clear


def test_transient_is_clear_and_has_its_means() -> None:
    runs = [noise(seed, 2000, 0.5) for seed in range(3)]
    for run in runs:
        run[:300] += 10
    found = settling(runs)
    assert found.clear
    assert found.samples is not None
    assert 300 <= found.samples <= 340
    assert found.before == pytest.approx(np.mean([run[: found.samples].mean() for run in runs]))
    assert found.after == pytest.approx(np.mean([run[found.samples :].mean() for run in runs]))


@pytest.mark.parametrize(("runs", "most"), [(1, 4), (5, 1)])
def test_stationary_series_rarely_have_a_clear_transient(runs: int, most: int) -> None:
    found = [settling([noise(100 * k + n, 1500, 0.9) for n in range(runs)]) for k in range(60 // runs + 20)]
    assert sum(each.clear for each in found) <= most


def test_run_that_does_not_settle_is_reported() -> None:
    steady, drifting = noise(1, 1000, 0.0), np.linspace(0, 100, 1000)
    assert settling([drifting, drifting, steady]).samples is None
    assert settling([steady, drifting, steady]).samples is not None


def test_only_differing_halves_count_as_not_settled() -> None:
    """A drift is clear; with a dip near the end MSER truncates late, but the halves do not differ."""
    assert settling([np.linspace(0, 100, 1000) + noise(1, 1000, 0.0)] * 3).clear
    dips = np.full(1000, 20.0)
    dips[[100, 300, 495, 700, 900]] = 10.0
    alike = [np.roll(dips, shift) + 0.01 * noise(shift, 1000, 0.0) for shift in (0, 3, 7)]
    assert not settling(alike).clear


@pytest.mark.parametrize("samples", range(1, 13))
def test_short_runs_that_do_not_settle_are_judged_without_an_error(samples: int) -> None:
    # Four samples are the fewest of a half with a variance.
    rising = settling([[10.0**n for n in range(samples)]] * 3)
    assert rising.samples is None
    assert not rising.clear
    steps = settling([[0.0] * (samples // 2) + [1.0] * (samples - samples // 2)])
    assert steps.samples is None
    assert steps.clear == (samples // 2 >= 4)


def test_batch_means_match_a_worked_example() -> None:
    # 240 samples: 20 batches of 12 with means of 1 and 3 alternately: deviation sqrt(20 / 19).
    series = np.repeat(np.tile([1.0, 3.0], 10), 12) + np.tile([0.5, 0.5, -0.5, -0.5], 60)
    half = stats.t.ppf(0.975, 19) * np.sqrt(20 / 19) / np.sqrt(20)
    # The parts of a batch have equal means, so they are correlated: no interval.
    assert batch_means(series).note is not None
    # Alternating parts of 2 samples do not change the means of batches of 12.
    swing = series + np.tile([9.0, 9.0, -9.0, -9.0], 60)
    found = batch_means(swing)
    assert found.mean == pytest.approx(2.0)
    assert (found.method, found.runs) == (BATCH_MEANS, 1)
    assert found.ci95 == pytest.approx(half, rel=1e-12)


def test_correlated_batches_have_no_interval_but_a_reason() -> None:
    found = batch_means(noise(1, 6000, 0.997))
    assert found.mean is not None
    assert (found.ci95, found.low, found.method) == (None, None, None)
    assert found.note is not None
    assert "lag-1 autocorrelation of 0." in found.note


def test_short_series_has_no_interval_but_a_reason() -> None:
    assert batch_means(noise(1, 239, 0.0)).note == "no interval: 239 samples, and batch means need 240"
    assert batch_means([]).mean is None


def test_batch_means_of_one_long_run_cover_the_true_wait() -> None:
    found = [batch_means(each) for each in waits(np.random.default_rng(3), 200, 20000)]
    given = [each for each in found if each.low is not None and each.high is not None]
    assert len(given) >= 190
    held = sum(each.low <= WAIT <= each.high for each in given if each.low and each.high)
    assert 0.91 <= held / len(given) <= 0.98
