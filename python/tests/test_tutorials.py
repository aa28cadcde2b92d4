"""The commands of the tutorials work in order, and print what the pages show."""

from pathlib import Path

from code_blocks import follow


def test_first_answer(tmp_path: Path) -> None:
    follow("docs/tutorial-first-answer.md", tmp_path)
    assert (tmp_path / "first" / "report.html").is_file()
    assert (tmp_path / "my-link.svg").is_file()
