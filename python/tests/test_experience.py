"""Experience of the users behind each terminal: metrics, frame and table of a report."""

from pathlib import Path

import polars as pl
import pytest

import bentpipe as bp
from bentpipe.cli import app
from bentpipe.qoe import voice
from bentpipe.report.comparison import render
from bentpipe.report.terminal_charts import worst_served
from bentpipe.stats.experience import EXPERIENCE, experience
from bentpipe.stats.metrics import find, metrics_of
from bentpipe.stats.recorded import Recorded, Traffic

TRAFFIC: Traffic = [("calls", "voice", "voip"), ("tv", "video", "dash"), ("web", "web", "pages")]
LISTS = pl.List(pl.Float64)
FLOWS = pl.DataFrame(
    {
        "class": ["voice"] * 3 + ["video"] * 3,
        "terminal": ["a", "a", "b", "a", "a", "b"],
        "codec": ["g711"] * 3 + [None] * 3,
        "mouth_to_ear": [0.1, 0.1, 0.6, None, None, None],
        "played": [100, 100, 80, None, None, None],
        "late": [0, 0, 10, None, None, None],
        "lost_units": [0, 0, 10, 0, 0, 0],
        "burst_ratio": [None, None, 1.0, None, None, None],
        "opened": [0.0] * 6,
        "startup_delay": [None, None, None, 1.0, 1.0, None],
        "stalled": [None, None, None, 2.0, 0.0, None],
        "played_time": [None, None, None, 50.0, 50.0, 0.0],
        "playback_until": pl.Series([None] * 3 + [[1.0, 51.0], [1.0, 51.0], [20.0]], dtype=LISTS),
        "playback_bitrate": pl.Series([None] * 3 + [[None, 3e6], [None, 3e6], [None]], dtype=LISTS),
    }
)
PAGES = pl.DataFrame(
    {
        "time": [1.0] * 11,
        "class": ["web"] * 11,
        "terminal": ["a"] * 4 + ["b"] * 2 + ["c"] * 5,
        "load_time": [1.0, 2.0, 3.0, 4.0, 1.0, None, 1.0, 1.0, 1.0, 1.0, None],
    }
)


def recorded(
    pages: pl.DataFrame | None = PAGES, limits: tuple[tuple[str, float, float], ...] = ()
) -> Recorded:
    return Recorded(pl.DataFrame(), FLOWS, pl.DataFrame(), {}, 1e6, TRAFFIC, pages, limits)


def metric(name: str, run: Recorded) -> float | None:
    found = find(name)
    assert found is not None
    return found.of(run)


def test_calls_of_a_terminal_have_the_mean_mos_of_the_e_model() -> None:
    clear = voice.mos(voice.call(100, 0, "g711-plc").r)
    bad = voice.mos(voice.call(600, 20, "g711-plc").r)
    found = experience(recorded(), "voice").select("terminal", "mos", "grade").rows()
    assert found == [("a", pytest.approx(clear), "good"), ("b", pytest.approx(bad), "bad")]
    assert metric("voice.terminals_bad", recorded()) == 50
    # A tenth of the way from the worse of two terminals.
    assert metric("voice.terminal_mos_p10", recorded()) == pytest.approx(bad + 0.1 * (clear - bad))


def test_a_failed_page_takes_longer_than_any_other() -> None:
    # The third of four gaps: 3 s and a quarter; between 1 s and never; the fourth of five pages.
    found = experience(recorded(), "web").select("terminal", "page_time_p75", "grade").rows()
    assert found == [("a", 3.25, "fair"), ("b", float("inf"), "bad"), ("c", 1.0, "good")]
    assert metric("web.terminals_bad", recorded()) == pytest.approx(100 / 3)
    # Of 1, 3.25 and never, the 90th percentile lies between the last two.
    assert metric("web.terminal_page_time_p90", recorded()) is None
    without_b = recorded(PAGES.filter(pl.col("terminal") != "b"))
    assert metric("web.terminal_page_time_p90", without_b) == pytest.approx(1 + 0.9 * 2.25)
    assert metric("web.terminals_bad", without_b) == 0


def test_stalls_count_for_the_time_played_behind_each_terminal() -> None:
    # 2 s in 100 s; b has played nothing, and waited for 20 s, which has the worst MOS.
    table = experience(recorded(), "video")
    assert table["stalled"].to_list() == [2.0, None]
    assert table["mos"][1] == 1.0
    assert metric("video.terminal_stalled_p90", recorded()) == 2.0
    assert metric("video.terminals_bad", recorded()) == 50


def test_thresholds_of_the_scenario_grade_terminals() -> None:
    strict = recorded(limits=(("page.load", 0.5, 0.9),))
    assert metric("web.terminals_bad", strict) == 100


def test_metrics_of_terminals_are_null_without_a_terminal_or_traffic() -> None:
    alone = Recorded(pl.DataFrame(), FLOWS.drop("terminal"), pl.DataFrame(), {}, 1e6, TRAFFIC)
    assert experience(alone, "voice").is_empty()
    for name in ("terminals_bad", "terminal_mos_p10"):
        assert metric(f"voice.{name}", alone) is None
    assert metric("web.terminals_bad", recorded(pages=None)) is None
    assert experience(recorded(), "files").columns == list(EXPERIENCE)
    names = {each.name for each in metrics_of(TRAFFIC)}
    assert "voice.terminals_bad" not in names
    assert "voice.terminals_bad" in {each.name for each in metrics_of(TRAFFIC, terminals=True)}


USERS = """
title = "Homes with pages and calls"
[run]
warmup = "2 s"
duration = "20 s"
[host.server]
[host.resident]
count = 6
[terminal.home]
count = 3
[gateway]
terminals = ["home"]
queues_per = "terminal"
regulator = { rate = "2 Mbps" }
[link.ingress]
between = ["server", "gateway"]
[link.homes]
between = ["gateway", "home"]
delay = "5 ms"
[link.lan]
between = ["home", "resident"]
[traffic.web]
kind = "pages"
from = "server"
to = "resident"
sessions = 6
objects_per_page = 2
object_size = "20 KB"
think_time = { exponential = "1 s" }
patience = "300 ms"
[traffic.voice]
kind = "voip"
from = "server"
to = "resident"
flows = 3
"""


def test_pages_of_terminals_agree_with_other_tables(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    path.write_text(USERS, encoding="utf-8")
    result = bp.compare(path, settings=["droptail"], runs=1, out=tmp_path / "result")
    pages, counters = result.pages(), result.counters_of("droptail", 1)
    loaded = pages.drop_nulls("load_time")
    assert loaded.height == counters["web.pages"]
    failed = pages.height - loaded.height
    assert failed == counters["web.pages_failed"]
    assert failed > 0
    means = loaded.group_by(pl.col("terminal").cast(pl.String)).agg(pl.col("load_time").mean())
    table = result.terminals().select("terminal", "page_time_mean").join(means, on="terminal")
    assert table["load_time"].to_list() == pytest.approx(table["page_time_mean"].to_list())

    found = result.experience()
    assert found.columns == ["setting", "seed", "terminal", "class", *list(EXPERIENCE)[1:]]
    calls = found.filter(pl.col("class") == "voice")
    # Each home has one call.
    assert calls["terminal"].to_list() == ["home.0", "home.1", "home.2"]
    assert calls["mos"].mean() == pytest.approx(result.values()["droptail"]["voice.mos"][0])
    web = found.filter(pl.col("class") == "web")
    bad = 100 * (web["grade"] == "bad").sum() / 3
    assert result.values()["droptail"]["web.terminals_bad"] == [pytest.approx(bad)]

    bad_somewhere = {row["terminal"] for row in found.to_dicts() if row["grade"] == "bad"}
    groups = result.groups()
    assert groups["group"].to_list() == ["home"]
    assert groups["terminals_bad"].to_list() == [pytest.approx(100 * len(bad_somewhere) / 3)]

    worst = worst_served(result)
    assert worst is not None
    assert [name for name, _, _ in worst["classes"]] == ["web", "voice"]
    assert sorted(name for name, _ in worst["settings"][0]["rows"]) == ["home.0", "home.1", "home.2"]
    assert "Worst-served terminals" in render(result)


def test_sweep_over_a_threshold_grades_terminals_by_each_value(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    path.write_text(
        USERS.replace("[traffic.voice]", '[thresholds]\n"voice.mos" = { good = 4.2 }\n[traffic.voice]')
    )
    result = bp.sweep(
        path,
        {'thresholds."voice.mos".bad': ["1.1", "4.2"]},
        settings=["droptail"],
        runs=1,
        metrics=["voice.terminals_bad", "throughput"],
        out=tmp_path / "sweep",
    )
    bad, sent = (result.table([name])["mean"].to_list() for name in ("voice.terminals_bad", "throughput"))
    assert bad == [0, 100]
    assert sent[0] == sent[1]


def test_a_result_with_one_terminal_has_no_experience_of_terminals(tmp_path: Path) -> None:
    alone = bp.compare("small-gateway", set=["run.duration=2 s"], runs=1, out=tmp_path / "result")
    with pytest.raises(bp.ResultError, match="no gateway of the scenario has several terminals"):
        alone.experience()
    assert worst_served(alone) is None


@pytest.mark.parametrize(
    ("name", "needs"),
    [
        ("web.terminals_bad", "a gateway with several terminals"),
        ("terminal_goodput_min", "a gateway with several terminals"),
        ("return_throughput", "queues at the terminals"),
    ],
)
def test_metric_that_a_scenario_never_has_is_refused_before_it_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], result: bp.Result, name: str, needs: str
) -> None:
    message = f"metric {name}: needs {needs}"
    with pytest.raises(bp.UsageError, match=message):
        bp.sweep("small-gateway", {"gateway.aqm.w_q": [0.1]}, metrics=[name], out=tmp_path / "out")
    with pytest.raises(bp.UsageError, match=message):
        bp.tune("small-gateway", "red", f"{name}:max", out=tmp_path / "out")
    with pytest.raises(bp.UsageError, match=message):
        bp.advise("small-gateway", "red", limits=[f"{name}>=1"], out=tmp_path / "out")
    with pytest.raises(bp.UsageError, match=message):
        result.differences(metrics=[name])
    with pytest.raises(SystemExit) as stop:
        app.main(["compare", "small-gateway", "--metric", name, "--out", str(tmp_path / "out")])
    assert stop.value.code == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
