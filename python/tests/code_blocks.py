"""Reads the code blocks of documentation pages and follows a page's commands."""

import re
import shlex
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from conftest import ROOT, environment
from preloaded import server

_FENCE = re.compile(r"(?P<indent> *)```(?P<kind>\w*)(?: file=(?P<file>\S+))?")


@dataclass(frozen=True)
class Block:
    """One code block of a page."""

    page: str
    """Path of the page from the root of the tree."""
    line: int
    kind: str
    """Language; empty if the page names none."""
    file: str | None
    """File that the block creates or shows, if the page names one."""
    body: str

    @property
    def place(self) -> str:
        """Return page and line."""
        return f"{self.page}:{self.line}"

    def commands(self) -> list[str]:
        """Return the commands without prompts and comments; a `text` block has only those of `bentpipe`."""
        lines = [line.removeprefix("$ ") for line in self.body.replace("\\\n", " ").splitlines()]
        lines = [re.split(r"(?:^|\s+)#\s", line)[0].strip() for line in lines]
        wanted = "bentpipe " if self.kind == "text" else ""
        return [line for line in lines if line and line.startswith(wanted)]


def blocks(page: str) -> Iterator[Block]:
    """Yield the code blocks of a page, in order. Raise `ValueError` if one has no end."""
    begin: tuple[int, re.Match[str]] | None = None
    body: list[str] = []
    for number, line in enumerate((ROOT / page).read_text(encoding="utf-8").splitlines(), 1):
        if begin is not None and line.strip() == "```":
            yield Block(page, begin[0], begin[1]["kind"], begin[1]["file"], "".join(body))
            begin, body = None, []
        elif begin is not None:
            body.append(line.removeprefix(begin[1]["indent"]) + "\n")
        elif line.lstrip().startswith("```"):
            match = _FENCE.fullmatch(line)
            if match is None:
                raise ValueError(f"{page}:{number}: the code block begins with {line!r}")
            begin = number, match
    if begin is not None:
        raise ValueError(f"{page}:{begin[0]}: the code block has no end")


def follow(page: str, folder: Path) -> None:
    """Run a page's commands in order in `folder`, and check that each prints what the page shows.

    A block with a file's name creates that file. A `text` block has lines of the output of the `sh` block
    before it, in any order; `...` stands for any text.
    """
    follow_blocks(blocks(page), folder)


def follow_blocks(page: Iterable[Block], folder: Path) -> None:
    """Run some blocks of a page as `follow` does."""
    printed = ""
    for block in page:
        if block.file is not None:
            (folder / block.file).write_text(block.body, encoding="utf-8")
        elif block.kind == "sh":
            printed = "".join(_run(block, command, folder) for command in block.commands())
        elif block.kind == "text":
            lines = [" ".join(line.split()) for line in printed.splitlines()]
            for line in block.body.splitlines():
                parts = map(re.escape, " ".join(line.split()).split("..."))
                pattern = re.compile(".*".join(parts))
                assert any(map(pattern.search, lines)), f"{block.place}: {line}\n{printed}"


def _run(block: Block, command: str, folder: Path) -> str:
    words = shlex.split(command)
    if words[0] == "bentpipe":
        done = server().run(*words[1:], folder=folder, environment=environment())
    else:
        done = subprocess.run(
            words, cwd=folder, env=environment(), capture_output=True, text=True, check=False
        )
    assert done.returncode == 0, f"{block.place}: {command}\n{done.stdout}\n{done.stderr}"
    return done.stdout
