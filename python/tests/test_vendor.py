"""Libraries of the lab's page: compared with vendor.json, and renewed only by name."""

import hashlib
import json
from pathlib import Path

import pytest

import vendor


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A committed library of one file, which is published with the same content."""
    file = {"name": "plot.js", "path": "dist/plot.js", "sha256": sha256(b"good")}
    package = {"name": "plot", "version": "1.0", "license": "MIT", "files": [file]}
    (tmp_path / "vendor.json").write_text(json.dumps([package]))
    (tmp_path / "plot.js").write_bytes(b"good")
    monkeypatch.setattr(vendor, "FOLDER", tmp_path)
    publish(monkeypatch, b"good")
    return tmp_path


def publish(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(vendor, "published", lambda *_: ("MIT", {"dist/plot.js": content}))


def run(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["vendor.py", *arguments])
    return vendor.main()


@pytest.mark.parametrize(("on_npm", "on_disk"), [(b"evil", b"good"), (b"good", b"evil")])
def test_a_tampered_library_fails_every_time_and_nothing_is_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, on_npm: bytes, on_disk: bytes
) -> None:
    assert run(monkeypatch) == 0
    (folder / "plot.js").write_bytes(on_disk)
    publish(monkeypatch, on_npm)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for _ in range(2):
        assert run(monkeypatch) == 1
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_a_named_version_takes_the_place_of_the_committed_one(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(monkeypatch, b"newer")
    assert run(monkeypatch, "plot@1.1") == 0
    (package,) = json.loads((folder / "vendor.json").read_text())
    assert package["version"] == "1.1"
    assert package["files"][0]["sha256"] == sha256(b"newer")
    assert (folder / "plot.js").read_bytes() == b"newer"
    assert run(monkeypatch) == 0
