"""The live gateway over a satellite with loss, duplication, reordering and outages: all bytes arrive.

The load generator checks every byte of every page: it follows from its position.
"""

from typing import Any

import pytest
from conftest import why_no_live_run

import bentpipe as bp
from bentpipe.live_runs.chain import check
from bentpipe.live_runs.processes import Programs, programs
from bentpipe.live_runs.record import Recorded
from bentpipe.live_runs.session import Session
from bentpipe.runs.plan import make_plan

pytestmark = pytest.mark.skipif(bool(why_no_live_run()), reason=why_no_live_run())


class ImpairedSession(Session):
    """A live run whose satellite impairs packets beyond the scenario."""

    def __init__(
        self,
        programs: Programs,
        changes: dict[str, str],
        extras: dict[str, Any],
        family: int = 4,
        setting: str = "red",
    ) -> None:
        overrides = [f"{key}={value}" for key, value in changes.items()]
        plan = make_plan(bp.load("live-smoke", overrides), settings=[setting], seed=1)
        super().__init__(plan.settings[0], check(plan), 1, programs)
        self._extras, self._family = extras, family

    def _plan(self) -> dict[str, Any]:
        plan = super()._plan()
        (space,) = (each for each in plan["segments"] if each["name"] == "space")
        (satellite,) = space["links"]
        satellite |= self._extras
        for traffic in plan["traffic"].values():
            traffic["family"] = self._family
        return plan


def check_load(run: Recorded, users: int = 10) -> None:
    """Check that every requested page arrived intact or was still in transit at the end."""
    web = run.live["load"]["summary"]["traffic"]["web"]
    assert run.live["load"]["summary"]["errors"] == {}
    assert (web["failed"], web["corrupt"]) == (0, 0)
    assert web["completed"] > 0
    assert web["opened"] - web["completed"] <= users


def satellite(run: Recorded, direction: str) -> dict[str, Any]:
    """Return the emulator's counters."""
    links = run.live["links"]["statistics"]["links"]
    (found,) = (each for each in links if (each["link"], each["direction"]) == ("satellite", direction))
    return dict(found)


@pytest.mark.parametrize("family", [4, 6])
def test_bytes_arrive_intact_despite_loss_duplication_and_reordering(family: int) -> None:
    extras = {"loss": 0.03, "duplicate": 0.03, "reorder": {"probability": 0.05, "by_s": 0.02}}
    run = ImpairedSession(programs(), {}, extras, family).run(lambda _: None)
    check_load(run)
    for direction in ("forward", "reverse"):
        counters = satellite(run, direction)
        assert counters["dropped"]["extra_loss"] > 0
        assert counters["duplicated"] > 0
        assert counters["reordered"] > 0
    # The spacelink retransmitted lost packets; TCP saw no loss.
    assert run.live["spacelink"]["lost_packets"] > 0


@pytest.mark.long
def test_loss_costs_only_its_retransmissions() -> None:
    # One download at 20 Mbit/s over 600 ms with a loss of 2 %. Only the spacelink limits it: the queue may be
    # long, and buffers hold the bytes that wait for retransmissions.
    changes = {
        "run.warmup": "3 s",
        "run.duration": "6 s",
        "gateway.regulator.rate": "20 Mbps",
        "gateway.pep.buffer": "8 MB",
        "gateway.spacelink.stream_window": "8 MB",
        "gateway.spacelink.window": "16 MB",
        "link.satellite.delay": "300 ms",
        "traffic.web.sessions": "1",
        "traffic.web.object_size": "40 MB",
    }
    run = ImpairedSession(programs(), changes, {"loss": 0.02}, setting="droptail").run(lambda _: None)
    web = run.live["load"]["summary"]["traffic"]["web"]
    assert (web["failed"], web["corrupt"]) == (0, 0)
    assert 0.01 < run.live["spacelink"]["lost_packets"] / run.live["spacelink"]["sent_packets"] < 0.03
    # The channel delivers 98 % of what the regulator releases, retransmissions included.
    goodput = run.series["throughput"].mean()
    assert isinstance(goodput, float)
    assert 0.95 * 20e6 < goodput < 0.99 * 20e6


@pytest.mark.long
def test_connections_survive_an_outage_of_30_s() -> None:
    begin, end, warmup, users = 3.0, 33.0, 1.0, 30
    changes = {"run.warmup": "1 s", "run.duration": "39 s", "traffic.web.sessions": str(users)}
    run = ImpairedSession(programs(), changes, {"outage": [[begin, end]]}).run(lambda _: None)
    check_load(run, users)
    opened, closed = run.flows["opened"] + warmup, run.flows["closed"] + warmup
    assert not ((closed > begin + 1) & (closed < end)).any()
    # Each user has an unfinished page at the end of the outage: requested before it, or during it. Pages that
    # were requested before arrive soon after the outage: one page per user takes two seconds.
    unfinished = (opened < end) & ~(closed < end).fill_null(value=False)
    assert unfinished.sum() == users
    waited = run.flows.filter(unfinished & (opened < begin - 0.1))
    assert waited.height >= users / 2
    assert waited["completed"].all()
    assert (waited["closed"] + warmup < end + 5).all()
    assert (opened > end).sum() >= 20
    # Only the end of the run resets connections.
    resets = run.live["counters"]["resets"]
    assert {cause for cause, count in resets.items() if count} <= {"stopped"}
    assert run.live["counters"]["aqm_bypassed"] > 0
