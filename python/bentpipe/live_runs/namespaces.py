"""The network of a live run: five namespaces, and how they go away again whatever happens.

A run holds a lock in a folder of its own. Namespaces, folder and processes of a run whose lock nobody holds
are left over from one that was killed: the next run removes them.
"""

import ctypes
import fcntl
import os
import re
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from bentpipe.errors import LiveError
from bentpipe.live_runs.processes import in_namespace, run, undisturbed

__all__ = ["PLACES", "Network", "listening"]

PLACES = ("servers", "gateway", "satellite", "terminal", "clients")
NETNS = Path("/run/netns")
RUNS = Path("/run/bentpipe-live")
STATE = Path("/run/bentpipe")
"""Where gateways note what rules they have made, in a folder for each namespace, by its number."""
_LOCK = "lock"
_NAME = re.compile(r"bp-(\d+)-(?:" + "|".join(PLACES) + ")")
_CLONE_NEWNET = 0x4000_0000

Value = TypeVar("Value")


class Network:
    """Five empty namespaces and a folder, until the `with` that it is used in ends."""

    def __init__(self, number: int | None = None, *, keep: bool = False) -> None:
        """Say which number it has, by default this process's; `keep` leaves its folder."""
        self.number = os.getpid() if number is None else number
        self.folder = RUNS / str(self.number)
        """For files of this run."""
        self._keep = keep
        self._lock: int | None = None

    def path(self, place: str) -> Path:
        """Return the namespace of a place as a file."""
        return NETNS / f"bp-{self.number}-{place}"

    def __enter__(self) -> "Network":
        """Make it, after removing what dead runs left; `LiveError` if that is not possible."""
        try:
            with undisturbed():
                self._make()
        except BaseException:
            if self._lock is not None:
                self.close()
            raise
        return self

    def _make(self) -> None:
        try:
            RUNS.mkdir(mode=0o755, exist_ok=True)
            # One at a time: a folder that is not locked yet is not a dead run's.
            starting = os.open(RUNS, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(starting, fcntl.LOCK_EX)
                _remove_leftovers()
                self.folder.mkdir(mode=0o755)
                self._lock = _locked(self.folder)
            finally:
                os.close(starting)
        except FileExistsError:
            raise LiveError(f"{self.folder}: is there already; another run of this process goes on") from None
        except OSError as error:
            raise LiveError(f"{error.filename}: {error.strerror}") from None
        run(["ip", "-batch", "-"], "".join(f"netns add {self.path(each).name}\n" for each in PLACES))
        for place in PLACES:
            self.ip(place, ["link set lo up"])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove it, with all that runs in it."""
        with undisturbed():
            _remove(self.number, keep=self._keep)
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def ip(self, place: str, commands: Sequence[str]) -> None:
        """Carry out commands of `ip` in a place."""
        text = "".join(f"{command}\n" for command in commands)
        run(in_namespace(self.path(place), ["ip", "-batch", "-"]), text)

    def sysctl(self, place: str, values: Mapping[str, str]) -> None:
        """Set what the place's kernel has of these, by names with dots."""
        lines = []
        for name, value in values.items():
            path = "/proc/sys/" + name.replace(".", "/")
            lines.append(f'if [ -e {path} ]; then echo "{value}" > {path}; fi\n')
        run(in_namespace(self.path(place), ["sh", "-e", "-s"]), "".join(lines))

    def within(self, place: str, action: Callable[[], Value]) -> Value:
        """Return what `action` does in the place's namespace; for sockets, which stay where they are made."""
        results: list[Value] = []
        errors: list[BaseException] = []

        def enter() -> None:
            # Of a thread alone, which ends: the process stays where it is.
            libc = ctypes.CDLL(None, use_errno=True)
            handle = os.open(self.path(place), os.O_RDONLY)
            try:
                if libc.setns(handle, _CLONE_NEWNET) != 0:
                    errors.append(OSError(os.strerror(ctypes.get_errno())))
                    return
                results.append(action())
            except OSError as error:
                errors.append(error)
            finally:
                os.close(handle)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        if errors:
            raise LiveError(f"namespace {self.path(place).name}: {errors[0]}") from None
        return results[0]


def listening(port: int, congestion: str, pacing: int | None) -> list[socket.socket]:
    """Return sockets that listen on every address; connections inherit congestion control and pacing.

    `pacing` is the most that a connection sends [byte/s].
    """
    sockets = []
    for family in (socket.AF_INET, socket.AF_INET6):
        sock = socket.socket(family)
        sockets.append(sock)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        if pacing is not None:
            sock.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, pacing)
        sock.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", port))  # noqa: S104
        sock.listen(4096)
    return sockets


_SO_MAX_PACING_RATE = 47


def _remove_leftovers() -> list[int]:
    """Remove what is left of runs that were killed; return their numbers."""
    found = {int(match[1]) for entry in _entries(NETNS) if (match := _NAME.fullmatch(entry))}
    found |= {int(entry) for entry in _entries(RUNS) if entry.isdecimal()}
    dead = []
    for number in sorted(found):
        lock = _free(RUNS / str(number))
        if lock is None:
            continue
        try:
            _remove(number)
            dead.append(number)
        finally:
            if lock >= 0:
                os.close(lock)
    return dead


def _entries(folder: Path) -> list[str]:
    try:
        return sorted(entry.name for entry in folder.iterdir())
    except OSError:
        return []


def _locked(folder: Path) -> int:
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return handle


def _free(folder: Path) -> int | None:
    """Return the lock of a dead run's folder, -1 where there is none; None if the run goes on."""
    try:
        return _locked(folder)
    except BlockingIOError:
        return None
    except OSError:
        # No folder, and so no lock: its run had removed it before it was killed.
        return -1


def _remove(number: int, *, keep: bool = False) -> None:
    """End what runs in a run's namespaces, remove these, and its folder unless it is to be kept."""
    for place in PLACES:
        path = NETNS / f"bp-{number}-{place}"
        if not path.exists():
            continue
        for _ in range(50):
            inside = _processes(path)
            if not inside:
                break
            for process in inside:
                with suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            time.sleep(0.02)
        inode = path.stat().st_ino
        with suppress(LiveError):
            run(["ip", "netns", "delete", path.name])
        if not path.exists():
            shutil.rmtree(STATE / str(inode), ignore_errors=True)
    if not keep:
        shutil.rmtree(RUNS / str(number), ignore_errors=True)


def _processes(namespace: Path) -> list[int]:
    """Return the processes whose network namespace is this one."""
    try:
        there = namespace.stat()
    except OSError:
        return []
    found = []
    for entry in _entries(Path("/proc")):
        if not entry.isdecimal() or int(entry) == os.getpid():
            continue
        try:
            mine = Path("/proc", entry, "ns", "net").stat()
        except OSError:
            continue
        # A file of the same number on another file system is another one: before the mount, or after.
        if (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino):
            found.append(int(entry))
    return found
