"""The table of advice for shipped scenarios: its processor times."""

from pathlib import Path

import pytest

import advice_table
import bentpipe as bp


def test_processor_time_is_left_out_if_runs_of_an_earlier_call_were_reused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bp, "advise", lambda _, out, **__: out.mkdir(exist_ok=True))
    clock = iter((10.0, 217.0, 300.0, 300.2))
    monkeypatch.setattr("time.process_time", lambda: next(clock))
    assert advice_table.timed("ship", tmp_path / "ship")[1] == "207 s"
    assert advice_table.timed("ship", tmp_path / "ship")[1] == "–"
