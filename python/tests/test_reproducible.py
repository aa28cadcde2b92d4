"""Comparison of two builds of the packages."""

import hashlib
import zipfile
from pathlib import Path

import pytest

import reproducible

WHEEL, PACKAGE = "bentpipe-1-py3-none-any.whl", "bentpipe-gateway_1_amd64.deb"


@pytest.fixture
def builds(tmp_path: Path) -> tuple[Path, Path]:
    """Two equal builds: a wheel of two members, and a Debian package."""
    folders = tmp_path / "a", tmp_path / "b"
    for folder in folders:
        folder.mkdir()
        write(folder, {"one": "1", "two": "2"})
        (folder / PACKAGE).write_bytes(b"same")
    return folders


def write(folder: Path, members: dict[str, str], year: int = 2026) -> None:
    with zipfile.ZipFile(folder / WHEEL, "w") as wheel:
        for name, text in members.items():
            wheel.writestr(zipfile.ZipInfo(name, (year, 1, 1, 0, 0, 0)), text)


def test_equal_builds_have_digests_and_no_difference(builds: tuple[Path, Path]) -> None:
    digests, different = reproducible.compared(*builds)
    assert different == []
    assert digests[1] == f"{hashlib.sha256(b'same').hexdigest()}  {PACKAGE}"
    assert len(digests) == 2


@pytest.mark.parametrize(
    ("members", "year", "message"),
    [
        ({"one": "1", "two": "3"}, 2026, "two differ"),
        ({"two": "2", "one": "1"}, 2026, "their order, differ"),
        ({"one": "1", "two": "2"}, 2027, "times or modes of members differ"),
    ],
)
def test_difference_of_wheels_names_its_cause(
    builds: tuple[Path, Path], members: dict[str, str], year: int, message: str
) -> None:
    write(builds[1], members, year)
    (found,) = reproducible.compared(*builds)[1]
    assert found.startswith(f"{WHEEL}: ")
    assert message in found


def test_a_package_that_differs_or_is_missing_is_a_difference(builds: tuple[Path, Path]) -> None:
    (builds[1] / PACKAGE).write_bytes(b"other")
    (builds[1] / WHEEL).unlink()
    found = reproducible.compared(*builds)[1]
    assert [line.partition(":")[0] for line in found] == [WHEEL, PACKAGE]
    assert "only one build has it" in found[0]
