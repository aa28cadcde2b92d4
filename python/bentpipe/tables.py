"""Tables as Parquet files."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import polars as pl

from bentpipe.errors import ResultError

__all__ = ["parquet", "reading"]

_UNREADABLE = (OSError, ValueError, pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""Exceptions that a damaged file raises; polars' panics are no `Exception`."""


def parquet(table: pl.DataFrame) -> bytes:
    """Return a table as the content of a Parquet file."""
    buffer = io.BytesIO()
    table.write_parquet(buffer, compression="zstd")
    return buffer.getvalue()


@contextmanager
def reading(path: Path, remedy: str = "") -> Iterator[None]:
    """Read `path`, or files in it: what damage raises becomes a `ResultError` with `remedy` at its end."""
    try:
        yield
    except _UNREADABLE as error:
        raise ResultError(f"{path}: cannot be read: {error}{remedy}") from None
