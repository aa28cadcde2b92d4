import base64
import functools
import math
import struct
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bentpipe.report.decimate import bounds, decimate, detail, ecdf, geometric, rounded_up

samples = st.lists(st.one_of(st.none(), st.floats(-1e9, 1e9), st.just(math.nan)), min_size=1, max_size=200)


def table(values: list[float | None]) -> pl.DataFrame:
    times = [0.1 * (index + 1) for index in range(len(values))]
    return pl.DataFrame({"time": times, "value": pl.Series(values, dtype=pl.Float64)})


@given(samples, st.integers(1, 50))
def test_decimation_keeps_extremes_and_means(values: list[float | None], points: int) -> None:
    known = [value for value in values if value is not None and not math.isnan(value)]
    decimated = decimate(table(values), points)
    assert len(decimated) <= points
    if not known:
        assert decimated.is_empty()
        return
    assert decimated["low"].min() == min(known)
    assert decimated["high"].max() == max(known)
    for low, mean, high in decimated.select("low", "mean", "high").iter_rows():
        assert low - 1e-6 <= mean <= high + 1e-6
    assert decimated["time"].is_sorted()


def test_decimation_matches_a_worked_example() -> None:
    decimated = decimate(table([1.0, 3.0, 5.0, 4.0, 9.0]), 3)
    assert decimated.rows() == [
        (pytest.approx(0.15), 1.0, 2.0, 3.0),
        (pytest.approx(0.35), 4.0, 4.5, 5.0),
        (pytest.approx(0.5), 9.0, 9.0, 9.0),
    ]


def test_distribution_counts_repeated_values() -> None:
    steps = ecdf(pl.Series([2.0, 1.0, 2.0, 4.0]))
    assert steps == [(1.0, 0.0), (1.0, 25.0), (2.0, 75.0), (4.0, 100.0)]


def test_long_distribution_is_decimated_and_ends_at_100_percent() -> None:
    steps = ecdf(pl.Series([float(value) for value in range(10_000)]))
    assert len(steps) <= 302
    assert steps[-1] == (9999.0, 100.0)
    for value, share in steps[1:]:
        assert share == pytest.approx((value + 1) / 100, rel=1e-4)


def test_expected_drop_runs_sum_to_the_dropped_packets() -> None:
    packets = sum(length * geometric(0.2, 1e6, length) for length in range(1, 200))
    runs = sum(geometric(0.2, 1e6, length) for length in range(1, 200))
    assert packets == pytest.approx(0.2 * 1e6)
    assert packets / runs == pytest.approx(1.25)


def test_axis_limits_include_all_values() -> None:
    tables = [decimate(table([3.0, 8.0])), decimate(table([1.0, 7.0]))]
    assert bounds(tables, [], from_zero=True) == (0.0, 8.0)
    low, high = bounds(tables, [20.0], from_zero=False)
    assert low < 1
    assert high > 20
    assert [rounded_up(value) for value in (0.0, 8.1, 97.0, 130.0)] == [1.0, 8.25, 97.5, 150.0]


def decoded(found: dict[str, Any], name: str) -> list[float | None]:
    """Return the values of a detail by its definition."""
    codes = struct.unpack(f"<{len(base64.b64decode(found[name])) // 2}H", base64.b64decode(found[name]))
    span = found["high"] - found["low"]
    return [None if code == 65535 else found["low"] + code / 65534 * span for code in codes]


def test_detail_keeps_samples_to_16_bits_and_gaps() -> None:
    values = [4.0, None, 10.0, 5.5, float("nan"), 6.0]
    found = detail(table(values))
    assert found is not None
    assert set(found) == {"start", "step", "low", "high", "mean"}
    assert (found["start"], found["step"]) == (pytest.approx(0.1), pytest.approx(0.1))
    tolerance = (10 - 4) / 65534
    assert decoded(found, "mean") == [
        None if value is None or math.isnan(value) else pytest.approx(value, abs=tolerance)
        for value in values
    ]


def test_detail_of_a_long_series_has_means_and_extremes_of_equal_buckets() -> None:
    values = [float(index % 7) for index in range(10_000)]
    found = detail(pl.DataFrame({"time": [float(index) for index in range(10_000)], "value": values}))
    assert found is not None
    # 10000 samples in at most 4000 buckets: three each, the first in the middle of 0, 1 and 2 s.
    assert (found["start"], found["step"]) == (1.0, 3.0)
    buckets = [values[at : at + 3] for at in range(0, 10_000, 3)]
    near = functools.partial(pytest.approx, abs=6 / 65534)
    assert decoded(found, "mean") == near([sum(bucket) / len(bucket) for bucket in buckets])
    assert decoded(found, "least") == near([min(bucket) for bucket in buckets])
    assert decoded(found, "most") == near([max(bucket) for bucket in buckets])


def test_detail_needs_values_at_equal_distances() -> None:
    assert detail(pl.DataFrame({"time": [0.0, 1.0, 3.0], "value": [1.0, 2.0, 3.0]})) is None
    assert detail(table([None, None])) is None
