"""Drawing of results, for classes that do not import `bentpipe.report`.

Classes of results have the methods `report(path)`, `_repr_html_()` and `plot(name)`. These name the function
of `bentpipe.report` that draws the result, which is imported when it is called.
"""

import errno
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bentpipe import files
from bentpipe.errors import UsageError

if TYPE_CHECKING:
    from altair import Chart, ConcatChart, FacetChart, LayerChart, VConcatChart

    Plot = Chart | ConcatChart | FacetChart | LayerChart | VConcatChart

__all__ = ["draw", "unwritable", "write", "write_text"]


def draw(function: str, *arguments: object, **options: object) -> Any:  # noqa: ANN401
    """Call `function` of `bentpipe.report`, given as `module.function`, and return its page or chart."""
    module, name = function.split(".")
    return getattr(import_module(f"bentpipe.report.{module}"), name)(*arguments, **options)


def write(page: str, result: object, path: Path) -> Path:
    """Write the report of a result, drawn by the function `page`, to `path` and return that.

    Raises `UsageError` if it cannot be written.
    """
    return write_text(path, draw(page, result))


def write_text(path: Path, html: str) -> Path:
    """Write a page to `path` and return that; `UsageError` if it cannot be written."""
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
