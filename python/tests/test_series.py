import json
import math
import tomllib
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from conftest import ROOT, Command

import bentpipe as bp
from bentpipe.errors import UsageError
from bentpipe.models.fluid import solve
from bentpipe.models.series import _filled, _load_ratio, _new, _subject, capture, fit
from bentpipe.runs import plan

SHIPPED = ROOT / "scenarios" / "series" / "byun2007-gateway.json"


def noisy(points: int) -> list[float]:
    values: list[float] = np.random.default_rng(1).normal(5.0, 2.0, points).tolist()
    return values


def wave(time: float, period: float, mean: float, cos: tuple[float, ...], sin: tuple[float, ...]) -> float:
    phase = 2 * math.pi * time / period
    return mean + sum(
        a * math.cos(k * phase) + b * math.sin(k * phase)
        for k, a, b in zip((1, 2, 3, 4), cos, sin, strict=True)
    )


def test_synthetic_series_is_recovered() -> None:
    cos, sin = (0.5, -0.25, 0.0, 1e-3), (0.0, 2.0, -1.0, 0.125)
    found = fit([wave(0.1 * i, 50.0, 3.0, cos, sin) for i in range(500)], 4, interval=0.1)
    assert found.mean == pytest.approx(3.0, abs=1e-12)
    assert found.cos == pytest.approx(cos, abs=1e-12)
    assert found.sin == pytest.approx(sin, abs=1e-12)
    assert found.rms < 1e-12
    assert found.explained == pytest.approx(1.0, abs=1e-12)
    # Between the points, and in the next period.
    for time in (0.05, 1.234, 61.234):
        assert found(time) == pytest.approx(wave(time, 50.0, 3.0, cos, sin), abs=1e-12)


@pytest.mark.parametrize(("points", "harmonics"), [(500, 8), (499, 8), (17, 8), (18, 8), (64, 5)])
def test_fit_matches_fft_and_least_squares(points: int, harmonics: int) -> None:
    measured = noisy(points)
    found = fit(measured, harmonics)
    spectrum = np.fft.rfft(measured)[: harmonics + 1] / points
    assert found.mean == pytest.approx(spectrum[0].real, abs=1e-12)
    assert found.cos == pytest.approx(2 * spectrum[1:].real, abs=1e-12)
    assert found.sin == pytest.approx(-2 * spectrum[1:].imag, abs=1e-12)
    phase = 2 * np.pi * np.arange(points) / points
    columns = [np.ones(points)]
    for k in range(1, harmonics + 1):
        columns += [np.cos(k * phase), np.sin(k * phase)]
    basis = np.stack(columns, axis=1)
    solved, *_ = np.linalg.lstsq(basis, np.array(measured), rcond=None)
    assert [
        found.mean,
        *(x for pair in zip(found.cos, found.sin, strict=True) for x in pair),
    ] == pytest.approx(solved, abs=1e-12)
    residual = np.array(measured) - basis @ solved
    assert found.rms == pytest.approx(math.sqrt(np.mean(residual**2)), abs=1e-12)
    assert found.explained == pytest.approx(1 - np.mean(residual**2) / np.var(measured), abs=1e-12)


def test_explained_variance_of_noise_is_as_expected() -> None:
    rng = np.random.default_rng(2)
    shares = [fit(rng.normal(size=500).tolist(), 8).explained or 0.0 for _ in range(100)]
    assert np.mean(shares) == pytest.approx(fit(noisy(500), 8).noise, abs=0.003)


def test_constant_series_has_no_explained_variance() -> None:
    found = fit([0.25] * 20, 3)
    assert (found.mean, found.explained) == (0.25, None)
    assert found.rms < 1e-15
    assert fit([0.0] * 20, 3).as_json()["cos"] == [0.0] * 3


def test_new_connections_match_a_worked_example() -> None:
    # Three intervals from 0 to 3 s. A is always open, B from 0.5 to 1.5, C opens and closes at 1.0 (which
    # belongs to the second interval), D is open from 2.5 on: 1 of 2 is new, then 1 of 3, then 1 of 2.
    flows = pl.DataFrame({"opened": [-5.0, 0.5, 1.0, 2.5, 3.0], "closed": [None, 1.5, 1.0, None, None]})
    assert _new(flows, pl.Series([1.0, 2.0, 3.0]), 1.0) == [1 / 2, 1 / 3, 1 / 2]
    nobody = pl.DataFrame({"opened": [0.5], "closed": [0.7]})
    assert _new(nobody, pl.Series([1.0, 2.0]), 1.0) == [1.0, 0.0]


def test_gaps_are_interpolated_and_counted() -> None:
    column = pl.Series([None, 1.0, math.nan, 3.0, None])
    assert _filled(column) == ([1.0, 1.0, 2.0, 3.0, 3.0], 3)
    with pytest.raises(UsageError, match="no packet entered the transmit queue"):
        _filled(pl.Series([None, math.nan], dtype=pl.Float64))


def test_load_ratio_is_mean_over_load_and_rejects_silence() -> None:
    assert _load_ratio(pl.Series([1.0, 2.0, 6.0])) == [3.0, 1.5, 0.5]
    with pytest.raises(UsageError, match=r"1 of 3 points have less than 1 % of the mean offered load"):
        _load_ratio(pl.Series([5.0, 0.0, 5.0]))


def test_shipped_series_is_reproduced(tmp_path: Path) -> None:
    made = capture("byun2007-gateway").write(tmp_path / "made.json").read_text(encoding="utf-8")
    shipped = SHIPPED.read_text(encoding="utf-8")

    def without_versions(text: str) -> list[str]:
        return [line for line in text.splitlines() if not line.startswith('  "versions"')]

    assert without_versions(made) == without_versions(shipped), "make series renews it"
    content = json.loads(shipped)
    assert (content["points"], content["interval"], content["harmonics"]) == (500, 0.1, 8)
    assert (content["without"], content["dropped"], content["transmit_queue"]) == (
        ["AQM", "bottleneck"],
        0,
        0.0,
    )
    # 12 ms plus half a tick of 5 ms on average; 400 busy sessions.
    assert content["pep_delay"]["mean"] == pytest.approx(0.0145, abs=1e-4)
    for name, unit in (("pep_delay", "s"), ("load_ratio", ""), ("new_connections", "")):
        series = content[name]
        assert series["unit"] == unit
        again = fit(series["measured"], 8, interval=0.1, unit=unit)
        assert again.as_json() == series
        assert (len(series["measured"]), len(series["cos"]), len(series["sin"])) == (500, 8, 8)
        assert min(series["measured"]) >= 0
        assert series["lowest"] >= 0


def test_seed_override_and_as_it_is_option_change_the_series() -> None:
    quick = {"points": 40, "set": {"run.warmup": "5 s"}, "interval": 0.5, "harmonics": 3}
    first = capture("small-gateway", **quick)  # type: ignore[arg-type]
    assert first == capture("small-gateway", **quick)  # type: ignore[arg-type]
    assert first.seed == plan.load("small-gateway").seed
    other = capture("small-gateway", **quick, seed=first.seed + 1)  # type: ignore[arg-type]
    assert (other.seed, other.digest) == (first.seed + 1, first.digest)
    assert other.pep_delay != first.pep_delay
    loaded = capture("small-gateway", **quick, as_it_is=True)  # type: ignore[arg-type]
    assert loaded.digest != first.digest
    # Drops ahead of the PEP make later bytes wait there for retransmissions.
    assert loaded.dropped > 0
    assert loaded.pep_delay.mean > 2 * first.pep_delay.mean


def test_only_connections_through_the_subject_are_counted(tmp_path: Path) -> None:
    # Files for hosts on the island pass the first gateway, but not the subject, the ship's.
    islanders = """
[host.islander]
count = 1
[link.beach]
between = ["island-terminal", "islander"]
[traffic.beach]
kind = "bulk"
from = "server"
to = "islander"
flows = 100
"""
    path = tmp_path / "beach.toml"
    path.write_text(plan.load("two-gateways").text + islanders, encoding="utf-8")
    assert _subject(plan.load(path)).traffic == ["web"]
    found, alone = (capture(name, points=20, interval=1.0, harmonics=2) for name in (path, "two-gateways"))
    # The hundred transfers take some load; if counted among the 130 open ones, the share would halve.
    assert found.new_connections.mean == pytest.approx(alone.new_connections.mean, rel=0.3)


def refusal(name: str) -> str | None:
    """Return the expected error for a scenario that cannot be captured; None if it can."""
    content = tomllib.loads(plan.scenario_path(name).read_text(encoding="utf-8"))
    if "gateway" not in content:
        return "which has no PEP delay to measure"
    gateways = content["gateway"] if isinstance(content["gateway"], list) else [content["gateway"]]
    if any("terminals" in each for each in gateways):
        return r"has \d+ terminals; allowed: one"
    follows = any(each["regulator"]["rate"] == "link" for each in gateways)
    return "capacity changes with time" if follows else None


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(plan.shipped()))
def test_every_shipped_scenario_is_captured_or_rejected(name: str) -> None:
    arguments = {"points": 17, "interval": 1.0, "harmonics": 4}
    message = refusal(name)
    if message is not None:
        with pytest.raises(UsageError, match=message):
            capture(name, **arguments)  # type: ignore[arg-type]
        return
    found = capture(name, **arguments)  # type: ignore[arg-type]
    # No packet is dropped, and the queue is at most the burst of a tick.
    assert (found.dropped, found.missing) == (0, 0)
    assert found.queue < 1
    assert all(math.isfinite(x) and x >= 0 for series in found.series.values() for x in series.measured)
    json.dumps(found.as_json(), allow_nan=False)


@pytest.mark.parametrize(
    ("scenario", "arguments", "message"),
    [
        ("nowhere", {}, "scenario nowhere: there is no such file"),
        ("red-dumbbell", {}, "red-dumbbell: the subject is the link bottleneck, which has no PEP delay"),
        ("small-gateway", {"points": 16}, "points is 16, but it must be from 17 to 100000"),
        ("small-gateway", {"points": 6, "harmonics": 3}, "points is 6, but it must be from 7"),
        ("small-gateway", {"harmonics": 0}, "harmonics is 0, but it must be from 1 to 100"),
        ("small-gateway", {"interval": 0.0}, "interval is 0 s, but it must be from 1 µs to 1 h"),
        ("small-gateway", {"seed": -1}, "seed is -1, but it must be from 0"),
        ("small-gateway", {"set": ["run.duration=5 s"]}, "points and interval determine this key"),
        ("small-gateway", {"points": 200}, "of the mean offered load"),
    ],
)
def test_invalid_capture_gives_one_message(scenario: str, arguments: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        capture(scenario, **arguments)  # type: ignore[arg-type]
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_file_is_replaced_only_with_force(tmp_path: Path) -> None:
    found = capture("unsplit-udp", points=20, interval=1.0, harmonics=2)
    path = found.write(tmp_path / "new" / "series.json")
    before = path.read_bytes()
    with pytest.raises(UsageError, match=r"series\.json: exists already; --force replaces it"):
        found.write(path)
    assert found.write(path, force=True).read_bytes() == before
    assert [each.name for each in path.parent.iterdir()] == ["series.json"]
    assert str(tmp_path) not in before.decode()
    with pytest.raises(UsageError, match="cannot be written"):
        found.write(path / "below")


def test_series_command_writes_file_figure_and_table(bentpipe: Command, tmp_path: Path) -> None:
    arguments = ["model", "capture", "unsplit-udp", "--points", "40", "--interval", "0.5", "--harmonics", "3"]
    done = bentpipe(*arguments, "--figure")
    assert (done.returncode, done.stderr) == (0, "")
    path = tmp_path / "series" / "unsplit-udp.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content == capture("unsplit-udp", points=40, interval=0.5, harmonics=3).as_json()
    assert f"{content['new_connections']['mean']:.3f}"[:5] in done.stdout
    assert "of white noise, 3 harmonics explain 15.4 %" in done.stdout
    figure = path.with_suffix(".svg").read_text(encoding="utf-8")
    assert all(text in figure for text in ("PEP delay d(t)", "measured", "fitted, 3 harmonics", "time [s]"))
    for more, message in (
        ([], "series/unsplit-udp.json: exists already; --force replaces it"),
        (["--out", "x.svg", "--figure"], "x.svg: is the figure's name too; allowed: another, such as x.json"),
        (["--out", "series"], "series: is a folder; allowed: the name of a file"),
        (["--set", "gateway.pep.delay=1", "--force"], "gateway.pep.delay"),
        (["--points", "6", "--force"], "points is 6, but it must be from 7"),
    ):
        refused = bentpipe(*arguments, *more)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr.startswith("error: ")
        assert message in refused.stderr
        assert refused.stderr.count("\n") == 1
    assert bentpipe(*arguments, "--force", "--seed", "7", "--as-it-is").returncode == 0
    again = json.loads(path.read_text(encoding="utf-8"))
    assert (again["seed"], again["without"]) == (7, [])


def test_scenario_may_name_a_series_file_that_does_not_exist_yet(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(plan.load("unsplit-udp").text + '\n[model]\nseries = "mine.json"\n', encoding="utf-8")
    with pytest.raises(bp.ModelError, match=r"mine\.json cannot be read"):
        solve(plan.load(path))
    found = capture(path, points=20, interval=1.0, harmonics=2)
    assert found.digest == capture("unsplit-udp", points=20, interval=1.0, harmonics=2).digest
    found.write(tmp_path / "mine.json")
    plan.load(path)
