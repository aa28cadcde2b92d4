"""Measured capacity of mobile links in mahimahi's format; skipped without a folder of such traces."""

import os
from pathlib import Path

import pytest
from conftest import ROOT

import bentpipe as bp
from bentpipe._core import Progress, simulate

FOLDER = Path(os.environ.get("BENTPIPE_TRACES", ROOT.parent / "shared" / "data"))
NAMES = ["TMobile-UMTS-driving.down", "TMobile-UMTS-driving.up", "ATT-LTE-driving-2016.down"]


@pytest.mark.parametrize("name", NAMES)
def test_backlogged_link_uses_every_opportunity(name: str) -> None:
    trace = FOLDER / name
    if not trace.is_file():
        pytest.skip(f"{trace} does not exist; BENTPIPE_TRACES names the folder of mahimahi's traces")
    text = f"""
title = "a mobile link"
run = {{ duration = "10 s", subject = "wire" }}
host = {{ a = {{}}, b = {{}} }}
[link.wire]
between = ["a", "b"]
delay = "50 ms"
capacity.trace = "{trace}"
queue = {{ limit = "1000 packets" }}
[traffic.flood]
kind = "cbr"
from = "a"
to = "b"
rate = "200 Mbps"
packet = "1000 B"
start = "10 ms"
"""
    run = simulate(bp.Scenario.parse(text, "mobile", []), 1, Progress())
    times = [int(line) for line in trace.read_text(encoding="ascii").split()]
    # The flood begins at 10 ms; the last packet may be in flight.
    due = 1500 * sum(11 <= time <= 10_000 for time in times)
    assert abs(due - run.counters["sent_bytes"]) < 1500
