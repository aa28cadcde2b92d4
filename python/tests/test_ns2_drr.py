"""DRR packet by packet: ten connections lose the packets that they lose on ns-2.35, at the same times."""

import csv
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest

import bentpipe as bp

# Made by truth/drr_drops.tcl, until a timer retransmits whose ticks have another phase on ns-2.
TABLE = Path(__file__).parent / "truth/drr_drops.csv"
KEYS = itemgetter("case", "buffer_pkts", "max_window", "tcp", "seconds")

HEAD = """
title = "ten connections"
run = {{ duration = "{duration} s", subject = "bottleneck" }}
[router.r1]
[router.r2]
[transport.tcp]
preset = "ns2"
algorithm = "{algorithm}"
receive_window = "1000 segments"
max_window = "{window} segments"
initial_ssthresh = "{window} segments"
[link.bottleneck]
between = ["r1", "r2"]
rate = "1 Mbps"
delay = "1 ms"
[link.bottleneck.queue]
limit = "{limit} B"
scheduler = {{ algorithm = "drr", quantum = "1040 B", head_drop = true }}
"""
CONNECTION = """
[host.s{i}]
[host.d{i}]
[link.left{i}]
between = ["s{i}", "r1"]
rate = "10 Mbps"
delay = "{delay} ms"
[link.right{i}]
between = ["r2", "d{i}"]
rate = "10 Mbps"
delay = "1 ms"
[traffic.t{i}]
kind = "bulk"
from = "s{i}"
to = "d{i}"
transport = "tcp"
start = "{start} us"
"""
CASES = {
    key: [(float(row["time_s"]), int(row["flow"])) for row in rows]
    for key, rows in groupby(csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()), key=KEYS)
}


def round_trip(case: str, i: int) -> int:
    """Round-trip time without queueing [ms]."""
    if case == "c":
        return 1000 if i == 0 else 500
    return 500 if i < 5 else 20


@pytest.mark.parametrize("key", CASES, ids="-".join)
def test_drr_drops_the_packets_that_it_drops_on_ns2(key: tuple[str, ...], tmp_path: Path) -> None:
    case, buffer, window, tcp, seconds = key
    head = HEAD.format(
        duration=float(seconds) + 0.1, algorithm=tcp.lower(), window=window, limit=1040 * int(buffer)
    )
    connections = (
        CONNECTION.format(i=i, delay=round_trip(case, i) // 2 - 2, start=370 + 91_300 * i) for i in range(10)
    )
    scenario = bp.Scenario.parse(head + "".join(connections), "ten connections", [])
    drops = bp.run(scenario, out=tmp_path / "result").drops()
    assert set(drops["place"]) == {"bottleneck"}
    ours = [(time, flow) for time, flow in drops.select("time", "flow").iter_rows() if time < float(seconds)]
    theirs = CASES[key]
    assert len(theirs) > 30
    assert [flow for _, flow in ours] == [flow for _, flow in theirs]
    assert [time for time, _ in ours] == pytest.approx([time for time, _ in theirs], abs=2e-6)
