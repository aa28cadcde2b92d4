from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import Command

import bentpipe as bp
from bentpipe.runs.store import read_manifest
from bentpipe.stats.warmup import detected, warmup_warnings

INTERVAL = 0.1


def table(seed: int, rise: int) -> pl.DataFrame:
    """Return a series of 200 s in which the queue grows from 0 to 50 packets within `rise` samples."""
    random = np.random.default_rng(seed)
    ramp = np.minimum(1.0, np.arange(1, 2001) / max(rise, 1))
    queue = pl.Series((50 * ramp + random.normal(0, 2, 2000)).round()).cast(pl.UInt32, strict=False)
    rate = pl.Series([None, *(random.normal(4e6, 1e5, 1999))], dtype=pl.Float64)
    return pl.DataFrame({"throughput": rate, "transmit_queue": queue.fill_null(0)})


def test_transient_in_the_measured_time_is_reported_with_numbers() -> None:
    tables = {("slow", seed): table(seed, 400) for seed in (1, 2, 3)}
    tables |= {("quick", seed): table(seed, 0) for seed in (1, 2, 3)}
    found = detected(
        ["slow", "quick"], [1, 2, 3], lambda s, n: tables[s, n], {"warmup": 10.0, "sample_interval": INTERVAL}
    )
    assert [(each.setting, each.quantity.series) for each in found] == [
        ("slow", "throughput"),
        ("slow", "transmit_queue"),
        ("quick", "throughput"),
        ("quick", "transmit_queue"),
    ]
    slow = found[1]
    # The ramp lasts 40 s, and its last few seconds hardly differ from the rest.
    assert slow.detected is not None
    assert 40 <= slow.detected <= 52
    assert slow.clear
    assert slow.after == pytest.approx(50, abs=0.5)
    assert slow.before == pytest.approx(50 * (slow.detected - 10) / 40 / 2, rel=0.1)
    assert not any(each.clear for each in found if each is not slow)
    (line,) = warmup_warnings(found)
    assert line.startswith("A warm-up of 10 s is too short; settled by MSER-5: slow: transmit queue from ")
    assert line.endswith(f"Set run.warmup to {slow.detected:g} s.")


def test_growing_queue_does_not_settle() -> None:
    scenario = {"warmup": 10.0, "sample_interval": INTERVAL}
    found = detected(["slow"], [1], lambda _, seed: table(seed, 2000), scenario)
    assert found[1].detected is None
    (line,) = warmup_warnings(found)
    assert "Not settled within the first half of the measured time by MSER-5: slow: transmit queue." in line


def test_manifest_and_frame_hold_the_detected_warmup(result: bp.Result) -> None:
    frame = result.warmup()
    assert frame.rows(named=True) == read_manifest(result.folder)["warmup"]
    assert set(frame["series"]) == {"throughput", "transmit_queue", "pep_buffers"}
    assert set(frame["discarded"]) == {10.0}
    assert set(frame["runs"]) == {2}
    for row in frame.drop_nulls("detected").iter_rows(named=True):
        assert 10 <= row["detected"] <= 20


def test_command_warns_of_a_short_warmup_and_accepts_a_longer_one(bentpipe: Command, tmp_path: Path) -> None:
    quick = ("run", "small-gateway", "--duration", "40 s", "--runs", "3")
    done = bentpipe(*quick, "--warmup", "0s", "--out", "short", check=0)
    shown = " ".join(done.stdout.partition("who gets what")[0].split())
    assert "Warning: A warm-up of 0 s is too short; settled by MSER-5: red: rate sent on the link" in shown
    assert "is too short; settled by MSER-5" in (tmp_path / "short" / "report.html").read_text(
        encoding="utf-8"
    )
    done = bentpipe(*quick, "--warmup", "10s", "--out", "long", check=0)
    assert "MSER-5" not in done.stdout
    assert bp.open(tmp_path / "long").manifest["scenario"]["warmup"] == 10.0
    done = bentpipe(*quick, "--warmup", "soon", check=2)
    assert "--warmup soon" in done.stderr
