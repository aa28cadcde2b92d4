import doctest
import re
import shlex
from pathlib import Path

import click
import pytest
from conftest import ROOT

import bentpipe
from bentpipe import reference
from bentpipe.cli import cli

DOCS = ROOT / "docs"


def test_the_package_s_quick_start_works() -> None:
    found = doctest.testmod(bentpipe, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 5
    assert found.failed == 0


def test_the_python_page_works() -> None:
    found = doctest.testfile(str(DOCS / "python.md"), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert found.attempted > 5
    assert found.failed == 0


@pytest.mark.parametrize("name", sorted(reference.PAGES))
def test_generated_pages_are_current(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    assert text == reference.updated(name, text), "run `make docs`"


PAGES = [
    "README.md",
    "docs/cli.md",
    "docs/python.md",
    "docs/results.md",
    "docs/traffic.md",
    "docs/transports.md",
    "docs/links.md",
    "docs/kernel.md",
]


@pytest.mark.parametrize("page", PAGES)
def test_commands_and_links_in_the_docs_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    for line in re.findall(r"^ *(?:\$ )?(bentpipe .*)$", text, flags=re.MULTILINE):
        words = shlex.split(line.split("  #")[0])
        command = cli.commands.get(words[1])
        assert command is not None or words[1].startswith("-"), line
        if command is not None:
            known = {
                option for each in command.params if isinstance(each, click.Option) for option in each.opts
            }
            used = {word for word in words[2:] if word.startswith("--")}
            assert used <= known | {"--help"}, line
    for target in re.findall(r"\]\(([^)#]+)\)", text):
        if not target.startswith("http"):
            assert ((ROOT / page).parent / target).exists(), target


def test_make_targets_in_the_readme_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    named = set(
        re.findall(r"`make ([a-z-]+)`|^make ([a-z-]+)", (ROOT / "README.md").read_text(), flags=re.MULTILINE)
    )
    assert {one or other for one, other in named} <= targets
    assert {"run", "test", "bench"} <= targets


def test_requirements_record_hashes_and_no_addresses() -> None:
    for name in ("requirements.txt", "requirements-dev.txt"):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert "://" not in text
        assert "--index" not in text
        assert "--find-links" not in text
        pins = [line for line in text.splitlines() if re.match(r"[a-z0-9]", line)]
        assert len(pins) > 10
        assert all(re.match(r"[a-z0-9-]+==\S+ ", pin) for pin in pins)
        assert text.count("--hash=sha256:") >= len(pins)


def test_the_stub_has_what_the_core_has() -> None:
    stub = (Path(bentpipe.__file__).parent / "_core.pyi").read_text(encoding="utf-8")
    names = {name for name in dir(bentpipe._core) if not name.startswith("__")}
    declared = set(re.findall(r"^(?:class|def) (\w+)", stub, flags=re.MULTILINE))
    assert names == declared
    for name in ("Scenario", "Progress", "Run", "Table"):
        members = {member for member in vars(getattr(bentpipe._core, name)) if not member.startswith("__")}
        body = stub.split(f"class {name}:")[1].split("\n@final")[0].split("\ndef ")[0]
        assert members == set(re.findall(r"    def ([a-z]\w+)", body)), name
