"""AQMs written in Python: what they look like, and how a simulation takes them."""

import copy
import difflib
import hashlib
import importlib
import inspect
import json
import math
import re
import sys
import sysconfig
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, Literal, Protocol

from bentpipe._core import Cx, Packet, QueueState, Rng, Spot, Verdict
from bentpipe.errors import UsageError

__all__ = [
    "Algorithm",
    "Aqm",
    "Cx",
    "Judge",
    "Packet",
    "QueueState",
    "Rng",
    "Setting",
    "Spot",
    "Verdict",
    "imported",
    "is_path",
]

METHODS = ("arrive", "admit", "enqueued", "depart", "overflowed", "flow", "wake_at", "wake", "probe")
"""What an algorithm can hear of; all but `arrive` may be missing."""

PLACEMENTS = ("anywhere", "watched queue")
"""Where an algorithm may mark."""


class Judge(Protocol):
    """The least that can be an AQM."""

    def arrive(self, pkt: Packet, cx: Cx, /) -> Verdict:
        """Judge a packet at the mark point."""


class Aqm(ABC):
    """Decides which packets signal congestion; a base for algorithms that want one.

    Every method but `arrive` does nothing here, and what an algorithm does not define is not called.
    """

    placement: Literal["anywhere", "watched queue"] = "anywhere"
    """Where it may mark: one that marks packets in `depart` must stand at the queue that it watches."""

    @abstractmethod
    def arrive(self, pkt: Packet, cx: Cx) -> Verdict:
        """Judge a packet at the mark point."""

    def admit(self, pkt: Packet, cx: Cx) -> None:  # noqa: B027
        """Hear that the packet was accepted at the mark point, marked or not."""

    def enqueued(self, pkt: Packet, cx: Cx) -> None:  # noqa: B027
        """Hear that a packet entered the watched queue; it leaves by `depart` or by `overflowed`."""

    def depart(self, pkt: Packet, cx: Cx) -> Verdict:  # noqa: ARG002
        """Judge a packet at the head of the watched queue, about to leave it."""
        return Verdict.PASS

    def overflowed(self, pkt: Packet, cx: Cx) -> None:  # noqa: B027
        """Hear that the watched queue was full, and that this packet was discarded for it."""

    def flow(self, flow: int, event: Literal["opened", "closed"], cx: Cx) -> None:  # noqa: B027
        """Hear that a flow begins or is over; datagrams come without."""

    def wake_at(self) -> float | None:
        """Return when `wake` is to be called next [s], or None; asked after every other call."""
        return None

    def wake(self, cx: Cx) -> None:  # noqa: B027
        """Do what was to be done at the time that `wake_at` has asked for."""

    def probe(self) -> dict[str, float]:
        """Return internal state for traces: the same names every time, and finite numbers."""
        return {}


@dataclass(frozen=True, slots=True)
class Setting:
    """A setting that is an AQM of one's own: an object with the methods of `Aqm`, or its class.

    A class is called without arguments. Every run gets a deep copy, made before anything happens.
    """

    name: str
    aqm: Judge | type[Judge]


class Algorithm:
    """An AQM that is ready to be simulated, and what identifies it."""

    def __init__(self, label: str, aqm: Judge | type[Judge]) -> None:
        """Check `aqm`, which messages call `label`; `UsageError` says what is wrong with it."""
        self.label = label
        self._original = _made(label, aqm) if isinstance(aqm, type) else aqm
        kind = type(self._original)
        self.name = _name(kind)
        """Module and class."""
        self.placement: str = getattr(self._original, "placement", PLACEMENTS[0])
        self._check()
        self.source = _source_digest(kind)
        """SHA-256 of the files that the class is written in; None where there is no such file."""
        try:
            self.state: dict[str, Any] | None = _described(_state(self._original), _own_modules(kind))
        except TypeError:
            self.state = None
        """What the object holds at first, as JSON can; None where it cannot."""

    @property
    def identified(self) -> bool:
        """Whether it can be told from any other algorithm."""
        return self.source is not None and self.state is not None

    def keys(self) -> list[tuple[str, str, str]]:
        """Return what stands for it among a scenario's keys: key, value and a note."""
        source = self.source or "unknown"
        rows = [("algorithm", self.name, "written in Python"), ("source", source, "SHA-256 of its files")]
        if self.state is None:
            return [*rows, ("state", "unknown", "it holds what cannot be written down")]
        return rows + [(name, json.dumps(value), "") for name, value in self.state.items()]

    def methods(self) -> dict[str, Callable[..., Any]]:
        """Return the methods of a new copy, those that it defines."""
        fresh = copy.deepcopy(self._original)
        return {name: getattr(fresh, name) for name in self._defined()}

    def _defined(self) -> list[str]:
        kind = type(self._original)
        return [
            name
            for name in METHODS
            if hasattr(self._original, name) and getattr(kind, name, None) is not getattr(Aqm, name)
        ]

    def _check(self) -> None:
        name, label = self.name, self.label
        for method in self._defined():
            if not callable(getattr(self._original, method)):
                raise UsageError(f"setting {label}: {name}.{method} is not a method")
        if "arrive" not in self._defined():
            raise UsageError(
                f"setting {label}: {name} is no AQM, for it has no method arrive(pkt, cx);"
                f" allowed: a class with that method, and with any of {', '.join(METHODS[1:])}"
            )
        if ("wake_at" in self._defined()) != ("wake" in self._defined()):
            raise UsageError(f"setting {label}: {name} has one of wake_at and wake; allowed: both or none")
        if self.placement not in PLACEMENTS:
            raise UsageError(
                f"setting {label}: {name}.placement is {self.placement!r}; allowed: {', '.join(PLACEMENTS)}"
            )
        try:
            copy.deepcopy(self._original)
        except Exception as error:
            raise UsageError(
                f"setting {label}: {name} cannot be copied, and every run needs a copy of its own:"
                f" {_described_error(error)}; a method __deepcopy__ would make it possible"
            ) from error


def is_path(name: str) -> bool:
    """Whether `name` has the form of a class in a module: `mypkg.MyAqm`."""
    return re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", name) is not None


def imported(path: str) -> Judge | type[Judge]:
    """Return what `path` names, for example the class `mypkg.MyAqm`; `UsageError` if there is none."""
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name != missing and not module_name.startswith(f"{missing}."):
            raise _not_importable(path, module_name, error) from error
        raise UsageError(
            f"setting {path}: there is no setting, preset or algorithm of that name, nor a Python module"
            f" {missing}; allowed: a name (bentpipe list aqms), or a class as MODULE.CLASS, its module in the"
            " current folder or installed"
        ) from None
    except Exception as error:
        raise _not_importable(path, module_name, error) from error
    if not hasattr(module, name):
        known = sorted(key for key, value in vars(module).items() if _is_judge(value))
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"; did you mean {module_name}.{near[0]}?" if near else ""
        allowed = ", ".join(known) or "none, for no class there has a method arrive"
        raise UsageError(
            f"setting {path}: the Python module {module_name} has no {name}; allowed: {allowed}{hint}"
        )
    found: Judge | type[Judge] = getattr(module, name)
    return found


def _is_judge(value: object) -> bool:
    own = not inspect.isabstract(value) and value not in (Aqm, Judge)
    return own and callable(getattr(value, "arrive", None))


def _not_importable(path: str, module: str, error: Exception) -> UsageError:
    return UsageError(
        f"setting {path}: the Python module {module} cannot be imported: {_described_error(error)}"
    )


def _made(label: str, kind: type[Judge]) -> Judge:
    name = _name(kind)
    try:
        return kind()
    except Exception as error:
        raise UsageError(
            f"setting {label}: {name}() cannot be made without arguments: {_described_error(error)}"
        ) from error


def _described_error(error: Exception) -> str:
    """Return an exception's last line and where it was raised."""
    text = traceback.format_exception_only(error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError):
        return f"{text} ({error.filename}, line {error.lineno})"
    if not frames or frames[-1].filename == __file__:
        return text
    return f"{text} ({frames[-1].filename}, line {frames[-1].lineno})"


# ----- what identifies an algorithm -----------------------------------------------------------------------


def _source_digest(kind: type) -> str | None:
    """Return the SHA-256 of the files that `kind` is written in, with those of its project that it uses."""
    own = _own_modules(kind)
    if kind.__module__ not in own:
        return None
    whole = hashlib.sha256()
    try:
        for digest in sorted(hashlib.sha256(path.read_bytes()).hexdigest() for path in set(own.values())):
            whole.update(digest.encode())
    except OSError:
        return None
    return whole.hexdigest()


def _own_modules(kind: type) -> dict[str, Path]:
    """Return the modules, with their files, that `kind` and its bases are written in and that these use.

    Python's own, Bentpipe's and those of installed libraries are left out, unless `kind` comes from one.
    """
    found: dict[str, Path] = {}
    todo = [sys.modules.get(base.__module__) for base in kind.__mro__]
    while todo:
        module = todo.pop()
        if module is None or module.__name__ in found or not _is_own(module, kind):
            continue
        found[module.__name__] = Path(str(module.__file__))
        for value in vars(module).values():
            name = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
            todo.append(sys.modules.get(name) if isinstance(name, str) else None)
    return found


def _is_own(module: ModuleType, kind: type) -> bool:
    file = getattr(module, "__file__", None)
    top = module.__name__.partition(".")[0]
    if not file or (top in sys.stdlib_module_names and top != "__main__") or top == "bentpipe":
        return False
    if top == kind.__module__.partition(".")[0]:
        return True
    libraries = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return not any(Path(file).is_relative_to(folder) for folder in libraries)


_DEEPEST = 20
"""Objects within objects."""


def _described(value: Any, own: Container[str], depth: int = 0) -> Any:  # noqa: ANN401
    """Return `value` as JSON can hold it; `TypeError` where different values might become the same.

    Objects are those of classes in the modules `own`, whose source is part of what identifies the algorithm.
    """
    if depth > _DEEPEST:
        raise TypeError(value)
    kind = type(value)
    if value is None or kind in {bool, int, str}:
        return value
    if kind is float:
        return value if math.isfinite(value) else str(value)
    if kind in {list, tuple}:
        return [_described(each, own, depth + 1) for each in value]
    if kind is dict and all(isinstance(key, str) for key in value):
        return {key: _described(each, own, depth + 1) for key, each in value.items()}
    if kind is Verdict:
        return repr(value)
    if kind.__module__ in own and all(base.__module__ in own or base in _STATELESS for base in kind.__mro__):
        return {"class": _name(kind)} | _described(_state(value), own, depth + 1)
    raise TypeError(value)


_STATELESS = {object, ABC, Aqm, Generic, Protocol, Judge}
"""Bases that hold nothing."""


def _state(value: object) -> dict[str, Any]:
    """Return the attributes of an object, those in slots too."""
    slots = (slot for kind in type(value).__mro__ for slot in _listed(vars(kind).get("__slots__", ())))
    held = {slot: getattr(value, slot) for slot in slots if hasattr(value, slot)}
    return held | getattr(value, "__dict__", {})


def _listed(slots: str | Iterable[str]) -> Iterable[str]:
    return [slots] if isinstance(slots, str) else slots


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
