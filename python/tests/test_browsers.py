"""The browser of the tests starts again where it hangs."""

from pathlib import Path

import playwright
import pytest
from browsers import chromium


def _driver(folder: Path, hangs: int) -> str:
    """Return a driver that hangs at its first starts."""
    node = Path(playwright.__file__).parent / "driver" / "node"
    starts = folder / "starts"
    script = folder / "node"
    script.write_text(
        f'#!/bin/sh\necho >> "{starts}"\n'
        f'[ $(wc -l < "{starts}") -gt {hangs} ] || exec sleep 600\nexec "{node}" "$@"\n'
    )
    script.chmod(0o755)
    return str(script)


def test_hanging_driver_is_killed_and_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", _driver(tmp_path, hangs=1))
    with chromium([1, 200]) as browser:
        assert browser.is_connected()
    assert (tmp_path / "starts").read_text().count("\n") == 2


def test_driver_that_always_hangs_gives_a_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", _driver(tmp_path, hangs=9))
    with pytest.raises(AssertionError, match=r"no page in 0\.5 s, 0\.6 s"), chromium([0.5, 0.6]):
        pass


def test_driver_that_ends_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PLAYWRIGHT_NODEJS_PATH", "/bin/false")
    with pytest.raises(Exception, match=r"driver|closed|process"), chromium([200]):
        pass
