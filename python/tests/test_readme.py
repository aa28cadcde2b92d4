"""The README's commands print what it shows."""

import re
from pathlib import Path

from conftest import ROOT, Command, environment
from preloaded import server

README = (ROOT / "README.md").read_text(encoding="utf-8")
_SHOWN = re.compile(r"^```sh\n((?:(?!```).)*?)^```\n+^```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


def _line(text: str) -> str:
    return " ".join(text.split())


def test_commands_print_what_the_readme_shows(tmp_path: Path) -> None:
    found = _SHOWN.findall(README)
    assert len(found) == 2
    for commands, shown in found:
        printed = []
        for command in commands.splitlines():
            words = [word.strip('"') for word in re.findall(r'"[^"]*"|\S+', command)]
            assert words[0] == "bentpipe"
            done = server().run(*words[1:], folder=tmp_path, environment=environment())
            assert done.returncode == 0, done.stderr
            printed += [_line(line) for line in done.stdout.splitlines()]
        missing = [line for line in shown.splitlines() if line.strip() and _line(line) not in printed]
        assert missing == []


def test_the_picture_of_the_gateway_is_current(bentpipe: Command, tmp_path: Path) -> None:
    bentpipe("show", "small-gateway", "--picture", "gateway.svg", check=0)
    shown = (ROOT / "docs" / "figures" / "gateway.svg").read_text(encoding="utf-8")
    assert (tmp_path / "gateway.svg").read_text(encoding="utf-8") == shown
