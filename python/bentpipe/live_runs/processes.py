"""Programs of a live run: where they are, how they start in a namespace, and that none outlives its run."""

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
    "undisturbed",
]

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_BIN = Path(__file__).parents[1] / "bin"
"""Where the build puts the Rust programs, and a wheel has them."""
_SYSTEM = {
    "ip": "iproute2",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "iptables-nft": "iptables",
    "ip6tables-nft": "iptables",
    "nginx": "nginx-light",
}
"""Programs that the system has, and Debian's packages of them."""


@dataclass(frozen=True, slots=True)
class Programs:
    """Paths of the programs that are ours."""

    gateway: str
    lab: str


def programs() -> Programs:
    """Return where the programs are; `UsageError` says of all that are missing how to come by them."""
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
                f"{name} was not found in {_BIN}, nor on PATH; `make live-programs` builds it from source"
            )
        found[name] = there
    return Programs(found["bentpipe-gateway"], found["bentpipe-testbed"])


@contextmanager
def interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end what goes on as Ctrl-C does, so that nothing is left behind."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        del number, frame
        raise KeyboardInterrupt

    with _handled(interrupt):
        yield


@contextmanager
def undisturbed() -> Iterator[None]:
    """Hold signals back that would end this process until what must not be left half done is done."""
    came: list[int] = []
    try:
        with _handled(lambda number, _: came.append(number)):
            yield
    finally:
        if came:
            signal.raise_signal(came[0])


@contextmanager
def _handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Have `handler` called by signals that end a process; those come to the main thread alone."""
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
    """Return the environment of children: this one's, with the folders of system programs on PATH."""
    return os.environ | {"PATH": os.environ.get("PATH", "") + ":/usr/sbin:/sbin", "LC_ALL": "C"}


def in_namespace(namespace: Path, command: Sequence[str]) -> list[str]:
    """Return the command line that runs `command` in a network namespace.

    `ip netns exec` would mount /sys anew, which is not allowed inside a user namespace everywhere.
    """
    return ["nsenter", f"--net={namespace}", *command]


def run(command: Sequence[str], text: str = "", *, seconds: float = 30) -> str:
    """Run a command that ends by itself; return what it printed. `LiveError` has its words if it fails.

    A terminal's Ctrl-C comes to this process alone, which decides what becomes of the command.
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
        said = " / ".join((done.stderr.strip() or done.stdout.strip()).splitlines()[-3:])
        raise LiveError(f"{_short(command)} failed: {said or done.returncode}")
    return done.stdout


def _short(command: Sequence[str]) -> str:
    own = list(command)
    if own[0] == "nsenter":
        own = [*own[2:], "in", Path(own[1].split("=")[1]).name]
    return " ".join(Path(word).name if at == 0 else word for at, word in enumerate(own))


class Child:
    """A program that goes on until it is told to stop.

    It is killed when the thread that started it ends, and its standard input is a pipe that closes then.
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
        """Start `command`; its messages go to `folder`/NAME.log.

        `extra` is added to its environment, and descriptors of `keep` stay open. `LiveError` if it cannot be
        started.
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
        """What it prints."""
        assert self.process.stdout is not None  # noqa: S101
        return self.process.stdout

    def check(self, *, well: Sequence[int] = ()) -> None:
        """Raise `LiveError` with its last words if it has ended with another code than these."""
        code = self.process.poll()
        if code is not None and code not in well:
            raise LiveError(f"{self.name} ended with {_ending(code)}: {self.last_words()}")

    def last_words(self) -> str:
        """Return the end of what it said on standard error."""
        try:
            lines = self.log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        except OSError:
            lines = []
        return " / ".join(lines[-3:]) or "it said nothing"

    def stop(self, seconds: float = 5) -> str:
        """Ask it to end, wait, then make it; return what it printed."""
        self._signal(signal.SIGTERM)
        try:
            out, _ = self.process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            self._signal(signal.SIGKILL)
            out, _ = self.process.communicate()
        return out

    def _signal(self, number: int) -> None:
        """Tell it, and what it has started."""
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)

    def wait(self, until: float) -> int | None:
        """Wait for it until a moment of the monotonic clock [s]; return its exit code, or None."""
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
