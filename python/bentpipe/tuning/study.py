"""A study in Optuna's storage: its trials, their owners, and their outcomes.

Several processes may share a study. A trial has a number in the order of generation. A process that finds the
next numbers free fills them in; if two do so at once, the first one's trials count, and both are equal, since
generations depend only on earlier results. Each trial is claimed by one process, which the storage decides.
Unfinished trials of a dead process are filled in again.
"""

import fcntl
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution
from optuna.exceptions import OptunaError, UpdateFinishedTrialError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.storages.journal._file import BaseJournalFileLock, get_lock_file
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState, create_trial

from bentpipe.errors import UsageError

__all__ = [
    "COMPLETE",
    "FAILED",
    "IMPOSSIBLE",
    "STOPPED",
    "VALUELESS",
    "Ledger",
    "Proposal",
    "Trial",
    "open_storage",
    "unfinished",
    "without_password",
]

COMPLETE, STOPPED, IMPOSSIBLE = "complete", "stopped", "impossible"
"""Outcomes: all runs done; stopped early; impossible scenario."""
FAILED, VALUELESS = "failed", "valueless"
"""Outcomes: a run failed; some objective has no value in any run."""
_STATES = {
    COMPLETE: TrialState.COMPLETE,
    STOPPED: TrialState.PRUNED,
    IMPOSSIBLE: TrialState.FAIL,
    FAILED: TrialState.FAIL,
    VALUELESS: TrialState.FAIL,
}
_BEAT_SECONDS = 10.0
_STALE_SECONDS = 60.0
"""Time without a heartbeat after which a process counts as dead."""


@dataclass(frozen=True, slots=True)
class Proposal:
    """A trial before it is simulated."""

    shares: Mapping[str, float | str]
    """Position of each parameter in its range, 0 to 1, or its choice from a list."""
    point: Mapping[str, str]
    """Values of the parameters, as TOML."""
    memory: Mapping[str, Any]
    """Attributes of the sampler."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A trial of a study."""

    number: int
    """Number in the order of generation, from 0."""
    proposal: Proposal
    outcome: str | None
    """`COMPLETE`, `STOPPED`, `IMPOSSIBLE`, `FAILED` or `VALUELESS`; None while unfinished."""
    runs: Mapping[int, tuple[float | None, ...]]
    """Value of each objective, by seed."""
    note: str
    """Reason why it was stopped or failed."""
    by: str
    """Process that claimed it."""
    waiting: bool
    """True while unclaimed."""
    id: int
    """Number of the trial in the storage."""

    @property
    def point(self) -> Mapping[str, str]:
        """Values of the parameters."""
        return self.proposal.point


def open_storage(where: str | Path) -> BaseStorage:
    """Open an Optuna storage: a database URL, or the name of a journal file.

    Raises `UsageError` if it cannot be opened.
    """
    text = str(where)
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    try:
        if "://" in text:
            return _database(text)
        lock = _Lock(Path(text))
        _end_in_a_line(Path(text), lock)
        return JournalStorage(JournalFileBackend(text, lock))
    except UsageError:
        raise
    except Exception as error:  # Every database raises its own exceptions.
        reason = str(error.strerror if isinstance(error, OSError) else error).strip().splitlines()
        raise UsageError(
            f"--storage {without_password(text)}: cannot be opened:"
            f" {reason[0] if reason else type(error).__name__};"
            " allowed: a file, sqlite:///FILE, or another database's URL whose driver is installed"
        ) from None


def without_password(where: str) -> str:
    """Return the URL of a storage as it may be shown: without its password."""
    return re.sub(r"://([^/@:]*):[^/@]*@", r"://\1:***@", where)


class _Lock(BaseJournalFileLock):
    """Lock of a journal that ends with its process; Optuna's own outlives it, and blocks later ones."""

    def __init__(self, journal: Path) -> None:
        self._journal = journal
        self._handle = -1
        """Open file of the thread that has the lock."""

    def acquire(self) -> bool:
        handle = os.open(self._journal, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
        except BaseException:
            os.close(handle)
            raise
        self._handle = handle
        return True

    def release(self) -> None:
        os.close(self._handle)


_LINE = b'{"op_code":'
"""Start of every line of a journal."""


def _end_in_a_line(journal: Path, lock: _Lock) -> None:
    """Remove the half line at the end of a journal that a full disk leaves; nobody has used its content.

    Raises `UsageError` for any other file, which stays as it is.
    """
    if not journal.is_file():
        return
    with get_lock_file(lock), journal.open("r+b") as file:
        if not _LINE.startswith(file.read(len(_LINE))):
            raise UsageError(
                f"--storage {journal}: is not Optuna's journal; allowed: such a file, or a name that is not"
                " taken"
            )
        end = file.seek(0, os.SEEK_END)
        while end:
            start = max(end - 65536, 0)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            end = start if newline < 0 else start + newline + 1
            if newline >= 0 or not start:
                break
        if end < file.seek(0, os.SEEK_END):
            file.truncate(end)
            os.fsync(file.fileno())


def _database(url: str) -> RDBStorage:
    """Open a database such that one of two competing processes gets a trial."""
    for pause in (0.2, 1.0, 5.0, None):
        try:
            storage = RDBStorage(url)
        except Exception as error:
            # Of two processes that create the tables at once, one fails and tries again.
            if pause is None or not any(
                each in str(error) for each in ("already exists", "locked", "UNIQUE")
            ):
                raise
            time.sleep(pause)
        else:
            break
    if storage.engine.dialect.name == "sqlite":
        from sqlalchemy import event

        # By default SQLite's driver starts a transaction at the first write, so that two may have read the
        # same state before; SQLAlchemy documents this way to start it at once, and locked.
        def connected(connection: Any, _: object) -> None:  # noqa: ANN401
            connection.isolation_level = None

        def begun(connection: Any) -> None:  # noqa: ANN401
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        event.listen(storage.engine, "connect", connected)
        event.listen(storage.engine, "begin", begun)
        storage.engine.dispose()
    return storage


class Ledger:
    """One process's view of a study."""

    def __init__(
        self,
        storage: BaseStorage,
        name: str,
        maximise: Sequence[bool],
        about: Mapping[str, Any],
        where: str = "",
    ) -> None:
        """Open or create the study `name`; `about` is everything that determines its trials.

        Raises `UsageError` if the stored study has other trials.
        """
        self._storage = storage
        self._name = name
        self._where = where
        self._about = dict(about)
        self.me = f"{socket.gethostname()}:{os.getpid()}:{_began(os.getpid())}:{uuid.uuid4().hex[:8]}"
        directions = [StudyDirection.MAXIMIZE if each else StudyDirection.MINIMIZE for each in maximise]
        try:
            try:
                self._study = storage.get_study_id_from_name(name)
            except KeyError:
                try:
                    self._study = storage.create_new_study(directions, name)
                except OptunaError:
                    # Another process has just created it.
                    self._study = storage.get_study_id_from_name(name)
            if "bentpipe" not in storage.get_study_user_attrs(self._study):
                storage.set_study_user_attr(self._study, "bentpipe", self._about)
        except ValueError as error:
            raise UsageError(f"{where}: is damaged, or no journal of Optuna's: {error}") from None
        self.check()
        self._seen: dict[str, tuple[Any, float]] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="bentpipe-beat", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop the heartbeat and release unfinished trials."""
        self._stop.set()
        self._thread.join()
        for trial in self.trials().values():
            if trial.outcome is None and not trial.waiting and trial.by == self.me:
                self._invalidate(trial.id)

    def check(self) -> None:
        """Raise `UsageError` unless the study has the same trials as this process's."""
        there = self._storage.get_study_user_attrs(self._study)["bentpipe"]
        for key, ours in self._about.items():
            theirs = there.get(key)
            if theirs != ours:
                raise UsageError(
                    f"{self._where}: the study {self._name} was begun with other {key}: found {_short(ours)},"
                    f" allowed: {_short(theirs)}; or choose another --study or --out"
                )

    def _beat(self) -> None:
        count = 0
        while True:
            with suppress(OptunaError, OSError):
                self._storage.set_study_user_attr(self._study, f"alive {self.me}", count)
            count += 1
            if self._stop.wait(_BEAT_SECONDS):
                return

    def trials(self) -> dict[int, Trial]:
        """Return the valid trials, by number."""
        found: dict[int, Trial] = {}
        for each in self._storage.get_all_trials(self._study, deepcopy=False):
            attrs = each.user_attrs
            # The lowest storage number counts: it was first.
            if "place" in attrs and not attrs.get("left") and attrs["place"] not in found:
                found[attrs["place"]] = _trial(each)
        return found

    def propose(
        self, proposals: Mapping[int, Proposal], distributions: Mapping[str, BaseDistribution]
    ) -> None:
        """Enqueue trials, except those that another process enqueued first."""
        ours = []
        for number, each in proposals.items():
            template = create_trial(
                state=TrialState.WAITING,
                params=dict(each.shares),
                distributions=dict(distributions),
                user_attrs={"place": number, "point": dict(each.point), "memory": dict(each.memory)},
            )
            ours.append((number, self._storage.create_new_trial(self._study, template)))
        counted = self.trials()
        for number, made in ours:
            if counted[number].id != made:
                self._invalidate(made)

    def take(self, trial: Trial) -> bool:
        """Try to claim a trial; False if another process was faster."""
        try:
            if not self._storage.set_trial_state_values(trial.id, TrialState.RUNNING):
                return False
            self._storage.set_trial_user_attr(trial.id, "by", self.me)
        except OptunaError:
            return False
        return True

    def tell(
        self,
        trial: Trial,
        outcome: str,
        runs: Mapping[int, Sequence[float | None]],
        values: Sequence[float] | None,
        note: str = "",
    ) -> None:
        """Store the outcome of a trial; `values` are the means of a complete trial's objectives."""
        # A process that was wrongly taken for dead reports the same outcome as the one that repeats its
        # trial.
        with suppress(UpdateFinishedTrialError):
            known = [[seed, *of] for seed, of in sorted(runs.items())]
            self._storage.set_trial_user_attr(
                trial.id, "result", {"outcome": outcome, "runs": known, "note": note}
            )
            self._storage.set_trial_state_values(
                trial.id, _STATES[outcome], values if outcome == COMPLETE else None
            )

    def repeat_left(self, distributions: Mapping[str, BaseDistribution]) -> list[str]:
        """Fill in the unfinished trials of dead processes again; return the processes still at work."""
        others = []
        for number, trial in self.trials().items():
            if trial.outcome is not None or trial.waiting or trial.by == self.me:
                continue
            if self._is_dead(trial.by or f"? {trial.id}"):
                self._invalidate(trial.id)
                self.propose({number: trial.proposal}, distributions)
            else:
                others.append(trial.by)
        return sorted(set(others))

    def _invalidate(self, trial: int) -> None:
        """Invalidate a trial."""
        with suppress(UpdateFinishedTrialError):
            self._storage.set_trial_user_attr(trial, "left", value=True)
            self._storage.set_trial_state_values(trial, TrialState.FAIL)

    def _is_dead(self, who: str) -> bool:
        """Return True if a process is dead: gone from this machine, or without a heartbeat for too long."""
        host, pid, began, *_ = [*who.split(":"), "", "", ""]
        if host == socket.gethostname() and pid.isdigit() and _began(int(pid)) != began:
            return True
        now = time.monotonic()
        beat = self._storage.get_study_user_attrs(self._study).get(f"alive {who}")
        before, since = self._seen.setdefault(who, (beat, now))
        if before != beat:
            self._seen[who] = (beat, now)
            return False
        return now - since > _STALE_SECONDS


def _trial(each: FrozenTrial) -> Trial:
    attrs = each.user_attrs
    result = attrs.get("result", {}) if each.state.is_finished() else {}
    return Trial(
        number=attrs["place"],
        proposal=Proposal(each.params, attrs["point"], attrs["memory"]),
        outcome=result.get("outcome"),
        runs={seed: tuple(values) for seed, *values in result.get("runs", [])},
        note=result.get("note", ""),
        by=attrs.get("by", ""),
        waiting=each.state == TrialState.WAITING,
        id=each._trial_id,
    )


def _began(pid: int) -> str:
    """Return the start time of a process of this machine, in kernel ticks; empty for an unknown process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name, in parentheses, may contain anything.
    return text.rpartition(")")[2].split()[19]


def _short(value: object) -> str:
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 100 else f"{text[:97]}…"


def unfinished(trials: Mapping[int, Trial], places: Iterable[int]) -> list[int]:
    """Return the given numbers whose trial is missing or unfinished."""
    return [place for place in places if place not in trials or trials[place].outcome is None]
