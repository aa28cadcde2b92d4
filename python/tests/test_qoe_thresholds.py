"""Thresholds of quality: values of their sources, grades, and changes by the user."""

import math

import pytest

import bentpipe as bp
from bentpipe.errors import UsageError
from bentpipe.qoe import voice
from bentpipe.qoe.thresholds import THRESHOLDS, Grade, rating, with_overrides

SOURCES = {
    "voice.r": (80, 60),
    "voice.mos": (4.03, 3.10),
    "voice.delay": (150, 400),
    "voice.loss": (1, 3),
    "page.ttfb": (0.8, 1.8),
    "page.load": (2, 4),
    "video.mos": (4, 3),
    "video.startup": (2, 10),
    "video.stalls": (1, 7),
    "game.delay": (50, 200),
    "game.loss": (0.1, 3),
    "iot.delay": (2000, 10_000),
    "iot.loss": (1, 10),
    "download.time": (15, 60),
    "download.plan": (95, 80),
    "responsiveness": (1000, 300),
}
"""Limits of good and bad, copied from the sources that each threshold names."""


@pytest.mark.parametrize("measure", sorted(THRESHOLDS))
def test_limits_are_those_of_the_source(measure: str) -> None:
    each = THRESHOLDS[measure]
    assert (each.good, each.bad) == SOURCES[measure]


@pytest.mark.parametrize(
    ("measure", "value", "grade"),
    [
        ("voice.mos", 4.03, "good"),
        ("voice.mos", 4.02, "fair"),
        ("voice.mos", 3.10, "fair"),
        ("voice.mos", 3.09, "bad"),
        ("voice.delay", 150, "good"),
        ("voice.delay", 151, "fair"),
        ("voice.delay", 400, "fair"),
        ("voice.delay", 401, "bad"),
    ],
)
def test_value_at_a_limit_has_the_better_grade(measure: str, value: float, grade: Grade) -> None:
    assert rating(measure, value) == grade


def test_missing_value_has_no_grade() -> None:
    assert rating("voice.mos", None) is None
    assert rating("voice.mos", math.nan) is None


def test_infinite_time_is_bad() -> None:
    assert rating("page.load", math.inf) == "bad"


@pytest.mark.parametrize("measure", sorted(THRESHOLDS))
def test_threshold_has_a_source_and_consistent_limits(measure: str) -> None:
    each = THRESHOLDS[measure]
    assert each.measure == measure
    assert each.source
    assert "http" not in each.source
    assert each.higher == (each.good > each.bad)
    assert each.good != each.bad
    assert (each.grade(each.good), each.grade(each.bad)) == ("good", "fair")


@pytest.mark.parametrize("measure", sorted(THRESHOLDS))
def test_grade_never_improves_as_values_get_worse(measure: str) -> None:
    each = THRESHOLDS[measure]
    worse = (each.bad - each.good) / 10
    grades = [each.grade(each.good + step * worse) for step in range(-5, 20)]
    assert grades == sorted(grades, key=("good", "fair", "bad").index)
    assert set(grades) == {"good", "fair", "bad"}


def test_opinion_of_a_call_has_the_grade_of_its_rating() -> None:
    """Except within the rounding of G.107, Table B.1, at R = 80 and 60."""
    for r in (0, 30, 59, 61, 70, 79, 81, 93.2):
        assert rating("voice.mos", voice.mos(r)) == rating("voice.r", r)


def test_stall_limit_follows_from_the_formula_of_its_source() -> None:
    """Hoßfeld et al., ISM 2011: MOS = 3.5 exp(-(0.15 L + 0.19) N) + 1.5 for N stalls of L seconds each.

    Their videos lasted up to a minute. One stall of a share of 60 s has MOS 3 at the limit, rounded down.
    """
    length = (math.log(3.5 / (3 - 1.5)) - 0.19) / 0.15
    assert length == pytest.approx(4.38, abs=0.01)
    assert math.floor(100 * length / 60) == THRESHOLDS["video.stalls"].bad


def test_limits_can_be_changed() -> None:
    changed = with_overrides({"voice.mos": {"good": 3.6, "bad": 2}, "page.load": {"bad": 10}})
    assert rating("voice.mos", 3.7) == "fair"
    assert rating("voice.mos", 3.7, changed) == "good"
    assert rating("page.load", 9, changed) == "fair"
    assert changed["page.load"].good == THRESHOLDS["page.load"].good
    assert changed["page.load"].source == "set by the user"
    assert changed["page.ttfb"] is THRESHOLDS["page.ttfb"]
    assert with_overrides({}) == THRESHOLDS


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"voice": {"good": 4}}, r"^thresholds have no measure 'voice': voice.r, voice.mos, .* are allowed$"),
        ({"voice.mos": {"godo": 4}}, r"^thresholds of voice.mos have a limit 'godo': good, bad are allowed$"),
        ({"voice.mos": {"good": "4"}}, r"^threshold 'good' of voice.mos is '4': a finite number is allowed$"),
        ({"voice.mos": {"bad": True}}, r"^threshold 'bad' of voice.mos is True: a finite number is allowed$"),
        (
            {"voice.mos": {"bad": math.nan}},
            r"^threshold 'bad' of voice.mos is nan: a finite number is allowed$",
        ),
        (
            {"voice.mos": {"good": 2}},
            r"^thresholds of voice.mos are good 2 and bad 3.1: good at least 3.1 is allowed, "
            r"because higher values are better$",
        ),
        (
            {"page.load": {"good": 5}},
            r"^thresholds of page.load are good 5 and bad 4: good at most 4 is allowed, "
            r"because lower values are better$",
        ),
    ],
)
def test_wrong_limits_are_refused_with_what_is_allowed(
    overrides: dict[str, dict[str, object]], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        with_overrides(overrides)


def test_unknown_measure_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^thresholds have no measure 'fun': voice.r, "):
        rating("fun", 1)


# A limit of bad at the default of good is allowed, one beyond it is not: name, direction and value agree.
@pytest.mark.parametrize("measure", sorted(THRESHOLDS))
def test_scenarios_have_the_same_measures_and_defaults(measure: str) -> None:
    each = THRESHOLDS[measure]
    step = 0.001 if each.higher else -0.001
    for key, limit, other in (("bad", each.good, each.good), ("good", each.bad, each.bad)):
        key_path = f'thresholds."{measure}".{key}'
        (found,) = bp.load("small-gateway", [f"{key_path}={limit}"]).thresholds
        assert found == (measure, other, other)
        beyond = limit + (step if key == "bad" else -step)
        with pytest.raises(bp.ScenarioError, match=r"because (higher|lower) values are better"):
            bp.load("small-gateway", [f"{key_path}={beyond}"])
