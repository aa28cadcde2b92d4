"""Metrics of classes of traffic, and who gets what, compared with values worked by hand."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.shell_completion import ShellComplete
from conftest import Command

import bentpipe as bp
from bentpipe.cli.app import cli
from bentpipe.errors import UsageError
from bentpipe.qoe import video, voice
from bentpipe.qoe.thresholds import THRESHOLDS, Limits
from bentpipe.runs.plan import make_plan
from bentpipe.runs.store import Store
from bentpipe.stats.bottlenecks import limits
from bentpipe.stats.class_metrics import BOTTLENECKS, CLASS_METRICS, class_metrics
from bentpipe.stats.intervals import Summary, summarise
from bentpipe.stats.metrics import METRICS, check_classes, find, named_metric
from bentpipe.stats.recorded import Recorded, Traffic
from bentpipe.stats.services import findings, scored, served, services, verdict

TRAFFIC: Traffic = [("calls", "voice", "voip"), ("browsing", "web", "pages"), ("updates", "web", "files")]
COUNTERS = {
    "measured_seconds": 10.0,
    "voice.received_units": 950.0,
    "voice.lost_units": 50.0,
    "voice.delay_p95": 0.310,
    "voice.jitter": 0.002,
    "web.received_units": 0.0,
    "web.lost_units": 0.0,
    "web.pages": 7.0,
    "web.page_time_p75": 2.5,
}
FLOWS = pl.DataFrame(
    {
        "class": ["voice", "voice", "voice", "web", "web"],
        "bytes": [1000, 2000, 0, 500_000, 750_000],
        "goodput": [800.0, 1600.0, None, 4e6, 2e6],
        "closed": [None, None, None, 4.0, 8.0],
        "completed": [False, False, False, True, False],
        "failed": [False, False, False, False, True],
        "completion_time": [None, None, None, 1.5, None],
        "codec": ["g711", "g729", "g711", None, None],
        "mouth_to_ear": [0.1, 0.3, None, None, None],
        "played": [100, 90, 0, None, None],
        "late": [0, 6, 3, None, None],
        "lost_units": [0, 4, 47, 0, 0],
        "burst_ratio": [None, 1.5, 1.0, None, None],
        "playback_until": pl.Series([None] * 5, dtype=pl.List(pl.Float64)),
    }
)


def run() -> Recorded:
    return Recorded(pl.DataFrame(), FLOWS, pl.DataFrame(), COUNTERS, 1e6, TRAFFIC)


def value(name: str) -> float | None:
    return named_metric(name).of(run())


def test_loss_rate_is_the_share_of_units_lost() -> None:
    assert value("voice.loss_rate") == pytest.approx(5.0)
    assert value("web.loss_rate") is None, "nothing was sent"


def test_goodput_of_a_class_is_its_payload_over_the_measured_time() -> None:
    assert value("web.goodput") == pytest.approx(8 * 1.25e6 / 10 / 1e6)
    assert value("web.flow_goodput") == pytest.approx(3000.0)
    assert value("web.jain_index") == pytest.approx(36 / (2 * 20))


def test_times_are_in_the_units_of_their_metrics() -> None:
    assert value("voice.delay_p95") == pytest.approx(310.0)
    assert value("voice.jitter") == pytest.approx(2.0)
    assert value("web.page_time_p75") == 2.5
    assert value("web.fct_p50") == 1.5
    assert (value("web.completed"), value("web.failed"), value("web.pages")) == (1, 1, 7)


def test_a_call_of_which_nothing_is_heard_has_the_worst_score() -> None:
    heard = voice.call(100.0, 0.0, "g711-plc"), voice.call(300.0, 10.0, "g729a-vad", burst_r=1.5)
    scores = sorted([1.0, *(voice.mos(each.r) for each in heard)])
    assert value("voice.mos") == pytest.approx(sum(scores) / 3)
    assert value("voice.mos_p5") == pytest.approx(1.0 + 0.1 * (scores[1] - 1.0))
    assert value("voice.late_rate") == pytest.approx(100 * 9 / 199)


def viewings() -> Recorded:
    """Return a viewing with a stall, one from before the measurement, and two without a picture."""
    flows = pl.DataFrame(
        {
            "class": ["video"] * 4,
            "opened": [10.0, -5.0, 0.0, 58.0],
            "startup_delay": [2.0, None, None, None],
            "stalls": [1, 0, 0, 0],
            "stalled": [3.0, 0.0, 0.0, 0.0],
            "played_time": [45.0, 60.0, 0.0, 0.0],
            "bitrate": [2e6, 4.5e6, None, None],
            "switches": [1, 0, 0, 0],
            "playback_until": [[12.0, 42.0, 45.0, 60.0], [60.0], [60.0], [60.0]],
            "playback_bitrate": [[None, 2e6, None, 3e6], [4.5e6], [None], [None]],
            "mouth_to_ear": pl.Series([None] * 4, dtype=pl.Float64),
            "late": pl.Series([None] * 4, dtype=pl.UInt64),
            "lost_units": [0] * 4,
            **dict.fromkeys(("played", "burst_ratio", "codec")),
        }
    )
    return Recorded(pl.DataFrame(), flows, pl.DataFrame(), {}, 1e6, [("tv", "video", "dash")])


def test_viewings_are_rated_by_bitrates_stalls_and_startup_delay() -> None:
    first = video.Session(
        [video.Segment(30.0, 2000.0, 960, 540, 30.0), video.Segment(15.0, 3000.0, 1280, 720, 30.0)],
        2.0,
        [(30.0, 3.0)],
    )
    second = video.Session([video.Segment(60.0, 4500.0, 1280, 720, 30.0)])
    scores = [video.quality(first).mos, video.quality(second).mos, 1.0]
    assert scores[2] < scores[0] < scores[1]
    found = named_metric("video.mos").of(viewings())
    assert found == pytest.approx(sum(scores) / 3), "the last viewer has waited for two seconds only"


def test_late_packets_of_a_game_are_as_bad_as_lost_ones(tmp_path: Path) -> None:
    """Packets with 50 ms on the way are late if they wait for longer than 150 ms."""
    tables: dict[str, Any] = {
        "title": "A game beside a burst each second",
        "run": {"duration": "20 s", "subject": "wire"},
        "host": {"server": {}, "client": {}},
        "link": {
            "wire": {
                "between": ["server", "client"],
                "rate": "1 Mbps",
                "delay": "50 ms",
                "queue": {"limit": "1000 packets", "aqm": {"algorithm": "droptail"}},
            }
        },
        "traffic": {
            "game": {
                "kind": "cbr",
                "application": "game",
                "from": "server",
                "to": "client",
                "rate": "80 kbps",
                "packet": "100 B",
            },
            # 250 kbit of packets within 25 ms, every second.
            "burst": {
                "kind": "on_off",
                "from": "server",
                "to": "client",
                "rate": "10 Mbps",
                "packet": "1250 B",
                "on": "25 ms",
                "off": "975 ms",
            },
        },
    }
    result = bp.compare(bp.Scenario.from_dict(tables), ["droptail"], runs=1, out=tmp_path / "out")
    # In a burst the wait grows by 9.08 ms per ms to 227 ms, after it shrinks by 0.92: it is longer than
    # 150 ms for 8.5 ms and 83.7 ms of each second, in which a packet is sent every 10 ms.
    late = result.values()["droptail"]["game.lost_or_late"][0]
    assert late == pytest.approx(9.2, abs=1)
    (game, _) = services(result.traffic)
    assert (game.metric.name, game.grade(late)) == ("game.lost_or_late", "bad")
    # With a deadline of 100 ms: longer than 50 ms for 19.5 and 192.4 ms, less a packet of the burst (11 ms).
    tables["traffic"]["game"]["deadline"] = "100 ms"
    found = bp.compare(bp.Scenario.from_dict(tables), ["droptail"], runs=1, out=tmp_path / "sooner").values()
    assert found["droptail"]["game.lost_or_late"][0] == pytest.approx(21.2, abs=1.5)


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        (
            "application = 'game'",
            "application = 'game', deadline = '80 ms'",
            'traffic.b: found a deadline of "80 ms"',
        ),
        (
            "application = 'game'",
            "application = 'iot'",
            'allowed: that of traffic.a in the same class ("200 ms")',
        ),
        ("application = 'iot'", "deadline = '1 s'", "traffic.b.deadline: allowed: only with application"),
    ],
)
def test_wrong_deadlines_are_reported(first: str, second: str, message: str) -> None:
    keys = "kind = 'cbr', from = 'server', to = 'client', rate = '8 kbps', packet = '100 B', class = 'x'"
    both = f"traffic={{ a = {{ {keys}, {first} }}, b = {{ {keys}, {second} }} }}"
    with pytest.raises(bp.ScenarioError, match=re.escape(message)):
        bp.load("small-gateway", [both])


def test_responsiveness_is_the_mean_of_new_and_loaded_connections() -> None:
    """Handshakes of 0.2 and 0.3 s, a request of 0.4 s: 200 RPM; 0.1 s to the server, 0.5 s back: 100 RPM."""
    counters: dict[str, float | None] = {
        "test.probe_connect": 0.2,
        "test.probe_tls": 0.3,
        "test.probe_http": 0.4,
        "test.probe_request": 0.1,
        "test.load_delay": 0.5,
    }
    traffic: Traffic = [("probe", "test", "probe"), ("load", "test", "bulk")]
    probed = Recorded(pl.DataFrame(), FLOWS, pl.DataFrame(), counters, 1e6, traffic)
    values = {name: named_metric(f"test.{name}").of(probed) for name in ("rpm", "rpm_foreign", "rpm_loaded")}
    assert values == pytest.approx({"rpm": 150, "rpm_foreign": 200, "rpm_loaded": 100})
    (service,) = services(traffic)
    assert (service.metric.name, service.grade(values["rpm"])) == ("test.rpm", "bad")
    counters["test.load_delay"] = None
    assert named_metric("test.rpm").of(probed) == pytest.approx(200)


def test_stalls_and_switches_are_per_time_played() -> None:
    values = {
        name: named_metric(f"video.{name}").of(viewings())
        for name in ("stalls", "stalled", "switches", "bitrate", "startup_p95")
    }
    assert values["stalls"] == pytest.approx(60 / 105)
    assert values["stalled"] == pytest.approx(300 / 105)
    assert values["switches"] == pytest.approx(60 / 105)
    assert values["bitrate"] == pytest.approx((2 * 45 + 4.5 * 60) / 105)
    assert values["startup_p95"] == 2.0


def test_a_class_has_the_metrics_of_its_kinds_of_traffic() -> None:
    known = {f"{of}.{each.name}" for of in ("voice", "web") for each in CLASS_METRICS}
    refused = set()
    for name in known:
        try:
            check_classes([name], TRAFFIC)
        except UsageError:
            refused.add(name)
    assert refused == {
        *(f"web.{name}" for name in ("mos", "mos_p5", "late_rate", "terminal_mos_p10")),
        *(f"voice.limited_by_{name}" for name in BOTTLENECKS),
        *(f"{of}.{name}" for of in ("web", "voice") for name in ("rpm", "rpm_foreign", "rpm_loaded")),
        *(f"{of}.lost_or_late" for of in ("web", "voice")),
        *(f"voice.{name}" for name in ("fct_p50", "fct_p95", "completed", "failed", "pages", "pages_failed")),
        *(
            f"{of}.{name}"
            for of in ("voice", "web")
            for name in ("startup_p95", "stalls", "stalled", "bitrate", "switches", "terminal_stalled_p90")
        ),
        *(f"voice.{name}" for name in ("page_time_p50", "page_time_p75", "page_time_p95", "first_byte_p50")),
        *(f"{of}.{name}" for of in ("voice", "web") for name in ("render_time_p50", "render_time_p75")),
        "voice.terminal_page_time_p90",
    }


def test_only_pages_with_render_blocking_have_a_time_to_render() -> None:
    plain, rendered = (
        {metric.name for metric in class_metrics([("browsing", "web", kind)])}
        for kind in ("pages", "rendered pages")
    )
    assert rendered - plain == {"web.render_time_p50", "web.render_time_p75"}
    assert plain <= rendered


def test_messages_name_the_class_and_what_it_has() -> None:
    with pytest.raises(UsageError, match=r'found the class of traffic "vioce"; allowed: voice, web'):
        check_classes(["vioce.mos"], TRAFFIC)
    with pytest.raises(UsageError, match=r'found "mos" for traffic of kind files, pages; allowed: goodput'):
        check_classes(["web.mos"], TRAFFIC)
    with pytest.raises(UsageError, match=r"did you mean voice\.loss_rate\?"):
        named_metric("voice.loss_rat")
    check_classes([metric.name for metric in METRICS], [])
    assert find("voice.nothing") is None


# ----- a real run ----------------------------------------------------------------------------------------


def test_metrics_of_a_class_reach_every_table(result: bp.Result) -> None:
    assert result.classes == ["web"]
    names = result.table()["metric"].unique().to_list()
    assert {"web.page_time_p75", "web.loss_rate"} <= set(names)
    assert "web.mos" not in names
    found = result.differences(metrics=["web.page_time_p75"])
    assert found["verdict"].to_list() != ["no values"]
    with pytest.raises(UsageError, match='found the class of traffic "voice"; allowed: web'):
        result.differences(metrics=["voice.mos"])


def test_sweeps_store_and_show_metrics_of_classes(tmp_path: Path) -> None:
    found = bp.sweep(
        "small-gateway",
        {"gateway.aqm.max_p": [0.1, 0.5]},
        settings=["red"],
        set={"run.duration": "5 s"},
        runs=2,
        metrics=["web.page_time_p75"],
        out=tmp_path / "sweep",
    )
    assert found.frame()["web.page_time_p75"].null_count() == 0
    assert [row["metric"] for row in found.rows()] == ["web.page_time_p75"] * 2
    for ask in (found.rows, found.table):
        with pytest.raises(UsageError, match=r"has no metric voice\.mos; its classes of traffic are web"):
            ask(["voice.mos"])
    with pytest.raises(UsageError, match='found the class of traffic "voice"'):
        bp.sweep("small-gateway", {"gateway.aqm.max_p": [0.1]}, metrics=["voice.mos"], out=tmp_path / "none")


@pytest.mark.parametrize(
    ("words", "incomplete", "expected"),
    [
        (["compare", "geo-operator", "--metric"], "voice.mos", ["voice.mos", "voice.mos_p5"]),
        (
            ["tune", "geo-operator", "--metrics"],
            "utilization:max,video.st",
            [f"utilization:max,video.{name}" for name in ("startup_p95", "stalls", "stalled")],
        ),
        (["sweep", "--metric"], "utili", ["utilization"]),
        (["advise", "no-such-scenario", "--limit"], "queue_delay_p9", ["queue_delay_p95", "queue_delay_p99"]),
    ],
)
def test_shells_complete_metrics_with_those_of_the_scenarios_classes(
    words: list[str], incomplete: str, expected: list[str]
) -> None:
    found = ShellComplete(cli, {}, "bentpipe", "").get_completions(words, incomplete)
    assert [each.value for each in found] == expected


@pytest.mark.parametrize(("option", "expected"), [("--metric", ["utilization"]), ("--settings", [])])
def test_shells_complete_behind_a_scenario_with_a_mistake(
    tmp_path: Path, option: str, expected: list[str]
) -> None:
    (tmp_path / "wrong.toml").write_text("[run]\nduration = false\n")
    words = ["compare", str(tmp_path / "wrong.toml"), option]
    found = ShellComplete(cli, {}, "bentpipe", "").get_completions(words, "utili")
    assert [each.value for each in found] == expected


def test_list_metrics_has_those_of_runs_and_of_classes(bentpipe: Command) -> None:
    rows = json.loads(bentpipe("list", "metrics", "--format", "json", check=0).stdout)
    names = [row["name"] for row in rows]
    assert names == [each.name for each in METRICS] + [f"CLASS.{each.name}" for each in CLASS_METRICS]


def test_compare_prints_who_gets_what_first(bentpipe: Command, tmp_path: Path) -> None:
    done = bentpipe(
        "compare", "unsplit-udp", "--duration", "10 s", "--settings", "red,droptail", "--runs", "2",
        "--out", "here", check=0,
    )  # fmt: skip
    assert done.stdout.index("who gets what") < done.stdout.index("throughput")
    assert "no difference" in done.stdout
    refused = bentpipe("compare", "unsplit-udp", "--metric", "video.mos", "--out", "there", check=2)
    assert 'found the class of traffic "video"; allowed: web, voice' in refused.stderr
    assert not (tmp_path / "there").exists()


# ----- who gets what -------------------------------------------------------------------------------------


@dataclass
class Made:
    """A result with these values of each metric, by setting."""

    traffic: list[tuple[str, str, str]]
    by_setting: dict[str, dict[str, list[float | None]]]
    thresholds: Limits = ()

    @property
    def settings(self) -> list[str]:
        return list(self.by_setting)

    def values(self) -> dict[str, dict[str, list[float | None]]]:
        return self.by_setting

    def summary(self, setting: str, metric: str) -> Summary:
        return summarise(self.by_setting[setting][metric])


def made(**mos: list[float]) -> Made:
    pages: list[float | None] = [2.5, 2.6, 2.7]
    values: dict[str, dict[str, list[float | None]]] = {
        setting: {
            "voice.mos": list[float | None](scores),
            "web.page_time_p75": pages[: len(scores)],
            "throughput": [(19.0 if setting == "red" else 18.0) + seed / 10 for seed in range(len(scores))],
        }
        for setting, scores in mos.items()
    }
    return Made([("calls", "voice", "voip"), ("web", "web", "pages")], values)


def test_each_class_is_judged_by_the_figure_of_its_kind() -> None:
    figures = {each.traffic_class: each.metric.name for each in services(TRAFFIC)}
    assert figures == {"voice": "voice.mos", "web": "web.page_time_p75"}
    packets, bulk = services([("t", "telemetry", "cbr"), ("b", "backup", "bulk")])
    assert (packets.metric.name, bulk.metric.name) == ("telemetry.loss_rate", "backup.flow_goodput")
    assert bulk.grade(1.0) is None


def test_grades_follow_the_thresholds() -> None:
    rows = served(made(red=[2.0, 2.1, 2.2], cake=[4.1, 4.2, 4.3]))
    assert [[each.grade for each in row] for row in rows] == [["bad", "fair"], ["good", "fair"]]


def test_grades_follow_the_limits_of_the_scenario() -> None:
    strict = made(red=[2.0, 2.1, 2.2], cake=[4.1, 4.2, 4.3])
    strict.thresholds = [("voice.mos", 4.5, 4.3), ("page.load", 3.0, 5.0)]
    rows = served(strict)
    assert [[each.grade for each in row] for row in rows] == [["bad", "good"], ["bad", "good"]]
    assert "voice: best under cake (MOS, mean 4.200, bad); bad under every setting." in findings(strict)


# The limits change grades, not runs: the result of another threshold is the same one, with its grades.
def test_limits_of_the_scenario_are_stored_and_no_run_depends_on_them(tmp_path: Path) -> None:
    brief = ["run.warmup=0 s", "run.duration=2 s"]
    limits = [("page.load", 3.0, 4.0)]
    plain, strict = (
        bp.load("small-gateway", [*brief, *more]) for more in ([], ['thresholds."page.load".good=3'])
    )
    assert plain.canonical() == strict.canonical()
    assert strict.thresholds == limits
    result = bp.compare(strict, ["red"], runs=1, out=tmp_path / "out")
    assert bp.open(tmp_path / "out").thresholds == result.thresholds == limits
    Store.resume(tmp_path / "out", make_plan(plain, settings=["red"], runs=1)).close()
    assert bp.open(tmp_path / "out").thresholds == []


def test_the_best_setting_is_named_with_those_that_cannot_be_told_apart() -> None:
    sentences = findings(made(red=[2.0, 2.1, 2.2], cake=[4.1, 4.2, 4.3], fq_codel=[4.1, 4.3, 4.2]))
    assert sentences == [
        "voice: best under cake (MOS, mean 4.200, good); fq_codel cannot be told apart from it;"
        " bad under red.",
        "web: no difference between the settings can be seen.",
    ]
    assert findings(made(red=[2.0, 2.1, 2.2])) == []


def test_verdict_names_the_settings_without_a_bad_class_and_what_the_best_costs() -> None:
    # The worst-served class is web, with the same times under both.
    assert verdict(made(red=[2.0, 2.1, 2.2], cake=[3.8, 3.8, 3.8], fq_codel=[3.7, 3.7, 3.7])) == (
        "cake and fq_codel keep every class out of bad; cake serves the worst-served class best (web: Page"
        " load time, 75th percentile 2.600 s, fair); fq_codel cannot be told apart from it."
        " It carries 18.10 Mbit/s, red 19.10."
    )
    assert verdict(made(red=[2.0, 2.1, 2.2], cake=[4.1, 4.2, 4.3])).startswith("Only cake keeps every class")


def test_verdict_tells_settings_apart_by_the_worst_served_class_of_each_run() -> None:
    found = verdict(made(cake=[3.4, 3.41, 3.42], drr=[3.2, 3.21, 3.22]))
    assert found.startswith(
        "No class is bad under any setting; cake serves the worst-served class best (voice"
    )
    assert "cannot be told apart" not in found
    assert "drr cannot be told apart from it" in verdict(made(cake=[3.4], drr=[3.2]))


def test_verdict_says_that_every_setting_makes_a_class_bad() -> None:
    several = made(red=[2.0, 2.1, 2.2], avq=[2.3, 2.4, 2.5])
    assert verdict(several) == (
        "Every setting makes a class bad; avq serves the worst-served class best (voice: MOS, mean 2.400,"
        " bad). It carries 18.10 Mbit/s, red 19.10."
    )
    several.by_setting["red"]["web.page_time_p75"] = [9.0, 9.1, 9.2]
    assert verdict(several).startswith("Every setting makes a class bad, avq the fewest: voice.")
    several.by_setting["drr"] = several.by_setting["avq"]
    assert verdict(several).startswith("Every setting makes a class bad, avq as few as any: voice.")


def test_many_classes_and_settings_are_counted() -> None:
    names = [f"c{number}" for number in range(8)]
    values: dict[str, list[float | None]] = {f"{name}.mos": [2.0, 2.1, 2.2] for name in names}
    eight = {f"s{number}": values | {"throughput": [9.0, 9.1, 9.2]} for number in range(8)}
    found = Made([(name, name, "voip") for name in names], eight)
    good = values | {f"{name}.mos": [4.2, 4.3, 4.4] for name in names}
    sentences = findings(Made(found.traffic, dict.fromkeys(eight, good)))
    assert sentences == ["8 classes: no difference between the settings can be seen."]
    only = eight | {"best": values | {"c0.mos": [4.2, 4.3, 4.4]}}
    assert findings(Made(found.traffic[:1], only)) == [
        "c0: best under best (MOS, mean 4.300, good); bad under 8 settings."
    ]


def test_verdict_is_empty_without_grades_or_for_one_setting() -> None:
    assert verdict(made(red=[2.0])) == ""
    backup = Made(
        [("b", "backup", "bulk")], {name: {"backup.flow_goodput": [5.0]} for name in ("red", "avq")}
    )
    assert verdict(backup) == ""


def test_a_class_that_no_setting_serves_well_is_said_to_be_bad() -> None:
    sentences = findings(made(red=[2.0, 2.1, 2.2], avq=[2.0, 2.2, 2.1]))
    assert sentences[0] == "voice: no difference can be seen; bad under every setting."


def test_one_run_per_setting_names_bad_classes_but_no_best_setting() -> None:
    assert findings(made(red=[2.0], cake=[4.1])) == [
        "voice: bad under red.",
        "One run per setting cannot tell which is best: simulate more with --runs.",
    ]


def test_shares_of_bottlenecks_add_up_and_links_go_by_their_names(tmp_path: Path) -> None:
    slow = {"link.access.rate": "200 kbps", "run.warmup": "5 s", "run.duration": "20 s"}
    result = bp.compare(bp.load("small-gateway", slow), ["droptail"], runs=1, out=tmp_path / "out")
    values = result.values()["droptail"]
    shares = {name: values[f"web.limited_by_{name}"][0] for name in BOTTLENECKS}
    assert sum(share or 0 for share in shares.values()) == pytest.approx(100)
    (web,) = limits(result, "droptail")
    assert next(iter(web.shares)) == "link.access"
    assert web.shares["link.access"] == pytest.approx(shares["link"])
    assert web.text().startswith(f"link access {web.shares['link.access']:.0f} %")


@pytest.mark.parametrize(
    ("measure", "value", "score"),
    [
        # Voice: bad below 3.1, good from 4.03, from 1 to 4.5.
        ("voice.mos", 1.0, 0.0),
        ("voice.mos", 2.05, 0.5),
        ("voice.mos", 3.10, 1.0),
        ("voice.mos", 3.565, 1.5),
        ("voice.mos", 4.03, 2.0),
        ("voice.mos", 4.265, 2.5),
        ("voice.mos", 4.5, 3.0),
        # Pages: good up to 2 s, bad above 4 s.
        ("page.load", 0.0, 3.0),
        ("page.load", 1.0, 2.5),
        ("page.load", 2.0, 2.0),
        ("page.load", 3.0, 1.5),
        ("page.load", 4.0, 1.0),
        ("page.load", 8.0, 0.5),
        ("page.load", 40.0, 0.1),
        # No best value: good from 1000, bad below 300.
        ("responsiveness", 2000.0, 2.5),
        ("responsiveness", 150.0, 0.5),
    ],
)
def test_scores_match_a_worked_table(measure: str, value: float, score: float) -> None:
    assert scored(THRESHOLDS[measure], value) == pytest.approx(score)


def test_score_falls_with_every_measure_and_changes_grade_at_the_limits() -> None:
    for each in THRESHOLDS.values():
        top = 2 * max(each.good, each.bad)
        values = [top * step / 400 for step in range(401)]
        scores = [scored(each, value) for value in (values if each.higher else values[::-1])]
        assert scores == sorted(scores), each.measure
        assert all(0 <= score <= 3 for score in scores)
        assert (scored(each, each.good), scored(each, each.bad)) == (2, 1)
