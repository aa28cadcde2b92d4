"""Vega-Lite specifications as plain dictionaries, built by the calls of Altair that reports need.

Altair takes longer to import, and to copy its charts, than a short run takes. Here a chart is a dictionary,
and a changed chart shares all other parts with the first. Nothing is checked: tests compare specifications
with those of Altair, and the charts of pages with the schema of Vega-Lite.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import partialmethod
from typing import Any, ClassVar

__all__ = [
    "SCHEMA_VERSION",
    "X2",
    "Y2",
    "Axis",
    "Chart",
    "Color",
    "ExprRef",
    "Fill",
    "InlineData",
    "Legend",
    "OverlayMarkDef",
    "Scale",
    "Shape",
    "Size",
    "StrokeDash",
    "TitleParams",
    "Tooltip",
    "Undefined",
    "X",
    "XOffset",
    "Y",
    "concat",
    "layer",
    "param",
    "value",
    "vconcat",
]

SCHEMA_VERSION = "v6.4.1"
"""Version of Vega-Lite that the charts are written for."""
Undefined: Any = object()
"""Value of an option that is left out."""
_TYPES = {"N": "nominal", "O": "ordinal", "Q": "quantitative", "T": "temporal"}


def _sorted(given: Mapping[str, Any], first: Sequence[str] = ()) -> dict[str, Any]:
    """Return the options that are given in the order in which Altair writes them."""
    found = {key: given[key] for key in first if key in given}
    found |= {key: given[key] for key in sorted(given) if key not in found}
    return {key: each for key, each in found.items() if each is not Undefined}


class InlineData:
    """Rows of a chart. Charts that share them have them once."""

    def __init__(self, values: Sequence[Mapping[str, Any]]) -> None:
        """Take the rows; they must not change any more."""
        self.values = values

    def name(self) -> str:
        """Return the name of the rows in a specification, which depends on their values only."""
        text = json.dumps(self.values, sort_keys=True, default=str)
        return f"data-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


class _Part(dict[str, Any]):
    """A part of a specification."""

    first: ClassVar[tuple[str, ...]] = ()
    """Options that come before the others."""

    def __init__(self, **given: Any) -> None:  # noqa: ANN401
        """Take the options of Vega-Lite."""
        super().__init__(_sorted(given, self.first))


class Axis(_Part):
    """An axis."""


class Legend(_Part):
    """A legend."""


class OverlayMarkDef(_Part):
    """Points of a line."""


class Scale(_Part):
    """A scale."""


class TitleParams(_Part):
    """A title."""

    first = ("text",)


class ExprRef(_Part):
    """The value of an expression."""

    def __init__(self, expr: str) -> None:
        """Take the expression."""
        super().__init__(expr=expr)


class _Channel(dict[str, Any]):
    """An encoding of a field."""

    typed: ClassVar[bool] = True
    """True if the channel names the type of its field."""

    def __init__(self, shorthand: str, **given: Any) -> None:  # noqa: ANN401
        """Take `FIELD:TYPE`, with a type of `_TYPES`, and the options of Vega-Lite."""
        given["field"], _, kind = shorthand.rpartition(":")
        if self.typed:
            given["type"] = _TYPES[kind]
        super().__init__(_sorted(given))


class Color(_Channel):
    """Colour."""


class Fill(_Channel):
    """Colour of an area."""


class Shape(_Channel):
    """Shape of a point."""


class Size(_Channel):
    """Size of a point."""


class StrokeDash(_Channel):
    """Dashes of a line."""


class Tooltip(_Channel):
    """A line of the text at the pointer."""


class X(_Channel):
    """Horizontal position."""


class X2(_Channel):
    """Horizontal position of the other end."""

    typed = False


class XOffset(_Channel):
    """Horizontal offset."""


class Y(_Channel):
    """Vertical position."""


class Y2(_Channel):
    """Vertical position of the other end."""

    typed = False


def value(constant: object) -> dict[str, Any]:
    """Return an encoding of a constant, in pixels or as a colour."""
    return {"value": constant}


def param(name: str, value: object) -> dict[str, Any]:
    """Return a parameter of a chart, which expressions and scripts of the page use."""
    return {"name": name, "value": value}


def _encoding(name: str, given: Any) -> Any:  # noqa: ANN401
    if isinstance(given, str):
        return (X2 if name in {"x2", "y2"} else X)(given)
    if isinstance(given, list):
        return [_encoding(name, each) for each in given]
    return given


class Chart:
    """A chart. Each method returns a changed copy, which shares all other parts."""

    def __init__(self, data: InlineData | None = None) -> None:
        """Take the rows that the marks draw."""
        self._spec: dict[str, Any] = {} if data is None else {"data": data}

    @property
    def data(self) -> InlineData | None:
        """Rows of the chart; None if its layers have their own."""
        found: InlineData | None = self._spec.get("data")
        return found

    @property
    def width(self) -> int | str | None:
        """Width [pixels], or `container` for that of the page."""
        return self._spec.get("width")

    def _mark(self, kind: str, /, **options: Any) -> "Chart":  # noqa: ANN401
        return self.properties(mark=_sorted({"type": kind, **options}, ("type",)))

    mark_area: "partialmethod[Chart]" = partialmethod(_mark, "area")
    mark_bar: "partialmethod[Chart]" = partialmethod(_mark, "bar")
    mark_circle: "partialmethod[Chart]" = partialmethod(_mark, "circle")
    mark_line: "partialmethod[Chart]" = partialmethod(_mark, "line")
    mark_point: "partialmethod[Chart]" = partialmethod(_mark, "point")
    mark_rect: "partialmethod[Chart]" = partialmethod(_mark, "rect")
    mark_rule: "partialmethod[Chart]" = partialmethod(_mark, "rule")
    mark_text: "partialmethod[Chart]" = partialmethod(_mark, "text")
    mark_tick: "partialmethod[Chart]" = partialmethod(_mark, "tick")

    def encode(self, **channels: Any) -> "Chart":  # noqa: ANN401
        """Add encodings: channels, or `FIELD:TYPE`."""
        found = {name: _encoding(name, given) for name, given in channels.items()}
        return self.properties(encoding=_sorted({**self._spec.get("encoding", {}), **found}))

    def properties(self, **options: Any) -> "Chart":  # noqa: ANN401
        """Set options of the chart: size, title."""
        found = Chart()
        found._spec = {**self._spec, **options}
        return found

    def resolve_scale(self, **channels: str) -> "Chart":
        """Set the channels whose scales parts have in common (`shared`) or not (`independent`)."""
        return self.properties(resolve={"scale": _sorted(channels)})

    def add_params(self, *params: dict[str, Any]) -> "Chart":
        """Add parameters."""
        return self.properties(params=[*self._spec.get("params", []), *params])

    def _transform(self, *steps: dict[str, Any]) -> "Chart":
        return self.properties(transform=[*self._spec.get("transform", []), *steps])

    def transform_calculate(self, **fields: str) -> "Chart":
        """Add fields, by expressions."""
        return self._transform(*({"calculate": expr, "as": name} for name, expr in fields.items()))

    def transform_filter(self, expression: str) -> "Chart":
        """Keep the rows for which the expression is true."""
        return self._transform({"filter": expression})

    def transform_flatten(self, fields: list[str]) -> "Chart":
        """Make a row of each element of the lists in these fields."""
        return self._transform({"flatten": fields})

    def transform_window(self, *, groupby: list[str], **fields: str) -> "Chart":
        """Add fields with the values of window functions such as `row_number()`, for each group."""
        window = [{"op": call.removesuffix("()"), "field": "", "as": name} for name, call in fields.items()]
        return self._transform({"window": window, "groupby": groupby})

    def to_dict(self) -> dict[str, Any]:
        """Return the specification, without style. Only the rows are shared with the chart."""
        datasets: dict[str, Any] = {}
        spec = {"config": {}, **_plain(self, datasets)}
        spec["$schema"] = f"https://vega.github.io/schema/vega-lite/{SCHEMA_VERSION}.json"
        return {**spec, "datasets": datasets} if datasets else spec


def _plain(value: Any, datasets: dict[str, Any]) -> Any:  # noqa: ANN401
    """Return a copy of a part of a specification. Its rows go to `datasets`."""
    if isinstance(value, Chart):
        value = _sorted(
            value._spec, ("data", "mark") if "mark" in value._spec else ("layer", "concat", "vconcat")
        )
    if isinstance(value, dict):
        return {key: each if key == "usermeta" else _plain(each, datasets) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each, datasets) for each in value]
    if isinstance(value, InlineData):
        name = value.name()
        datasets[name] = value.values
        return {"name": name}
    return value


def _combined(kind: str, charts: Sequence[Chart], **options: Any) -> Chart:  # noqa: ANN401
    """Return a chart of several, which has their parameters, and their rows if all share the same."""
    params = {each["name"]: each for chart in charts for each in chart._spec.get("params", [])}
    if params:
        charts = [chart.properties(params=Undefined) for chart in charts]
        options["params"] = list(params.values())
    data = charts[0].data
    if data is not None and all(chart.data is data for chart in charts):
        charts = [chart.properties(data=Undefined) for chart in charts]
        options["data"] = data
    return Chart().properties(**{kind: list(charts)}, **options)


def layer(*charts: Chart) -> Chart:
    """Return a chart with one chart over the other."""
    return _combined("layer", charts)


def concat(*charts: Chart, columns: int, spacing: int) -> Chart:
    """Return a chart with charts side by side, in lines of `columns`."""
    return _combined("concat", charts, columns=columns, spacing=spacing)


def vconcat(*charts: Chart, spacing: int) -> Chart:
    """Return a chart with charts below each other."""
    return _combined("vconcat", charts, spacing=spacing)
