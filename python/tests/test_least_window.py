"""The least window of each TCP preset if every packet is marked (docs/truth.md)."""

import pytest

import bentpipe as bp
from bentpipe import _core
from bentpipe.runs.plan import make_plan

RTT = 0.1
MEASURED = 100
"""Seconds in which segments are counted, after as many of warm-up."""


class MarkAll(bp.Aqm):
    """Marks every ECN-capable packet."""

    def arrive(self, pkt: bp.Packet, cx: bp.Context) -> bp.Verdict:
        """Mark what can be marked."""
        del cx
        return bp.Verdict.PASS if pkt.ecn == "not-ect" else bp.Verdict.MARK


def segments_per_round_trip(preset: str) -> float:
    """Run a flow that is marked at every packet; return its mean window [segments]."""
    text = f"""
title = "marks"
run = {{ warmup = "{MEASURED} s", duration = "{MEASURED} s" }}
host = {{ s = {{}}, d = {{}} }}
[transport.tcp]
{preset}
ecn = true
delayed_ack = "1 us"
[link.wire]
between = ["s", "d"]
rate = "1 Gbps"
delay = "{RTT / 2} s"
queue = {{ marking = "ecn", aqm = {{ algorithm = "droptail" }} }}
[traffic.one]
kind = "bulk"
from = "s"
to = "d"
transport = "tcp"
"""
    scenario = bp.Scenario.parse(text, "marks", [])
    (setting,) = make_plan(scenario, settings=[bp.Setting("all", MarkAll)], runs=1).settings
    run = _core.simulate(setting.scenario, 1, _core.Progress())
    assert run.counters["dropped_packets"] == 0
    return float(run.counters["sent_packets"]) * RTT / MEASURED


@pytest.mark.parametrize("preset", ["", "reno-2003", "byun2007", "linux"])
def test_marks_leave_two_segments(preset: str) -> None:
    # RFC 3168, 6.1.2: as a loss; RFC 5681, eq. (4): at least two segments.
    window = segments_per_round_trip(preset and f'preset = "{preset}"')
    assert window == pytest.approx(2, rel=0.02)


def test_marks_make_ns2_wait_for_its_timer() -> None:
    # RFC 3168, 6.1.2: a segment each time the timer expires, which doubles up to a minute.
    assert 0 < segments_per_round_trip('preset = "ns2"') < 0.01
