"""The measured domain of the fluid equations: its borders, its page, and the warnings outside it."""

import json
from pathlib import Path
from typing import Any

import pytest

from bentpipe.models.domain import DOMAIN, LIMITS, WARNED, domain_of, domain_warnings, is_outside
from bentpipe.models.fluid import model
from bentpipe.runs.plan import load
from model_domain import DATA, FIGURE, PAGE, PLACES, Place, borders, differences, is_off, page, points, read
from reference import with_generated

DOCS = Path(__file__).parents[2] / "docs"


def test_border_is_the_least_window_with_a_tenth_of_the_points_off() -> None:
    def rows(*pairs: tuple[float, float]) -> list[dict[str, Any]]:
        return [{"engine": "x", "window": window, "loss_rate_ratio": ratio} for window, ratio in pairs]

    def border(*pairs: tuple[float, float]) -> float | None:
        return borders(rows(*pairs), ["loss_rate"])["x"]["loss_rate"]

    assert is_off(2.1, 2.0)
    assert is_off(0.4, 2.0)
    assert not is_off(0.5, 2.0)
    assert border((1.0, 3.0), (2.0, 1.5), (4.0, 1.0)) == 2.0
    # One of ten points from 1 segment on is off; two of eleven from 0.5 on.
    nine = [(float(window), 1.0) for window in range(2, 11)]
    assert border((0.5, 3.0), (1.0, 3.0), *nine) == 1.0
    assert border((1.0, 1.0), (2.0, 3.0)) is None


def test_page_and_domain_are_those_of_the_numbers() -> None:
    rows = read(DOCS / DATA)
    text = (DOCS / PAGE).read_text(encoding="utf-8")
    assert with_generated(text, page(rows), "page") == text
    assert (DOCS / "figures" / FIGURE).exists()
    every = list(differences(rows))
    found = {
        place.name: borders([row for row in every if row["place"] == place.name], WARNED) for place in PLACES
    }
    assert json.loads(DOMAIN.read_text(encoding="utf-8")) == found


def test_grid_covers_windows_from_a_tenth_of_a_segment_to_several() -> None:
    rows = read(DOCS / DATA)
    for place in PLACES:
        mine = [row for row in rows if row["place"] == place.name]
        engines = ["simulator", *place.equations]
        assert len(mine) == len(points(place)) * len(place.settings) * len(engines)
        windows = [row["window"] for row in mine]
        assert min(windows) < 0.1
        assert max(windows) > 6


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.name)
def test_committed_values_are_those_of_the_present_equations(place: Place) -> None:
    """One point of the grid, with the equations of Padhye."""
    point, setting = points(place)[0], place.settings[0]
    change = {**place.changes(*point), **place.equations["padhye"]}
    account = model(load(place.scenario, set=change), [setting]).account()
    (row,) = (
        row
        for row in read(DOCS / DATA)
        if (row["place"], row["aqm"], row["engine"]) == (place.name, setting, "padhye")
        and tuple(row[key] for key in ("connections", "capacity_mbps", "round_trip_ms")) == point
    )
    for quantity in LIMITS:
        (found,) = account.moments[setting][quantity]
        assert row[quantity] == pytest.approx(found.mean, rel=1e-3), quantity


def setting_of(equations: str, window: float, **effective: str) -> dict[str, Any]:
    """Return an entry of a manifest with the window in segments."""
    inputs = [
        {"symbol": symbol, "value": x} for symbol, x in (("μ", 100.0 * window), ("R", 0.1), ("m", 10.0))
    ]
    rows = [{"key": key.replace("__", "."), "value": value} for key, value in effective.items()]
    return {"name": "A", "equations": equations, "inputs": inputs, "effective": rows}


def test_warning_names_quantities_outside_and_equations_inside() -> None:
    (text,) = domain_warnings([setting_of("gateway", 0.27, gateway__aqm="red")])
    assert "Under A a connection has 0.27 segments in flight" in text
    assert "offered load by more than 10 %" in text
    assert "loss rate by more than a factor of 2" in text
    assert "--set model.equations=padhye --set model.feedback=none" in text
    (late,) = domain_warnings([setting_of("end_to_end", 0.1)])
    assert "--set model.equations=padhye" in late
    assert "feedback" not in late


def test_warning_follows_the_measured_borders() -> None:
    for place in PLACES:
        effective = {"gateway__aqm": "red"} if place.name == "gateway" else {}
        for name in place.equations:
            if ", " in name:
                effective["model__feedback"] = "none"
            else:
                effective.pop("model__feedback", None)
            limits = domain_of(place.name, name)
            assert limits is not None
            for window in (0.05, 1.0, 4.0, 100.0):
                outside = any(is_outside(limits, quantity, window) for quantity in WARNED)
                setting = setting_of(name.partition(",")[0], window, **effective)
                assert bool(domain_warnings([setting])) == outside, (name, window)


def test_equations_that_were_not_measured_give_no_warning() -> None:
    assert domain_warnings([setting_of("new_connections", 0.1, gateway__aqm="red")]) == []
