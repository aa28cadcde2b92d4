"""Progress bars in notebooks, and callbacks."""

import sys
import types
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import bentpipe as bp
from bentpipe.runs.progress import Reporter, reported

if TYPE_CHECKING:
    from collections.abc import Callable

SHORT = {"run.duration": "2 s", "run.warmup": "1 s"}


class Handle:
    """Display handle of a fake notebook."""

    def __init__(self, shown: list[dict[str, str]]) -> None:
        self.shown = shown

    def update(self, data: dict[str, str], *, raw: bool) -> None:
        assert raw
        self.shown.append(data)


class Shell:
    """Shell of IPython."""


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, str]]:
    """Return what a notebook shows: a fake IPython with a kernel records it."""
    found: list[dict[str, str]] = []

    def display(data: dict[str, str], *, raw: bool, display_id: bool) -> Handle:
        assert raw
        assert display_id
        found.append(data)
        return Handle(found)

    shell = Shell()
    shell.kernel = object()  # type: ignore[attr-defined]
    _install(monkeypatch, shell, display)
    return found


def _install(monkeypatch: pytest.MonkeyPatch, shell: object, display: object = None) -> None:
    ipython: Any = types.ModuleType("IPython")
    ipython.get_ipython = lambda: shell
    ipython.display = types.ModuleType("IPython.display")
    ipython.display.display = display
    monkeypatch.setitem(sys.modules, "IPython", ipython)
    monkeypatch.setitem(sys.modules, "IPython.display", ipython.display)


def test_notebook_shows_a_bar_and_then_the_number_of_runs(shown: list[dict[str, str]]) -> None:
    bp.compare("small-gateway", ["red", "avq"], runs=2, set=SHORT, jobs=1)
    assert '<progress value="0.0000" max="1"' in shown[0]["text/html"]
    assert shown[0]["text/plain"] == "Simulating: 0 of 4 runs"
    assert any(each["text/plain"] == "Simulating: 4 of 4 runs" for each in shown)
    assert "<progress" not in shown[-1]["text/html"]
    assert shown[-1]["text/plain"].startswith("4 runs, ")


def test_every_function_that_simulates_shows_a_bar(shown: list[dict[str, str]], tmp_path: Path) -> None:
    aims = "throughput:max"
    calls: dict[str, Callable[[], object]] = {
        "run": lambda: bp.run("small-gateway", set=SHORT),
        "sweep": lambda: bp.sweep("small-gateway", settings="red", runs=1, set=SHORT, out=tmp_path / "s"),
        "tune": lambda: bp.tune(
            "small-gateway", "red", aims, trials=2, runs=1, set=SHORT, out=tmp_path / "t"
        ),
        "advise": lambda: bp.advise(
            "small-gateway", "red", trials=2, runs=2, search_runs=1, set=SHORT, out=tmp_path / "a"
        ),
        "validate": lambda: bp.validate(
            "red-dumbbell", "red", runs=1, set={"run.duration": "5 s", "run.warmup": "5 s"}
        ),
    }
    for name, call in calls.items():
        shown.clear()
        call()
        assert any("<progress" in each["text/html"] for each in shown), name
        assert "<progress" not in shown[-1]["text/html"], name
        texts = " ".join(each["text/plain"] for each in shown)
        assert ("Searching red, 1 of 1" in texts) == (name == "advise")


def test_caller_can_turn_the_bar_off(shown: list[dict[str, str]]) -> None:
    done: list[tuple[int, int, int]] = []
    bp.run("small-gateway", set=SHORT, progress=False)
    bp.run("small-gateway", set=SHORT, on_progress=lambda *numbers: done.append(numbers))
    assert shown == []
    assert done[0] == (0, 1, 0)
    assert done[-1] == (1, 1, 0)


def test_nothing_is_printed_outside_notebooks(capfd: pytest.CaptureFixture[str]) -> None:
    assert "IPython" not in sys.modules
    bp.compare("small-gateway", ["red"], runs=1, set=SHORT)
    assert capfd.readouterr() == ("", "")


def test_bar_can_be_requested_outside_notebooks(capfd: pytest.CaptureFixture[str]) -> None:
    bp.run("small-gateway", set=SHORT, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "Simulating: 0 of 1 run" in err
    assert err.rstrip().endswith(" s")


def test_ipython_in_a_terminal_gets_a_line_on_stderr(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    _install(monkeypatch, Shell())
    bp.run("small-gateway", set=SHORT)
    assert "Simulating: 1 of 1 run" in capfd.readouterr().err


def test_interrupted_runs_leave_their_number(shown: list[dict[str, str]]) -> None:

    def interrupted(reporter: Reporter) -> None:
        reporter.update(1, 3, 1)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), reported(None, None, "a <b>") as reporter:
        interrupted(reporter)
    assert "a &lt;b&gt;: 1 of 3 runs, 1 failed" in shown[0]["text/html"]
    assert shown[-1]["text/plain"].startswith("Stopped after 1 of 3 runs, 0")
