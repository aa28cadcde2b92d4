"""The gallery: its page and pictures, its commands, and its comparisons on another seed."""

import math
import re
import shlex
import statistics
from pathlib import Path

import pytest
from click.testing import CliRunner
from conftest import ROOT

import bentpipe as bp
import gallery
import lte_trace
from bentpipe.cli.app import cli

DOCS = ROOT / "docs"
ENTRIES = [pytest.param(entry, id=entry.name) for entry in gallery.ENTRIES]
FRESH_SEED = 101


def test_page_shows_every_entry_with_picture_and_commands() -> None:
    page = (DOCS / "gallery.md").read_text(encoding="utf-8")
    titles = re.findall(r"^## (.+)$", page, re.MULTILINE)
    assert titles == [entry.title for entry in gallery.ENTRIES], "run `make gallery`"
    commands = [line for line in page.splitlines() if line.startswith("bentpipe ")]
    assert commands == [shlex.join(command) for entry in gallery.ENTRIES for command in entry.commands()]
    pictures = re.findall(r"\((figures/gallery/[^)]+)\)", page)
    assert pictures == [f"figures/gallery/{entry.name}.svg" for entry in gallery.ENTRIES]
    assert {path.name for path in (DOCS / "figures/gallery").iterdir()} == {
        f"{entry.name}.svg" for entry in gallery.ENTRIES
    }
    assert all((DOCS / picture).stat().st_size < 60_000 for picture in pictures)


@pytest.mark.parametrize("entry", ENTRIES)
def test_commands_run(entry: gallery.Entry, tmp_path: Path) -> None:
    for at, command in enumerate(entry.commands()):
        words = [*command[1:], "--duration", "5 s", "--quiet", "--out", str(tmp_path / str(at))]
        done = CliRunner().invoke(cli, words)
        assert done.exit_code == 0, done.output


@pytest.mark.long
@pytest.mark.parametrize("entry", ENTRIES)
def test_comparison_holds_on_another_seed(entry: gallery.Entry) -> None:
    first, last = gallery.claim(entry, entry.run(FRESH_SEED))
    assert first >= entry.factor * last


@pytest.mark.long
def test_titles_hold_on_another_seed() -> None:
    entries = {entry.name: entry for entry in gallery.ENTRIES}
    lte, l4s = (entries[name].run(FRESH_SEED) for name in ("lte", "l4s"))
    assert gallery.value(lte["droptail"], "queue_delay_mean") > 1000
    prague, cubic = (gallery.value(l4s["dualpi2"], f"{name}.goodput") for name in ("prague", "cubic"))
    assert prague < cubic


def test_a_comparison_that_does_not_hold_leaves_the_page_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = next(each for each in gallery.ENTRIES if each.factor == 2)
    monkeypatch.setattr(gallery, "ENTRIES", [entry])
    monkeypatch.setattr(gallery.Entry, "run", lambda *_: {})
    monkeypatch.setattr(gallery, "claim", lambda *_: (1.9, 1.0))
    with pytest.raises(SystemExit, match=rf"{entry.name}: 1\.9 against 1, wanted 2 times as much"):
        gallery.main(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_synthetic_trace_is_the_generator_s_and_has_its_distribution() -> None:
    """The rate over windows far below the correlation time has the stated median and deviation."""
    times = list(lte_trace.opportunities())
    assert [int(line) for line in lte_trace.FILE.read_text(encoding="utf-8").split()] == times
    logs = []
    for seed in range(2, 12):
        counts = [0] * (10 * lte_trace.SECONDS + 1)
        for time in lte_trace.opportunities(seed):
            counts[time // 100] += 1
        logs += [math.log(max(count, 0.5) * lte_trace.BITS / 0.1) for count in counts[:-1]]
    # 300 s are about 150 independent values: standard errors of 0.05 and 0.035.
    assert statistics.mean(logs) == pytest.approx(math.log(lte_trace.MEDIAN), abs=0.2)
    assert statistics.stdev(logs) == pytest.approx(lte_trace.SIGMA, abs=0.14)


SEEDS = [201, 202, 203]


@pytest.mark.parametrize(("delay", "least", "most"), [("40 ms", 1.8, 10), ("20 ms", 1.2, 10), ("", 0.5, 1.3)])
def test_red_swings_more_than_avqred_only_with_a_delay(delay: str, least: float, most: float) -> None:
    """The README says for which delay between the gateway's queues RED's queue varies more than AVQRED's."""
    # All sessions start within 40 s in place of 195 s.
    ramp = {"traffic.web.ramp.sessions": 400, "traffic.web.ramp.over": "40 s", "run.warmup": "60 s"}
    changes = ramp | {"run.duration": "40 s"} | ({"gateway.pep.delay": delay} if delay else {})
    result = bp.compare("byun2007-gateway", "RED 4,AVQRED", set=changes, runs=len(SEEDS), seed=SEEDS[0])
    found = result.values()
    for seed in range(len(SEEDS)):
        red, avqred = (
            {metric: float(found[setting][metric][seed] or 0) for metric in ("queue_std", "throughput")}
            for setting in ("RED 4", "AVQRED")
        )
        assert least <= red["queue_std"] / avqred["queue_std"] <= most
        if delay == "40 ms":
            assert red["throughput"] < 20 * 2 / 3
            assert avqred["throughput"] > 20 * 0.95
