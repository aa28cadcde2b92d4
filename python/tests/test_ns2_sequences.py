"""The preset `ns2` packet by packet: single flows send the packets that ns-2.35 sends, in the same order."""

import csv
import struct
from collections.abc import Iterator, Sequence
from itertools import groupby
from math import ceil
from pathlib import Path

import pytest
from ns2_random_loss import PACKETS, SEEDS, TABLE, lost_packets, ranges

import bentpipe as bp

pytestmark = pytest.mark.filterwarnings("ignore:.*more were left out")

FIXED = Path(__file__).parent / "truth/one_flow.csv"
PHASE = "762.767 ms"
"""Start of a flow. Ticks of 10 ms round each measured round-trip time. They begin with our simulation, but at
-3.185 ms in ns-2, where the flow starts at 759.582 ms."""

TRANSPORTS = {
    "Reno": 'algorithm = "reno"',
    "Newreno": 'algorithm = "newreno"',
    "Sack1": 'algorithm = "newreno"\nsack = true\nprr = false',
}
FLOW = """
[host."s{i}"]
[host."d{i}"]
[router."a{i}"]
[router."b{i}"]
[link."left{i}"]
between = ["s{i}", "a{i}"]
rate = "10 Mbps"
delay = "24 ms"
loss = {{ nth = {lost}, of = "data" }}
reverse = {{ loss = 0 }}
[link."middle{i}"]
between = ["a{i}", "b{i}"]
rate = "1 Mbps"
delay = "1 ms"
queue = {{}}
[link."right{i}"]
between = ["b{i}", "d{i}"]
rate = "10 Mbps"
delay = "25 ms"
[traffic."flow{i}"]
kind = "bulk"
from = "s{i}"
to = "d{i}"
transport = "tcp"
start = "{start}"
"""


def sent(
    tcp: str, losses: Sequence[Sequence[int]], seconds: int, folder: Path
) -> list[list[tuple[float, int]]]:
    """Run a flow for each list of lost packets; return its data packets with times since its SYN [ms]."""
    head = f"""
title = "single flows"
run = {{ duration = "{seconds} s", subject = "middle0" }}
[transport.tcp]
preset = "ns2"
{TRANSPORTS[tcp]}
max_window = "30 segments"
initial_ssthresh = "30 segments"
"""
    flows = (FLOW.format(i=i, lost=list(lost), start=PHASE) for i, lost in enumerate(losses))
    scenario = bp.Scenario.parse(head + "".join(flows), "single flows", [])
    links = [f"left{i}" for i in range(len(losses))]
    # Each data packet has an acknowledgement in the same capture; flows go on after the compared packets.
    bp.run(scenario, pcap=bp.Capture(folder, links=links, packets=2 * PACKETS + 100))
    captures = {path.stem.rpartition("-")[2]: path for path in folder.glob("*.pcapng")}
    return [list(data_packets(captures[link])) for link in links]


def data_packets(capture: Path) -> Iterator[tuple[float, int]]:
    """Yield the data packets of a flow in a capture: time since the SYN [ms], and number from 1 on."""
    content, at = capture.read_bytes(), 0
    begin = first = 0
    while at < len(content):
        kind, length = struct.unpack_from("<II", content, at)
        if kind == 6:
            # Enhanced packet block: the time [ns] in two parts, and an IP packet without options at 28.
            high, low = struct.unpack_from("<II", content, at + 12)
            time = (high << 32) + low
            (total,) = struct.unpack_from(">H", content, at + 28 + 2)
            sequence, _, offset, flags = struct.unpack_from(">IIBB", content, at + 28 + 20 + 4)
            if flags & 0x12 == 0x02:
                begin, first = time, sequence + 1
            elif total > 20 + offset // 16 * 4:
                yield (time - begin) / 1e6, (sequence - first) // 1000 + 1
        at += length


@pytest.mark.parametrize("tcp", ["Reno", "Newreno"])
def test_lossy_flow_sends_the_packets_of_ns2_at_their_times(tcp: str, tmp_path: Path) -> None:
    # Made by truth/one_flow.tcl: time of each data packet since the SYN, and its number.
    flows = [
        row for row in csv.DictReader(FIXED.read_text(encoding="utf-8").splitlines()) if row["tcp"] == tcp
    ]
    assert flows
    ours = sent(tcp, [[int(word) for word in flow["lost"].split()] for flow in flows], 10, tmp_path)
    for flow, packets in zip(flows, ours, strict=True):
        pairs = [packet.split(":") for packet in flow["sent_ms_and_number"].split()]
        theirs = [(float(time), int(number)) for time, number in pairs]
        same = packets[: len(theirs)]
        assert [number for _, number in same] == [number for _, number in theirs], flow["lost"]
        assert [time for time, _ in same] == pytest.approx([time for time, _ in theirs], abs=1), flow["lost"]


FLOWS = [
    (tcp, float(loss), list(rows))
    for (tcp, loss), rows in groupby(
        csv.DictReader(TABLE.read_text(encoding="utf-8").splitlines()),
        key=lambda row: (row["tcp"], row["loss"]),
    )
]


def test_table_has_flows_of_each_transport_and_loss() -> None:
    found = [(tcp, loss, len(rows)) for tcp, loss, rows in FLOWS]
    assert found == [(tcp, loss, SEEDS) for tcp in TRANSPORTS for loss in (0.01, 0.03, 0.1)]


@pytest.mark.parametrize(("tcp", "loss", "rows"), FLOWS, ids=[f"{tcp} {loss:g}" for tcp, loss, _ in FLOWS])
def test_flow_with_random_losses_sends_the_packets_of_ns2(
    tcp: str, loss: float, rows: list[dict[str, str]], tmp_path: Path
) -> None:
    # Made by ns2_random_loss.py. At least 28 of 30 flows must be identical.
    end = ceil(max(float(row["last_ms"]) for row in rows) / 1000)
    ours = sent(tcp, [lost_packets(loss, int(row["seed"])) for row in rows], end + 2, tmp_path)
    differing = []
    for row, packets in zip(rows, ours, strict=True):
        packets = packets[:PACKETS]
        if ranges([number for _, number in packets]) != row["sent"]:
            differing.append(row["seed"])
        else:
            assert packets[-1][0] == pytest.approx(float(row["last_ms"]), rel=0.01), row["seed"]
    assert len(rows) - len(differing) >= 28, f"seeds {', '.join(differing)} differ"
