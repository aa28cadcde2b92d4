"""`make deny`: which checks run with and without the database of advisories."""

import subprocess
from pathlib import Path

import pytest

import deny


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for cargo-deny: notes its arguments, and fails with the codes in `fetch` and `check`."""
    monkeypatch.setattr(deny, "DATABASE", tmp_path / "database")
    monkeypatch.delenv(deny.VARIABLE, raising=False)
    program = tmp_path / "cargo-deny"
    program.write_text(
        f'#!/bin/sh\ncd {tmp_path}\necho "$@" >>calls\n'
        'case "$*" in *fetch*) exit $(cat fetch) ;; *) echo fault; exit $(cat check) ;; esac\n'
    )
    program.chmod(0o755)
    (tmp_path / "fetch").write_text("0")
    (tmp_path / "check").write_text("0")
    return program


def checks(program: Path) -> list[str]:
    return (program.parent / "calls").read_text().splitlines()[-1].partition(" check ")[2].split()


def test_advisories_are_checked_with_a_fetched_database(program: Path) -> None:
    assert deny.main(str(program)) == 0
    assert checks(program) == ["licenses", "bans", "sources", "advisories"]


def test_without_a_database_the_other_checks_run_and_a_message_says_so(
    program: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (program.parent / "fetch").write_text("1")
    assert deny.main(str(program)) == 0
    assert checks(program) == ["licenses", "bans", "sources"]
    message = capfd.readouterr().out
    assert "advisories were not checked" in message
    assert deny.VARIABLE in message
    assert message.count("\n") == 1


def test_a_failed_check_fails_and_is_printed(program: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (program.parent / "check").write_text("1")
    assert deny.main(str(program)) == 2
    assert "fault" in capfd.readouterr().err


def test_a_given_database_is_cloned_and_nothing_is_fetched(
    program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = program.parent / "source"
    (source / "crates").mkdir(parents=True)
    (source / "crates" / "note.md").write_text("text")
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    for command in (["init", "-q"], ["add", "."], [*identity, "commit", "-q", "-m", "x"]):
        subprocess.run(["git", *command], cwd=source, check=True)  # noqa: S607
    monkeypatch.setenv(deny.VARIABLE, str(source))
    assert deny.main(str(program)) == 0
    assert checks(program)[-1] == "advisories"
    assert "fetch" not in (program.parent / "calls").read_text()
    assert (deny.DATABASE / "crates" / "note.md").is_file()


def test_a_path_that_is_no_database_is_refused_in_one_line(
    program: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(deny.VARIABLE, str(program.parent / "nothing"))
    deny.DATABASE.mkdir()
    assert deny.main(str(program)) == 2
    assert deny.DATABASE.is_dir()
    message = capfd.readouterr().err
    assert f"{program.parent}/nothing, which git cannot clone" in message
    assert message.count("\n") == 1
