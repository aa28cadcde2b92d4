"""Hooks by which results show themselves without importing `bentpipe.report`.

Classes of results have the methods `report(path)`, `_repr_html_()` and `plot(name)`, which call `write`,
`cell` and `chart`. `bentpipe.report`, which imports the results, draws them; `bentpipe.api` registers its
functions for each class.
"""

import errno
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bentpipe import files
from bentpipe.errors import UsageError

if TYPE_CHECKING:
    from altair import Chart, ConcatChart, FacetChart, LayerChart, VConcatChart

    Plot = Chart | ConcatChart | FacetChart | LayerChart | VConcatChart

__all__ = ["cell", "chart", "render", "unwritable", "write"]


@singledispatch
def render(result: object) -> str:
    """Return the report of a result as HTML, from the renderer registered for its class."""
    raise TypeError(f"no report is known for {type(result).__name__}")


@singledispatch
def cell(result: object) -> str:
    """Return a result as HTML for the output of a notebook's cell."""
    raise TypeError(f"no output is known for {type(result).__name__}")


@singledispatch
def chart(result: object, name: str | None, **options: Any) -> "Plot":  # noqa: ANN401
    """Return the chart `name` of a result; `UsageError` for an unknown name."""
    del name, options
    raise TypeError(f"no chart is known for {type(result).__name__}")


def write(result: object, path: Path) -> Path:
    """Write the report of a result to `path` and return that; `UsageError` if it cannot be written."""
    html = render(result)
    try:
        files.write(path, html.encode())
    except OSError as error:
        raise unwritable(path, error) from None
    return path


def unwritable(path: Path, error: OSError) -> Exception:
    """Return the exception to raise: a wrong path is the caller's mistake, a full or broken disk is not."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EFBIG):
        return OSError(error.errno, error.strerror, str(path))
    return UsageError(f"{path}: cannot be written: {error.strerror}")
