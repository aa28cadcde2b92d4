"""The programs and the notebook in `examples` run; test_notebook.py and test_python_aqm.py run two more."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT, environment

EXAMPLES = ROOT / "examples"
RUN = ["swing", "own_trace", "capture", "paper_table", "qvis"]
ELSEWHERE = {"who_gets_what": "test_notebook.py", "avqred": "test_python_aqm.py"}


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, Path]]:
    found = {}
    for name in RUN:
        folder = tmp_path_factory.mktemp(name)
        command = [sys.executable, str(EXAMPLES / f"{name}.py"), str(folder)]
        done = subprocess.run(
            command, cwd=folder, env=environment(), capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        found[name] = done.stdout, folder
    return found


def test_every_example_has_a_test() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*RUN, *ELSEWHERE}
    for name, test in ELSEWHERE.items():
        assert name in (ROOT / "python/tests" / test).read_text(encoding="utf-8")


def test_swing_grows_with_the_delay_under_red_only(printed: dict[str, tuple[str, Path]]) -> None:
    rows = re.findall(r"(\d+) ms, (.+): (\d+) packets, ([\d.]+) Mbit/s", printed["swing"][0])
    throughput = {(delay, setting): float(rate) for delay, setting, _, rate in rows}
    assert len(throughput) == 6
    assert throughput["40", "RED 4"] < 0.75 * throughput["0", "RED 4"]
    assert throughput["40", "AVQRED"] > 0.97 * throughput["0", "AVQRED"]


def test_own_trace_is_read(printed: dict[str, tuple[str, Path]]) -> None:
    text, folder = printed["own_trace"]
    delays = {setting: float(delay) for setting, delay in re.findall(r"(\w+): (\d+) ms", text)}
    assert delays["droptail"] > delays["fq_codel"]
    assert (folder / "stops.down").is_file()


def test_logs_for_qvis_have_its_version_and_names(printed: dict[str, tuple[str, Path]]) -> None:
    """qvis reads logs whose first record has version 0.3, and events of the categories of that version."""
    text, folder = printed["qvis"]
    counts = {name: int(count) for name, count in re.findall(r"(.+): (\d+) events", text)}
    assert counts
    for name, count in counts.items():
        header, *events = [
            json.loads(record) for record in (folder / "qvis" / name).read_text().split("\x1e")[1:]
        ]
        assert header["qlog_version"] == "0.3"
        assert len(events) == count > 10
        assert {event["name"].split(":")[0] for event in events} >= {"transport", "recovery", "connectivity"}


def test_capture_has_packets_and_windows(printed: dict[str, tuple[str, Path]]) -> None:
    text, folder = printed["capture"]
    assert float(text.split()[1]) > 1000
    # Magic number of a pcapng section header.
    assert (folder / "red-1-satellite.pcapng").read_bytes()[:4] == bytes.fromhex("0a0d0d0a")


def test_table_for_a_paper_has_a_row_per_metric_and_setting(printed: dict[str, tuple[str, Path]]) -> None:
    _, folder = printed["paper_table"]
    lines = (folder / "table.csv").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "setting,metric,unit,mean,ci_low,ci_high,runs"
    assert len(lines) == 1 + 3 * 3
    assert "<svg" in (folder / "delay.svg").read_text(encoding="utf-8")


def test_notebook_runs_and_every_cell_shows_its_result() -> None:
    notebook = json.loads((EXAMPLES / "quick_start.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] for cell in notebook["cells"] if cell["cell_type"] == "code")
    names: dict[str, Any] = {}
    for number, source in enumerate(cells):
        *body, last = ast.parse(source).body
        assert isinstance(last, ast.Expr)
        exec(compile(ast.Module(body, []), f"cell {number}", "exec"), names)  # noqa: S102
        shown = eval(compile(ast.Expression(last.value), f"cell {number}", "eval"), names)  # noqa: S307
        assert hasattr(shown, "_repr_html_") or hasattr(shown, "_repr_mimebundle_"), source
