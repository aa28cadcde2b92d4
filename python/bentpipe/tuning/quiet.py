"""Import of Optuna without a warning about widgets that Bentpipe does not use."""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["without_widget_warning"]


@contextmanager
def without_widget_warning() -> Iterator[None]:
    """Hide the warning of Optuna's progress bars (tqdm) in notebooks without ipywidgets."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="IProgress not found")
        yield
