"""The check of wording in tools/check_words.py."""

import subprocess
from pathlib import Path

import pytest

import check_words


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("/// Length of the queue [bytes].\nfn f() {}\n", []),
        ("/// What the queue holds.\nfn f() {}\n", [1]),
        ("/// Length of the queue,\n/// and that of the buffer.\n/// Where both are full, drops.\n", []),
        ("/// When to call `wake`.\n", [1]),
        ("/// When the queue is full, drops the packet.\n", []),
        ('fn f() { panic!("there is not a queue"); }\n', [1]),
        ("fn there_is_not() {}\n", []),
        ("let starved = 1;\n", [1]),
    ],
)
def test_rust_docs_strings_and_names_are_checked(text: str, lines: list[int]) -> None:
    assert [number for number, _ in check_words.rust(text)] == lines


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ('"""Queues."""\n', []),
        ('"""How queues work."""\n', [1]),
        ('def f():\n    """Whether it is full."""\n', [2]),
        ('LIMIT = 3\n"""What fits."""\n', [2]),
        ('text = "What fits."\n', []),
        ("# The rest goes on with the next.\n", [1]),
        ("# The rest goes on with the next.  words: ok\n", []),
    ],
)
def test_python_docstrings_comments_and_strings_are_checked(text: str, lines: list[int]) -> None:
    assert sorted({number for number, _ in check_words.python(text)}) == lines


@pytest.mark.parametrize(
    ("line", "is_found"),
    [
        ("None is the default.", False),
        ("Its default is none of these.", True),
        ("A queue of its own.", True),
        ("It needs nothing but TCP.", True),
        ("The credit goes on the control stream.", False),
        ("The transfer goes on.", True),
        ("2 of 4 runs are there already.", True),
        ("Are there runs?", False),
        ("So many packets are marked that the link idles.", False),
        ("A list of so many packets.", True),
    ],
)
def test_phrases_are_found_in_prose(line: str, is_found: bool) -> None:
    assert bool(list(check_words.prose(line))) == is_found


def test_command_lists_findings_and_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "good.md").write_text("A queue.\n")
    (tmp_path / "bad.py").write_text("x = 1\n# A queue of its own.\n")
    (tmp_path / "built.md").write_text("A queue of its own.\n")
    (tmp_path / ".gitignore").write_text("built.md\n")
    # A new file counts before it is added, an ignored one never.
    for command in (["init", "--quiet"], ["add", "good.md"]):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)  # noqa: S607
    monkeypatch.chdir(tmp_path)
    assert check_words.main(["good.md"]) == 0
    assert check_words.main(["."]) == 1
    assert capsys.readouterr().out == "bad.py:2: 'of its own': say `its own ...` or `separate`\n"


def test_project_has_no_findings(capsys: pytest.CaptureFixture[str]) -> None:
    check_words.main([])
    assert capsys.readouterr().out == ""
