"""Logs of simulated connections as qlog files, for qvis and similar tools."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bentpipe import _core, files
from bentpipe.errors import FolderExistsError, UsageError
from bentpipe.format import plural
from bentpipe.runs.plan import Plan, Setting, check_watch
from bentpipe.runs.store import pairs

__all__ = ["CONNECTIONS", "EVENTS", "Qlog", "QlogWriting", "Qlogs"]

CONNECTIONS = 100
"""Default limit of connections per run."""
EVENTS = 1_000_000
"""Default limit of events per file: two to four hundred megabytes."""
_MOST_CONNECTIONS = 100_000
_MOST_EVENTS = 2**62
_FILES = "*.sqlog"


@dataclass(frozen=True, slots=True)
class Qlog:
    """Selection of connections to log: one folder for each run in `folder`, one file for each end.

    `flows` are `flow:17` or `traffic:NAME:3`, by default all flows over TCP and QUIC in the order of opening,
    up to `connections`. A file ends after `events` events.
    """

    folder: str | Path
    flows: Sequence[str] = ()
    connections: int = CONNECTIONS
    events: int = EVENTS


class QlogWriting:
    """Logs of one run during its simulation."""

    def __init__(self, partial: Path, final: Path, qlogs: "Qlogs") -> None:
        """Take the folder to write to and its final name."""
        self._partial = partial
        self._final = final
        self._qlogs = qlogs

    @property
    def target(self) -> tuple[str, list[str], int, int]:
        """Folder, flows, and limits of connections and of events."""
        qlog = self._qlogs.qlog
        return str(self._partial), list(qlog.flows), qlog.connections, qlog.events

    def keep(self, run: _core.Run) -> None:
        """Give the folder its final name, after the run has been written."""
        written, cut, _, left_out = run.logged or (0, 0, 0, 0)
        if self._final.exists():
            shutil.rmtree(self._final)
        files.sync_folder(self._partial)
        self._partial.replace(self._final)
        files.sync_folder(self._final.parent)
        qlogs = self._qlogs
        qlogs.written += written
        if left_out:
            found = (
                f"the first {plural(qlogs.qlog.connections, 'connection')}; {left_out:,} more were left out"
            )
            qlogs.warnings.append((f"{self._final}: holds {found}", "--qlog-connections"))
        if cut:
            found = f"{plural(cut, 'file')} with the first {qlogs.qlog.events:,} events only"
            qlogs.warnings.append((f"{self._final}: holds {found}", "--qlog-events"))
        if not written:
            found = "no file, since the run had no connection over TCP or QUIC"
            qlogs.warnings.append((f"{self._final}: holds {found}", "--qlog"))


class Qlogs:
    """Logs of a plan's runs."""

    def __init__(self, qlog: Qlog, plan: Plan) -> None:
        """Check the selection; `UsageError` for an unknown flow or a number out of range."""
        for number, most, what in (
            (qlog.connections, _MOST_CONNECTIONS, "connections"),
            (qlog.events, _MOST_EVENTS, "events per file"),
        ):
            if not 1 <= number <= most:
                raise UsageError(f"logs of {number} {what}: from 1 to {most} are possible")
        check_watch(plan.scenario, (), (), qlog.flows)
        self.qlog = qlog
        self.plan = plan
        self.written = 0
        """Files written so far."""
        self.warnings: list[tuple[str, str]] = []
        """Warnings for the caller, each with its option."""

    @contextmanager
    def prepared(
        self, *, force: bool = False, missing: Sequence[tuple[Setting, int]] | None = None
    ) -> Iterator[None]:
        """Provide the folder while runs are simulated; without any log, restore its former state.

        Raises `UsageError` if it cannot be written, or if the folder of one of the `missing` runs (by
        default: of any run) exists, unless `force` allows replacing it and it holds logs only.
        """
        folder = Path(self.qlog.folder)
        for setting, seed in pairs(self.plan) if missing is None else missing:
            self._check_free(self._final(setting, seed), force=force)
        with files.provided_folder(folder, "--qlog"):
            yield

    def lacks(self, setting: Setting, seed: int) -> bool:
        """Return True if the logs of a run are missing, as after a kill between the run and its logs."""
        return not self._final(setting, seed).is_dir()

    @contextmanager
    def folder(self, setting: Setting, seed: int) -> Iterator[QlogWriting]:
        """Provide the folder of one run during its simulation; unfinished logs are deleted afterwards."""
        final = self._final(setting, seed)
        partial = final.with_name(f"{files.PARTIAL}{os.getpid()}-{final.name}")
        partial.mkdir()
        try:
            yield QlogWriting(partial, final, self)
        finally:
            shutil.rmtree(partial, ignore_errors=True)

    def _final(self, setting: Setting, seed: int) -> Path:
        return Path(self.qlog.folder) / f"{setting.slug}-{seed}"

    @staticmethod
    def _check_free(final: Path, *, force: bool) -> None:
        if not os.path.lexists(final):
            return
        if not force:
            raise FolderExistsError(final, " as qlog")
        logs = set(final.glob(_FILES)) if final.is_dir() and not final.is_symlink() else set()
        if not final.is_dir() or set(final.iterdir()) != logs:
            raise UsageError(
                f"{final}: holds more than logs; --force replaces folders of {_FILES} files only"
            )
