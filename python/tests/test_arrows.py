"""Allowed imports between the parts of the package.

The mathematics of the models never sees the simulator, so that each checks the other. Reports import data and
are imported by none of them.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import bentpipe

PACKAGE = Path(bentpipe.__file__).parent
COMMON = {"_core", "errors", "files", "format", "tables"}
DATA = COMMON | {"pages", "runs", "stats"}
PARTS: dict[str, set[str]] = {
    "errors": {"_core"},
    "files": {"errors"},
    "tables": {"errors"},
    "format": set(),
    "pages": {"errors", "files"},
    "qoe": {"errors"},
    "stats": {"errors", "format", "qoe"},
    "new_scenario": {"_core", "errors", "format"},
    "runs": COMMON | {"pages", "qoe", "stats"},
    "sweeps": DATA,
    "tuning": DATA,
    "advice": DATA | {"tuning"},
    "live_runs": DATA,
    "models": DATA,
    "evaluation": DATA | {"sweeps"},
    "report": DATA | {"evaluation", "models", "sweeps", "tuning"},
    "lab": DATA | {"api", "evaluation", "models", "report", "sweeps", "tuning"},
    "reproduction": DATA | {"models", "report"},
    "api": DATA | {"advice", "live_runs", "models", "report", "sweeps", "tuning"},
    "cli": DATA
    | {
        "advice",
        "evaluation",
        "lab",
        "live_runs",
        "models",
        "new_scenario",
        "report",
        "reproduction",
        "sweeps",
        "tuning",
    },
    "__main__": {"cli"},
    "__init__": DATA | {"advice", "api", "models", "sweeps", "tuning"},
}
"""Folders and modules at the top of the package, and what each may import of the others."""
LAZY = {
    "bentpipe.lab.server": "imports Tornado and the report's picture",
    "bentpipe.cli.app": "imported where Ctrl-C is handled",
    "bentpipe.cli.paper_tables": "imports bentpipe.reproduction",
    "bentpipe.evaluation": "imports SciPy",
    "bentpipe.report": "imports Jinja2, and Altair for single charts",
    "bentpipe.reproduction": "imports bentpipe.report",
    "bentpipe.models.erlang_queue": "needed for Markov models only",
    "bentpipe.models.markov": "imports SciPy",
    "bentpipe.models.mmpp": "needed for Markov models only",
    "bentpipe.tuning.tune": "imports Optuna, which takes half a second to import",
    "bentpipe.tuning.space_reduction": "imports bentpipe.tuning.tune",
    "bentpipe.runs.cluster": "imports Dask, which takes half a second to import",
    "cloudpickle": "needed for clusters only",
    "numpy": "takes a tenth of a second to import",
    "scipy": "takes as long to import as the package",
    "sqlalchemy": "needed for databases only",
    "vl_convert": "needed for pictures only",
}
"""Modules that functions may import when they are called, and why they are not imported with the package."""

MODELS = ("models.mmpp", "models.erlang_queue", "models.markov")
"""Modules with a model's mathematics; their imports are checked too."""
CORE = {"AlgorithmError", "Cancelled", "Scenario", "ScenarioError", "SimulationError", "Table"}
"""Names of the compiled core that these modules may use; none simulates."""
SIMULATING = {"api", "reproduction.ns2"} | {
    f"runs.{name}" for name in ("python_aqm", "capture", "qlog", "compare", "experiment", "plan", "store")
}
"""Modules that run the simulator, or hold its input."""


def file(module: str) -> Path:
    """Return the path of a module of the package, whether it exists or not."""
    return PACKAGE / f"{module.replace('.', '/')}.py"


def imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield every import in a syntax tree as (module, name); the name is empty for `import module`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: a relative import hides the module"
            yield from ((node.module or "", alias.name) for alias in node.names)


@cache
def lazy_imports(path: Path) -> set[tuple[str, str, str]]:
    """Return the imports in functions of a file as (function, module, name)."""
    return {
        (node.name, module, name)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for module, name in imported(node)
    }


@cache
def imports(path: Path) -> set[tuple[str, str]]:
    """Return the imports of this package in a file, at any depth, as (module, name)."""
    return {
        (module, name)
        for module, name in imported(ast.parse(path.read_text()))
        if module.split(".")[0] == "bentpipe"
    }


def part(module: str) -> str:
    """Return the part that a module belongs to: the first part of its name within the package."""
    return module.split(".")[0]


def arrows() -> dict[tuple[str, str], list[str]]:
    """Return the imports between parts, each with its files."""
    found: dict[tuple[str, str], list[str]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        inner = path.relative_to(PACKAGE)
        start = inner.parts[0].removesuffix(".py")
        for module, name in imports(path):
            end = part(name if module == "bentpipe" else module.removeprefix("bentpipe."))
            if end != start and not (
                module == "bentpipe"
                and not file(end).exists()
                and end != "_core"
                and not (PACKAGE / end).is_dir()
            ):
                found.setdefault((start, end), []).append(f"{inner}: {module} {name}".rstrip())
    return found


def reached(start: str) -> set[tuple[str, str]]:
    """Return the imports of this package by `start`, direct and indirect."""
    found: set[tuple[str, str]] = set()
    todo, seen = [start], {start}
    while todo:
        for name, what in imports(file(todo.pop())):
            found.add((name, what))
            for whole in (name, f"{name}.{what}"):
                inner = whole.removeprefix("bentpipe.")
                if file(inner).exists() and inner not in seen:
                    seen.add(inner)
                    todo.append(inner)
    return found


def test_parts_import_only_what_the_table_allows() -> None:
    wrong = {
        f"{start} may not import {end}": files
        for (start, end), files in arrows().items()
        if end not in PARTS[start]
    }
    assert not wrong


def test_table_has_exactly_the_existing_parts() -> None:
    there = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    there |= {path.stem for path in PACKAGE.glob("*.py")}
    assert set(PARTS) == there
    assert set().union(*PARTS.values()) <= there | {"_core"}


def test_parts_do_not_import_each_other() -> None:
    found = arrows()
    assert not {(a, b) for a, b in found if a < b and (b, a) in found}


def test_functions_import_only_modules_listed_as_slow() -> None:
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        for function, module, name in sorted(lazy_imports(path)):
            whole = f"{module}.{name}"
            if not any(whole == lazy or whole.startswith(f"{lazy}.") for lazy in LAZY):
                wrong.append(f"{path.relative_to(PACKAGE)}: {function} imports {whole}")
    assert not wrong


def test_every_module_listed_as_slow_is_imported_by_a_function() -> None:
    found = {f"{module}.{name}" for path in PACKAGE.rglob("*.py") for _, module, name in lazy_imports(path)}
    for lazy in LAZY:
        assert any(f"{each}.".startswith(f"{lazy}.") for each in found), lazy


@pytest.mark.parametrize("model", MODELS)
def test_models_do_not_import_the_simulator(model: str) -> None:
    for name, what in reached(model):
        inner = what if name == "bentpipe" else name.removeprefix("bentpipe.")
        assert inner not in SIMULATING, f"{model} imports {inner}"
        if inner == "_core":
            assert what in CORE, f"{model} imports {what or 'all'} of the core"
        elif name == "bentpipe":
            # The package's own names include the simulator's.
            assert (PACKAGE / f"{inner}.py").exists(), f"{model} imports {what or 'all'} of the package"


@pytest.mark.parametrize("module", [*MODELS, *sorted(SIMULATING)])
def test_listed_modules_exist(module: str) -> None:
    assert file(module).exists()


def test_indirect_imports_are_found() -> None:
    assert ("bentpipe._core", "simulate") in reached("api")
    assert ("bentpipe._core", "simulate") in reached("runs.experiment")
    assert "bentpipe.runs.experiment" in {name for name, _ in reached("cli.simulate")}
