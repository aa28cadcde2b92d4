"""`make mutants`: results of several runs, scores and the page."""

from pathlib import Path
from typing import Any

import pytest

import mutants
from mutants import Mutant, Row


def outcome(
    summary: str, *, line: int, text: str = "replace + with - in f", start: int = 10
) -> dict[str, Any]:
    """An outcome as cargo-mutants writes it."""
    name = f"crates/link/src/a.rs:{line}:5: {text}"
    span = {"start": {"line": line, "column": 5}}
    function = {"span": {"start": {"line": start, "column": 1}}}
    mutant = {"file": "crates/link/src/a.rs", "name": name, "span": span, "function": function}
    return {"scenario": {"Mutant": mutant}, "summary": summary}


BASELINE = {"scenario": "Baseline", "summary": "Success"}


def test_runs_at_the_same_time_share_no_compiled_code(tmp_path: Path) -> None:
    with mutants.build_folder(tmp_path) as first:
        with mutants.build_folder(tmp_path) as second:
            assert second != first
        with mutants.build_folder(tmp_path) as third:
            assert third == second
    with mutants.build_folder(tmp_path) as fourth:
        assert fourth == first


def test_the_last_result_of_a_mutant_counts_although_its_function_has_moved() -> None:
    first = [BASELINE, outcome("MissedMutant", line=12), outcome("CaughtMutant", line=13)]
    second = [BASELINE, outcome("CaughtMutant", line=32, start=30)]
    assert list(mutants.latest([first, second]).values()) == ["caught", "caught"]


def test_mutants_that_are_gone_do_not_count() -> None:
    results = mutants.latest([[outcome("MissedMutant", line=12), outcome("Timeout", line=13)]])
    kept = {mutant for mutant in results if mutant.line == 3}
    found = mutants.row(results, kept | {Mutant("b.rs", "new", 0, 1)}, "2026-01-01", "cargo-mutants 1")
    assert (found.mutants, found.tried, found.timeout, found.survived) == (2, 1, 1, 0)
    assert found.scope == "part"


def test_interval_is_that_of_wilson() -> None:
    """Newcombe 1998, table I: 81 of 263, and 0 of 20."""
    for successes, trials, expected in [(81, 263, (0.2553, 0.3662)), (0, 20, (0.0, 0.1611))]:
        assert mutants.interval(successes, trials) == pytest.approx(expected, abs=5e-5)
    assert mutants.interval(0, 0) == (0.0, 1.0)


PAGE = "\n".join(
    f"{mutants.BEGIN.format(name)}\n{mutants.END.format(name)}" for name in ("scores", "version", "survivors")
)


def test_page_has_scores_and_the_reasons_of_survivors() -> None:
    rows = {
        "link": Row(10, 6, 1, 1, 2, "2026-01-01", "cargo-mutants 1", "", [("a.rs", "x"), ("a.rs", "y")]),
        "queue": Row(100, 10, 0, 0, 0, "2026-01-02", "cargo-mutants 1", "0/10", []),
    }
    known = mutants.reasons('[[survivor]]\nfile = "a.rs"\nmutants = ["x"]\nreason = "equivalent"')
    text = mutants.page(PAGE, rows, known)
    assert "| link | 10 | all | 10 | 6 | 1 | 1 | 2 | 77.8% | 2026-01-01 |" in text
    assert "| queue | 100 | 1 in 10 | 10 | 10 | 0 | 0 | 0 | 100.0% (72.2% to 100.0%) | 2026-01-02 |" in text
    assert "- `x`: equivalent\n- `y`: no test yet" in text
    assert mutants.page(text, rows, known) == text


def test_a_run_of_survivors_alone_keeps_the_date_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Again:
        name = "link"

        def again(self) -> None: ...

        def listed(self) -> dict[Mutant, str]:
            return {Mutant("a.rs", "x", 1, 1): "x"}

        def results(self) -> dict[Mutant, str]:
            return dict.fromkeys(self.listed(), "caught")

        def version(self) -> str:
            return "cargo-mutants 1"

    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    monkeypatch.setattr(mutants, "Runner", lambda *_, **__: Again())
    (tmp_path / "docs").mkdir()
    (tmp_path / mutants.PAGE).write_text(PAGE)
    (tmp_path / mutants.REASONS).write_text("")
    mutants._renew({"link": Row(1, 0, 0, 0, 1, "2026-01-01", "cargo-mutants 1", "", [("a.rs", "x")])})
    assert mutants.main(["cargo-mutants", "link", "--again"]) == 0
    row = mutants._read()["link"]
    assert (row.date, row.caught, row.survived) == ("2026-01-01", 1, 0)
    assert f"| 2026-01-01, survivors {row.again} |" in (tmp_path / mutants.PAGE).read_text()
