"""The commands of the tutorials work in order, and print what the pages show."""

from pathlib import Path

import recipes
from code_blocks import follow
from conftest import ROOT

RECIPES = recipes.read((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))


def test_first_answer(tmp_path: Path) -> None:
    follow("docs/tutorial-first-answer.md", tmp_path)
    assert (tmp_path / "first" / "report.html").is_file()
    assert (tmp_path / "my-link.svg").is_file()


def test_own_aqm(tmp_path: Path) -> None:
    (recipe,) = (each for each in RECIPES if "examples/step.py" in each.files())
    (file,) = (block for block in recipe.blocks if block.file == "examples/step.py")
    (tmp_path / "step.py").write_text(file.body, encoding="utf-8")
    follow("docs/tutorial-aqm.md", tmp_path)
    assert (tmp_path / "step" / "report.html").is_file()


def test_claim_of_a_paper(tmp_path: Path) -> None:
    follow("docs/tutorial-paper.md", tmp_path)
    assert (tmp_path / "papers" / "jain2004-part-quick" / "report.html").is_file()
