"""Waits of tests: for what is to happen, and only as a limit for some time."""

import time
from collections.abc import Callable

PATIENCE = 600
"""Longest wait [s]. Only a test that hangs reaches it; the slowest set-up took 300 s on a slow machine."""


def wait_for(condition: Callable[[], object]) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
