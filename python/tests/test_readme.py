"""The commands of the README, and of the tutorial with the same comparison, print what the pages show."""

import doctest
import re
import shlex
import shutil
from pathlib import Path

import pytest
from code_blocks import follow
from conftest import ROOT, Command, environment
from preloaded import server

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
    found = _SHOWN.findall(README)
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
        missing = [line for line in shown.splitlines() if line.strip() and _line(line) not in printed]
        assert missing == []


def test_python_prints_what_the_readme_shows() -> None:
    found = doctest.testfile(str(ROOT / "README.md"), module_relative=False)
    assert (found.attempted, found.failed) == (4, 0)


def test_the_picture_of_the_gateway_is_current(bentpipe: Command, tmp_path: Path) -> None:
    bentpipe("show", "small-gateway", "--picture", "gateway.svg", check=0)
    shown = (ROOT / "docs" / "figures" / "gateway.svg").read_text(encoding="utf-8")
    assert (tmp_path / "gateway.svg").read_text(encoding="utf-8") == shown
