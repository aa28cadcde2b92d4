"""A file system that fails once, or loses power, under one folder, for commands run by `preloaded`.

Every step that changes the folder is counted: files created, written, synced, renamed and removed, and
folders. `fail` makes one step raise `OSError`; `kill` ends the process before one step; `cut` also takes back
what no sync has made durable: bytes of files, and names in folders. Steps outside the folder are left alone.
"""

import atexit
import builtins
import errno
import io
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["CUT", "NOT_SYNCED", "VARIABLE", "install", "request"]

VARIABLE = "BENTPIPE_TEST_FAULT"
CUT = 99
"""Exit code of a process that a fault ended."""
NOT_SYNCED = "not synced:"
"""Start of a line about a folder or file that had not been synced at the end."""
_WRITING = os.O_WRONLY | os.O_RDWR


def request(folder: Path, step: int, how: str, steps: Path) -> dict[str, str]:
    """Return the environment variable that asks for a fault.

    `how` is `fail`, `kill` (nothing is taken back), or `cut`; `steps` is a file that lists the steps taken,
    and at the end what is not synced.
    """
    return {VARIABLE: json.dumps([str(folder), step, how, str(steps)])}


def install() -> None:
    """Prepare the fault that the environment asks for."""
    folder, step, how, steps = json.loads(os.environ.pop(VARIABLE))
    _Faults(Path(folder), step, how, Path(steps)).install()


class _Faults:
    def __init__(self, folder: Path, step: int, how: str, steps: Path) -> None:
        self._folder = os.path.realpath(folder)
        self._step = step
        self._how = how
        self._steps = steps.open("w", encoding="utf-8")
        self._lock = threading.RLock()
        self._count = 0
        # What a power cut takes back, in order: the folder that has to be synced for it to last, and how.
        self._names: list[tuple[str, Callable[[], None]]] = []
        # Files with bytes that were not synced, and how many were there before these.
        self._unsynced: dict[str, int] = {}
        self._kept = Path(tempfile.mkdtemp(prefix="kept-", dir=steps.parent))

    def _concerns(self, path: object) -> str | None:
        """Return the whole path if it is in the folder, or the folder."""
        if not isinstance(path, str | os.PathLike):
            return None
        whole = os.path.abspath(os.fsdecode(path))
        inside = whole == self._folder or whole.startswith(self._folder + os.sep)
        return whole if inside else None

    def _before(self, what: str, path: str) -> None:
        self._count += 1
        self._steps.write(f"{what} {os.path.relpath(path, self._folder)}\n")
        self._steps.flush()
        if self._count != self._step:
            return
        if self._how == "fail":
            raise OSError(errno.EIO, os.strerror(errno.EIO), path)
        if self._how == "cut":
            for path, length in self._unsynced.items():
                if os.path.exists(path):
                    os.truncate(path, length)
            for _, take_back in reversed(self._names):
                take_back()
        os._exit(CUT)

    def _synced(self, path: str) -> None:
        self._unsynced.pop(path, None)
        self._names = [each for each in self._names if each[0] != path]

    def _at_exit(self) -> None:
        """Note what a power cut after the end would take back."""
        left = [*self._unsynced, *(folder for folder, _ in self._names)]
        self._steps.writelines(f"{NOT_SYNCED} {os.path.relpath(path, self._folder)}\n" for path in left)
        self._steps.close()

    def install(self) -> None:
        atexit.register(self._at_exit)
        real = {
            name: getattr(os, name)
            for name in ("open", "fsync", "mkdir", "rename", "replace", "unlink", "rmdir")
        }
        faults = self

        class File(io.FileIO):
            """A file whose writes are steps."""

            def write(self, data: Any) -> int:  # noqa: ANN401
                path = faults._concerns(os.readlink(f"/proc/self/fd/{self.fileno()}"))
                if path is None:
                    return super().write(data)
                with faults._lock:
                    faults._before("write", path)
                    faults._unsynced.setdefault(path, os.path.getsize(path))
                    return super().write(data)

        def created(path: str) -> None:
            def take_back() -> None:
                if os.path.exists(path):
                    real["unlink"](path)

            self._names.append((os.path.dirname(path), take_back))

        def low_open(path: Any, flags: int, *rest: Any, **named: Any) -> int:  # noqa: ANN401
            whole = self._concerns(path) if flags & _WRITING and not named.get("dir_fd") else None
            if whole is None:
                return int(real["open"](path, flags, *rest, **named))
            with self._lock:
                self._before("create", whole)
                is_new = not os.path.exists(whole)
                found = int(real["open"](path, flags, *rest, **named))
                if is_new:
                    created(whole)
                return found

        opened = io.open

        def high_open(file: Any, mode: str = "r", *rest: Any, **named: Any) -> Any:  # noqa: ANN401
            is_handle = isinstance(file, int)
            whole = None if is_handle else self._concerns(file)
            if not set(mode) & set("wxa+") or not (is_handle or whole):
                return opened(file, mode, *rest, **named)
            with self._lock:
                if whole is not None:
                    self._before("create", whole)
                is_new = whole is not None and not os.path.exists(whole)
                raw = File(file, mode.replace("b", "").replace("t", ""))
                if is_new and whole is not None:
                    created(whole)
            buffered = io.BufferedRandom(raw) if "+" in mode else io.BufferedWriter(raw)
            return buffered if "b" in mode else io.TextIOWrapper(buffered, encoding=named.get("encoding"))

        def sync(handle: Any) -> object:  # noqa: ANN401
            path = self._concerns(os.readlink(f"/proc/self/fd/{int(handle)}"))
            if path is None:
                return real["fsync"](handle)
            with self._lock:
                self._before("sync", path)
                self._synced(path)
            return None

        def make(path: Any, *rest: Any, **named: Any) -> object:  # noqa: ANN401
            whole = self._concerns(path)
            if whole is None:
                return real["mkdir"](path, *rest, **named)
            with self._lock:
                if not os.path.isdir(whole):
                    self._before("mkdir", whole)
                real["mkdir"](path, *rest, **named)
                self._names.append((os.path.dirname(whole), lambda: shutil.rmtree(whole, ignore_errors=True)))
            return None

        def move(name: str) -> Callable[..., object]:
            def rename(source: Any, target: Any, **named: Any) -> object:  # noqa: ANN401
                whole = self._concerns(target)
                before = self._concerns(source)
                if whole is None or before is None:
                    return real[name](source, target, **named)
                with self._lock:
                    self._before("rename", whole)
                    kept = self._kept / str(self._count)
                    has_old = os.path.isfile(whole)
                    if has_old:
                        os.link(whole, kept)
                    real[name](source, target, **named)
                    if before in self._unsynced:
                        self._unsynced[whole] = self._unsynced.pop(before)

                    def take_back() -> None:
                        if os.path.lexists(whole):
                            real["rename"](whole, before)
                        if has_old:
                            real["rename"](kept, whole)

                    self._names.append((os.path.dirname(whole), take_back))
                return None

            return rename

        def remove(name: str) -> Callable[..., object]:
            def removed(path: Any, *rest: Any, **named: Any) -> object:  # noqa: ANN401
                whole = None if named.get("dir_fd") is not None else self._concerns(path)
                if whole is not None and os.path.lexists(whole):
                    with self._lock:
                        self._before("remove", whole)
                        self._unsynced.pop(whole, None)
                return real[name](path, *rest, **named)

            return removed

        replaced: dict[str, Callable[..., object]] = {
            "open": low_open,
            "fsync": sync,
            "mkdir": make,
            "rename": move("rename"),
            "replace": move("replace"),
            "unlink": remove("unlink"),
            "remove": remove("unlink"),
            "rmdir": remove("rmdir"),
        }
        for name, function in replaced.items():
            setattr(os, name, function)
        for module in (io, builtins):
            setattr(module, "open", high_open)  # noqa: B010
