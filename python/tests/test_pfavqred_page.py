"""The map of the readings of PFAVQRED's lost equation."""

from pathlib import Path

import pytest

from bentpipe.reproduction.reading import load_paper
from pfavqred_page import EXPERIMENTS, FIGURE, PAGE, Cell, distances

DOCS = Path(__file__).parents[2] / "docs"


def test_distance_is_one_at_the_tolerance_and_alike_above_and_below() -> None:
    """10 % of the drops, 30 % of the deviation and of the UDP flows, of which one is at twice 1.3."""
    printed = (1.4, 18.0)
    above = distances(Cell("3 s", "capacity", "any weight", 1.54, 23.4, (52.0, 40.0, 67.6)), printed)
    assert above == pytest.approx({"drops": 1.0, "deviation": 1.0, "UDP": 1.0})
    below = distances(Cell("3 s", "capacity", "any weight", 1.4 / 1.1, 18 / 1.3**2, (40.0,) * 3), printed)
    assert below == pytest.approx({"drops": 1.0, "deviation": 2.0, "UDP": 0.0})


def test_every_reading_on_the_page_was_scanned() -> None:
    paper = load_paper("byun2007")
    text = (DOCS / "reproduction" / PAGE).read_text(encoding="utf-8")
    scanned = sum(
        len(experiment.points) * sum(case.label != "AVQRED" for case in experiment.cases)
        for experiment in (paper.experiments[name] for name in EXPERIMENTS)
    )
    assert f"Of {scanned} readings " in text
    assert f"{FIGURE}.svg" in text
    assert (DOCS / "figures" / f"{FIGURE}.svg").exists()
