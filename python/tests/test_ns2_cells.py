"""The simulator compared with ns-2.35: every published cell about a TCP or a queue."""

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from conftest import Command

from bentpipe.errors import UsageError
from bentpipe.reproduction.ns2 import Cell, Experiment, experiments, shipped, verify

MORE = Path(__file__).parent / "truth"


@pytest.fixture(scope="module")
def published() -> list[Experiment]:
    return [experiment for table in shipped() for experiment in experiments(table)]


def test_published_tables_have_all_cells(published: list[Experiment]) -> None:
    assert len(published) == 48 + 3
    assert sum(len(experiment.targets) for experiment in published) == 48 * 5 + 3 * 4


@pytest.mark.parametrize(
    ("every", "least"), [(5, 25), pytest.param(1, 150, marks=pytest.mark.long)], ids=["every fifth", "all"]
)
def test_required_cells_are_within_tolerance(published: list[Experiment], every: int, least: int) -> None:
    required = [cell for cell in verify(published[::every], seeds=3) if cell.target.required]
    assert len(required) > least
    failed = [
        f"{c.experiment}: {c.target.metric} {c.mean:.6g}, not {c.target.mean:.6g}"
        for c in required
        if not c.passed
    ]
    assert not failed


@pytest.mark.long
def test_additional_cells_are_met() -> None:
    # Made on ns-2.35 by truth/ns2.py: other buffers, windows, transports, queues, round trips; three seeds.
    more = [experiment for table in sorted(MORE.glob("*_more.csv")) for experiment in experiments(table)]
    assert len(more) == 74 + 32
    cells = verify(more, seeds=3)
    assert len(cells) == 498
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


def test_rounding_errors_of_an_empty_queue_pass(published: list[Experiment]) -> None:
    (target,) = (
        t
        for e in published
        if e.name.startswith("rtt 0.06 s/Newreno/RED")
        for t in e.targets
        if t.metric == "queue"
    )
    empty = replace(target, mean=6e-17, std=0.0)
    assert Cell("empty", empty, (0.0,)).passed
    assert not Cell("empty", empty, (1e-6,)).passed


def test_command_prints_cells(bentpipe: Command) -> None:
    done = bentpipe("verify", "truth", "--only", "Newreno/RED", "--seeds", "2", "--format", "json", check=0)
    rows = json.loads(done.stdout)
    assert [row["metric"] for row in rows] == ["utilization", "queue", "drop_rate", "goodput"]
    assert all(row["verdict"] == "pass" and row["seeds"] == 2 for row in rows)
    table = bentpipe("verify", "truth", "--only", "Newreno/RED", "--seeds", "1", check=0).stdout
    assert "4 of 4 figures pass" in table


def test_repeated_only_selects_more_experiments(bentpipe: Command) -> None:
    given = ("verify", "truth", "--only", "Newreno/RED", "--only", "Newreno/PI", "--seeds", "1")
    rows = json.loads(bentpipe(*given, "--format", "json", check=0).stdout)
    assert {row["experiment"].split("/")[2].split()[0] for row in rows} == {"RED", "PI"}


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


def ten_sessions(tmp_path: Path, *changes: tuple[str, str], lines: tuple[int, ...] = (0, 1, 2)) -> Path:
    """Return a table of the first experiment, case a, with some of its rows, and changed texts."""
    (table,) = (each for each in shipped() if each.stem == "ten_sessions")
    head, *rows = table.read_text().splitlines()
    text = "\n".join([head, *(rows[line] for line in lines), ""])
    for was, now in changes:
        assert was in text
        text = text.replace(was, now)
    path = tmp_path / "cells.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize("lines", [(0, 1, 2), (1,), (2, 1, 0)])
def test_sessions_are_compared_with_their_class_in_any_order(tmp_path: Path, lines: tuple[int, ...]) -> None:
    """Ten flows: the first of 1250 bytes in a second, which are 10 kbit/s, nine of 2500 bytes each."""
    (experiment,) = experiments(ten_sessions(tmp_path, lines=lines))
    traffic, sizes = ["first"] + 9 * ["second"], [1250] + 9 * [2500]
    counters = {"measured_seconds": 1.0, "dropped_packets": 1, "sent_packets": 9, "queue_time_average": 3.0}
    run: Any = SimpleNamespace(flows={"traffic": traffic, "bytes": sizes}, counters=counters)
    figures = experiment.measure(run)
    expected = {"goodput lossy10pct": 10_000, "goodput lossless": 20_000, "goodput aggregate": 190_000}
    for target in experiment.targets:
        if target.metric in expected:
            assert figures[target.metric] == expected[target.metric]
    assert len(experiment.targets) == len(lines) + 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("lossless,9", "lossless,8"), ":3: n_sessions: found 8; allowed for lossless in case a: 9"),
        (("lossless,9", "lossy1pct,9"), ":3: sessions_class: found 'lossy1pct'; allowed: lossy10pct, "),
        (("lossless,9", "lossy10pct,1"), ":3: sessions_class: found 'lossy10pct' twice in one experiment"),
    ],
)
def test_sessions_that_fit_no_class_are_refused(
    tmp_path: Path, change: tuple[str, str], message: str
) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        experiments(ten_sessions(tmp_path, change))


def test_an_experiment_without_packets_or_with_two_rows_is_refused(tmp_path: Path) -> None:
    (dumbbell,) = (table for table in shipped() if table.stem == "red_dumbbell")
    head, row, *_ = dumbbell.read_text().splitlines()
    (tmp_path / "twice.csv").write_text(f"{head}\n{row}\n{row}\n")
    with pytest.raises(UsageError, match=r"twice\.csv:3: the same experiment as .*:2; allowed: one row"):
        experiments(tmp_path / "twice.csv")
    head, row = ten_sessions(tmp_path, lines=(0,)).read_text().splitlines()
    columns, cells = head.split(","), row.split(",")
    for name in ("drops_mean", "bottleneck_departures_mean"):
        cells[columns.index(name)] = "0"
    (tmp_path / "empty.csv").write_text(f"{head}\n{','.join(cells)}\n")
    with pytest.raises(UsageError, match=r":2: bottleneck_departures_mean: found 0 without drops"):
        experiments(tmp_path / "empty.csv")


def test_missing_table_and_empty_selection_are_refused(bentpipe: Command) -> None:
    done = bentpipe("verify", "truth", "--table", "absent.csv", check=2)
    assert done.stderr == "error: absent.csv: No such file or directory\n"
    assert "no experiment of 51" in bentpipe("verify", "truth", "--only", "SFQ", check=2).stderr
    # With colours stderr is taken for a terminal.
    assert "seeds is 0" in bentpipe("verify", "truth", "--seeds", "0", check=2, FORCE_COLOR="1").stderr


def test_progress_on_a_terminal_counts_finished_runs(bentpipe: Command) -> None:
    given = ("verify", "truth", "--only", "Newreno/RED", "--seeds", "2")
    assert "2 of 2 runs" in bentpipe(*given, check=0, FORCE_COLOR="1").stderr
