"""Hook by which results write their report pages without importing `bentpipe.report`.

Every class of results has a method `report(path)`, which calls `write`. The pages are drawn by
`bentpipe.report`, which imports the results; `bentpipe.api` registers a renderer for each class.
"""

import errno
from functools import singledispatch
from pathlib import Path

from bentpipe import files
from bentpipe.errors import UsageError

__all__ = ["render", "unwritable", "write"]


@singledispatch
def render(result: object) -> str:
    """Return the report of a result as HTML, from the renderer registered for its class."""
    raise TypeError(f"no report is known for {type(result).__name__}")


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
