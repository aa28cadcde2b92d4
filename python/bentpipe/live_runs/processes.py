"""Programs of a live run: their paths, start in a namespace, and termination with the run."""

import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO

from bentpipe.errors import LiveError, UsageError

__all__ = [
    "Child",
    "Programs",
    "environment",
    "in_namespace",
    "interruptible",
    "programs",
    "run",
    "signals_deferred",
]

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_BIN = Path(__file__).parents[1] / "bin"
"""Folder of the Rust programs, in a build and in a wheel."""
_SYSTEM = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "iptables-nft": "iptables",
    "ip6tables-nft": "iptables",
    "nginx": "nginx-light",
}
"""Programs of the system, and their Debian packages."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Paths of Bentpipe's programs."""

    gateway: str
    lab: str


def programs() -> Programs:
    """Return the paths of the programs; `UsageError` lists those that are missing and how to install them."""
    path = os.environ.get("PATH", "") + os.pathsep + "/usr/sbin" + os.pathsep + "/sbin"
    missing = [name for name in _SYSTEM if shutil.which(name, path=path) is None]
    if missing:
        packages = " ".join(dict.fromkeys(_SYSTEM[name] for name in missing))
        raise UsageError(
            f"a live run needs {', '.join(missing)}; on Debian:\n"
            f"    sudo apt-get install -y --no-install-recommends {packages}"
        )
    found = {}
    for name in ("bentpipe-gateway", "bentpipe-testbed"):
        own = _BIN / name
        there = str(own) if os.access(own, os.X_OK) else shutil.which(name)
        if there is None:
            raise UsageError(
                f"{name} was not found in {_BIN} or on PATH; `make live-programs` builds it from source"
            )
        found[name] = there
    return Programs(found["bentpipe-gateway"], found["bentpipe-testbed"])


@contextmanager
def interruptible() -> Iterator[None]:
    """Treat SIGTERM and SIGHUP like Ctrl-C, so that the run cleans up."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    with _handled(interrupt):
        yield


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Defer signals that end this process until the block is complete."""
    received: list[int] = []
    try:
        with _handled(lambda number, _: received.append(number)):
            yield
    finally:
        if received:
            signal.raise_signal(received[0])


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Install `handler` for signals that end a process; no effect outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in _ENDING}
    try:
        yield
    finally:
        for number, each in before.items():
            signal.signal(number, each)


def environment() -> dict[str, str]:
    """Return the environment of child processes: this one's, with the system folders on PATH."""
    return os.environ | {"PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin", "LC_ALL": "C"}


def in_namespace(namespace: Path, command: Sequence[str]) -> list[str]:
    """Return the command line that runs `command` in a network namespace.

    `ip netns exec` would remount /sys, which some systems forbid inside a user namespace.
    """
    return ["nsenter", f"--net={namespace}", *command]


def run(command: Sequence[str], text: str = "", *, seconds: float = 30) -> str:
    """Run a command that ends by itself and return its output; `LiveError` with its message if it fails.

    The command has its own process group: a terminal's Ctrl-C reaches only this process.
    """
    try:
        done = subprocess.run(  # noqa: S603
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=seconds,
            check=False,
            env=environment(),
            process_group=0,
        )
    except subprocess.TimeoutExpired:
        raise LiveError(f"{_short(command)} did not end within {seconds:g} s") from None
    except OSError as error:
        raise LiveError(f"{_short(command)} cannot be run: {error.strerror}") from None
    if done.returncode:
        message = " / ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:])
        raise LiveError(f"{_short(command)} failed: {message or done.returncode}")
    return done.stdout


def _short(command: Sequence[str]) -> str:
    own = list(command)
    if own[0] == "nsenter":
        own = [*own[2:], "in", Path(own[1].split("=")[1]).name]
    return " ".join(Path(word).name if at == 0 else word for at, word in enumerate(own))


class Child:
    """A program that runs until it is stopped.

    It is killed when the thread that started it ends; its standard input is a pipe that closes then.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        namespace: Path,
        folder: Path,
        *,
        extra: Mapping[str, str] | None = None,
        keep: Sequence[int] = (),
    ) -> None:
        """Start `command`, with standard error written to `folder`/NAME.log.

        `extra` is added to its environment; the file descriptors `keep` stay open. `LiveError` if it cannot
        be started.
        """
        self.name = name
        self.log = folder / f"{name}.log"
        whole = in_namespace(namespace, ["setpriv", "--pdeathsig", "KILL", *command])
        try:
            with self.log.open("wb") as log:
                self.process = subprocess.Popen(  # noqa: S603
                    whole,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                    text=True,
                    env=environment() | dict(extra or {}),
                    pass_fds=tuple(keep),
                    start_new_session=True,
                )
        except OSError as error:
            raise LiveError(f"{name} cannot be started: {error.strerror}") from None

    @property
    def out(self) -> IO[str]:
        """Standard output."""
        assert self.process.stdout is not None  # noqa: S101
        return self.process.stdout

    def check(self, *, well: Sequence[int] = ()) -> None:
        """Raise `LiveError` with its last messages if it has ended with a code not in `well`."""
        code = self.process.poll()
        if code is not None and code not in well:
            raise LiveError(f"{self.name} ended with {_ending(code)}: {self.last_words()}")

    def last_words(self) -> str:
        """Return the last lines of its standard error."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return " / ".join(lines[-3:]) or "no message"

    def stop(self, seconds: float = 5) -> str:
        """Send SIGTERM, wait, then kill; return the remaining output."""
        self._signal(signal.SIGTERM)
        try:
            out, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            out, _ = self.process.communicate()
        return out

    def _signal(self, number: int) -> None:
        """Send a signal to the program and its children."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def wait(self, until: float) -> int | None:
        """Wait until a time of the monotonic clock [s]; return the exit code, or None if it still runs."""
        try:
            return self.process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None

    def __enter__(self) -> "Child":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"code {code}"
