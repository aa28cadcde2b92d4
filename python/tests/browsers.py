"""Chromium for tests."""

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import psutil  # type: ignore[import-untyped]
from patience import PATIENCE
from playwright.sync_api import Browser, sync_playwright

_FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


def _kill_children(but: set[psutil.Process]) -> None:
    for process in set(psutil.Process().children(recursive=True)) - but:
        with suppress(psutil.NoSuchProcess):
            process.kill()


@contextmanager
def chromium(timeouts: Sequence[float] = (60, 120, 240)) -> Iterator[Browser]:
    """Start Playwright and Chromium and open a page; after each timeout [s] kill both and start them again.

    Playwright has no timeout for the start. Seen on busy machines: its driver did not answer, or Chromium did
    not open its first page, in 300 s. Once started, the browser waits for things as long as `PATIENCE`.
    """
    # The shell, which draws no window, takes a quarter less processor time.
    path = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    assert path, "chromium-headless-shell is missing; `make test` installs it"
    for timeout in timeouts:
        others = set(psutil.Process().children(recursive=True))
        manager = sync_playwright()
        watchdog = threading.Timer(timeout, _kill_children, [others])
        watchdog.start()
        try:
            browser = manager.start().chromium.launch(executable_path=path, args=_FLAGS)
            browser.new_page().close()
            browser.on("context", lambda context: context.set_default_timeout(1000 * PATIENCE))
            break
        except Exception:
            hung = not watchdog.is_alive()
            manager.__exit__()
            if not hung:
                raise
        finally:
            watchdog.cancel()
    else:
        raise AssertionError(f"Chromium opened no page in {', '.join(f'{each} s' for each in timeouts)}")
    try:
        yield browser
        browser.close()
    finally:
        manager.__exit__()
