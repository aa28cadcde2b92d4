import math

import pytest

from bentpipe.statistics import half_width, summarise


def test_three_values_by_hand() -> None:
    # Mean 20, deviation 2, t(2; 0.975) = 4.302653: 4.302653 * 2 / sqrt(3).
    found = summarise([18.0, 20.0, 22.0])
    assert (found.mean, found.std, found.runs) == (20.0, 2.0, 3)
    assert found.ci95 == pytest.approx(4.968275, abs=1e-6)


@pytest.mark.parametrize(("runs", "quantile"), [(2, 12.7062), (5, 2.7764), (10, 2.2622), (31, 2.0423)])
def test_half_width_uses_the_printed_quantiles_of_student(runs: int, quantile: float) -> None:
    assert half_width(1.0, runs) * math.sqrt(runs) == pytest.approx(quantile, abs=1e-4)


def test_one_run_has_a_mean_and_no_interval() -> None:
    found = summarise([None, 3.5])
    assert (found.mean, found.std, found.ci95, found.runs) == (3.5, None, None, 1)


def test_no_run_has_nothing() -> None:
    found = summarise([None, None])
    assert (found.mean, found.std, found.ci95, found.runs) == (None, None, None, 0)


def test_equal_values_have_an_interval_of_zero() -> None:
    found = summarise([0.1] * 7)
    assert found.mean == pytest.approx(0.1)
    assert found.ci95 == pytest.approx(0.0, abs=1e-15)
