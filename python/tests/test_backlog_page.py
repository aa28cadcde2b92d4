"""The pages on AVQRED with a backlog term and on a queue on board: blocks, figures, and what they say."""

import re

import pytest
from conftest import ROOT

import backlog_page
import bentpipe as bp
import onboard_page
from bentpipe.format import convert


def test_settings_worse_than_avqred_are_ordered_after_it() -> None:
    def row(throughput: float, delay: float, others: float) -> dict[str, float]:
        rest = dict.fromkeys(("throughput_std", "queue_std", "loss_rate", "drop_run_mean"), others)
        return {"throughput": throughput, "queue_delay_mean": delay, **rest}

    order = backlog_page.tuning_order(
        {
            "late": row(12, 11, 1),
            "AVQRED": row(10, 10, 3),
            "better": row(11, 9, 2),
            "idle": row(9, 1, 1),
        }
    )
    # By hand: of the two that keep the limits, one is first in six metrics (6 * 2) and one second (6 * 4).
    assert [each.name for each in order[:2]] == ["better", "AVQRED"]
    assert {each.name for each in order[2:]} == {"late", "idle"}


def test_defaults_are_those_of_the_chosen_grid_point() -> None:
    shown = bp.load("byun2007-gateway", set={"gateway.aqm": {"algorithm": backlog_page.NEW}}).effective()
    effective = {row["key"]: row["value"] for row in shown}
    for name, chosen in zip(("target", "drain_time"), backlog_page.CHOSEN, strict=True):
        seconds = []
        for text in (effective[f"gateway.aqm.{name}"], chosen):
            number, unit = text.split()
            seconds.append(convert(float(number), unit, "s"))
        assert seconds[0] == pytest.approx(seconds[1])


def test_page_holds_every_figure_and_block() -> None:
    text = (ROOT / "docs" / backlog_page.PAGE).read_text(encoding="utf-8")
    blocks = re.findall(r"`make backlog`: (\w+): begin -->\n\n\|", text.replace("Without a PEP:\n\n", ""))
    assert sorted(blocks) == ["delay", "fade", "gateway", "stable", "start", "tuning", "unsplit"]
    for name in ("start", "delay", "stable"):
        assert f"figures/backlog/{name}.svg" in text
        assert (ROOT / f"docs/figures/backlog/{name}.svg").stat().st_size > 1000


def test_red_on_the_ground_leaves_more_of_a_downlink_idle_than_on_board() -> None:
    def carried(mark: str) -> float:
        overrides = {"gateway.mark": mark, "run.warmup": "30 s", "run.duration": "20 s"}
        run = bp.run("onboard-transparent", set={**overrides, "gateway.aqm": {"algorithm": "red"}}, seed=11)
        (value,) = run.values()["red"]["throughput"]
        assert value is not None
        return value

    assert carried("receive") < 0.85 * carried("transmit")


def test_onboard_page_shows_its_figures() -> None:
    text = (ROOT / "docs" / onboard_page.PAGE).read_text(encoding="utf-8")
    for name in ("queue", "delay"):
        assert f"figures/onboard/{name}.svg" in text
        assert (ROOT / f"docs/figures/onboard/{name}.svg").stat().st_size > 1000
