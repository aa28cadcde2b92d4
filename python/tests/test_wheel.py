"""Contents of the packages: maturin does not follow links to folders, so patterns name their files."""

import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["scenarios", "sweeps", "papers"])
def test_every_file_of_a_linked_folder_is_in_the_wheel(name: str) -> None:
    maturin = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]
    packed = {
        path for each in maturin["include"] if "wheel" in each["format"] for path in ROOT.glob(each["path"])
    }
    link = ROOT / "python" / "bentpipe" / "data" / name
    assert link.is_symlink()
    files = {link / path.relative_to(ROOT / name) for path in (ROOT / name).rglob("*") if path.is_file()}
    assert files
    assert not files - packed


def test_no_other_folder_of_the_package_is_a_link() -> None:
    links = {path.name for path in (ROOT / "python" / "bentpipe").rglob("*") if path.is_symlink()}
    assert links == {"scenarios", "sweeps", "papers"}
