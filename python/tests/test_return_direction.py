"""Uploads: metrics, series, drops and the table of terminals."""

from pathlib import Path

import polars as pl
import pytest

import bentpipe as bp

TEXT = """
title = "Two terminals that upload"
[run]
warmup = "2 s"
duration = "10 s"
settings = ["red"]
[host.server]
[host.user]
count = 2
[terminal.site]
count = 2
[gateway]
terminals = ["site"]
regulator = { rate = "8 Mbps" }
[gateway.return]
transmit_queue = { limit = "25 packets" }
[link.ingress]
between = ["server", "gateway"]
[link.sites]
between = ["gateway", "site"]
delay = "5 ms"
reverse = { rate = "1 Mbps" }
[link.lan]
between = ["site", "user"]
[traffic.up]
kind = "cbr"
from = "user"
to = "server"
flows = 2
rate = "1.25 Mbps"
packet = "1000 B"
[traffic.down]
kind = "cbr"
from = "server"
to = "user"
flows = 2
rate = "1 Mbps"
packet = "1000 B"
"""


@pytest.fixture(scope="module")
def result(tmp_path_factory: pytest.TempPathFactory) -> bp.Result:
    folder = tmp_path_factory.mktemp("return")
    path = folder / "uploads.toml"
    path.write_text(TEXT, encoding="utf-8")
    return bp.compare(path, settings=["droptail"], runs=1, out=folder / "result")


def test_metrics_describe_the_queues_at_the_terminals(result: bp.Result) -> None:
    values = {name: value for name, [value] in result.values()["droptail"].items()}
    # Each terminal sends 1 of 1.25 Mbit/s: a fifth is dropped, 25 packets of 8 ms wait.
    assert values["return_throughput"] == pytest.approx(2, rel=0.01)
    assert values["return_queue_delay_mean"] == pytest.approx(200, rel=0.05)
    assert values["return_queue_delay_p95"] == pytest.approx(200, rel=0.05)
    dropped = result.drops().filter(pl.col("place") == "gateway return transmit")
    assert len(dropped) == pytest.approx(10 * 2 * 0.25e6 / 8000, rel=0.02)
    assert values["return_drop_rate"] == pytest.approx(20, rel=0.02)
    # 972 of 1000 bytes are payload.
    assert values["up.goodput"] == pytest.approx(2 * 0.972, rel=0.01)
    assert values["throughput"] == pytest.approx(2, rel=0.01)


def test_the_table_of_terminals_has_both_directions(result: bp.Result) -> None:
    table = result.terminals()
    assert (table["goodput"] / 1e6).to_list() == pytest.approx([0.972, 0.972], rel=0.01)
    assert (table["return_goodput"] / 1e6).to_list() == pytest.approx([0.972, 0.972], rel=0.01)
    counters = result.counters_of("droptail", 1)
    assert table["return_sent_bytes"].sum() == counters["return_sent_bytes"]
    assert table["return_sent_packets"].sum() == counters["return_sent_packets"]
    dropped = counters["return_dropped_packets"] + counters["return_drops_elsewhere"]  # type: ignore[operator]
    assert table["return_dropped_packets"].sum() == dropped
    assert table["return_queue_delay_p95"].to_list() == pytest.approx([0.2, 0.2], rel=0.05)
    assert table["queue_delay_p95"].max() < 0.01  # type: ignore[operator]


def test_a_result_without_uploads_has_no_metrics_of_the_return_direction(tmp_path: Path) -> None:
    alone = bp.compare("small-gateway", set=["run.duration=2 s"], runs=1, out=tmp_path / "result")
    assert not any(metric.of_return for metric in alone.known_metrics)
