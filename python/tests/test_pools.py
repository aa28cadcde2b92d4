"""Pools, subscribers and groups of terminals in results, reports and pictures."""

from pathlib import Path

import polars as pl
import pytest

import bentpipe as bp
from bentpipe.report.comparison import render
from bentpipe.report.picture import picture
from bentpipe.report.picture_text import network
from bentpipe.report.terminal_charts import group_table
from bentpipe.stats.groups import by_group

POOLS = """
title = "Two providers"
[run]
warmup = "2 s"
duration = "6 s"
[host.server]
[host.resident]
count = 3
[host.crew]
count = 2
plan = "crew"
[terminal.home]
count = 3
pool = "city"
[terminal.ship]
pool = "sea"
[pool.land.down]
cir = "4 Mbps"
[pool.city]
parent = "land"
[pool.sea.down]
pir = "3 Mbps"
weight = 2
[plan.crew.down]
weight = 2
[gateway]
terminals = ["home", "ship"]
queues_per = "subscriber"
regulator = { rate = "10 Mbps" }
[gateway.transmit_queue]
limit = "20 packets"
[gateway.return]
[link.ingress]
between = ["server", "gateway"]
[link.homes]
between = ["gateway", "home"]
delay = "5 ms"
reverse = { rate = "1 Mbps" }
[link.ships]
between = ["gateway", "ship"]
delay = "5 ms"
reverse = { rate = "1 Mbps" }
[link.lan]
between = ["home", "resident"]
[link.deck]
between = ["ship", "crew"]
[traffic.homes]
kind = "cbr"
from = "server"
to = "resident"
flows = 3
rate = "5 Mbps"
packet = "1000 B"
[traffic.ships]
kind = "cbr"
from = "server"
to = "crew"
flows = 2
rate = "5 Mbps"
packet = "1000 B"
"""


def test_groups_and_pools_add_up_their_terminals(tmp_path: Path) -> None:
    path = tmp_path / "pools.toml"
    path.write_text(POOLS, encoding="utf-8")
    result = bp.compare(path, settings=["droptail"], runs=1, out=tmp_path / "result")
    found = result.groups()
    assert found.select("kind", "group", "terminals").rows() == [
        ("terminals", "home", 3),
        ("terminals", "ship", 1),
        ("pool", "land", 3),
        ("pool", "land/city", 3),
        ("pool", "sea", 1),
    ]
    # The sea has its peak rate of 3 Mbit/s, the land 7; 972 of 1000 bytes are payload.
    expected = [7, 3, 7, 7, 3]
    assert (found["goodput"] / 0.972e6).to_list() == pytest.approx(expected, rel=0.01)
    assert (found["throughput"] / 1e6).to_list() == pytest.approx(expected, rel=0.01)
    assert found["carrier_share"].to_list() == pytest.approx([each / 10 for each in expected], rel=0.01)
    assert found["byte_share"].to_list() == pytest.approx([each / 10 for each in expected], rel=0.01)
    # Three homes are sent 5 Mbit/s each, and the two hosts of the ship.
    assert found["drop_rate"].to_list() == pytest.approx([8 / 15, 0.7, 8 / 15, 8 / 15, 0.7], rel=0.01)
    assert found["jain_index"].to_list() == pytest.approx([1] * 5, abs=1e-3)
    table = group_table(result)
    assert table is not None
    assert table["rain"] == []
    assert [row[1] for row in table["rows"]] == ["home", "ship", "pool land", "pool land/city", "pool sea"]
    assert "Groups of terminals" in render(result)


TERMINALS = pl.DataFrame(
    {
        "setting": "red",
        "seed": 1,
        "terminal": ["a", "b", "c"],
        "group": ["x", "x", "y"],
        "pool": ["one", "one/two", None],
        "goodput": [1e6, 3e6, 4e6],
        "sent_packets": [10, 10, 10],
        "sent_bytes": [100, 300, 600],
        "dropped_packets": [0, 10, 0],
        "carrier_seconds": [1.0, 2.0, 5.0],
        "pages": [1, 3, 0],
        "page_time_mean": [4.0, 2.0, None],
    }
)


def test_pools_have_all_terminals_in_them_and_in_the_pools_inside() -> None:
    found = by_group(TERMINALS, 10.0).drop("setting", "seed")
    assert found["group"].to_list() == ["x", "y", "one", "one/two"]
    assert found["carrier_share"].to_list() == pytest.approx([0.3, 0.5, 0.3, 0.2])
    assert found["byte_share"].to_list() == pytest.approx([0.4, 0.6, 0.4, 0.3])
    assert found["throughput"].to_list() == pytest.approx([320, 480, 320, 240])
    assert found["drop_rate"].to_list() == pytest.approx([1 / 3, 0, 1 / 3, 1 / 2])
    assert found["jain_index"].to_list() == pytest.approx([0.8, 1, 0.8, 1])
    assert found["page_time_mean"].to_list() == [2.5, None, 2.5, 2.0]


def test_groups_to_which_nothing_was_sent_have_no_share_of_the_bytes(tmp_path: Path) -> None:
    unsent = TERMINALS.with_columns(pl.lit(0).alias(name) for name in ("sent_bytes", "goodput", "pages"))
    found = by_group(unsent, 10.0)
    assert found["byte_share"].to_list() == [None] * 4
    assert found["throughput"].to_list() == [0] * 4
    # The first packet takes longer than these 100 ms.
    changes = {"run.duration": "100 ms", "run.warmup": "0 s", "run.sample_interval": "10 ms"}
    result = bp.run("mesh-on-board", set=changes, out=tmp_path / "result")
    table = group_table(result)
    assert table is not None
    assert {row[5] for row in table["rows"]} == {"–"}
    assert "Groups of terminals" in render(result)


def test_a_terminal_is_badly_served_in_its_group_if_one_of_its_grades_is_bad() -> None:
    rows = [("a", "voice", "good"), ("a", "web", "bad"), ("b", "web", "fair"), ("c", "web", None)]
    experience = pl.DataFrame(
        [("red", 1, *row) for row in rows],
        schema=["setting", "seed", "terminal", "class", "grade"],
        orient="row",
    )
    found = by_group(TERMINALS, 10.0, experience)
    # Terminal c has no grade, so pool one has two with a grade and group y none.
    assert found["terminals_bad"].to_list() == [50, None, 50, 0]


@pytest.mark.parametrize("committed", [False, True])
def test_a_terminal_in_rain_pays_by_weight_and_others_pay_by_committed_rate(
    tmp_path: Path, *, committed: bool
) -> None:
    changes = {
        "gateway.regulator.rate": "link",
        "gateway.queues_per": "terminal",
        # A rate for each terminal, drawn once.
        "link.homes.capacity": '{ uniform = ["10 Mbps", "40 Mbps"], every = "1000 s" }',
        "link.ships.rate": "20 Mbps",
        "traffic.homes.rate": "20 Mbps",
    }
    text = POOLS.replace('plan = "crew"\n', "").replace("[plan.crew.down]\nweight = 2\n", "")
    if committed:
        home = '[terminal.home]\nplan = "home"\n'
        text = text.replace("[terminal.home]\n", home) + '[plan.home.down]\ncir = "2 Mbps"\npir = "2 Mbps"\n'
    path = tmp_path / "rain.toml"
    path.write_text(text, encoding="utf-8")
    result = bp.run(path, set=changes, out=tmp_path / "result")
    homes = result.terminals().filter(pl.col("group") == "home")
    cost = (homes["carrier_seconds"] / homes["sent_bytes"]).sort()
    ratio = 100 * float(cost[2] / cost[0])
    assert ratio > 105
    (values,) = result.values().values()
    expected = (100, ratio) if committed else (1e4 / ratio, 100)
    found = [values["rain_goodput"][0], values["rain_carrier_time"][0]]
    assert found == pytest.approx(list(expected), rel=0.02)
    table = group_table(result)
    assert table is not None
    assert len(table["rain"]) == 1


def test_the_picture_names_pools_and_the_queues_of_terminals() -> None:
    scenario = bp.Scenario.parse(POOLS, "pools.toml", [])
    nodes = network(scenario).nodes
    assert nodes["home"].note.startswith("terminals; pool city; uploads wait in fifo")
    regulator = nodes["gateway"].stages[-1].text
    assert regulator.endswith(
        "shared by plan; pools land (committed 4 Mbit/s, weight 1) with city (weight 1),"
        " sea (at most 3 Mbit/s, weight 2)"
    )
    assert nodes["gateway"].note == "gateway; queues and AQM for each subscriber"
    assert "uploads wait in fifo" in picture(scenario)
