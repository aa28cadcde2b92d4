"""The figure of measured series: points and fitted Fourier series."""

from bentpipe.format import number
from bentpipe.models.series import Captured, Series
from bentpipe.report import vega
from bentpipe.report.colours import AXIS, MUTED
from bentpipe.report.decimate import short
from bentpipe.report.panels import Figure, Panel

__all__ = ["figure"]

_LABELS = {
    "pep_delay": ("PEP delay d(t)", "ms", 1e3),
    "load_ratio": ("Mean offered load over offered load ω(t)", "", 1.0),
    "new_connections": ("New connections υ(t), share of those open", "%", 100.0),
}
_MEASURED, _FITTED = AXIS, "#D55E00"
_WIDTH, _HEIGHT = 820, 150


def figure(captured: Captured) -> Figure:
    """Return the figure of a run's three series."""
    panels = tuple(
        Panel(
            _panel(series, *_LABELS[name], first=name == next(iter(_LABELS)), last=name == list(_LABELS)[-1])
        )
        for name, series in captured.series.items()
    )
    how = "as it is" if captured.as_it_is else "without AQM and bottleneck"
    caption = f"Measured on {captured.scenario} {how}, seed {captured.seed}."
    return Figure("series", "Measured series", caption, panels)


def _panel(series: Series, title: str, unit: str, scale: float, *, first: bool, last: bool) -> vega.Chart:
    span = (0.0, series.interval * len(series.measured))
    x = vega.X(
        "time:Q",
        title="time [s]" if last else None,
        scale=vega.Scale(domain=list(span), nice=False),
        axis=vega.Axis(format="~g"),
    )
    y = vega.Y("value:Q", title=unit or "ratio", scale=vega.Scale(zero=False))
    names = ["measured", f"fitted, {len(series.cos)} harmonics"]
    legend = vega.Legend(title=None, symbolSize=60) if first else None
    colour = vega.Color("kind:N", legend=legend, scale=vega.Scale(domain=names, range=[_MEASURED, _FITTED]))

    def rows(values: list[float] | tuple[float, ...], kind: str) -> vega.InlineData:
        return vega.InlineData(
            values=[
                {"time": short(series.interval * i), "value": short(value * scale), "kind": kind}
                for i, value in enumerate(values)
            ]
        )

    points = vega.Chart(rows(series.measured, names[0])).mark_circle(size=14, opacity=0.8)
    curve = vega.Chart(rows(series.fitted, names[1])).mark_line(strokeWidth=2)
    explained = (
        "constant"
        if series.explained is None
        else f"the fit explains {100 * series.explained:.1f} % of the variance"
        f" (of white noise: {100 * series.noise:.1f} %)"
    )
    heading = vega.TitleParams(
        text=title,
        subtitle=f"mean {number(series.mean * scale)}{f' {unit}' if unit else ''}; {explained}",
        subtitleColor=MUTED,
        subtitleFontSize=11,
    )
    layers = (points.encode(x=x, y=y, color=colour), curve.encode(x=x, y=y, color=colour))
    return vega.layer(*layers).properties(width=_WIDTH, height=_HEIGHT, title=heading)
