"""The package's release build gives the results that a debug build of the core recorded."""

import math
import struct
from collections.abc import Iterable

import polars as pl
from conftest import ROOT

import bentpipe as bp
from bentpipe._core import Progress, simulate

RECORDED = ROOT / "crates" / "sim" / "tests" / "small-gateway.digests"


def digest(values: Iterable[float | None]) -> str:
    """Return the 64-bit FNV-1a hash of numbers as little-endian doubles, null being NaN."""
    state = 0xCBF29CE484222325
    for value in values:
        for byte in struct.pack("<d", math.nan if value is None else value):
            state = (state ^ byte) * 0x100000001B3 % 2**64
    return f"{state:016x}"


def test_release_build_gives_the_recorded_bytes() -> None:
    scenario = bp.load("small-gateway")
    run = simulate(scenario, scenario.seed, Progress())
    series, drops = pl.DataFrame(run.series), pl.DataFrame(run.drops)
    found = {name: digest(series[name]) for name in series.columns} | {"drops.time": digest(drops["time"])}
    recorded = dict(line.split(" ") for line in RECORDED.read_text().splitlines())
    assert found == recorded
