"""The commands of the other tutorials work in order, and print what the pages show."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import recipes
from code_blocks import blocks, follow, follow_blocks
from conftest import ROOT, why_no_live_run
from patience import PATIENCE

from bentpipe.live_runs.processes import programs

RECIPES = recipes.read((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"))


def test_own_aqm(tmp_path: Path) -> None:
    (recipe,) = (each for each in RECIPES if "examples/step.py" in each.files())
    (file,) = (block for block in recipe.blocks if block.file == "examples/step.py")
    (tmp_path / "step.py").write_text(file.body, encoding="utf-8")
    follow("docs/tutorial-aqm.md", tmp_path)
    assert (tmp_path / "step" / "report.html").is_file()


def test_claim_of_a_paper(tmp_path: Path) -> None:
    follow("docs/tutorial-paper.md", tmp_path)
    assert (tmp_path / "papers" / "jain2004-part-quick" / "report.html").is_file()


@pytest.mark.skipif(bool(why_no_live_run()), reason=why_no_live_run())
def test_live_between_namespaces(tmp_path: Path) -> None:
    page = list(blocks("docs/tutorial-live.md"))
    two = next(at for at, block in enumerate(page) if "keygen" in block.body)
    follow_blocks(page[:two], tmp_path)


@pytest.mark.skipif(
    os.geteuid() != 0 or bool(why_no_live_run()) or not shutil.which("curl"), reason="needs root, and curl"
)
def test_live_between_two_machines(tmp_path: Path) -> None:
    """The second machine is a network namespace."""
    unshare = ["unshare", "--mount", "--net", "--pid", "--mount-proc", "--fork", "--kill-child"]
    here = Path(__file__).parent / "live"
    script = [sys.executable, str(here / "two_machines.py"), str(ROOT), programs().gateway, str(tmp_path)]
    command = [*unshare, "bash", str(here / "two_machines.sh"), *script]
    done = subprocess.run(command, timeout=PATIENCE, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    logs = "".join(f"== {path}\n{path.read_text()}" for path in tmp_path.rglob("*.log"))
    assert done.returncode == 0, f"{done.stdout}{done.stderr}{logs}"
