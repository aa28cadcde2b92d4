"""Costs around a run as counts that do not depend on the machine: imported modules, calls, opened files.

`make run-costs` measures processor time.
"""

import json
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import jinja2
import polars as pl
import pytest

import bentpipe as bp
from bentpipe import _core
from bentpipe.report.pages import environment
from bentpipe.runs.plan import load
from bentpipe.runs.workers import measure

SLOW = {"altair", "distributed", "jinja2", "numpy", "optuna", "polars", "rich", "scipy", "vl_convert"}
"""Packages that take longer to import than all of `bentpipe --help` may."""


def modules_after(code: str, *arguments: str) -> set[str]:
    """Return the modules that are imported once a process has executed `code`."""
    code = f"import json, sys\n{code}\nprint('\\n' + json.dumps(list(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


SHORT_RUN = ("run", "small-gateway", "--duration", "2 s", "--runs", "1")
COMMAND = "from bentpipe.cli import app; app._main(sys.argv[1:])"


@pytest.mark.parametrize("option", ["--help", "--version", "--nonsense"])
def test_command_without_a_subcommand_imports_no_slow_package(option: str) -> None:
    found = modules_after(COMMAND, option)
    assert not SLOW & found
    ours = {name for name in found if name.startswith("bentpipe")}
    assert ours == {"bentpipe", "bentpipe._core", "bentpipe.errors", "bentpipe.tuning.quiet"} | {
        "bentpipe.cli",
        "bentpipe.cli.app",
        "bentpipe.cli.exits",
        "bentpipe.tuning",
    }


def test_import_of_the_package_imports_no_slow_package() -> None:
    assert not SLOW & modules_after("import bentpipe; bentpipe.UsageError")
    assert "polars" in modules_after("import bentpipe; bentpipe.open")


def test_a_run_with_its_report_imports_neither_altair_nor_numpy(tmp_path: Path) -> None:
    found = modules_after(COMMAND, *SHORT_RUN, "--out", str(tmp_path / "result"))
    assert (tmp_path / "result" / "report.html").exists()
    assert not {"altair", "distributed", "numpy", "optuna", "scipy", "vl_convert"} & found


def test_metrics_of_a_short_run_take_no_query_of_polars() -> None:
    """A query takes 0.1 ms, however few rows it has; a run had 60 once."""
    scenario = load("small-gateway", ["run.duration=100 ms", "run.warmup=0 s"]).with_setting("red")
    measure(scenario, 1, _core.Progress())
    queries = 0

    def count(frame: FrameType, event: str, called: object) -> None:
        nonlocal queries
        del frame
        queries += event == "c_call" and getattr(called, "__name__", "") == "collect"

    sys.setprofile(count)
    try:
        measure(scenario, 2, _core.Progress())
        assert queries == 0
        pl.DataFrame({"a": [1]}).select(pl.col("a") + 1)
        assert queries == 1
    finally:
        sys.setprofile(None)


def test_template_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    compiled = list[str]()
    real = jinja2.Environment.compile

    def noted(*given: object, **more: object) -> object:
        compiled.append(str(given[2]))
        return real(*given, **more)  # type: ignore[call-overload]

    monkeypatch.setattr(jinja2.Environment, "compile", noted)
    for _ in range(2):
        environment.__wrapped__().get_template("page.html.j2")
    assert compiled == ["page.html.j2"]


@pytest.mark.parametrize("damage", [b"", b"no template"])
def test_damaged_compiled_template_is_compiled_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: bytes
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path))
    environment.__wrapped__().get_template("page.html.j2")
    (kept,) = tmp_path.rglob("template-*")
    whole = kept.read_bytes()
    kept.write_bytes(damage)
    environment.__wrapped__().get_template("page.html.j2")
    assert kept.read_bytes() == whole


def test_table_that_was_just_read_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario = bp.load("small-gateway", set={"run.duration": "2 s", "run.warmup": "0 s"})
    result = bp.open(bp.run(scenario, out=tmp_path / "result").folder)
    scans = list[Path]()
    real = pl.scan_parquet

    def noted(path: Path, **options: Any) -> pl.LazyFrame:  # noqa: ANN401
        scans.append(path)
        return real(path, **options)

    monkeypatch.setattr(pl, "scan_parquet", noted)
    table = result.one("flows", "red", result.seeds[0])
    table.drop_in_place("goodput")
    assert "goodput" in result.one("flows", "red", result.seeds[0]).columns
    assert len(scans) == 1
    result.report(tmp_path / "report.html")
    # A scan for each of the tables, and of the drops for the columns of each figure.
    assert len(scans) <= 12
