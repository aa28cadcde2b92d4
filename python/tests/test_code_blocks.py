"""Every code block of the documentation runs, loads, or is listed here with the reason why it does not."""

import ast
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import recipes
import test_tutorial
from click.testing import CliRunner
from code_blocks import Block, blocks
from conftest import ROOT

import bentpipe as bp
from bentpipe.cli.app import cli
from bentpipe.evaluation.cases import controls
from bentpipe.sweeps.file import request

PAGES = [
    "README.md",
    "CONTRIBUTING.md",
    *(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md")),
]
BLOCKS = [block for page in PAGES for block in blocks(page)]

COVERED = {
    ("README.md", "python"): "python/tests/test_readme.py",
    ("README.md", "text"): "python/tests/test_readme.py",
    ("docs/cli.md", "text"): "tools/reference.py",
    ("docs/cluster.md", "bash"): "python/tests/test_operating_blocks.py",
    ("docs/cluster.md", "python"): "python/tests/test_operating_blocks.py",
    ("docs/gallery.md", "sh"): "python/tests/test_gallery.py",
    ("docs/gateway.md", "sh"): "python/tests/test_operating_blocks.py",
    ("docs/gateway-terminals.md", "sh"): "python/tests/test_operating_blocks.py",
    ("docs/gateway-monitoring.md", "yaml"): "python/tests/test_operating_blocks.py",
    ("docs/kernel.md", ""): "python/tests/test_operating_blocks.py",
    ("docs/links.md", "toml"): "crates/scenario/tests/links.rs",
    ("docs/markov.md", "python"): "python/tests/test_docs.py",
    ("docs/packet-sources.md", "toml"): "crates/scenario/tests/traces.rs",
    ("docs/python.md", "python"): "python/tests/test_docs.py",
    ("docs/python-aqms.md", "python"): "python/tests/test_docs.py",
    ("docs/python-reference.md", "text"): "tools/reference.py",
    ("docs/qoe.md", "python"): "python/tests/test_docs.py",
    ("docs/traffic.md", "toml"): "crates/scenario/tests/traces.rs",
    ("docs/transports.md", "toml"): "crates/scenario/tests/scenarios.rs",
    ("docs/tutorial-aqm.md", "sh"): "python/tests/test_tutorials.py",
    ("docs/tutorial-first-answer.md", "sh"): "python/tests/test_readme.py",
    ("docs/tutorial-live.md", "sh"): "python/tests/test_tutorials.py",
    ("docs/tutorial-paper.md", "sh"): "python/tests/test_tutorials.py",
    ("docs/tutorial-scenario.md", "diff"): "python/tests/test_tutorial.py",
    ("docs/tutorial-scenario.md", "toml"): "python/tests/test_tutorial.py",
}
"""Blocks of a page and language that another test runs."""

BASES = {
    "docs/terminals.md": "beam",
    "docs/cli.md": "byun2007-gateway",
    "docs/markov.md": "mmpp-queue",
    "docs/series.md": "byun2007-gateway",
}
"""Scenario of which a page's fragments are a part, unless it is `small-gateway`."""

NOT_RUN = {
    (
        "docs/reproduce.md",
        "(made,) = reproduce",
    ): "half a minute; test_reproduction_runs.py reproduces parts of papers",
    ("docs/validation.md", '"setting": "RED 4"'): "an output, shortened",
}
"""Page and a part of a block that is only parsed, and the reason."""

PARSED = {
    r"compare .*--settings all": "every algorithm, seven seconds: `make choosing`",
    r"evaluate ": "minutes to an hour; test_evaluation.py evaluates parts",
    r"lab( |$)": "runs until it is interrupted; test_lab_page.py opens it",
    r"live ": "needs root and real time; test_live.py runs it",
    r"model stability .*--map": "simulations of a map; test_stability.py draws smaller ones",
    r"reproduce ": "minutes; test_reproduction_runs.py reproduces parts of papers",
    r"sweep .*--cluster tcp:": "needs that scheduler; test_operating_blocks.py sweeps on others",
    r"validate .*--live": "needs the result of a live run",
}
"""Commands that are parsed with all their values but not run, and the reason."""

SHORT = {
    "advise": [
        *("--aqms", "red,droptail", "--trials", "1", "--search-runs", "1", "--runs", "2"),
        *("--duration", "2 s", "--set", "run.warmup=1 s", "--quiet"),
    ],
    "compare": ["--duration", "5 s", "--set", "run.warmup=1 s", "--runs", "1", "--quiet"],
    "model capture": ["--points", "50", "--set", "run.warmup=1 s"],
    "model solve": ["--duration", "5 s"],
    "run": ["--duration", "1 s", "--set", "run.warmup=1 s", "--runs", "1", "--quiet"],
    "sweep": ["--duration", "1 s", "--set", "run.warmup=1 s", "--runs", "1", "--quiet"],
    "tune": ["--trials", "2", "--runs", "1", "--duration", "2 s", "--set", "run.warmup=1 s", "--quiet"],
    "validate": ["--duration", "2 s", "--set", "run.warmup=1 s", "--runs", "2", "--quiet"],
}
"""Arguments that make a command short."""


def _recipes() -> set[str]:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    return {f"CONTRIBUTING.md:{block.line}" for recipe in recipes.read(text) for block in recipe.blocks}


RECIPES = _recipes()


def _is_covered(block: Block) -> bool:
    """Return True if another test runs the block."""
    if block.place in RECIPES or (block.page, block.kind) in COVERED:
        return True
    after = BLOCKS[BLOCKS.index(block) + 1 :]
    shown = bool(after) and after[0].page == block.page and after[0].kind == "text"
    return block.page == "README.md" and block.kind == "sh" and shown


def _listed(block: Block) -> bool:
    return any(block.page == page and part in block.body for page, part in NOT_RUN)


OPEN = [block for block in BLOCKS if not _is_covered(block)]


def of(*kinds: str) -> list[Any]:
    """Return the blocks of some languages that no other test runs, as parameters of a test."""
    return [
        pytest.param(block, id=block.place) for block in OPEN if block.kind in kinds and not _listed(block)
    ]


def test_every_block_has_a_language_that_is_tested() -> None:
    tested = {"sh", "console", "text", "toml", "python"}
    unknown = [block.place for block in OPEN if block.kind not in tested and not _listed(block)]
    assert not unknown, f"add a test, or an entry of NOT_RUN with the reason: {unknown}"


def test_other_tests_name_the_pages_they_run() -> None:
    for (page, kind), test in COVERED.items():
        assert any((block.page, block.kind) == (page, kind) for block in BLOCKS), (
            f"{page} has no {kind} block"
        )
        name = page.removeprefix("docs/")
        assert name in (ROOT / test).read_text(encoding="utf-8"), f"{test} does not read {page}"


def test_lists_of_exceptions_have_no_unused_entry() -> None:
    for page, part in NOT_RUN:
        assert any(block.page == page and part in block.body for block in OPEN), f"{page}: {part}"
    lines = [line.removeprefix("bentpipe ") for line in _command_lines()]
    for pattern in PARSED:
        assert any(re.match(pattern, line) for line in lines), pattern


def _command_lines() -> Iterator[str]:
    for block in OPEN:
        if block.kind in {"sh", "console", "text", "bash"}:
            yield from (line for line in block.commands() if line.startswith("bentpipe "))


# ----- commands ----------------------------------------------------------------------------------------


def parse(words: list[str]) -> str:
    """Parse a command line with every value, look up its controls, and return the command's name."""
    found: list[click.Context] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(click.Command, "invoke", lambda _, context: found.append(context))
        done = CliRunner().invoke(cli, words, prog_name="bentpipe")
    assert done.exit_code == 0, f"{words}\n{done.output}"
    command = found[-1]
    for name in command.params.get("controls") or []:
        assert name in controls(str(command.info_name)), f"{words}: --controls {name}: no such control"
    return command.command_path.removeprefix("bentpipe ")


HELP = [block for block in BLOCKS if (block.page, block.kind) == ("docs/cli.md", "text")]


@pytest.mark.parametrize("line", sorted({line for block in HELP for line in block.commands()}))
def test_examples_in_the_help_of_commands_parse(line: str) -> None:
    _, *words = shlex.split(line.partition(" > ")[0])
    if "--help" not in words:
        assert parse(words)


@pytest.mark.parametrize("block", of("sh", "console", "text"))
def test_commands_work(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    make = set(
        re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    )
    (tmp_path / "my-link.toml").write_text(bp.load("small-gateway").text, encoding="utf-8")
    (tmp_path / "mine.toml").write_text(list(test_tutorial.STEPS.values())[-1], encoding="utf-8")
    if any(" results/live" in line for line in block.commands()):
        # A simulation in place of the live run of an earlier block.
        bp.run("live-gateway", set={"run.duration": "1 s", "run.warmup": "1 s"}, out="results/live")
    (tmp_path / "scenarios").symlink_to(ROOT / "scenarios")
    for line in block.commands():
        program, *words = shlex.split(line)
        if program == "make":
            assert {word for word in words if not re.fullmatch(r"[A-Z_]+=\S+", word)} <= make, line
        elif program == "bentpipe":
            run(line.removeprefix("bentpipe "), words)
        else:
            assert line in SHELL, f"{block.place}: no test runs {line}"


SHELL = {
    "source .venv/bin/activate",
    "pip install target/package/bentpipe-*.whl",
    "git config core.hooksPath tools/hooks",
}
"""Commands of other programs; test_packages.py installs the wheel."""


def run(line: str, words: list[str]) -> None:
    """Parse a command, and run it unless it is listed; shortened, unless it reads stored results."""
    if "…" in line:
        return
    words = words[: words.index(">")] if ">" in words else words
    name = parse(words)
    if any(re.match(pattern, line) for pattern in PARSED):
        return
    # Two processes show the same as the eight of a page, which take ten seconds to start.
    words = [re.sub(r"^local:\d+$", "local:2", word) for word in words]
    stored = any(Path(word).is_dir() for word in words)
    done = CliRunner().invoke(cli, [*words, *([] if stored else SHORT.get(name, []))])
    assert done.exit_code == 0, f"{line}\n{done.output}"


# ----- files -------------------------------------------------------------------------------------------


def merge(into: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return the tables with those of a fragment; it replaces the whole `aqm`."""
    found = dict(into)
    for key, value in other.items():
        tables = isinstance(found.get(key), dict) and isinstance(value, dict) and key != "aqm"
        found[key] = merge(found[key], value) if tables else value
    return found


@pytest.mark.parametrize("block", of("toml"))
def test_files_load(block: Block, tmp_path: Path) -> None:
    found = tomllib.loads(block.body)
    if block.page == "docs/reproduce-data.md":
        # Texts are left out there, so that only the names of keys can be checked.
        sources = "".join(path.read_text() for path in (ROOT / "python/bentpipe/reproduction").glob("*.py"))
        names = {"schedulers", "price"}
        for key in re.findall(r"(?:^|[{,]) *([a-z_]+) = ", block.body, flags=re.MULTILINE):
            assert key in names or f'"{key}"' in sources, f"{block.place}: no reader of a paper takes {key}"
    elif "sweep" in found:
        (tmp_path / "my-scenario.toml").write_text(bp.load("small-gateway").text, encoding="utf-8")
        (tmp_path / "my-sweep.toml").write_text(block.body, encoding="utf-8")
        assert request(tmp_path / "my-sweep.toml").plan()
    else:
        if "marking" in found:
            found = {"gateway": found}
        base = tomllib.loads(bp.load(BASES.get(block.page, "small-gateway")).text)
        made = bp.Scenario.from_dict(merge(base, found), name="fragment", folder=ROOT / "scenarios")
        assert made.warnings == []


# ----- Python ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", of("python"))
def test_python_runs(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    if '"compared/' in block.body:
        bp.compare("small-gateway", set={"run.duration": "5 s", "run.warmup": "1 s"}, runs=1, out="compared")
    exec(compile(block.body, block.place, "exec"), {})  # noqa: S102


@pytest.mark.parametrize(
    "block",
    [block for block in OPEN if block.kind == "python" and _listed(block)],
    ids=lambda block: block.place,
)
def test_python_that_is_not_run_is_valid(block: Block) -> None:
    assert ast.parse(block.body)
