"""Files that are written completely or not at all, and whose damage is noticed."""

import errno
import fcntl
import glob
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bentpipe.errors import FolderExistsError, ResultError, UsageError

__all__ = [
    "PARTIAL",
    "SUMS",
    "check",
    "digest",
    "is_empty",
    "lock",
    "make_folder",
    "manifest_format",
    "new_folder",
    "provided_folder",
    "read_json",
    "remove_abandoned",
    "remove_partials",
    "require_shape",
    "require_version",
    "restore",
    "sealed",
    "sums",
    "sync_folder",
    "unfinished",
    "unsealed",
    "write",
    "write_json",
    "write_new",
]

PARTIAL = ".partial-"
"""Prefix of the names of unfinished files."""
_FORMER = "-former"
"""Suffix of the name of a folder while another one takes its place."""
SUMS = "SHA256SUMS"
"""File with the SHA-256 of the files beside it, as `sha256sum` writes and checks it."""
_SEAL = "checksum"
"""Key of a JSON document with the SHA-256 of the rest."""


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
    restore(folder)
    try:
        manifest = read_json(folder / "manifest.json")
    except (OSError, ValueError):
        return None
    return manifest.get("format") if isinstance(manifest, dict) else None


def read_json(path: Path) -> Any:  # noqa: ANN401
    """Return the value in a JSON file; `ValueError` if it is not JSON, `OSError` if it cannot be read."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except RecursionError:
        raise ValueError("its arrays and objects are nested too deeply") from None


def remove_partials(folder: Path) -> None:
    """Remove unfinished files of a process that ended from a locked folder."""
    for partial in folder.rglob(PARTIAL + "*"):
        shutil.rmtree(partial) if partial.is_dir() else partial.unlink()


def remove_abandoned(folder: Path, name: str = "") -> None:
    """Remove unfinished files of processes that ended, those whose names begin with `name` and a process."""
    for partial in _abandoned(folder, name):
        shutil.rmtree(partial) if partial.is_dir() else partial.unlink()


def _abandoned(folder: Path, name: str) -> Iterator[Path]:
    for partial in folder.glob(f"{PARTIAL}{glob.escape(name)}*"):
        pid = partial.name.removeprefix(PARTIAL + name).split("-")[0]
        if pid.isdecimal() and not Path("/proc", pid).exists():
            yield partial


def restore(folder: Path) -> None:
    """Give a folder its name back if a process ended while it replaced it: before it is read or replaced.

    Raises `UsageError` if it cannot be renamed.
    """
    if os.path.lexists(folder):
        return
    for partial in _abandoned(folder.parent, f"{folder.name}-"):
        if partial.name.endswith(_FORMER):
            try:
                partial.rename(folder)
            except OSError as error:
                raise UsageError(f"{partial}: cannot be renamed to {folder}: {error.strerror}") from None


@contextmanager
def provided_folder(folder: Path, option: str) -> Iterator[None]:
    """Provide a folder of files that `option` names, without unfinished files of processes that ended.

    A folder that was made here and is empty at the end is removed. Raises `UsageError` if it cannot be
    written.
    """
    made = not folder.exists()
    if not made and not folder.is_dir():
        raise UsageError(f"{option} {folder}: found a file; a folder is needed, or a name that is not taken")
    probe = folder / f"{PARTIAL}{os.getpid()}"
    try:
        make_folder(folder)
        remove_abandoned(folder)
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None
    try:
        yield
    finally:
        if made and not any(folder.iterdir()):
            folder.rmdir()


@contextmanager
def unfinished(folder: Path, *, replace: bool = True) -> Iterator[Path]:
    """Provide an unfinished folder, which at the end becomes `folder`, in place of an earlier one.

    Without `replace` an earlier one stays, and `FolderExistsError` is raised. After an error everything is as
    before. Raises `OSError` if it cannot be written.
    """
    partial = folder.with_name(f"{PARTIAL}{folder.name}-{os.getpid()}")
    former = folder.with_name(partial.name + _FORMER)
    partial.mkdir()
    try:
        yield partial
        sync_folder(partial)
        if replace:
            if folder.is_dir():
                folder.rename(former)
            partial.rename(folder)
        else:
            _rename_new(partial, folder)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        if former.is_dir():
            former.rename(folder)
        raise
    sync_folder(folder.parent)
    if former.is_dir():
        shutil.rmtree(former)


def _rename_new(partial: Path, folder: Path) -> None:
    """Rename a folder to `folder`; `FolderExistsError` if that exists."""
    # rename(2) replaces an empty folder, and refuses to replace any other.
    if os.path.lexists(folder):
        raise FolderExistsError(folder)
    try:
        partial.rename(folder)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR) and os.path.lexists(folder):
            raise FolderExistsError(folder) from None
        raise


@contextmanager
def new_folder(folder: Path, *, replace: bool = False) -> Iterator[Path]:
    """Provide an `unfinished` folder, without those of processes that ended.

    Raises `FolderExistsError` if another process has made the folder meanwhile, unless `replace` is set, and
    `UsageError` if it cannot be written.
    """
    try:
        make_folder(folder.parent)
        remove_abandoned(folder.parent, f"{folder.name}-")
        with unfinished(folder, replace=replace) as partial:
            yield partial
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None


def sync_folder(folder: Path) -> None:
    """Sync the entries of a folder to the disk, so that they survive a power cut."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def make_folder(folder: Path) -> None:
    """Make a folder, with those above it, unless it exists; its name survives a power cut."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        sync_folder(folder.parent)


def write_new(path: Path, content: bytes) -> None:
    """Write a file inside a folder that has no readers yet, and sync it; `OSError` if that fails."""
    with path.open("xb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def write(path: Path, content: bytes) -> None:
    """Write or replace a file atomically: readers see the old content or the new one.

    A device or a pipe gets the content and stays what it is. Raises `OSError` and keeps the old content if
    the disk is full or the folder cannot be written.
    """
    if path.exists() and not path.is_file():
        path.write_bytes(content)
        return
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


def digest(content: bytes) -> str:
    """Return the SHA-256 of `content`, in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def sums(digests: Iterable[tuple[str, str]]) -> bytes:
    """Return the content of a file `SHA256SUMS` for pairs of file name and digest."""
    return "".join(f"{of}  {name}\n" for name, of in digests).encode()


def check(folder: Path, names: Iterable[str] | None = None) -> None:
    """Compare files with the `SHA256SUMS` beside them; those of `names`, by default all listed there.

    A file listed twice may have either content. A folder without `SHA256SUMS`, from an earlier version, is
    not checked. Raises `ResultError` for the first file that is missing or differs.
    """
    listed = folder / SUMS
    known: dict[str, set[str]] = {}
    try:
        for line in listed.read_text(encoding="utf-8").splitlines():
            of, _, name = line.partition("  ")
            known.setdefault(name, set()).add(of)
    except FileNotFoundError:
        return
    except (OSError, ValueError) as error:
        raise ResultError(f"{listed}: cannot be read: {error}") from None
    for name in known if names is None else names:
        path = folder / name
        try:
            with path.open("rb") as file:
                found = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ResultError(f"{path}: cannot be read: {error.strerror}") from None
        if found not in known.get(name, ()):
            raise ResultError(f"{path}: is damaged: its content differs from {SUMS}, written with it")


def sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return a JSON document with the checksum of its content."""
    content = {key: value for key, value in document.items() if key != _SEAL}
    return content | {_SEAL: _seal(content)}


def unsealed(document: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a document from `path` without its checksum.

    A document of an earlier version has none. Raises `ResultError` if the content differs from the checksum.
    """
    content = {key: value for key, value in document.items() if key != _SEAL}
    if _SEAL in document and document[_SEAL] != _seal(content):
        raise ResultError(f"{path}: is damaged: its content differs from its checksum")
    return content


def require_version(document: Mapping[str, Any], versions: tuple[int, ...], path: Path) -> None:
    """Raise `ResultError` unless the `format_version` of a document from `path` is among `versions`."""
    found = document.get("format_version")
    if found not in versions:
        known = " and ".join(map(str, versions))
        raise ResultError(f"{path}: has the format_version {found}; this Bentpipe reads {known}")


def require_shape(value: object, shape: object, path: Path, where: str = "") -> None:
    """Raise `ResultError` unless a JSON value has a shape, before its content is used.

    A shape is a type, a tuple of types, a list with the shape of every element, or a dictionary with the
    shapes of the keys that must be there.
    """
    match shape, value:
        case dict(), dict():
            for key, inner in shape.items():
                if key not in value:
                    raise ResultError(f"{path}: is damaged, or not from Bentpipe: {where}{key} is missing")
                require_shape(value[key], inner, path, f"{where}{key}: ")
        case [inner], list():
            for each in value:
                require_shape(each, inner, path, where)
        case ((type() | tuple()), _) if isinstance(value, shape):
            pass
        case _:
            shown = json.dumps(value, ensure_ascii=False)
            raise ResultError(f"{path}: is damaged, or not from Bentpipe: {where}found {shown[:40]}")


def _seal(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return digest(text.encode("utf-8", "surrogatepass"))


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
