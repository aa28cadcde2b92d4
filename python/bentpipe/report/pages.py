"""Common parts of all pages, each of which is one HTML file with its charts that opens offline."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import jinja2

from bentpipe import files
from bentpipe.format import clock
from bentpipe.pages import unwritable
from bentpipe.report.charts import CONFIG, Drawing, Figure
from bentpipe.report.scripts import bundle

__all__ = [
    "dated",
    "environment",
    "page",
    "parameters",
    "script_json",
    "specification",
    "unwritable",
    "write_page",
]


def page(template: str, figures: Iterable[Figure], **context: Any) -> str:  # noqa: ANN401
    """Return a page from `template`, `figures` (with the numbers of their charts) and `context`."""
    specs: list[dict[str, Any]] = []
    shown = []
    for figure in figures:
        first = len(specs)
        specs += [specification(panel.chart, fit=True) for panel in figure.panels]
        shown.append({"figure": figure, "charts": range(first, len(specs))})
    return (
        environment()
        .get_template(template)
        .render(figures=shown, specs=script_json(specs), bundle=bundle(), **context)
    )


@cache
def environment() -> jinja2.Environment:
    """Return the environment of the templates, which escapes all texts."""
    found = jinja2.Environment(
        loader=jinja2.PackageLoader("bentpipe.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    found.filters["clock"] = clock
    return found


def dated(manifest: Mapping[str, Any]) -> str:
    """Return the version of Bentpipe that made a result, and the date."""
    return f"Bentpipe {manifest['core']['version']} · {(manifest['finished'] or manifest['started'])[:10]}"


def write_page(path: Path, html: str) -> Path:
    """Write a page to `path` and return the path; `UsageError` if the file cannot be written."""
    try:
        files.write(path, html.encode())
    except OSError as error:
        raise unwritable(path, error) from None
    return path


def specification(
    chart: Drawing | alt.ConcatChart | alt.VConcatChart, *, fit: bool = False
) -> dict[str, Any]:
    """Return a chart's specification in the common style; `fit` fits its width to the page."""
    spec: dict[str, Any] = chart.to_dict()
    background = spec.pop("background", None)
    spec["config"] = {**CONFIG, "background": background}
    if fit:
        spec["autosize"] = {"type": "fit-x", "contains": "padding"}
    return spec


def script_json(value: object) -> str:
    """Return JSON that is safe inside a script element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"), ensure_ascii=False)
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def parameters(settings: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the effective parameters of a manifest's settings: `shared` by all, and `differing`."""
    per_setting = {setting["name"]: {row["key"]: row for row in setting["effective"]} for setting in settings}
    keys: dict[str, None] = {}
    for rows in per_setting.values():
        keys.update(dict.fromkeys(rows))
    shared, differing = [], []
    for key in keys:
        rows_of = [rows.get(key) for rows in per_setting.values()]
        first = rows_of[0]
        if first is not None and all(row is not None and row["value"] == first["value"] for row in rows_of):
            shared.append(first)
        else:
            differing.append({"key": key, "values": [row["value"] if row else "–" for row in rows_of]})
    return {"shared": shared, "differing": differing}
