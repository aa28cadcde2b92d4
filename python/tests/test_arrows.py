"""The models never see the simulator, so that each checks the other."""

import ast
from pathlib import Path

import pytest

import bentpipe

PACKAGE = Path(bentpipe.__file__).parent
MODELS = ("models.mmpp", "models.erlang_queue", "models.markov")
"""Modules that hold a model's mathematics, and all that they import."""
CORE = {"AlgorithmError", "Cancelled", "Scenario", "ScenarioError", "SimulationError", "Table"}
"""What of the compiled core they may use: nothing that simulates."""
DRIVES = {"api", "reproduction.ns2"} | {
    f"runs.{name}" for name in ("python_aqm", "capture", "experiment", "plan", "store")
}
"""Modules that run the simulator, or hold what it is to run."""


def file(module: str) -> Path:
    """Return where a module of the package stands, or would."""
    return PACKAGE / f"{module.replace('.', '/')}.py"


def imports(module: str) -> set[tuple[str, str]]:
    """Return what a module imports of this package: (module, name), wherever in the file that stands."""
    found = set()
    for node in ast.walk(ast.parse(file(module).read_text())):
        if isinstance(node, ast.Import):
            found |= {(alias.name, "") for alias in node.names if alias.name.split(".")[0] == "bentpipe"}
        elif isinstance(node, ast.ImportFrom):
            name = node.module or ""
            assert node.level == 0, f"{module}: a relative import hides what it is of"
            if name.split(".")[0] == "bentpipe":
                found |= {(name, alias.name) for alias in node.names}
    return found


def reached(start: str) -> set[tuple[str, str]]:
    """Return all that `start` imports of this package, by way of others too."""
    found: set[tuple[str, str]] = set()
    todo, seen = [start], {start}
    while todo:
        for name, what in imports(todo.pop()):
            found.add((name, what))
            for whole in (name, f"{name}.{what}"):
                inner = whole.removeprefix("bentpipe.")
                if file(inner).exists() and inner not in seen:
                    seen.add(inner)
                    todo.append(inner)
    return found


@pytest.mark.parametrize("model", MODELS)
def test_models_never_see_the_simulator(model: str) -> None:
    for name, what in reached(model):
        inner = what if name == "bentpipe" else name.removeprefix("bentpipe.")
        assert inner not in DRIVES, f"{model} imports {inner}"
        if inner == "_core":
            assert what in CORE, f"{model} imports {what or 'all'} of the core"
        elif name == "bentpipe":
            # The package's own names are the simulator's, among others.
            assert (PACKAGE / f"{inner}.py").exists(), f"{model} imports {what or 'all'} of the package"


@pytest.mark.parametrize("module", [*MODELS, *sorted(DRIVES)])
def test_every_module_named_here_exists(module: str) -> None:
    assert file(module).exists()


def test_the_walk_finds_what_drives_the_simulator() -> None:
    assert ("bentpipe._core", "simulate") in reached("api")
    assert ("bentpipe._core", "simulate") in reached("runs.experiment")
    assert "bentpipe.runs.experiment" in {name for name, _ in reached("cli.app")}
