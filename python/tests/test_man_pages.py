"""The man pages hold every command and option, and are valid roff."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from bentpipe.cli.app import cli
from man_pages import MAN, gateway_page, pages

USAGE = """usage: bentpipe-gateway run CONFIG      run an end
       bentpipe-gateway rate CONFIG RATE
                                        set the rate
       bentpipe-gateway --version       print the version"""


def commands(
    words: tuple[str, ...], command: click.Command
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield words, command
    if isinstance(command, click.Group):
        for name, each in command.commands.items():
            yield from commands((*words, name), each)


def shown(page: Path) -> str:
    """The text of a page as `man` renders it, in one line; a warning is a failure."""
    command = ["man", "--warnings", "-l", str(page)]
    environment = {
        "MANWIDTH": "1000",
        "LC_ALL": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
        "MAN_KEEP_FORMATTING": "",
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=True)
    assert done.stderr == ""
    return re.sub(r"\s+", " ", re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout))


def test_pages_are_current() -> None:
    assert {path.name: path.read_text(encoding="utf-8") for path in MAN.iterdir()} == pages(), "make docs"


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_pages_hold_each_command_and_option_without_warnings() -> None:
    for words, command in commands(("bentpipe",), cli):
        text = shown(MAN / f"{'-'.join(words)}.1")
        assert " ".join(words) in text
        for parameter in command.params:
            if isinstance(parameter, click.Option) and not parameter.hidden:
                assert all(name in text for name in parameter.opts), (words, parameter.opts)
            elif isinstance(parameter, click.Argument):
                assert parameter.make_metavar(click.Context(command)) in text
        if isinstance(command, click.Group):
            assert all(name in text for name in command.commands)


@pytest.mark.skipif(shutil.which("man") is None, reason="man is not installed")
def test_page_of_the_gateway_holds_each_use(tmp_path: Path) -> None:
    page = tmp_path / "bentpipe-gateway.8"
    page.write_text(gateway_page(USAGE, "1.2.3"), encoding="utf-8")
    text = shown(page)
    for use in ("run CONFIG run an end.", "rate CONFIG RATE set the rate.", "--version print the version."):
        assert use in text, text
    assert "Bentpipe 1.2.3" in text
