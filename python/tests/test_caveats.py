"""Caveats of a result: each names a mistake of the scenario and a remedy."""

import json
from pathlib import Path

import pytest
from conftest import Command

import bentpipe as bp
from bentpipe import _core
from bentpipe.stats.caveats import (
    NO_DROP,
    REMEDIES,
    TAIL_DROP,
    caveats,
    few_runs,
    fixed_capacity,
    hidden_queue,
    hidden_queues,
    overruns,
    remedied,
    round_trip,
    tail_drop,
)

SHORT = {"run.duration": "20 s", "run.warmup": "5 s"}
STEPS = "{ steps = [['0 s', '4 Mbps'], ['10 s', '1 Mbps']], repeat = '20 s' }"


def test_scenario_mistakes_are_kept_with_the_result_and_shown_by_its_report(tmp_path: Path) -> None:
    changes = {**SHORT, "gateway.spacelink.window": "100 KB"}
    bp.run(bp.load("small-gateway", changes), out=tmp_path / "r")
    stored = bp.open(tmp_path / "r")
    lines = caveats(stored)
    assert lines[0].startswith("gateway.spacelink.window: less than the regulator sends in a round trip")
    assert lines[0].endswith("Remove the key, whose default is enough, or set it to at least that.")
    assert lines[-1].startswith("One run per setting")
    html = stored.report(tmp_path / "r.html").read_text(encoding="utf-8")
    assert html.index("Remove the key, whose default is enough") < html.index("Who gets what")


def test_warnings_stand_above_the_table(bentpipe: Command) -> None:
    words = ("run", "small-gateway", "--duration", "5 s", "--set", "gateway.spacelink.window=100 KB")
    done = bentpipe(*words, "--out", "r", check=0)
    assert done.stdout.startswith("Warning: gateway.spacelink.window: less than")
    again = bentpipe("compare", "r", check=2)
    assert "a comparison needs two" in again.stderr


def test_unknown_warning_has_no_remedy() -> None:
    assert remedied("gateway.x: odd", "") == "gateway.x: odd."


def test_every_warning_of_the_core_has_a_remedy() -> None:
    codes = json.loads(_core.registry())["warnings"]
    assert sorted(REMEDIES) == sorted(codes)
    assert all(REMEDIES.values())


def test_codes_stand_beside_the_warnings() -> None:
    changes = {"run.warmup": "1 s", "gateway.mark": "transmit", "gateway.spacelink.window": "100 KB"}
    scenario = bp.load("small-gateway", changes)
    found = dict(zip(scenario.warning_codes, scenario.warnings, strict=True))
    assert sorted(found) == ["aqm_behind_pep", "late_start", "small_spacelink_window"]
    assert found["late_start"].startswith("traffic.web.ramp")
    droptail = scenario.with_settings(["droptail"])[0]
    assert "aqm_behind_pep" not in droptail.warning_codes


def test_set_capacity_on_a_link_that_varies_is_reported() -> None:
    changes = {**SHORT, "gateway.regulator.rate": "link", "link.satellite.capacity": STEPS}
    fixed = {"gateway.aqm": "{ algorithm = 'avqred', max_capacity = '4 Mbps' }"}
    (line,) = fixed_capacity(bp.load("small-gateway", {**changes, **fixed}).effective())
    assert line.startswith("gateway.aqm.max_capacity: fixed, but the rate of the link varies")
    default = {"gateway.aqm": "{ algorithm = 'avqred' }"}
    assert fixed_capacity(bp.load("small-gateway", {**changes, **default}).effective()) == []
    assert fixed_capacity(bp.load("small-gateway", {**SHORT, **fixed}).effective()) == []


def test_round_trip_of_the_satellite_link() -> None:
    """250 ms there and back; 300 to 400 ms; twice two hops of 250 to 280 ms; a dumbbell has no gateway."""
    assert round_trip(bp.load("small-gateway").effective()) == pytest.approx(500)
    assert round_trip(bp.load("byun2007-gateway").effective()) == pytest.approx(700)
    assert round_trip(bp.load("two-gateways").effective()) == pytest.approx(530)
    assert round_trip(bp.load("red-dumbbell").effective()) is None


@pytest.mark.parametrize(
    ("sojourn", "queue", "found"),
    [
        # 2 s in the PEP, of which 0.5 s are the round trip and 0.2 s the queue.
        (2.0, 200.0, (1300.0, 200.0)),
        (0.85, 200.0, None),
        (0.59, 10.0, None),
        (None, 10.0, None),
    ],
)
def test_wait_in_the_pep_is_what_round_trip_and_queue_leave(
    sojourn: float | None, queue: float, found: tuple[float, float] | None
) -> None:
    waits = hidden_queue({"pep_sojourn": sojourn, "queue_delay_mean": queue}, 500.0)
    assert waits == (None if found is None else pytest.approx(found))


def test_waits_of_all_settings_are_one_line() -> None:
    (line,) = hidden_queues({"red": (1300.0, 200.0), "cake": (150.0, 5.0)})
    assert "the AQM controls: red 1.3 s against 200 ms, cake 150 ms against 5 ms. Judge by" in line
    assert "pep_sojourn (these waits, the queue's and the round trip together)" in line


def test_droptail_behind_a_pep_drops_from_the_full_transmit_queue_only() -> None:
    limited = {**SHORT, "gateway.transmit_queue.limit": "60 packets"}
    result = bp.compare(bp.load("small-gateway", limited), ["droptail", "red"], runs=1)
    found = result.drops().filter(setting="droptail")
    assert set(found["place"].cast(str)) == {"gateway transmit"}
    assert set(found["reason"].cast(str)) == {"overflow"}
    texts = {
        name: tail_drop(result.setting_info(name)["effective"], behind_pep=False) for name in result.settings
    }
    assert texts == {"droptail": TAIL_DROP, "red": ""}
    unlimited = bp.load("small-gateway").with_setting("droptail").effective()
    assert tail_drop(unlimited, behind_pep=False) == NO_DROP
    uploads = {"gateway.return.aqm.algorithm": "red", "run.subject": "gateway return"}
    assert tail_drop(bp.load("small-gateway", set=uploads).effective(), behind_pep=False) == ""
    dumbbell = bp.load("red-dumbbell").with_setting("droptail").effective()
    assert tail_drop(dumbbell, behind_pep=False) == ""


def test_few_runs() -> None:
    assert [len(few_runs(runs)) for runs in (1, 2, 3)] == [1, 1, 0]


def test_a_window_larger_than_path_and_transmit_queue_is_reported() -> None:
    """4 Mbit/s for 500 ms are 250 kB. With 50 kB of queue, 300 kB find room; of 1 MB much is dropped."""
    changes = {**SHORT, "gateway.aqm.algorithm": "droptail", "gateway.transmit_queue.limit": "50 KB"}
    wide, fitting = (
        caveats(bp.run(bp.load("small-gateway", {**changes, "gateway.spacelink.window": window})))
        for window in ("1 MB", "300 KB")
    )
    (line,) = (each for each in wide if "which sends it again" in each)
    assert "set gateway.spacelink.window to the rate times the round trip" in line
    assert not any("which sends it again" in each for each in fitting)


def test_overruns_name_settings_and_shares() -> None:
    assert overruns({}) == []
    (line,) = overruns({"a": 12.34, "b": 90.0})
    assert "a 12 %, b 90 %" in line
