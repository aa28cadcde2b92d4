"""The commands of the first tutorial work in order, and print what the page shows."""

import re
import subprocess
from pathlib import Path

from conftest import ROOT, command_line, environment

PAGE = ROOT / "docs" / "tutorial-first-answer.md"
_BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)


def test_the_first_answer_works_as_the_page_says(tmp_path: Path) -> None:
    blocks = _BLOCK.findall(PAGE.read_text(encoding="utf-8"))
    assert [kind for kind, _ in blocks] == ["sh", "text"] * (len(blocks) // 2)
    for (_, commands), (_, shown) in zip(blocks[::2], blocks[1::2], strict=True):
        printed = ""
        for command in commands.splitlines():
            words = re.findall(r'"[^"]*"|\S+', command)
            assert words[0] == "bentpipe"
            done = subprocess.run(
                command_line(*(word.strip('"') for word in words[1:])),
                cwd=tmp_path,
                env=environment(),
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, f"{command}\n{done.stderr}"
            printed += done.stdout
        lines = [" ".join(line.split()) for line in printed.splitlines()]
        for line in shown.splitlines():
            assert any(" ".join(line.split()) in each for each in lines), f"{line}\n{printed}"
    assert (tmp_path / "first" / "report.html").is_file()
    assert (tmp_path / "my-link.svg").is_file()
