"""The gallery: its page and pictures, its commands, and its comparisons on another seed."""

import re
import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import ROOT

import gallery
from bentpipe.cli.app import cli

DOCS = ROOT / "docs"
ENTRIES = [pytest.param(entry, id=entry.name) for entry in gallery.ENTRIES]
FRESH_SEED = 101


def test_page_shows_every_entry_with_picture_and_commands() -> None:
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert titles == [entry.title for entry in gallery.ENTRIES], "run `make gallery`"
    commands = [line for line in page.splitlines() if line.startswith("bentpipe ")]
    assert commands == [shlex.join(command) for entry in gallery.ENTRIES for command in entry.commands()]
    pictures = re.findall(r"\((figures/gallery/[^)]+)\)", page)
    assert pictures == [f"figures/gallery/{entry.name}.svg" for entry in gallery.ENTRIES]
    assert {path.name for path in (DOCS / "figures/gallery").iterdir()} == {
        f"{entry.name}.svg" for entry in gallery.ENTRIES
    }
    assert all((DOCS / picture).stat().st_size < 60_000 for picture in pictures)


@pytest.mark.parametrize("entry", ENTRIES)
def test_commands_run(entry: gallery.Entry, tmp_path: Path) -> None:
    for at, command in enumerate(entry.commands()):
        words = [*command[1:], "--duration", "5 s", "--quiet", "--out", str(tmp_path / str(at))]
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, done.output


@pytest.mark.parametrize("entry", ENTRIES)
def test_comparison_holds_on_another_seed(entry: gallery.Entry) -> None:
    first, last = gallery.claim(entry, entry.run(FRESH_SEED))
    assert first >= entry.factor * last
