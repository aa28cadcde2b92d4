"""The equations with timeouts compared with the simulator, and their page."""

import csv
from pathlib import Path

import pytest

from gateway_models import CASES, POINTS, SETTINGS, changes, modelled, simulated

SHORT = {"run.warmup": "40 s", "run.duration": "40 s"}
PAGE = Path(__file__).parents[2] / "docs" / "models-gateway.md"


@pytest.mark.parametrize("point", [(400, 60), (100, 60)])
def test_timeout_model_has_the_equilibrium_of_the_simulator(point: tuple[int, int]) -> None:
    change = {**changes(*point), **SHORT}
    true = simulated(change, ("AVQRED",))["AVQRED"]
    found = {
        equations: modelled({**change, "model.equations": equations}, ("AVQRED",))["AVQRED"]
        for equations in ("gateway", "timeouts")
    }
    assert found["timeouts"].load == pytest.approx(true.load, rel=0.1)
    assert abs(found["gateway"].load - true.load) > 3.0 * abs(found["timeouts"].load - true.load)


def test_page_has_all_cases_and_points() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()
    heads = [tuple(cell.strip() for cell in line.split("|")[1:4]) for line in lines if line.startswith("|")]
    assert {case.name for case in CASES} <= {head[0] for head in heads}
    with PAGE.with_suffix(".csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    found = {(int(row["sessions"]), int(row["round_trip_ms"]), row["aqm"]) for row in rows}
    assert found == {(*point, setting) for point in POINTS for setting in SETTINGS}
    assert all(float(row[f"p_{who}"]) <= 100 for row in rows for who in ("simulator", "gateway", "timeouts"))
