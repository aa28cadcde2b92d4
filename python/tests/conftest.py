"""Fixtures of several test files: a quick scenario, a result, and the command line in a process."""

import hashlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browsers import chromium
from hypothesis import settings
from playwright.sync_api import Browser
from preloaded import server

import bentpipe as bp
from bentpipe.live_runs.privileges import missing_permission
from bentpipe.live_runs.processes import programs

# The same examples every time, and no database of examples.
settings.register_profile("bentpipe", derandomize=True, database=None, deadline=None)
settings.load_profile("bentpipe")

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = ["red", "avqred"]
# Files that mostly wait: begun early, so that the last of them does not run alone at the end.
_FIRST = (
    "test_tune",
    "test_live",
    "test_systemd_unit",
    "test_kernel",
    "test_ns2_cells",
    "test_cluster",
    "test_report",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files that take longest first, and skip long tests unless LONG is set.

    The order of the others, and within a file, is kept.
    """
    items.sort(key=lambda item: not item.path.name.startswith(_FIRST))
    if not os.environ.get("LONG"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="only with LONG=1"))


def why_no_live_run() -> str:
    """Return why live runs are impossible here; empty if they are possible."""
    reason = missing_permission()
    if reason is None:
        try:
            programs()
        except bp.UsageError as error:
            reason = str(error)
    return reason or ""


Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def scenario() -> bp.Scenario:
    """Twenty seconds of the small gateway."""
    return bp.load("small-gateway", set={"run.duration": "20 s"})


@pytest.fixture(scope="session")
def result(scenario: bp.Scenario, tmp_path_factory: pytest.TempPathFactory) -> bp.Result:
    """Two settings with two seeds each."""
    return bp.compare(scenario, SETTINGS, runs=2, out=tmp_path_factory.mktemp("shared") / "result")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A browser without background requests."""
    with chromium() as browser:
        yield browser


def digests(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of every table and counter of every run of a result."""
    files = sorted(path for path in (folder / "runs").rglob("*.*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def command_line(*arguments: str) -> list[str]:
    """Return the command that runs `bentpipe` with the interpreter of the tests."""
    return [sys.executable, "-c", "from bentpipe.cli import main; main()", *arguments]


def environment() -> dict[str, str]:
    """Return an environment without the variables of a terminal."""
    return {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "FORCE_COLOR"}}


def pytest_sessionfinish() -> None:
    """End the server of commands."""
    if server.cache_info().currsize:
        server().close()


@pytest.fixture
def bentpipe(tmp_path: Path) -> Command:
    """Function that runs the command in a fresh folder, with more environment variables."""

    def run(*arguments: str, check: int | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
        done = server().run(*arguments, folder=tmp_path, environment=environment() | variables)
        if check is not None:
            assert done.returncode == check, f"{arguments}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run
