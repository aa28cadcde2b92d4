"""The commands of the README, and of the tutorial with the same comparison, print what the pages show."""

import doctest
import re
import shlex
import shutil
from itertools import pairwise
from pathlib import Path

import pytest
from code_blocks import follow
from conftest import ROOT, Command, environment
from preloaded import server

import bentpipe as bp
import live_example

README = (ROOT / "README.md").read_text(encoding="utf-8")
_SHOWN = re.compile(r"^```sh\n((?:(?!```).)*?)^```\n+^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _line(text: str) -> str:
    return " ".join(text.split())


@pytest.fixture(scope="module")
def tutorial(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder in which the tutorial was followed."""
    folder = tmp_path_factory.mktemp("tutorial")
    follow("docs/tutorial-first-answer.md", folder)
    return folder


def test_first_answer(tutorial: Path) -> None:
    assert (tutorial / "first" / "report.html").is_file()
    assert (tutorial / "my-link.svg").is_file()


def test_commands_print_what_the_readme_shows(tutorial: Path, tmp_path: Path) -> None:
    found = [each for each in _SHOWN.findall(README) if "bentpipe live" not in each[0]]
    assert len(found) == 2
    shutil.copytree(tutorial / "first", tmp_path / "first")
    for commands, shown in found:
        printed = []
        for command in commands.splitlines():
            words = shlex.split(command)
            assert words[0] == "bentpipe"
            if words[1:3] == ["compare", "my-link.toml"]:
                # The runs are the tutorial's; those of another comparison would be refused.
                words += ["--out", "first", "--resume"]
            done = server().run(*words[1:], folder=tmp_path, environment=environment())
            assert done.returncode == 0, done.stderr
            printed += [_line(line) for line in done.stdout.splitlines()]
        excerpt = [line for line in shown.splitlines() if line.strip() not in {"", "…"}]
        missing = [line for line in excerpt if _line(line) not in printed]
        assert missing == []


def test_simulated_column_of_the_live_example_is_current(tmp_path: Path) -> None:
    """`make live-example` writes the table; a live run differs each time."""
    live, simulate, compare = map(shlex.split, live_example.commands(README))
    ((_, table),) = [each for each in _SHOWN.findall(README) if "bentpipe live" in each[0]]
    rows = [re.split(r"\s{2,}", line.strip()) for line in table.splitlines()[2:]]
    done = server().run(*simulate[1:], folder=tmp_path, environment=environment())
    assert done.returncode == 0, done.stderr
    simulated = bp.open(tmp_path / simulate[simulate.index("--out") + 1])
    means = {f"{row['metric']} [{row['unit']}]": row["mean"] for row in simulated.rows()}
    asked = [word for before, word in pairwise(compare) if before == "--metric"]
    assert [row[0].split(" ")[0] for row in rows] == asked
    for name, engine, other, runs, ours, real in rows:
        assert (engine, other, runs) == ("simulator: red", "live: red", "1")
        assert float(ours) == pytest.approx(means[name], rel=5e-4)
        assert float(real) > 0
    for words in (live, simulate):
        assert words[2:5] == ["live-smoke", "--settings", "red"]


def test_a_live_comparison_is_shown_up_to_its_means() -> None:
    printed = """Warning: one run

 metric   A                mean of A   mean of B   A − B   p
 ───────────────────────────────────────────────────────────
 x [s]    simulator: red         1.5        1.25    0.25   –

Runs
"""
    head, rule, row = live_example.shown(printed).splitlines()
    assert head.endswith("mean of B")
    assert set(rule.strip()) == {"─"}
    assert row.split()[-2:] == ["1.5", "1.25"]


def test_a_page_without_the_live_example_is_refused(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("```sh\nbentpipe run red-dumbbell\n```\n")
    with pytest.raises(SystemExit, match="found no block of shell commands with `bentpipe live`"):
        live_example.main(tmp_path / "README.md")


def test_python_prints_what_the_readme_shows() -> None:
    found = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert (found.attempted, found.failed) == (4, 0)


def test_the_picture_of_the_gateway_is_current(bentpipe: Command, tmp_path: Path) -> None:
    bentpipe("show", "small-gateway", "--picture", "gateway.svg", check=0)
    shown = (ROOT / "docs" / "figures" / "gateway.svg").read_text(encoding="utf-8")
    assert (tmp_path / "gateway.svg").read_text(encoding="utf-8") == shown
