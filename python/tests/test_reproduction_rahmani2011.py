"""Rahmani et al. 2011: measures of traffic classes by hand, the set-up, and a short run."""

import shutil
from pathlib import Path

import polars as pl
import pytest

from bentpipe.errors import UsageError
from bentpipe.reproduction import load_paper, papers, reproduce
from bentpipe.reproduction.experiments import CLAIMS
from bentpipe.reproduction.figures import figure
from bentpipe.reproduction.measures import Measure, RunData, measure_from
from bentpipe.reproduction.runs import plan
from bentpipe.reproduction.toml_table import TomlTable
from bentpipe.stats.metrics import Recorded

NETS = ("wifi", "wimax", "umts")


def measure(**given: object) -> Measure:
    return measure_from("one", TomlTable({"label": "One"} | given, "test"))


@pytest.fixture
def seen() -> RunData:
    flows = pl.DataFrame(
        {
            "traffic": ["a", "a", "b", "a"],
            "session": [0, 1, 0, 2],
            "bytes": [100, 200, 300, 0],
            "drops": pl.Series([1, 2, 0, 3], dtype=pl.UInt32),
            "packets": pl.Series([10, 30, 1, 0], dtype=pl.UInt32),
            "delay": [0.1, 0.2, 0.4, None],
            "jitter": [0.01, 0.02, None, None],
        }
    )
    series = pl.DataFrame(
        {"time": [1.0, 2.0, 3.0, 4.0], "offered_load": [1e6, 2e6, 3e6, 6e6], "q": [1.0, 3.0, None, 5.0]}
    )
    runs = pl.DataFrame({"length": [1], "count": [1]})
    return RunData(Recorded(series, flows, runs, {}, 2e6), 4.0)


def test_measures_of_a_class_weight_all_packets_equally(seen: RunData) -> None:
    # 10 packets of 100 ms and 30 of 200; the flow without any has no weight.
    assert measure(kind="delay", traffic=["a"]).compute(seen) == pytest.approx((10 * 100 + 30 * 200) / 40)
    # 9 and 29 differences.
    assert measure(kind="jitter", traffic=["a"]).compute(seen) == pytest.approx((9 * 10 + 29 * 20) / 38)
    assert measure(kind="delay").compute(seen) == pytest.approx((10 * 100 + 30 * 200 + 400) / 41)
    # One packet has a delay and no jitter; no packet has neither.
    assert measure(kind="delay", traffic=["b"]).compute(seen) == pytest.approx(400)
    assert measure(kind="jitter", traffic=["b"]).compute(seen) is None
    assert measure(kind="delay", traffic=["c"]).compute(seen) is None
    # 6 of 46 packets.
    assert measure(kind="loss", traffic=["a"]).compute(seen) == pytest.approx(100 * 6 / 46)
    assert measure(kind="loss", traffic=["c"]).compute(seen) is None


def test_the_load_is_the_offered_load_over_the_capacity(seen: RunData) -> None:
    assert measure(kind="load").compute(seen) == pytest.approx(1.5)


def test_a_series_is_averaged_between_two_times(seen: RunData) -> None:
    whole = measure(kind="series", column="q", unit="packets", scale=2)
    assert whole.compute(seen) == pytest.approx(2 * 3)
    assert whole.series == ("q", 2.0)
    # A sample covers the time before it: those at 3 and 4 s cover 2 to 4 s.
    late = measure(kind="series", column="q", unit="packets", **{"from": 2, "until": 4})
    assert late.compute(seen) == pytest.approx(5)
    assert late.series is None
    assert measure(kind="series", column="q", unit="packets", **{"from": 4}).compute(seen) is None
    assert measure(kind="series", column="none", unit="packets").compute(seen) is None


def test_the_assumed_rates_add_up_to_the_stated_load() -> None:
    """0.24 of the capacity for each ten flows of a sender, without the FTP flows."""
    paper = load_paper("rahmani2011")
    for (experiment, _, point), cell in plan(paper, quick=False).items():
        if experiment not in ("flows", "flows-alone"):
            continue
        keys = {row["key"]: row["value"] for row in cell.scenario.effective()}
        rate = 0.0
        for net in NETS:
            rtp, udp, tcp = (f"traffic.{kind}-{net}" for kind in ("rtp", "udp", "tcp"))
            assert keys[f"{rtp}.gop.rate"] == "32 kbps"
            rate += int(keys[f"{rtp}.flows"]) * 32e3
            assert (keys[f"{udp}.rate"], keys[f"{udp}.on"], keys[f"{udp}.off"]) == (
                "40 kbps",
                '{ exponential = "800 ms" }',
                '{ exponential = "200 ms" }',
            )
            rate += int(keys[f"{udp}.flows"]) * 40e3 * 0.8
            assert keys[f"{tcp}.interval"] == '{ exponential = "5 s" }'
            assert 'mean = "10 KB"' in keys[f"{tcp}.size"]
            rate += int(keys[f"{tcp}.sources"]) * 8 * 10e3 / 5
            assert keys[f"traffic.sctp-{net}.flows"] == point
        assert keys["link.bottleneck.rate"] == "10 Mbps"
        assert rate / 10e6 == pytest.approx(0.024 * int(point))


def test_thresholds_and_flows_change_as_the_paper_describes() -> None:
    cells = plan(load_paper("rahmani2011"), quick=False)
    low = {"ARED": 0.5, "VQ": 0.5, "PI": 0.75, "AAQM": None, "BLUE": None}
    for case, th in low.items():
        keys = {row["key"]: row["value"] for row in cells["change", case, ""].scenario.effective()}
        aqm = "link.bottleneck.queue.aqm"
        expected = "0.95" if th is None else f'[["0 s", 0.95], ["125 s", {th}], ["175 s", 0.95]]'
        assert keys[f"{aqm}.threshold"] == expected, case
        assert keys["link.bottleneck.queue.limit"] == '{ packets = "100 packets", bytes = "130 KB" }'
        if case == "PI":
            assert keys[f"{aqm}.q_ref"] == "100 packets"
        away = {key for key, value in keys.items() if key.endswith(".away") and value != "[]"}
        assert away == {f"traffic.udp-{net}.away" for net in NETS}
        assert {keys[each] for each in away} == {'[["125 s", "175 s"]]'}
    # 120 to 1200 flows in all.
    points = {point for experiment, _, point in cells if experiment == "flows"}
    assert sorted(12 * int(point) for point in points) == [120, 300, 600, 840, 1200]
    assert {len(cell.seeds) for key, cell in cells.items() if key[0] in ("flows", "change", "web")} == {50}


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The paper with runs of some seconds."""
    folder = tmp_path_factory.mktemp("papers") / "short"
    shutil.copytree(papers()["rahmani2011"], folder)
    path = folder / CLAIMS
    text = path.read_text()
    for old, new in (
        ('"run.duration" = "200 s"', '"run.duration" = "30 s"'),
        ('set = { "run.duration" = "50 s" }', 'set = { "run.warmup" = "30 s", "run.duration" = "3 s" }'),
        ("runs = 3\n", "runs = 2\n"),
        ('points = ["10", "50", "100"]', 'points = ["10"]'),
    ):
        assert old in text
        text = text.replace(old, new)
    path.write_text(text)
    return folder


def test_a_quick_run_draws_the_queue_over_time_and_classes_by_flows(short: Path, tmp_path: Path) -> None:
    (made,) = reproduce([short], out=tmp_path / "out", quick=True, only=["queue", "delay"])
    drawn = {each.name: each for each in made.paper.pictures}
    over_time = figure(made.verdicts, drawn["queue"])
    assert [panel.chart.to_dict()["title"] for panel in over_time.panels] == list(drawn["queue"].cases)
    (queue,) = (each for each in drawn["queue"].measures if each.series)
    course = made.verdicts.over_time("change", "AAQM", queue)
    assert len(course) == 30 / 0.2
    # Traffic starts at 25 s and fills the buffer of 100 packets.
    assert all(mean == 0 for time, mean, _ in course if time < 25)
    assert 50 < max(mean for _, mean, _ in course) <= 100
    spots = {(spot.curve, spot.measure.name): spot.found.mean for spot in made.verdicts.items[0].spots}
    load, delay = spots["AAQM", "load"], spots["AAQM", "udp-delay"]
    assert load is not None
    assert delay is not None
    assert load > 0.24
    # Propagation takes at least 25 ms, a full buffer 102 ms, and UMTS up to about 100 ms more.
    assert 25 < delay < 300
    page = made.report.read_text(encoding="utf-8")
    assert page.count("Values with 95 % intervals") == 2
    assert "Offered load over capacity" in page


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            'measures = ["queue", "queue-before",',
            'measures = ["queue-before",',
            "measures: found ['queue-before'",
        ),
        ('law = "one value"\nvalues = [10,', 'law = "one value"\nvalues = ["x",', "values: found 'x'"),
        ('listed = ["load"]', 'listed = ["loud"]', "listed: found 'loud'; allowed: load,"),
        ('column = "transmit_queue"\n', "", "column: missing; needed: a string"),
    ],
)
def test_wrong_data_is_rejected_with_key_and_value(
    short: Path, tmp_path: Path, old: str, new: str, message: str
) -> None:
    folder = tmp_path / "wrong"
    shutil.copytree(short, folder)
    text = (folder / CLAIMS).read_text()
    assert old in text
    (folder / CLAIMS).write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        load_paper(folder)
    assert message in str(caught.value)
