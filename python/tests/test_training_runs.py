"""The runs whose profile `make wheel PROFILED=1` takes."""

import subprocess
import sys
import tomllib
from pathlib import Path

from patience import PATIENCE

import training_runs

ROOT = Path(__file__).parents[2]


def test_runs_take_scenarios_and_settings_that_exist() -> None:
    labels = [label for label, _ in training_runs.scenarios()]
    assert len(set(labels)) == len(training_runs.RUNS) >= 5


def test_command_of_the_build_starts_without_requirements() -> None:
    command = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]["pgo-command"]
    program, file = command.split()
    assert program == "python"
    # Without `site` no installed package is found, so that only the package itself can be imported.
    start = "import runpy, sys; sys.path.insert(0, sys.argv[1]); runpy.run_path(sys.argv[2])"
    arguments = [sys.executable, "-I", "-S", "-c", start, ROOT / "python", ROOT / file]
    subprocess.run(arguments, check=True, timeout=PATIENCE)
