"""Stored runs of papers: simulated once, never stale, and consistent after a crash."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from patience import PATIENCE

from bentpipe import files
from bentpipe.errors import UsageError
from bentpipe.reproduction import MANIFEST, Reproduction, papers, reproduce, runs
from bentpipe.reproduction.experiments import CLAIMS

SMALL = """
title = "Ten sessions"
source = "nobody"
[quick]
runs = 2
[measure.all]
kind = "goodput"
label = "Goodput"
traffic = ["affected", "others"]
of = "total"
[rule.all]
kind = "near"
within = 0.02
[experiment.loss-10]
title = "One session of ten loses a tenth of its data"
scenario = "ten-sessions.toml"
set = { "run.duration" = "10 s" }
runs = 3
cases = [{ label = "SWF", setting = "swf" }, { label = "FIFO", setting = "fifo" }]
[[table]]
id = "table-1"
where = "Table I"
title = "One session of ten loses a tenth of its data"
file = "t1_one_session_loss_10pct.csv"
key = "scheduler"
experiments = ["loss-10"]
columns = [{ column = "total_goodput_bps", unit = "bit/s", measure = "all", rule = "all" }]
"""
RUNS = 6


@pytest.fixture
def small(tmp_path: Path) -> Path:
    folder = tmp_path / "small"
    folder.mkdir()
    source = papers()["jain2004"]
    shutil.copy(source / "ten-sessions.toml", folder)
    printed = (source / "tables" / "t1_one_session_loss_10pct.csv").read_text().splitlines()
    kept = [line for line in printed if line.split(",")[0] in ("scheduler", "SWF", "FIFO")]
    (folder / "t1_one_session_loss_10pct.csv").write_text("\n".join(kept) + "\n")
    (folder / CLAIMS).write_text(SMALL)
    return folder


def made(small: Path, out: Path) -> Reproduction:
    (found,) = reproduce([small], out=out, jobs=1)
    return found


def kept(out: Path) -> int:
    return len(list(out.glob("runs/*/*/[0-9]*/counters.json")))


KILLED = """
import os, signal, sys
from pathlib import Path
from bentpipe import files
from bentpipe.reproduction import reproduce

def killed(path, content, write=files.write_new):
    write(path, content)
    # While the files of the third run are written.
    if path.name == "drop_runs.parquet" and len(list(Path(sys.argv[2]).rglob("counters.json"))) == 2:
        os.kill(os.getpid(), signal.SIGKILL)

files.write_new = killed
reproduce([sys.argv[1]], out=sys.argv[2], jobs=1)
"""


def test_a_killed_reproduction_continues_with_the_same_result(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [sys.executable, "-c", KILLED, str(small), str(out)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert kept(out) == 2
    assert list(out.rglob(f"{files.PARTIAL}*"))
    resumed = made(small, out)
    assert resumed.about["new_runs"] == RUNS - 2
    assert not list(out.rglob(f"{files.PARTIAL}*"))
    assert resumed.rows() == made(small, tmp_path / "whole").rows()


@pytest.mark.parametrize("name", [MANIFEST, "drop_runs.parquet", "counters.json", "verdicts.json"])
def test_a_full_disk_leaves_no_partial_files(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    out = tmp_path / "out"

    def full(path: Path, content: bytes, write: Callable[[Path, bytes], None]) -> None:
        if path.name == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write(path, content)

    with monkeypatch.context() as patch:
        patch.setattr(files, "write_new", partial(full, write=files.write_new))
        patch.setattr(files, "write", partial(full, write=files.write))
        with pytest.raises((OSError, UsageError), match="No space left on device"):
            made(small, out)
    assert not list(out.rglob(f"{files.PARTIAL}*"))
    stored = kept(out)
    assert stored == (RUNS if name == "verdicts.json" else 0)
    assert made(small, out).about["new_runs"] == RUNS - stored


def test_a_folder_with_only_partial_files_is_used_as_new(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / f"{files.PARTIAL}x").write_text("{")
    assert made(small, out).about["new_runs"] == RUNS
    assert {each.name for each in out.iterdir()} == {MANIFEST, "runs", "small"}


def test_a_run_with_a_missing_file_is_simulated_again(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    before = made(small, out)
    some = sorted(out.glob("runs/*/*/*"))
    for run, name in zip(some[:3], ("series.parquet", "flows.parquet", "counters.json"), strict=True):
        (run / name).unlink()
    again = made(small, out)
    assert again.about["new_runs"] == 3
    assert again.rows() == before.rows()


def test_stored_runs_are_found_by_core_scenario_and_seed(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    first = made(small, out)
    assert first.about["new_runs"] == RUNS

    def changed(file: str, old: str, new: str) -> Reproduction:
        text = (small / file).read_text()
        assert old in text
        (small / file).write_text(text.replace(old, new))
        return made(small, out)

    # A title does not determine a run, and measures are computed from stored runs.
    assert changed("ten-sessions.toml", "Ten sessions over 1 Mbit/s", "Ten").about["new_runs"] == 0
    mean = changed(CLAIMS, 'of = "total"', 'of = "mean"')
    assert mean.about["new_runs"] == 0
    assert mean.rows() == made(small, tmp_path / "anew").rows() != first.rows()
    # One more seed adds one run per case; a changed network changes all runs.
    assert changed(CLAIMS, "runs = 3", "runs = 4").about["new_runs"] == 2
    assert changed("ten-sessions.toml", '"248 ms"', '"247 ms"').about["new_runs"] == 8
    assert changed("ten-sessions.toml", '"247 ms"', '"248 ms"').about["new_runs"] == 0
    # Another build of the core changes all runs.
    monkeypatch.setattr(runs, "core_digest", lambda: "0" * 64)
    assert made(small, out).about["new_runs"] == 8


def test_numbers_in_the_discussion_are_computed_from_the_runs(small: Path, tmp_path: Path) -> None:
    discussion = """
discussion = \"\"\"
SWF carries {less} less than FIFO, and is {off} off print, {share} times that.

FIFO carries {times} times as much.

FIFO carries {none} less at a point that is not simulated.
\"\"\"
[quick]"""
    check = '{ experiments = ["loss-10"], measure = "all", more = ["%s"], than = ["%s"] }'
    numbers = f"""
[said.less]
kind = "less"
checks = [{check % ("SWF", "FIFO")}]
[said.times]
kind = "times"
checks = [{check % ("FIFO", "SWF")}, {check % ("FIFO", "FIFO")}]
[said.off]
kind = "off print"
tables = ["table-1"]
rows = ["SWF"]
[said.share]
kind = "times print"
tables = ["table-1"]
rows = ["SWF"]
[said.none]
kind = "less"
checks = []
"""
    text = SMALL.replace("[quick]", discussion) + numbers
    (small / CLAIMS).write_text(text)
    found = made(small, tmp_path / "out")
    ours = {row["row"]: row for row in found.rows()}
    swf, fifo = (
        found.verdicts.values("loss-10", case, found.paper.tables[0].columns[0].measure)
        for case in ("SWF", "FIFO")
    )
    pairs = [(a, b) for a, b in zip(swf, fifo, strict=True) if a is not None and b is not None]
    assert len(pairs) == 3
    less = sum(100 * (1 - a / b) for a, b in pairs) / 3
    times = sum(b / a for a, b in pairs) / 3
    share = ours["SWF"]["mean"] / ours["SWF"]["printed"]
    off = 100 * abs(share - 1)
    kept = json.loads((found.folder / "verdicts.json").read_text())["discussion"]
    assert kept == [
        f"SWF carries {less:.2g} % less than FIFO, and is {off:.2g} % off print,"
        f" {share:.2g} times that.".replace("-", "−"),
        f"FIFO carries {min(times, 1):.2g} to {max(times, 1):.2g} times as much.",
    ]
    for paragraph in kept:
        assert paragraph in found.report.read_text()
    (small / CLAIMS).write_text(text.replace("{times}", "three"))
    with pytest.raises(UsageError, match=r"said\.times: needed: an entry, and \{times\} in the discussion"):
        made(small, tmp_path / "out")


def test_experiments_with_other_tables_of_a_run_do_not_repeat_each_other_s(tmp_path: Path) -> None:
    empty: dict[str, list[int]] = {"flow": []}
    run: Any = SimpleNamespace(series=empty, flows=empty, drop_runs=empty, drops=empty, counters={})
    library = runs.Library(tmp_path)
    scenario = cast("Any", None)
    with_drops, with_flows = (
        runs.CaseRuns("some", "RED", "", scenario, 64 * "0", (1,), drops=drops, flows=not drops)
        for drops in (True, False)
    )
    for case in (with_drops, with_flows):
        assert not library.has(case, 1)
        library.add(case, 1, run)
    assert library.has(with_drops, 1)
    assert library.has(with_flows, 1)
    assert [path.name for path in library._path(with_drops, 1).glob("*flows*")] == ["flows.parquet"]
