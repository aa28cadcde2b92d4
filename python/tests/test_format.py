import pytest

from bentpipe.format import (
    and_list,
    brief,
    clock,
    convert,
    ends,
    likelihood,
    measured,
    number,
    paragraphs,
    plural,
    quantity,
)
from bentpipe.stats.intervals import summarise


@pytest.mark.parametrize(
    ("mean", "ci95", "text"),
    [
        (57.314, 1.26, "57.3 ± 1.3"),
        (452310.4, 1234.0, "452,310 ± 1,234"),
        (19.9186, 0.0026, "19.9186 ± 0.0026"),
        (-0.5, 0.25, "−0.50 ± 0.25"),
        (3.0, 0.0, "3 ± 0"),
        (50.003967, 1e-9, "50.00 ± 0"),
        (452310.4, 0.8, "452,310 ± 1"),
        (0.0, 0.25, "0.00 ± 0.25"),
        (56.25, None, "56.25"),
        (0.0, None, "0"),
        (None, None, "–"),
    ],
)
def test_quantity_rounds_to_two_digits_of_the_half_width(
    mean: float | None, ci95: float | None, text: str
) -> None:
    assert quantity(mean, ci95) == text


@pytest.mark.parametrize(
    ("method", "text"), [("student", "11.1 ± 1.0"), ("bootstrap", "11.1 [10.3, 12.4]"), (None, "11.1 ± 1.0")]
)
def test_measured_writes_bootstrap_intervals_with_both_ends(method: str | None, text: str) -> None:
    found = {"mean": 11.12, "ci95": 1.04, "ci_low": 10.31, "ci_high": 12.39, "method": method}
    assert measured(found) == text


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([441.0, 459.0], "441, 459"),
        ([458.8, 441.2], "441.2, 458.8"),
        ([0.5, -0.125], "−0.1250, 0.5000"),
        ([3.0, 3.0], "3, 3"),
        ([0.0, 0.0], "0, 0"),
        ([12345.6, 9876.5], "9,876, 12,346"),
    ],
)
def test_two_runs_are_written_as_their_values(values: list[float], text: str) -> None:
    found = summarise(values)
    assert found.low is not None
    assert quantity(found.mean, found.ci95, found.runs) == text
    row = {"mean": found.mean, "ci95": found.ci95, "ci_low": found.low, "ci_high": found.high, "runs": 2}
    assert measured({**row, "method": "student"}) == text
    assert ends(row) == pytest.approx(sorted(values))


def test_differences_have_signs() -> None:
    row = {"mean": 2.0, "ci95": 0.5, "ci_low": 1.5, "ci_high": 2.5, "method": "student", "runs": 3}
    assert measured(row, signed=True) == "+2.00 ± 0.50"
    assert measured({**row, "mean": -2.0}, signed=True) == "−2.00 ± 0.50"
    two = summarise([-1.0, 4.0])
    pair = {"mean": two.mean, "ci95": two.ci95, "method": "student", "runs": 2}
    assert measured(pair, signed=True) == "−1, +4"
    assert measured({**pair, "pairing": "independent"}, signed=True) == "+1.500"


def test_likelihood_is_bounded_below() -> None:
    values = (None, 0.00004, 0.00123, 0.0478, 1.0)
    assert [likelihood(p) for p in values] == ["–", "< 0.0001", "0.0012", "0.048", "1.00"]


def test_numbers_have_four_significant_digits() -> None:
    assert [number(value) for value in (0.012345, 1234.5, 12.0, None)] == ["0.01235", "1,234", "12", "–"]
    assert [brief(value) for value in (19.80, 0.0471, 486932.0, 60.0)] == ["19.8", "0.0471", "486,932", "60"]


def test_units_are_converted() -> None:
    assert convert(19.8e6, "bit/s", "Mbit/s") == pytest.approx(19.8)
    assert convert(3.0, "s", "ms") == pytest.approx(3000)
    assert convert(0.2, "", "%") == pytest.approx(20)
    assert convert(5.0, "packets", "packets") == 5.0
    assert convert(5.0, "packets", "ms") is None


def test_durations_plurals_and_paragraphs_are_written() -> None:
    assert [clock(value) for value in (0.5, 45, 120, 200, 5400)] == [
        "0.5 s",
        "45 s",
        "2 min",
        "3 min 20 s",
        "1 h 30 min",
    ]
    assert [and_list("abc"[:count]) for count in range(4)] == ["", "a", "a and b", "a, b and c"]
    assert [plural(count, "run") for count in (1, 2)] == ["1 run", "2 runs"]
    assert paragraphs("\none\ntwo\n \nthree\n") == ["one two", "three"]
