"""The second round of a search: ranges around the best points, compared with worked examples."""

import pytest

from bentpipe.runs.source import Source
from bentpipe.tuning.space import Parameter, Space
from bentpipe.tuning.space_reduction import narrowed


def space(*parameters: Parameter) -> Space:
    return Space(Source("small-gateway"), (), "red", "red", "gateway.aqm", {}, {}, parameters)


def test_reduced_range_spans_the_best_points_with_a_margin() -> None:
    """The margin is a quarter of the span: 4 to 8 becomes 3 to 9, and a decade grows by a quarter decade."""
    wide = space(
        Parameter("even", "", "5", 0.0, 20.0),
        Parameter("decades", "ms", "5 ms", 1e-4, 10.0, log=True),
    )
    tables = [{"even": "4", "decades": '"0.1 ms"'}, {"even": "8", "decades": '"0.01 ms"'}]
    even, decades = narrowed(wide, tables).parameters
    assert (even.low, even.high) == (3.0, 9.0)
    assert (decades.low, decades.high) == pytest.approx((10**-2.25, 10**-0.75))
    assert (decades.unit, decades.log) == ("ms", True)


def test_reduced_range_stays_within_the_old_one_and_has_a_minimum_width() -> None:
    """A single point gets a twentieth of the range on each side, within the range."""
    (even,) = narrowed(space(Parameter("even", "", "5", 0.0, 20.0)), [{"even": "19.5"}] * 3).parameters
    assert (even.low, even.high) == (18.5, 20.0)


def test_reduced_list_keeps_the_values_of_the_best_points() -> None:
    listed = Parameter("variant", "", "a", values=("a", "b", "c"))
    tables = [{"variant": '"c"'}, {"variant": '"a"'}, {"variant": '"c"'}]
    assert narrowed(space(listed), tables).parameters[0].values == ("c", "a")
