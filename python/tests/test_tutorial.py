"""The tutorial's file runs after every step."""

import re
from collections.abc import Iterator

import pytest
from conftest import ROOT

from bentpipe import _core

PAGE = (ROOT / "docs/tutorial-scenario.md").read_text(encoding="utf-8")


def applied(text: str, diff: str) -> str:
    """Return `text` with a change: lines with `-` are replaced by those with `+`."""
    lines = diff.splitlines()
    old, new = ("".join(f"{line[1:]}\n" for line in lines if line[0] == sign) for sign in "-+")
    # A change may have several places: the last one is meant.
    before, found, after = text.rpartition(old)
    assert found, f"nothing to replace: {old}"
    return before + new + after


def steps() -> Iterator[tuple[str, str]]:
    """Yield the heading of each step that changes the file, and the file after it."""
    text = ""
    for section in PAGE.split("\n## ")[1:]:
        blocks = re.findall(r"^```(toml|diff)\n(.*?)^```", section, flags=re.MULTILINE | re.DOTALL)
        for kind, block in blocks:
            text = applied(text, block) if kind == "diff" else f"{text}\n{block}"
        if blocks:
            yield section.partition("\n")[0], text


STEPS = dict(steps())


@pytest.mark.parametrize("step", STEPS)
def test_file_of_each_step_runs_without_warnings(step: str) -> None:
    short = ["run.warmup=5 s", "run.duration=3 s", "traffic.web.ramp.over=4 s"]
    scenario = _core.Scenario.parse(STEPS[step], "mine", short)
    assert scenario.warnings == []
    run = _core.simulate(scenario, 1, _core.Progress())
    assert run.counters["sent_packets"] > 0


def test_steps_lead_to_the_whole_scenario() -> None:
    assert len(STEPS) == 7
    last = list(STEPS.values())[-1]
    values = {row["key"]: row["value"] for row in _core.Scenario.parse(last, "mine", []).effective()}
    assert values["gateway.regulator.rate"] == "link"
    assert values["link.access.rate"] == "10 Mbps"
    assert values["link.ingress.rate"] == "1 Gbps"
    assert values["gateway.transmit_queue.scheduler.algorithm"] == "drr"
    assert {key.split(".")[1] for key in values if key.startswith("traffic.")} == {
        "web",
        "video",
        "voice",
        "downloads",
    }


def test_subscribers_can_upload_as_the_tutorial_says() -> None:
    upload = '[traffic.up]\nkind = "bulk"\nfrom = "subscriber"\nto = "server"\n'
    scenario = _core.Scenario.parse(STEPS["1. A gateway and one kind of traffic"] + upload, "mine", [])
    assert scenario.has_return
    assert _core.simulate(scenario, 1, _core.Progress()).counters["return_sent_bytes"] > 0
