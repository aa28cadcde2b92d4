"""Files that are written completely or not at all."""

import fcntl
import json
import os
import shutil
import tempfile
from pathlib import Path

from bentpipe.errors import UsageError

__all__ = [
    "PARTIAL",
    "is_empty",
    "lock",
    "manifest_format",
    "remove_partials",
    "sync_folder",
    "write",
    "write_json",
    "write_new",
]

PARTIAL = ".partial-"
"""Prefix of the names of unfinished files."""


def lock(folder: Path) -> int:
    """Lock a folder against other writers until the returned handle is closed.

    The lock ends with the process. Raises `UsageError` if another process holds it, `OSError` without the
    folder.
    """
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(handle)
        raise UsageError(f"{folder}: another Bentpipe is writing to this folder") from None
    return handle


def is_empty(folder: Path) -> bool:
    """Return True if a folder is empty, apart from unfinished files of a process that ended."""
    return all(entry.name.startswith(PARTIAL) for entry in folder.iterdir())


def manifest_format(folder: Path) -> str | None:
    """Return the `format` in a folder's manifest.json; `None` if the folder holds no result."""
    try:
        manifest = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return manifest.get("format") if isinstance(manifest, dict) else None


def remove_partials(folder: Path) -> None:
    """Remove unfinished files of a process that ended from a locked folder."""
    for partial in folder.rglob(PARTIAL + "*"):
        shutil.rmtree(partial) if partial.is_dir() else partial.unlink()


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder to the disk, so that they survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_new(path: Path, content: bytes) -> None:
    """Write a file inside a folder that has no readers yet, and sync it; `OSError` if that fails."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write(path: Path, content: bytes) -> None:
    """Write or replace a file atomically: readers see the old content or the new one.

    Raises `OSError` and keeps the old content if the disk is full or the folder cannot be written.
    """
    handle, name = tempfile.mkstemp(prefix=PARTIAL, dir=path.parent)
    partial = Path(name)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.chmod(0o666 & ~_umask())
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def write_json(path: Path, value: object) -> None:
    """Write or replace a JSON file atomically; `ValueError` for numbers that JSON cannot hold."""
    text = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False)
    write(path, (text + "\n").encode())


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
