"""The simulator compared with ns-2.35: every published cell about a TCP or a queue."""

import csv
import json
import subprocess
from pathlib import Path

import pytest
from conftest import Command

import bentpipe as bp
from bentpipe.errors import UsageError
from bentpipe.reproduction.ns2 import Cell, Experiment, experiments, shipped, verify

MORE = Path(__file__).parent / "truth"


@pytest.fixture(scope="module")
def published() -> list[Experiment]:
    return [experiment for table in shipped() for experiment in experiments(table)]


@pytest.fixture(scope="module")
def cells(published: list[Experiment]) -> list[Cell]:
    return verify(published)


def test_published_tables_have_all_cells(published: list[Experiment]) -> None:
    assert len(published) == 48 + 3
    assert sum(len(experiment.targets) for experiment in published) == 48 * 5 + 3 * 4


def test_required_cells_are_within_tolerance(cells: list[Cell]) -> None:
    required = [cell for cell in cells if cell.target.required]
    assert len(required) > 150
    failed = [
        f"{c.experiment}: {c.target.metric} {c.mean:.6g}, not {c.target.mean:.6g}"
        for c in required
        if not c.passed
    ]
    assert not failed


def test_additional_cells_are_met() -> None:
    # Made on ns-2.35 by truth/ns2.py: other buffers, windows, transports, queues, round trips; three seeds.
    more = [experiment for table in sorted(MORE.glob("*_more.csv")) for experiment in experiments(table)]
    assert len(more) == 74 + 20
    cells = verify(more, seeds=3)
    assert len(cells) == 450
    assert not {(cell.experiment, cell.target.metric) for cell in cells if cell.verdict == "fail"}


def test_clock_of_one_second_fails_a_cell(published: list[Experiment]) -> None:
    # Timeouts are late, which slows a session that loses a tenth of its packets.
    (experiment,) = (e for e in published if e.name == "a/base/Reno/RED buffer 50 window 64")
    slow = experiment.scenario.replace('preset = "ns2"', 'preset = "ns2"\nclock_granularity = "1 s"')
    (cell,) = (
        cell
        for cell in verify([Experiment("slow", slow, experiment.targets, experiment.measure)], seeds=2)
        if cell.target.metric == "goodput lossy10pct"
    )
    assert cell.verdict == "fail"


def test_tolerances_of_goodput_and_queue(published: list[Experiment]) -> None:
    (experiment,) = (e for e in published if e.name == "a/base/Reno/RED buffer 50 window 64")
    allowed = {target.metric: target.tolerance for target in experiment.targets}
    assert allowed["goodput lossy10pct"] == pytest.approx(3 * 976)
    assert allowed["goodput lossless"] == pytest.approx(0.05 * 103_062)
    assert allowed["queue"] == pytest.approx(1.87)


def test_command_prints_cells(bentpipe: Command) -> None:
    done = bentpipe(
        "verify", "truth", "--only", "rtt", "--only", "RED", "--seeds", "2", "--format", "json", check=0
    )
    rows = json.loads(done.stdout)
    assert [row["metric"] for row in rows] == ["utilization", "queue", "drop_rate", "goodput"]
    assert all(row["verdict"] == "pass" and row["seeds"] == 2 for row in rows)
    table = bentpipe("verify", "truth", "--only", "rtt", "--only", "RED", "--seeds", "1", check=0).stdout
    assert "4 of 4 figures pass" in table


def test_failed_cell_gives_exit_code_1(bentpipe: Command, tmp_path: Path) -> None:
    (dumbbell,) = (table for table in shipped() if table.stem == "red_dumbbell")
    lines = dumbbell.read_text().splitlines()
    wrong = lines[-1].replace("59.5992", "99.5992")
    assert wrong != lines[-1]
    (tmp_path / "cells.csv").write_text(f"{lines[0]}\n{wrong}\n")
    done = bentpipe("verify", "truth", "--table", "cells.csv", "--seeds", "1", check=1)
    assert "3 of 4 figures pass, 1 fail" in done.stdout


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: unknown kind of table"),
        ("a,b\n1,2\n", "1: unknown kind of table"),
        ("rtt_s,queue,tcp,n_flows,bottleneck_bps,buffer_pkts,max_window\n", "1: no column 'drop_rate_mean'"),
        ("HEAD", "no row below the headings"),
        ("HEAD\n0.06|x", "2: rtt_s: found 'x'; allowed: a number, at least 0.06"),
        ("HEAD\nRED|SFQ", "2: queue: found 'SFQ'; allowed: DropTail, RED"),
        ("HEAD\n50|2.5", "2: n_flows: found 2.5; allowed: a whole number"),
        ("HEAD\n59.5992|", "2: qlen_mean_pkts_mean: missing"),
        (b"\xff\xfe", "invalid start byte"),
    ],
)
def test_invalid_table_is_reported_with_its_place(tmp_path: Path, text: str | bytes, message: str) -> None:
    (dumbbell,) = (table for table in shipped() if table.stem == "red_dumbbell")
    head, *_, row = dumbbell.read_text().splitlines()
    if isinstance(text, str) and "|" in text:
        # The last row with one cell changed.
        was, now = text.removeprefix("HEAD\n").split("|")
        text = f"HEAD\n{row.replace(f',{was},', f',{now},', 1)}"
    table = tmp_path / "cells.csv"
    table.write_bytes(text if isinstance(text, bytes) else text.replace("HEAD", head).encode())
    with pytest.raises(UsageError) as raised:
        experiments(table)
    assert message in str(raised.value)
    assert str(raised.value).startswith(str(table))


def test_missing_table_and_empty_selection_are_refused(bentpipe: Command) -> None:
    done = bentpipe("verify", "truth", "--table", "absent.csv", check=2)
    assert done.stderr == "error: absent.csv: No such file or directory\n"
    assert "no experiment of 51" in bentpipe("verify", "truth", "--only", "SFQ", check=2).stderr
    assert "seeds is 0" in bentpipe("verify", "truth", "--seeds", "0", check=2).stderr


FLOWS = list(csv.DictReader((MORE / "one_flow.csv").read_text(encoding="utf-8").splitlines()))


@pytest.mark.parametrize("flow", FLOWS, ids=[f"{flow['tcp']} {flow['lost']}" for flow in FLOWS])
def test_lossy_flow_sends_the_packets_of_ns2_at_their_times(flow: dict[str, str], tmp_path: Path) -> None:
    # Made by truth/one_flow.tcl: time of each data packet since the SYN, and its number.
    theirs = [(float(time), int(number)) for time, number in map(_pair, flow["sent_ms_and_number"].split())]
    text = f"""
title = "one flow"
run = {{ duration = "9 s", subject = "middle" }}
host = {{ s = {{}}, d = {{}} }}
router = {{ r1 = {{}}, r2 = {{}} }}
[transport.tcp]
preset = "ns2"
algorithm = "{flow["tcp"].lower()}"
max_window = "30 segments"
initial_ssthresh = "30 segments"
[link.left]
between = ["s", "r1"]
rate = "10 Mbps"
delay = "24 ms"
loss = {{ nth = [{flow["lost"].replace(" ", ", ")}], of = "data" }}
reverse = {{ loss = 0 }}
[link.middle]
between = ["r1", "r2"]
rate = "1 Mbps"
delay = "1 ms"
queue = {{}}
[link.right]
between = ["r2", "d"]
rate = "10 Mbps"
delay = "25 ms"
[traffic.one]
kind = "bulk"
from = "s"
to = "d"
transport = "tcp"
"""
    scenario = bp.Scenario.parse(text, "one flow", [])
    bp.run(scenario, pcap=bp.Capture(tmp_path / "pcap", links=["left"]))
    (file,) = (tmp_path / "pcap").glob("*.pcapng")
    fields = ["-T", "fields", "-e", "frame.time_relative", "-e", "tcp.seq"]
    command = ["tshark", "-r", str(file), "-Y", "tcp.len > 0", *fields]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=240)
    ours = [
        (float(time) * 1000, (int(seq) - 1) // 1000 + 1)
        for time, seq in map(str.split, done.stdout.splitlines())
    ]
    assert [number for _, number in ours[: len(theirs)]] == [number for _, number in theirs]
    # Timeouts are whole ticks of 10 ms and double; the clocks of simulator and ns-2 tick at different times.
    for (time, number), (expected, _) in zip(ours, theirs, strict=False):
        assert time == pytest.approx(expected, rel=0.05), number


def _pair(text: str) -> tuple[str, str]:
    time, _, number = text.partition(":")
    return time, number
