"""Stories of the lab: each claim of a caption holds in the run at the time of the caption."""

import statistics
from collections import Counter
from typing import Any

import polars as pl
import pytest

from bentpipe.lab.playback import Change, Playback, Side
from bentpipe.lab.stories import listed
from bentpipe.runs.plan import scenario_path

STORIES = {story["name"]: story for story in listed()}


def measured(playback: Playback, side: Side, name: str, measure: str, since: float) -> float:
    """Return a figure of a run between `since` and now."""
    if measure == "served":
        (row,) = (row for row in playback.served(side) if row["class"] == name)
        assert isinstance(row["value"], float)
        return row["value"]
    if measure == "most drops":
        times = pl.DataFrame(side.simulation.drops(0)).filter(pl.col("time") >= since)["time"]
        # Drops in a tenth of a second.
        return max(Counter(int(10 * time) for time in times).values())
    if measure == "longest run of drops":
        longest = pl.DataFrame(side.simulation.run().drop_runs)["length"].max()
        assert isinstance(longest, int)
        return longest
    series = pl.DataFrame(side.simulation.series(0)).filter(pl.col("time") >= since)[name].drop_nulls()
    values = [float(value) for value in series]
    return statistics.fmean(values) if measure == "mean" else statistics.stdev(values)


@pytest.mark.parametrize("name", STORIES)
def test_claims_of_captions_hold(name: str) -> None:
    story: dict[str, Any] = STORIES[name]
    path = scenario_path(story["scenario"])
    changes = [Change(each["at"], each["key"], each["value"]) for each in story.get("change", [])]
    playback = Playback(path.read_text(), str(path), story["settings"], changes=changes)
    sides = {side.setting: side for side in playback.sides}
    times = [caption["at"] for caption in story["caption"]]
    assert times == sorted(times)
    assert times[0] == 0
    assert sum(len(caption.get("claim", [])) for caption in story["caption"]) > 0
    for caption in story["caption"]:
        playback.advance(caption["at"])
        for claim in caption.get("claim", []):
            more, less = (
                measured(playback, sides[setting], of, claim["measure"], claim.get("since", 0))
                for setting, of in (claim["more"], claim["less"])
            )
            assert more >= claim["factor"] * less, (caption["at"], claim, more, less)


def test_there_are_six_stories_with_what_the_page_needs() -> None:
    assert len(STORIES) == 6
    for story in STORIES.values():
        assert story["title"]
        assert story["summary"]
        assert all(caption["text"] for caption in story["caption"])
        assert 1 <= len(story["settings"]) <= 4
