"""Reduction of data to a screen's resolution: fewer points, round limits, short numbers."""

import base64
import math
import sys
from array import array
from collections.abc import Sequence
from typing import Any

import polars as pl

from bentpipe.format import brief

__all__ = [
    "POINTS",
    "as_float",
    "bounds",
    "decimate",
    "detail",
    "ecdf",
    "geometric",
    "plain",
    "rounded_up",
    "rows",
    "samples_of",
    "short",
]

POINTS = 500
"""Maximum number of buckets of a decimated series."""
_DETAIL = 4000
"""Maximum number of buckets of a series that a page keeps for windows of time."""
_DIGITS = 5
"""Digits of a drawn value, finer than a screen's resolution."""


def decimate(table: pl.DataFrame, points: int = POINTS) -> pl.DataFrame:
    """Reduce a series to at most `points` buckets with equal numbers of samples.

    Takes `time` and `value`; returns `time` (middle of the bucket), `low`, `mean`, `high`. Unknown samples
    are omitted; minima and maxima are kept.
    """
    known = table.select("time", pl.col("value").fill_nan(None)).drop_nulls()
    size = max(1, math.ceil(len(known) / points))
    return (
        known.with_row_index("bucket")
        .group_by(pl.col("bucket") // size, maintain_order=True)
        .agg(
            time=(pl.col("time").first() + pl.col("time").last()) / 2,
            low=pl.col("value").min(),
            mean=pl.col("value").mean(),
            high=pl.col("value").max(),
        )
        .drop("bucket")
    )


def samples_of(count: int) -> str:
    """Return what `decimate` draws of that many samples, as part of a sentence."""
    size = max(1, math.ceil(count / POINTS))
    if size == 1:
        return "all samples"
    return f"means of {size} samples, with a band from the smallest to the largest,"


def detail(table: pl.DataFrame) -> dict[str, Any] | None:
    """Return a series for a page's time windows: at most `_DETAIL` equal buckets, 16 bits a value.

    Takes `time` and `value`, evenly spaced. Returns `start` and `step` of the buckets [s], `low` and `high`
    of all values, and base64 of little-endian codes: 0 for `low` to 65534 for `high`, 65535 for unknown.
    `mean` is followed by `least` and `most` if a bucket has several samples. None without a value, or if the
    samples are not evenly spaced.
    """
    times = table["time"]
    known = table.select("time", value=pl.col("value").fill_nan(None))
    low, high = known["value"].min(), known["value"].max()
    if len(times) < 2 or low is None or high is None:
        return None
    step = (times[-1] - times[0]) / (len(times) - 1)
    even = times[0] + step * pl.int_range(len(times), eager=True)
    if ((times - even).abs() > 0.01 * step).any():
        return None
    size = math.ceil(len(times) / _DETAIL)
    bucket = known.with_row_index("bucket").group_by(pl.col("bucket") // size, maintain_order=True)
    buckets = bucket.agg(mean=pl.col("value").mean(), least=pl.col("value").min(), most=pl.col("value").max())
    span = as_float(high) - as_float(low)
    return {
        "start": short(times[0] + (size - 1) * step / 2),
        "step": size * step,
        "low": as_float(low),
        "high": as_float(high),
    } | {
        name: _codes(buckets[name], as_float(low), span)
        for name in (("mean",) if size == 1 else ("mean", "least", "most"))
    }


def _codes(values: pl.Series, low: float, span: float) -> str:
    scale = 65534 / span if span else 0.0
    codes = array("H", ((values - low) * scale).round().cast(pl.UInt16).fill_null(65535).to_list())
    if sys.byteorder == "big":
        codes.byteswap()
    return base64.b64encode(codes.tobytes()).decode()


def geometric(share: float, arrivals: float, length: int) -> float:
    """Return the expected number of drop runs of `length` packets if a `share` were dropped independently."""
    return arrivals * (1 - share) ** 2 * share**length


def ecdf(values: pl.Series, points: int = 300) -> list[tuple[float, float]]:
    """Return the empirical distribution function as pairs of value and share of values up to it [%].

    Returned steps are exact; if there are more than `points`, about `points` of them are kept, and the last.
    """
    table = (
        pl.DataFrame({"value": values})
        .group_by("value")
        .agg(count=pl.len())
        .sort("value")
        .select("value", share=100 * pl.col("count").cum_sum() / len(values))
    )
    size = max(1, math.ceil(len(table) / points))
    kept = table.with_row_index("row").filter((pl.col("row") % size == 0) | (pl.col("row") == len(table) - 1))
    steps = [(short(value), short(share)) for value, share in kept.select("value", "share").iter_rows()]
    return [(steps[0][0], 0.0), *steps]


def bounds(tables: Sequence[pl.DataFrame], extra: Sequence[float], *, from_zero: bool) -> tuple[float, float]:
    """Return the limits of an axis for all decimated `tables` and the `extra` values."""
    lows = [as_float(table["low"].min()) for table in tables]
    highs = [*(as_float(table["high"].max()) for table in tables), *extra]
    high = max(highs)
    if from_zero:
        return 0.0, rounded_up(high) if high > 0 else 1.0
    low = min(lows)
    margin = 0.06 * (high - low) or 0.05 * abs(high) or 1.0
    return max(0.0, low - margin) if low >= 0 else low - margin, high + margin


def rounded_up(value: float) -> float:
    """Return `value` rounded up to a round number for an axis."""
    if value <= 0:
        return 1.0
    step = 10.0 ** math.floor(math.log10(value)) / 4
    return float(math.ceil(value / step) * step)


def rows(table: pl.DataFrame) -> list[dict[str, float]]:
    """Return a table in Vega's format."""
    return table.cast(pl.Float64).with_columns(pl.all().round_sig_figs(_DIGITS)).to_dicts()


def short(value: float) -> float:
    """Return `value` with as many digits as a screen shows."""
    return float(f"{value:.{_DIGITS}g}")


def plain(value: object) -> str:
    """Write a number from polars with three digits; a dash for None."""
    return brief(float(value), 3) if isinstance(value, int | float) else "–"


def as_float(value: object) -> float:
    """Return a number from polars as a float; 0 for None."""
    return float(value) if isinstance(value, int | float) else 0.0
