"""Stored comparisons of generated pages: reused for the same runs only."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bentpipe as bp
import stored_runs
from bentpipe import files
from bentpipe.runs.store import MANIFEST

SETTINGS = ("red", "avqred")


@pytest.fixture
def loaded() -> Callable[..., bp.Scenario]:
    """Function that loads two seconds of the small gateway with overrides."""
    return lambda **changes: bp.load(
        "small-gateway", set={"run.warmup": "0 s", "run.duration": "2 s", **changes}
    )


def test_changed_runs_are_repeated_and_others_are_not(
    tmp_path: Path, loaded: Callable[..., bp.Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []

    def compare(*arguments: Any, **named: Any) -> bp.Result:  # noqa: ANN401
        made.append("run")
        return simulate(*arguments, **named)

    simulate = bp.compare
    monkeypatch.setattr(bp, "compare", compare)
    runs = stored_runs.Runs(tmp_path)
    runs.of("a", loaded(), SETTINGS, 1)
    runs.of("a", loaded(), SETTINGS, 1)
    assert len(made) == 1
    slower = runs.of("a", loaded(**{"gateway.regulator.rate": "2 Mbps"}), SETTINGS, 1)
    assert slower.manifest["scenario"]["overrides"][-1] == "gateway.regulator.rate=2 Mbps"
    assert len(runs.of("a", loaded(), SETTINGS, 2).seeds) == 2
    assert runs.of("a", loaded(), SETTINGS[:1], 2).settings == ["red"]
    assert runs.of("a", loaded(), SETTINGS[:1], 2, seed=5).seeds == [5, 6]
    assert len(made) == 5


def test_interrupted_runs_are_repeated(tmp_path: Path, loaded: Callable[..., bp.Scenario]) -> None:
    runs = stored_runs.Runs(tmp_path)
    runs.of("a", loaded(), SETTINGS, 1)
    manifest = json.loads((tmp_path / "a" / MANIFEST).read_text())
    files.write_json(tmp_path / "a" / MANIFEST, files.sealed(manifest | {"status": "incomplete"}))
    assert runs.of("a", loaded(), SETTINGS, 1).manifest["status"] == "complete"


def test_live_runs_of_other_programs_are_repeated(
    tmp_path: Path, loaded: Callable[..., bp.Scenario], monkeypatch: pytest.MonkeyPatch
) -> None:
    present = {"bentpipe-gateway": "sha256 1", "bentpipe-testbed": "sha256 2", "nginx": "1.26"}
    made: list[str] = []

    def live(*arguments: Any, out: Path, **named: Any) -> None:  # noqa: ANN401
        bp.compare(*arguments, out=out, **named)
        manifest = json.loads((out / MANIFEST).read_text())
        files.write_json(out / MANIFEST, files.sealed(manifest | {"versions": dict(present)}))
        made.append("run")

    monkeypatch.setattr(bp, "live", live)
    monkeypatch.setattr(stored_runs, "programs", lambda: None)
    monkeypatch.setattr(stored_runs, "versions", lambda _: dict(present))
    runs = stored_runs.Runs(tmp_path)
    for change in ({}, {"nginx": "1.28"}, {"bentpipe-gateway": "sha256 3"}, {"bentpipe-testbed": "sha256 4"}):
        present |= change
        runs.of("a", loaded(), SETTINGS, 1, live=True)
    assert len(made) == 3
