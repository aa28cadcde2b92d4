"""The equations with timeouts compared with the simulator, and their page."""

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
    for sessions, round_trip in POINTS:
        assert {(str(sessions), str(round_trip), setting) for setting in SETTINGS} <= set(heads)
