"""The network of a live run: a namespace for each of its places, and their removal in every case.

A run holds a lock in its own folder. If the lock is free, the run was killed; the next run removes its
namespaces, folder and processes.
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
from bentpipe.live_runs.processes import in_namespace, run, signals_deferred

__all__ = ["PLACES", "Network", "listening"]

PLACES = ("servers", "gateway", "satellite", "terminal", "clients")
"""Places of a run with one terminal."""
NETNS = Path("/run/netns")
RUNS = Path("/run/bentpipe-live")
STATE = Path("/run/bentpipe")
"""Folder of the gateways' records of installed rules, one folder per namespace inode."""
_LOCK = "lock"
_NAME = re.compile(r"bp-(\d+)-(?:" + "|".join(PLACES) + r"|terminal-\d+)")
_CLONE_NEWNET = 0x4000_0000

Value = TypeVar("Value")


class Network:
    """Context manager: a network namespace for each place, and the folder of the run."""

    def __init__(
        self, number: int | None = None, *, keep: bool = False, places: Sequence[str] = PLACES
    ) -> None:
        """Choose the run's number, by default the process id; `keep` keeps its folder."""
        self.number = os.getpid() if number is None else number
        self.places = tuple(places)
        self.folder = RUNS / str(self.number)
        """Folder of the run's files."""
        self._keep = keep
        self._lock: int | None = None

    def path(self, place: str) -> Path:
        """Return the file of a place's namespace."""
        return NETNS / f"bp-{self.number}-{place}"

    def __enter__(self) -> "Network":
        """Create the network after removing those of killed runs; `LiveError` if that fails."""
        try:
            with signals_deferred():
                self._make()
        except BaseException:
            if self._lock is not None:
                self.close()
            raise
        return self

    def _make(self) -> None:
        try:
            RUNS.mkdir(mode=0o755, exist_ok=True)
            # Serialize starts: a folder that is not locked yet does not belong to a killed run.
            starting = os.open(RUNS, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(starting, fcntl.LOCK_EX)
                _remove_leftovers()
                self.folder.mkdir(mode=0o755)
                self._lock = _locked(self.folder)
            finally:
                os.close(starting)
        except FileExistsError:
            raise LiveError(f"{self.folder}: exists already; this process has another live run") from None
        except OSError as error:
            raise LiveError(f"{error.filename}: {error.strerror}") from None
        run(["ip", "-batch", "-"], "".join(f"netns add {self.path(each).name}\n" for each in self.places))
        for place in self.places:
            self.ip(place, ["link set lo up"])

    def __exit__(
        self,
        kind: type[BaseException] | None,
        value: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Remove the network and kill the processes in it."""
        with signals_deferred():
            _remove(self.number, keep=self._keep)
            if self._lock is not None:
                os.close(self._lock)
                self._lock = None

    def ip(self, place: str, commands: Sequence[str], *, six: bool = False) -> None:
        """Run `ip` commands in a place, of IPv6 with `six` where the address does not tell."""
        text = "".join(f"{command}\n" for command in commands)
        run(in_namespace(self.path(place), ["ip", *(["-6"] if six else []), "-batch", "-"]), text)

    def sysctl(self, place: str, values: Mapping[str, str]) -> None:
        """Set sysctls in a place, by dotted names; skips those that the kernel lacks."""
        lines = []
        for name, value in values.items():
            path = "/proc/sys/" + name.replace(".", "/")
            lines.append(f'if [ -e {path} ]; then echo "{value}" > {path}; fi\n')
        run(in_namespace(self.path(place), ["sh", "-e", "-s"]), "".join(lines))

    def within(self, place: str, action: Callable[[], Value]) -> Value:
        """Run `action` in a place's namespace and return its result, e.g. sockets, which stay in it."""
        results: list[Value] = []
        errors: list[Exception] = []

        def enter() -> None:
            # Affects only this thread, which ends; the process stays in its namespace.
            libc = ctypes.CDLL(None, use_errno=True)
            handle = os.open(self.path(place), os.O_RDONLY)
            try:
                if libc.setns(handle, _CLONE_NEWNET) != 0:
                    errors.append(OSError(os.strerror(ctypes.get_errno())))
                    return
                results.append(action())
            except Exception as error:
                errors.append(error)
            finally:
                os.close(handle)

        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()
        for error in errors:
            if isinstance(error, OSError):
                raise LiveError(f"namespace {self.path(place).name}: {error}") from None
            raise error
        return results[0]


def listening(port: int, congestion: str, pacing: int | None, dscp: int) -> list[socket.socket]:
    """Return sockets that listen on every address; connections inherit congestion control, pacing and DSCP.

    `pacing` limits the rate of a connection [byte/s].
    """
    sockets = []
    for family in (socket.AF_INET, socket.AF_INET6):
        sock = socket.socket(family)
        sockets.append(sock)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, dscp << 2)
        else:
            sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, dscp << 2)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        if pacing is not None:
            sock.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, pacing)
        sock.bind(("::" if family == socket.AF_INET6 else "0.0.0.0", port))  # noqa: S104
        sock.listen(4096)
    return sockets


_SO_MAX_PACING_RATE = 47


def _remove_leftovers() -> None:
    """Remove the leftovers of killed runs."""
    found = {int(match[1]) for entry in _entries(NETNS) if (match := _NAME.fullmatch(entry))}
    found |= {int(entry) for entry in _entries(RUNS) if entry.isdecimal()}
    for number in sorted(found):
        lock = _free(RUNS / str(number))
        if lock is None:
            continue
        try:
            _remove(number)
        finally:
            if lock >= 0:
                os.close(lock)


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
    """Return the lock of a dead run's folder, or -1 without a folder; None if the run is alive."""
    try:
        return _locked(folder)
    except BlockingIOError:
        return None
    except OSError:
        # The run was killed after it had removed its folder.
        return -1


def _remove(number: int, *, keep: bool = False) -> None:
    """Kill the processes in a run's namespaces; remove these, and the run's folder unless `keep`."""
    found = [
        entry for entry in _entries(NETNS) if (match := _NAME.fullmatch(entry)) and int(match[1]) == number
    ]
    for path in (NETNS / entry for entry in found):
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
    """Return the ids of the processes in a network namespace."""
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
        # Inode numbers are unique only within a file system, and the file may be mounted over.
        if (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino):
            found.append(int(entry))
    return found
