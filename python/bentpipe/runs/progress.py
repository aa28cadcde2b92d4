"""Progress of the package's functions: a bar in notebooks, and callbacks."""

import importlib
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from html import escape
from typing import Any, Protocol

from bentpipe.format import clock, plural

__all__ = ["OnProgress", "Reporter", "reported"]

_EVERY = 0.2
"""Minimum time between two updates of a bar [s]."""

OnProgress = Callable[[int, int, int], None]
"""Progress callback: numbers of finished, wanted and failed runs, on every change and periodically."""


class View(Protocol):
    """A place that shows progress."""

    def show(self, share: float, text: str) -> None:
        """Show a bar at `share` (0 to 1) with a text."""

    def end(self, text: str) -> None:
        """Replace the bar by a text."""


class Reporter:
    """Reports progress to a callback and to a view.

    Comparisons report as to a `Watcher`, sweeps and searches by `update`.
    """

    def __init__(self, doing: str, on_progress: OnProgress | None = None, view: View | None = None) -> None:
        """Report `doing`, the activity in a word or two."""
        self._doing = doing
        self._on_progress = on_progress
        self._view = view
        self._done = self._total = self._failed = 0
        self._share = 0.0
        self._began = time.monotonic()
        self._shown = -_EVERY

    def begin(self, total: int, done: int) -> None:
        """Report the number of wanted runs, and of those `done` already."""
        self.update(done, total, 0)

    def progress(self, share: float) -> None:
        """Report the completed share of all simulated time, 0 to 1."""
        self._share = share
        self._report()

    def finished(self, setting: str, seed: int, seconds: float) -> None:
        """Count a finished run."""
        del setting, seed, seconds
        self._done += 1
        self._share = max(self._share, self._done / self._total)
        self._report()

    def update(self, done: int, total: int, failed: int) -> None:
        """Report finished, wanted and failed runs."""
        self._done, self._total, self._failed = done, total, failed
        self._share = done / total if total else 0.0
        self._report()

    def message(self, text: str) -> None:
        """Report the beginning of a stage."""
        self._doing = text
        self._shown = -_EVERY
        self._show()

    def close(self, *, stopped: bool = False) -> None:
        """Replace the bar by a summary."""
        if self._view is None:
            return
        runs = f"{self._done} of {plural(self._total, 'run')}" if stopped else plural(self._done, "run")
        seconds = time.monotonic() - self._began
        span = clock(round(seconds, 1) if seconds < 10 else round(seconds))
        self._view.end(f"{'Stopped after ' if stopped else ''}{runs}, {span}{self._failures()}")

    def _report(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self._done, self._total, self._failed)
        self._show()

    def _show(self) -> None:
        now = time.monotonic()
        if self._view is None or (now - self._shown < _EVERY and self._done < self._total):
            return
        self._shown = now
        text = f"{self._doing}: {self._done} of {plural(self._total, 'run')}{self._failures()}"
        self._view.show(self._share, text)

    def _failures(self) -> str:
        return f", {self._failed} failed" if self._failed else ""


@contextmanager
def reported(
    progress: bool | None,
    on_progress: OnProgress | None,
    doing: str = "Simulating",
) -> Iterator[Reporter]:
    """Yield a reporter, with a bar if `progress` asks for one.

    With `progress=None` a bar is shown in IPython and notebooks, unless `on_progress` is given.
    """
    wanted = _shell() is not None and on_progress is None if progress is None else progress
    reporter = Reporter(doing, on_progress, _view() if wanted else None)
    try:
        yield reporter
    except BaseException:
        reporter.close(stopped=True)
        raise
    reporter.close()


def _shell() -> Any:  # noqa: ANN401
    """Return IPython's shell if the code runs in one, else None."""
    ipython = sys.modules.get("IPython")
    return None if ipython is None else ipython.get_ipython()


def _view() -> View:
    # A kernel serves notebooks; IPython in a terminal has none.
    return _Cell() if hasattr(_shell(), "kernel") else _Line()


class _Cell:
    """A bar in the output of a notebook's cell."""

    def __init__(self) -> None:
        self._handle: Any = None

    def show(self, share: float, text: str) -> None:
        bar = (
            f'<progress value="{share:.4f}" max="1" style="width: 16em; vertical-align: middle;'
            ' accent-color: #0072B2"></progress>'
        )
        self._put(f"{bar} {escape(text)}", text)

    def end(self, text: str) -> None:
        if self._handle is not None:
            self._put(f'<span style="opacity: 0.7">{escape(text)}</span>', text)

    def _put(self, html: str, text: str) -> None:
        data = {"text/html": f'<div style="font-size: 13px">{html}</div>', "text/plain": text}
        if self._handle is None:
            display = importlib.import_module("IPython.display").display
            self._handle = display(data, raw=True, display_id=True)
        else:
            self._handle.update(data, raw=True)


class _Line:
    """A line on the terminal's stderr, overwritten with each update."""

    def __init__(self) -> None:
        self._drawn = 0

    def show(self, share: float, text: str) -> None:
        self._write(f"{100 * share:3.0f} %  {text}", "\r")

    def end(self, text: str) -> None:
        if self._drawn:
            self._write(text, "\n")

    def _write(self, text: str, end: str) -> None:
        sys.stderr.write(text.ljust(self._drawn) + end)
        sys.stderr.flush()
        self._drawn = len(text)
