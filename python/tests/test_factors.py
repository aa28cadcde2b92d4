"""Factors of a sweep and the points of its designs."""

import math
from collections import Counter
from typing import Any

import pytest

from bentpipe.errors import UsageError
from bentpipe.sweeps.factors import factors_from, points
from bentpipe.tuning.space import Space


def values(text: str) -> list[str]:
    return list(factors_from([f"k={text}"])[0].values)


def test_lists_and_ranges_are_parsed() -> None:
    assert values("0.1,0.5, 0.9") == ["0.1", "0.5", "0.9"]
    assert values("red,avqred") == ["red", "avqred"]
    assert values("0:60:4") == ["0", "20", "40", "60"]
    assert values("0 ms:60 ms:linear:3") == ["0 ms", "30 ms", "60 ms"]
    assert values("10:60 ms:2") == ["10 ms", "60 ms"]
    assert [float(x) for x in values("0.01:1:log:3")] == pytest.approx([0.01, 0.1, 1.0])
    mapped = factors_from({"a": [1, 2.5, True], "b": "1:2:2"})
    assert [each.values for each in mapped] == [("1", "2.5", "true"), ("1", "2")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("k", "found no KEY=VALUES"),
        ("=1", "found no KEY=VALUES"),
        ("k=", "found an empty value"),
        ("k=1,,2", "found an empty value"),
        ("k=1,1", "found a value twice"),
        ("k=1:2:lin:3", "found the spacing lin; allowed: log, linear"),
        ("k=a:b:3", "found no range"),
        ("k=1:2:-3", "found no range"),
        ("k=2:1:3", "found the ends 2 and 1"),
        ("k=0:1:log:3", "found the ends 0 and 1; allowed: two above zero"),
        ("k=1:1e400:log:3", "found the ends 1 and 1e400; allowed: two above zero"),
        ("k=-1e400:1:3", "found the ends -1e400 and 1; allowed: two numbers, the lower one first"),
        ("k=1:2:1", "found 1 values; allowed: from 2"),
        ("k=1 s:2 ms:3", "found units s and ms"),
    ],
)
def test_mistake_gives_one_message(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        factors_from([text])


def test_repeated_key_is_refused() -> None:
    with pytest.raises(UsageError, match="k: found twice"):
        factors_from(["k=1,2", "k=3,4"])


def test_a_grid_has_every_combination_in_order() -> None:
    factors = factors_from(["a=1,2", "b=x,y,z"])
    assert points(factors) == [(a, b) for a in "12" for b in "xyz"]
    assert points([]) == [()]


def test_a_latin_hypercube_has_one_point_in_each_stratum() -> None:
    factors = factors_from(["a=0:1:2", "b=1:1000:log:2"])
    found = points(factors, "lhs", 50, seed=3)
    assert Counter(int(float(a) * 50) for a, _ in found) == dict.fromkeys(range(50), 1)
    strata = Counter(int(math.log10(float(b)) / 3 * 50) for _, b in found)
    assert strata == dict.fromkeys(range(50), 1)
    assert found == points(factors, "lhs", 50, seed=3) != points(factors, "lhs", 50, seed=4)


def test_a_sobol_sequence_is_balanced() -> None:
    """Each of 8 x 8 equal cells has one of 64 points: a (0, 6, 2)-net in base 2."""
    found = points(factors_from(["a=0:1:2", "b=0:1:2"]), "sobol", 64, seed=1)
    cells = Counter((int(8 * float(a)), int(8 * float(b))) for a, b in found)
    assert cells == {(i, j): 1 for i in range(8) for j in range(8)}
    # Values of a list are equally frequent.
    named = points(factors_from(["a=0:1:2", "b=w,x,y,z"]), "sobol", 64, seed=1)
    assert Counter(b for _, b in named) == dict.fromkeys("wxyz", 16)
    assert len(points(factors_from(["a=0:1:2"]), "sobol", 5)) == 5
    # The seed scrambles the sequence.
    assert found != points(factors_from(["a=0:1:2", "b=0:1:2"]), "sobol", 64, seed=2)


@pytest.mark.parametrize(
    ("design", "count", "message"),
    [
        ("grid", 5, "--points is for the designs lhs and sobol"),
        ("lhs", None, "needs --points"),
        ("sobol", 0, "needs --points"),
        ("random", 5, "design is random; allowed: grid, lhs, sobol"),
    ],
)
def test_count_must_fit_the_design(design: str, count: int | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        points(factors_from(["a=0:1:2"]), design, count)


@pytest.mark.parametrize("design", ["lhs", "sobol"])
def test_negative_seed_of_a_design_gets_one_message(design: str) -> None:
    with pytest.raises(UsageError, match=f"seed is -1, but the design {design} needs 0 or more"):
        points(factors_from(["a=0:1:2"]), design, 4, seed=-1)


def test_one_number_in_a_mapping_of_factors_gets_one_message() -> None:
    vary: Any = {"w_q": 0.1}
    with pytest.raises(UsageError, match=r"--vary w_q: found 0\.1; allowed: a text or a list"):
        factors_from(vary)
    with pytest.raises(UsageError, match=r"--vary w_q: found 0\.1; allowed: a range as"):
        Space.of("small-gateway", "red", vary=vary)


def test_spaces_around_keys_of_a_mapping_do_not_count() -> None:
    with pytest.raises(UsageError, match="--vary w_q: found twice"):
        factors_from({"w_q": "0.1,0.2", "w_q ": "0.3"})
