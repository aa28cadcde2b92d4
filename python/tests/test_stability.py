import json
import math
import signal
import time
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from bentpipe import _core
from bentpipe.cli.app import cli
from bentpipe.errors import ModelError, UsageError
from bentpipe.models.oscillation import oscillation, simulated
from bentpipe.models.stability import (
    AXES,
    StabilityMap,
    axes,
    margins,
    parsed,
    spread,
    stability_map,
    with_simulations,
)
from bentpipe.report.stability import write_map
from bentpipe.runs.plan import load

GATEWAY = "byun2007-gateway"
SHORT = [
    'traffic.web.ramp={sessions=400, over="1 s", pause="0 s"}',
    'run.warmup="5 s"',
    'run.duration="10 s"',
    'run.sample_interval="50 ms"',
]


def test_signal_ends_the_analysis_of_many_points() -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    # All points take minutes.
    points = [(None, 0.3 + i * 1e-5, None) for i in range(30_000)]
    before = signal.signal(signal.SIGALRM, interrupted)
    started = time.monotonic()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            _core.stability(load(GATEWAY), 1, points, 1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert time.monotonic() - started < 60


def test_pep_is_in_the_loop_of_all_aqms_but_avqred() -> None:
    """The printed case has 40 connections and PEP delays of 0 and 60 ms.

    The mark probability in equilibrium solves ω (1 - p) (m / R) sqrt(2 (1 - p) / p) = μ = 20e6 / 8 / 1391.
    """
    inputs = json.loads(_core.fluid_inputs(load(GATEWAY), 1))["inputs"]
    (ratio,) = (each["value"] for each in inputs if each["symbol"] == "ω")
    vary = {"connections": [40.0], "pep_delay": [0.0, 0.06]}
    table = margins(load(GATEWAY), ["RED 4", "avqred"], vary=vary)
    red, slow_red, avqred, slow_avqred = table.to_dicts()
    for row in (red, slow_red):
        rate = ratio * (1 - row["p"]) * 40 / 0.06 * math.sqrt(2 * (1 - row["p"]) / row["p"])
        assert rate == pytest.approx(20e6 / 8 / 1391, rel=1e-6)
        assert row["pep_in_loop"]
    assert red["stable"]
    assert not slow_red["stable"]
    assert slow_red["phase_margin"] < 0 < red["phase_margin"]
    assert slow_red["gain_margin"] < 1
    # Without a delay the phase of RED's loop never reaches −180°.
    assert red["gain_margin"] is None
    assert not avqred["pep_in_loop"]
    assert avqred["stable"]
    differs = {name for name, value in avqred.items() if slow_avqred[name] != value}
    assert differs == {"at_pep_delay"}


def test_1000_points_take_less_than_a_minute() -> None:
    started = time.process_time()
    table = margins(
        load(GATEWAY), ["RED 4"], vary={"connections": spread(20, 140, 25), "pep_delay": spread(0, 0.06, 40)}
    )
    assert time.process_time() - started < 60
    assert len(table) == 1000
    assert table["stable"].is_not_null().all()


def test_missing_operating_point_is_explained() -> None:
    (row,) = margins(load(GATEWAY), ["RED 4"]).to_dicts()
    assert "0.705" in row["error"]
    assert "from 0.700000 to 1.000000" in row["error"]
    assert row["stable"] is None
    with pytest.raises(ModelError, match="no long-lived TCP"):
        margins(load("mmpp-queue"))
    with pytest.raises(UsageError, match="allowed: connections, round_trip, pep_delay"):
        margins(load(GATEWAY), vary={"max_p": [1.0]})
    (row,) = margins(load("red-dumbbell"), ["pi"], vary={"pep_delay": [0.01]}).to_dicts()
    assert "no delay of a PEP" in row["error"]


@pytest.mark.parametrize(
    ("scenario", "settings"),
    [("red-dumbbell", ["RED 60/120", "avqred", "pi"]), ("byun2007-gateway", ["RED 4", "AVQRED", "pi"])],
)
def test_map_leaves_out_aqms_without_a_known_equilibrium(scenario: str, settings: list[str]) -> None:
    """`RED 4` has an equilibrium, but no operating point with the scenario's own parameters."""
    found = stability_map(scenario, x=("round_trip", [0.2]), y=("connections", [20.0]))
    assert found.settings == settings


@pytest.mark.parametrize(
    "text", ["max_p=1:2:3", "connections=1:2", "connections=a:2:3", "connections=nan", "x"]
)
def test_invalid_range_is_rejected(text: str) -> None:
    with pytest.raises(UsageError, match="allowed is KEY=LOW:HIGH:N"):
        parsed(text)


def test_ranges_are_parsed() -> None:
    name, values = parsed("pep_delay=0:0.06:4")
    assert name == "pep_delay"
    assert values == pytest.approx([0.0, 0.02, 0.04, 0.06])
    assert parsed("connections=50") == ("connections", [50.0])
    with pytest.raises(UsageError, match="allowed is at least one"):
        parsed("connections=1:2:0")
    with pytest.raises(UsageError, match="allowed are at most 1000000 points"):
        parsed("connections=1:2:1000000000000")


def test_oscillation_is_distinguished_from_noise() -> None:
    """100 + 20 sin(2πt/2): a deviation of 20 / sqrt(2)."""
    times = np.arange(0, 100, 0.05)
    swings = oscillation(list(100 + 20 * np.sin(np.pi * times)), 0.05)
    assert swings["mean"] == pytest.approx(100)
    assert swings["cv"] == pytest.approx(0.2 / math.sqrt(2), rel=1e-3)
    assert swings["period"] == pytest.approx(2.0, rel=0.02)
    assert swings["peak"] == pytest.approx(1.0, abs=0.01)
    noise = oscillation(list(np.random.default_rng(1).normal(100, 20, len(times))), 0.05)
    assert noise["peak"] is not None
    # A band from f / 1.5 to 1.5 f holds at most 5 / 9 of all frequencies.
    assert noise["peak"] < 0.6
    assert oscillation([5.0] * 100, 0.05)["period"] is None
    # A drift of 200 packets is nearly all of the variance, beside waves of one.
    drift = oscillation(list(100 + 2 * times + np.sin(np.pi * times)), 0.05)
    assert drift["peak"] is not None
    assert drift["peak"] < 0.01


def test_simulated_oscillation_is_cached(tmp_path: Path) -> None:
    """A longer PEP delay increases the oscillation of RED's queue, but not of AVQRED's."""
    cache = tmp_path / "cache.json"
    points = {"pep_delay": [0.0, 0.06], "connections": [100.0]}
    rows = simulated(GATEWAY, SHORT, ["RED 4", "avqred"], points, cache)
    cv = {(row["setting"], row["at_pep_delay"]): row["cv"] for row in rows}
    # Half a tick of waiting is added to any PEP delay.
    assert cv["RED 4", 0.06] > 2 * cv["RED 4", 0.0025]
    assert cv["avqred", 0.06] < 1.3 * cv["avqred", 0.0025]
    stamp = cache.stat().st_mtime_ns
    assert simulated(GATEWAY, SHORT, ["RED 4", "avqred"], points, cache) == rows
    assert cache.stat().st_mtime_ns == stamp
    with pytest.raises(UsageError, match="cannot vary round_trip"):
        simulated(GATEWAY, SHORT, ["avqred"], {"round_trip": [0.1], "connections": [9]})


def test_simulated_points_are_where_whole_connections_are() -> None:
    """Also with a single sample, which has no period."""
    points = {"pep_delay": [0.01], "connections": [0.2, 2.6]}
    short = ["run.warmup=100 ms", "run.duration=100 ms", "run.sample_interval=100 ms"]
    rows = simulated(GATEWAY, short, ["avqred"], points)
    assert [row["at_connections"] for row in rows] == [1.0, 3.0]
    assert [row["period"] for row in rows] == [None, None]


def test_map_leaves_out_settings_without_a_fluid_model(tmp_path: Path) -> None:
    text = load("red-dumbbell").text.replace(
        'settings = ["RED 60/120", "avq", "avqred", "droptail"]', 'settings = ["RED 60/120", "codel"]'
    )
    path = tmp_path / "mine.toml"
    path.write_text(text)
    found = stability_map(path, x=("round_trip", [0.2]), y=("connections", [20.0]))
    assert found.settings == ["RED 60/120", "pi"]


def test_map_is_drawn(tmp_path: Path) -> None:
    scenario = load(GATEWAY)
    found = stability_map(
        scenario,
        x=("pep_delay", spread(0, 0.06, 5)),
        y=("connections", spread(20, 400, 5)),
        settings=["RED 4", "avqred"],
    )
    found = with_simulations(found, GATEWAY, SHORT, 2, tmp_path)
    assert len(found.simulated) == 8
    found.save(tmp_path)
    write_map(found, tmp_path)
    text = (tmp_path / "map.svg").read_text()
    for words in ("RED 4", "Phase margin", "Delay of the PEP [ms]", "not in the loop", "deviation / mean"):
        assert words in text
    assert "equations gateway. Colour: phase margin" in (tmp_path / "map.html").read_text()
    assert axes(scenario, {})[1][1][-1] == 400
    assert axes(load("red-dumbbell"), {})[0][0] == "round_trip"


def test_map_with_one_unstable_point_is_not_called_stable_at_all_points(tmp_path: Path) -> None:
    table = pl.DataFrame(
        {
            "setting": "red",
            "at_connections": [float(number) for number in range(400)],
            "at_round_trip": 0.2,
            "phase_margin": 20.0,
            "stable": [number > 0 for number in range(400)],
            "pep_in_loop": True,
        }
    )
    found = StabilityMap("s", "gateway", AXES["connections"], AXES["round_trip"], ["red"], table)
    write_map(found, tmp_path)
    assert "red: stable at over 99 % of the points." in (tmp_path / "map.html").read_text()


def test_command_prints_margins_and_draws_the_map(tmp_path: Path) -> None:
    arguments = ["model", "stability", "red-dumbbell", "--settings", "pi,droptail"]
    shown = CliRunner().invoke(cli, [*arguments, "--vary", "connections=40:60:2"])
    assert shown.exit_code == 0, shown.output
    assert "no operating point" in shown.output
    # Brackets contain units, not markup.
    assert "delay [ms]" in CliRunner().invoke(cli, arguments).stdout
    rows = json.loads(CliRunner().invoke(cli, [*arguments, "--format", "json"]).stdout)
    assert [row["setting"] for row in rows] == ["pi", "droptail"]
    assert rows[0]["stable"]
    only = CliRunner().invoke(cli, ["model", "stability", "red-dumbbell", "--settings", "droptail"])
    assert isinstance(only.exception, ModelError)
    assert "marks nothing" in str(only.exception)
    for given, message in (
        (["--no-sim", "--force"], "--no-sim, --force: found without --map"),
        (["--map", "--no-sim", "--sim-points", "4"], "--sim-points 4: found with --no-sim; allowed: one of"),
        (["--vary", "connections=40:60:2", "--vary", "connections=5"], "--vary connections: found twice"),
    ):
        with pytest.raises(UsageError, match=message):
            CliRunner().invoke(cli, [*arguments, *given], catch_exceptions=False)
    folder = tmp_path / "map"
    drawn = [*arguments[:3], "--settings", "pi", "--map", "--no-sim", "--out", str(folder)]
    drawn += ["--vary", "round_trip=0.2:0.6:3", "--vary", "connections=40:60:3"]
    assert CliRunner().invoke(cli, drawn).exit_code == 0
    again = CliRunner().invoke(cli, drawn)
    assert isinstance(again.exception, UsageError)
    assert "exists already" in str(again.exception)
    assert CliRunner().invoke(cli, [*drawn, "--force"]).exit_code == 0
    assert (folder / "map.html").exists()


def test_map_that_cannot_be_simulated_leaves_folders_alone(tmp_path: Path) -> None:
    """A link has no delay of a PEP to vary: refused before the former map is touched."""
    folder = tmp_path / "map"
    arguments = ["model", "stability", "red-dumbbell", "--settings", "pi", "--map", "--out", str(folder)]
    refused = CliRunner().invoke(cli, arguments)
    assert "cannot vary round_trip" in str(refused.exception)
    assert not folder.exists()
    few = ["--vary", "round_trip=0.2:0.6:2", "--vary", "connections=40:60:2"]
    assert CliRunner().invoke(cli, [*arguments, *few, "--no-sim"]).exit_code == 0
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert "cannot vary round_trip" in str(CliRunner().invoke(cli, [*arguments, "--force"]).exception)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_force_keeps_foreign_files_of_a_map_and_continues_an_unfinished_one(tmp_path: Path) -> None:
    arguments = ["model", "stability", "red-dumbbell", "--settings", "pi", "--map", "--no-sim", "--force"]
    arguments += ["--vary", "round_trip=0.2:0.6:2", "--vary", "connections=40:60:2", "--out", str(tmp_path)]
    (tmp_path / "simulated-cache.json").write_text("{}")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    for _ in range(2):
        assert CliRunner().invoke(cli, arguments).exit_code == 0
        assert (tmp_path / "map.html").exists()
        assert (tmp_path / "notes" / "mine.txt").read_text() == "mine"
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("mine")
    for taken in (tmp_path / "other", tmp_path / "other" / "mine.txt"):
        refused = CliRunner().invoke(cli, [*arguments[:-1], str(taken)])
        assert "is not a stability analysis" in str(refused.exception)
