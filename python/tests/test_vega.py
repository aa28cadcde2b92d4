"""Charts are what Altair makes of the same calls, and valid Vega-Lite."""

import json
from types import ModuleType
from typing import Any

import altair as alt
import pytest

from bentpipe.report import vega

ROWS: list[dict[str, Any]] = [
    {"x": 1.0, "low": 0.5, "high": 2.0, "name": "a"},
    {"x": 2.0, "low": None, "high": 3.0, "name": "b"},
]

NESTED: list[dict[str, Any]] = [{"at": [1, 2], "name": "a"}]


def unit(made: ModuleType) -> Any:  # noqa: ANN401
    colour = made.Color("name:N", scale=made.Scale(domain=["a"], range=["#0072B2"]), legend=None)
    return (
        made.Chart(made.InlineData(values=ROWS))
        .mark_line(strokeWidth=2, color="black", point=made.OverlayMarkDef(size=3, color="red", filled=True))
        .encode(
            y=made.Y("low:Q", title=None, scale=made.Scale(zero=False, type="log", domain=(1, 2), nice=True)),
            x=made.X("x:Q", axis=made.Axis(values=[1, 2], format="~s", labels=made.Undefined)),
            color=colour,
            detail="name:N",
            tooltip=["name:N", made.Tooltip("x:Q", title="X", format=".1f")],
        )
        .encode(x2="high:Q", y2=made.Y2("high:Q"), size=made.value(3))
        .properties(width="container", height=20, title="One", usermeta={"a": {"b": [1]}})
    )


def layered(made: ModuleType) -> Any:  # noqa: ANN401
    base = made.Chart(made.InlineData(values=ROWS)).encode(x="x:Q")
    title = made.TitleParams(text="Two", color="red", subtitle=made.Undefined, subtitleFontSize=9)
    return made.layer(base.mark_area(opacity=0.5), base.mark_text(text="t", align="left")).properties(
        width=100, title=title
    )


def different_rows(made: ModuleType) -> Any:  # noqa: ANN401
    first = made.Chart(made.InlineData(values=ROWS)).mark_point(dx=made.ExprRef("labels[0]"))
    second = made.Chart(made.InlineData(values=[{"x": 3}])).mark_tick().encode(y=made.value(4))
    chart = made.layer(first, second).add_params(made.param(name="labels", value=[1]))
    return chart.resolve_scale(size="independent", color="shared")


def transformed(made: ModuleType) -> Any:  # noqa: ANN401
    return (
        made.Chart(made.InlineData(values=NESTED))
        .transform_flatten(["at"])
        .transform_window(number="row_number()", groupby=["name"])
        .transform_calculate(time="datum.number - 1", until="datum.number")
        .transform_filter("isValid(datum.at)")
        .mark_rect(clip=True)
        .encode(x="time:O", xOffset=made.XOffset("name:N", sort=["a"]), fill=made.Fill("at:Q"))
    )


def together(made: ModuleType) -> Any:  # noqa: ANN401
    with_parameter = different_rows(made).properties(width=50)
    beside = made.concat(with_parameter, layered(made), with_parameter, columns=2, spacing=4)
    below = made.vconcat(layered(made), beside.resolve_scale(color="independent"), spacing=3)
    return below.properties(background="white", padding=8)


def same_rows_together(made: ModuleType) -> Any:  # noqa: ANN401
    base = made.Chart(made.InlineData(values=ROWS)).encode(x="x:Q")
    return made.concat(base.mark_bar(), base.mark_rule(), base.mark_circle(), columns=1, spacing=0)


CHARTS = [unit, layered, different_rows, transformed, together, same_rows_together]


@pytest.mark.parametrize("draw", CHARTS, ids=lambda draw: draw.__name__)
def test_chart_is_written_as_altair_writes_it(draw: Any) -> None:  # noqa: ANN401
    expected = draw(alt).to_dict()
    expected["config"] = {}
    assert json.dumps(draw(vega).to_dict()) == json.dumps(expected)


def test_changed_chart_leaves_the_first_one_and_its_parts() -> None:
    x = vega.X("x:Q", scale=vega.Scale(domain=[0, 1]))
    first = vega.Chart(vega.InlineData(values=ROWS)).mark_line().encode(x=x)
    before = json.dumps(first.to_dict())
    spec = first.properties(width=3).encode(y="low:Q").to_dict()
    spec["encoding"]["x"]["scale"]["domain"] = {"signal": "span"}
    spec["mark"]["clip"] = True
    assert json.dumps(first.to_dict()) == before


def test_charts_are_written_for_the_installed_version_of_vega_lite() -> None:
    assert vega.SCHEMA_VERSION == alt.SCHEMA_VERSION
