"""AQMs written in Python: interface, parameters, and the form in which a simulation takes them."""

import copy
import difflib
import hashlib
import importlib
import inspect
import json
import math
import pickle
import re
import sys
import sysconfig
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar, Generic, Literal, Protocol

from bentpipe._core import Context, Packet, QueueSlot, QueueState, Rng, Verdict
from bentpipe.errors import UsageError
from bentpipe.format import UNITS, number_of

__all__ = [
    "Aqm",
    "AqmLike",
    "Context",
    "Packet",
    "Param",
    "PythonAqm",
    "QueueSlot",
    "QueueState",
    "Rng",
    "Setting",
    "Verdict",
    "declared",
    "imported",
    "is_path",
    "unpacked",
]

METHODS = ("arrive", "admit", "enqueued", "depart", "overflowed", "flow", "wake_at", "wake", "probe")
"""Methods that the simulator calls; only `arrive` is mandatory."""

PLACEMENTS = ("anywhere", "watched queue")
"""Allowed mark points."""

_DIMENSIONS = {"": "share", "packets": "", "B": "length", "s": "time", "bit/s": "rate"}
"""Units of parameters, with the dimension of the units that a value may have instead."""
_SCALED = {"B": ("MB", "KB", "B"), "s": ("s", "ms", "us", "ns"), "bit/s": ("Gbps", "Mbps", "kbps", "bps")}
"""Units in which values are written, the largest first."""

Value = float | bool | str


@dataclass(frozen=True, slots=True)
class Param:
    """A parameter of an AQM: a keyword argument of the class's constructor, with its default and range.

    Numbers are in base units: packets, bytes, seconds, bit/s.
    """

    name: str
    """Name in overrides and of the keyword argument."""
    default: Value
    """A number; `True` or `False`; or one of `choices`."""
    unit: Literal["", "packets", "B", "s", "bit/s"] = ""
    range: tuple[float, float] | None = None
    """Least and greatest allowed value; None: any number."""
    tuning: tuple[float, float] | Literal["each"] | None = None
    """Ends of the range that a search covers; "each" for all values of a flag or of `choices`; None: not
    searched."""
    scale: Literal["linear", "log"] = "linear"
    """Scale of the search."""
    whole: bool = False
    """True if only whole numbers are allowed."""
    choices: tuple[str, ...] = ()
    """Allowed values of a parameter whose values are names."""
    symbol: str = ""
    """Symbol in the paper, if it differs from `name`."""
    origin: str = ""
    """Source of the default: a paper's table or an RFC's section."""
    doc: str = ""
    """One-line description."""

    def __post_init__(self) -> None:
        """Check the declaration; `UsageError` says what is wrong."""
        where = f"parameter {self.name}"
        if not self.name.isidentifier():
            raise UsageError(f"{where}: found the name {self.name!r}; allowed: a Python identifier")
        if self.unit not in _DIMENSIONS:
            raise UsageError(
                f"{where}: found the unit {self.unit!r}; allowed: {', '.join(map(repr, _DIMENSIONS))}"
            )
        self.check(self.default, where)
        if self.tuning is None:
            return
        if (self.tuning == "each") != self._is_list:
            allowed = '"each"' if self._is_list else "(low, high)"
            raise UsageError(f"{where}: found tuning={self.tuning!r}; allowed: {allowed} or None")
        if self.tuning != "each":
            low, high = self.tuning
            if not low < high or (self.scale == "log" and low <= 0):
                allowed = "two numbers, the lower first" + (", above 0" if self.scale == "log" else "")
                raise UsageError(f"{where}: found tuning={self.tuning!r}; allowed: {allowed}")
            for end in (low, high):
                self.check(end, f"{where}: tuning")

    @property
    def _is_list(self) -> bool:
        return bool(self.choices) or isinstance(self.default, bool)

    @property
    def allowed(self) -> str:
        """The allowed values, for messages and tables."""
        if self.choices:
            return ", ".join(self.choices)
        if isinstance(self.default, bool):
            return "true or false"
        kind = "a whole number" if self.whole else "a number"
        if self.range is None:
            return kind
        low, high = (f"{end:.12g}" for end in self.range)
        return f"at least {low} and at most {high}"

    def check(self, value: Value, where: str) -> None:
        """Raise `UsageError`, which begins with `where`, unless `value` is allowed."""
        if self.choices:
            good = value in self.choices
        elif isinstance(self.default, bool):
            good = isinstance(value, bool)
        else:
            good = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
            if good and self.range is not None:
                good = self.range[0] <= float(value) <= self.range[1]
            if good and self.whole:
                good = float(value).is_integer()
        if not good:
            raise UsageError(f"{where}: found {value!r}; allowed: {self.allowed}")

    def read(self, text: str, where: str) -> Value:
        """Return the value that `text` stands for in a scenario: `0.02`, `60 packets`, `"33 ms"`, `true`."""
        text = text.strip().strip('"')
        value: Value = text
        if isinstance(self.default, bool) and text in {"true", "false"}:
            value = text == "true"
        elif not self._is_list:
            found = number_of(text)
            value = self._in_base_units(*found) if found else text
            if isinstance(value, str):
                example = self.write(float(self.default)) if isinstance(self.default, int | float) else ""
                raise UsageError(f"{where}: found {text}; allowed: a number with its unit, as {example}")
            if self.whole and value.is_integer():
                value = int(value)
        self.check(value, where)
        return value

    def _in_base_units(self, value: float, unit: str) -> float | str:
        if self.unit in {"", "packets"}:
            if unit in {"", self.unit} or (unit == "%" and not self.unit):
                return value * UNITS.get(unit, ("", 1.0))[1]
        elif unit in UNITS and unit != "" and UNITS[unit][0] == _DIMENSIONS[self.unit]:
            return value * UNITS[unit][1]
        elif not value:
            return value
        return unit or "no unit"

    def write(self, value: Value) -> str:
        """Return a value as a scenario file has it, so that `read` returns the same value."""
        if isinstance(value, bool):
            return str(value).lower()
        if isinstance(value, str):
            return value
        for unit in _SCALED.get(self.unit, ()):
            size = UNITS[unit][1]
            for text in (f"{value / size:.12g}", repr(value / size)) if abs(value) >= size else ():
                if float(text) * size == value:
                    return f"{text} {unit}"
        text = f"{value:.12g}" if float(f"{value:.12g}") == value else repr(float(value))
        unit = {"bit/s": "bps"}.get(self.unit, self.unit)
        return f"{text} {unit}" if unit else text

    def entry(self) -> dict[str, Any]:
        """Return the description in the form of the registry's."""
        tune: dict[str, Any] | None = None
        if self.tuning == "each":
            tune = {"scale": "each"}
        elif self.tuning is not None:
            tune = {"low": self.tuning[0], "high": self.tuning[1], "scale": self.scale}
        return {
            "name": self.name,
            "symbol": self.symbol or self.name,
            "unit": self.unit,
            "default": self.default,
            "origin": self.origin,
            "range": self.allowed,
            "tune": tune,
            "whole": self.whole,
            "doc": self.doc,
        }


class AqmLike(Protocol):
    """The minimum that an AQM must have."""

    def arrive(self, pkt: Packet, cx: Context, /) -> Verdict:
        """Decide about a packet at the mark point."""


class Aqm(ABC):
    """Decides which packets signal congestion; a base class for type checkers.

    Every method but `arrive` does nothing here. The simulator does not call methods that a class does not
    define.
    """

    placement: Literal["anywhere", "watched queue"] = "anywhere"
    """Allowed mark point: an AQM that marks packets in `depart` must mark at the queue that it watches."""

    params: ClassVar[Sequence[Param]] = ()
    """The parameters, each a keyword argument of the constructor."""

    @abstractmethod
    def arrive(self, pkt: Packet, cx: Context) -> Verdict:
        """Decide about a packet at the mark point."""

    def admit(self, pkt: Packet, cx: Context) -> None:  # noqa: B027
        """Take note of a packet that was accepted at the mark point, marked or not."""

    def enqueued(self, pkt: Packet, cx: Context) -> None:  # noqa: B027
        """Take note of a packet that entered the watched queue; `depart` or `overflowed` follows."""

    def depart(self, pkt: Packet, cx: Context) -> Verdict:  # noqa: ARG002
        """Decide about a packet at the head of the watched queue that is about to leave."""
        return Verdict.PASS

    def overflowed(self, pkt: Packet, cx: Context) -> None:  # noqa: B027
        """Take note of a packet that was dropped because the watched queue was full."""

    def flow(self, flow: int, event: Literal["opened", "closed"], cx: Context) -> None:  # noqa: B027
        """Take note of a flow that was opened or closed; those over UDP are not announced."""

    def wake_at(self) -> float | None:
        """Return the time of the next `wake` [s], or None; called after every other call."""
        return None

    def wake(self, cx: Context) -> None:  # noqa: B027
        """Act at the time that `wake_at` returned."""

    def probe(self) -> dict[str, float]:
        """Return internal state for traces: finite numbers, under the same names in each call."""
        return {}


@dataclass(frozen=True, slots=True)
class Setting:
    """A named setting with an AQM written in Python: a class with the methods of `Aqm`, or an object of one.

    A class is called with its parameters, an object is copied: each run has its own AQM, with the
    state that the object had before the first run.
    """

    name: str
    aqm: AqmLike | type[AqmLike]


class PythonAqm:
    """An AQM written in Python, checked, with the values of its parameters and with what identifies it."""

    def __init__(
        self,
        label: str,
        aqm: AqmLike | type[AqmLike],
        values: Mapping[str, str] | None = None,
        origin: Literal["override", "setting"] = "override",
    ) -> None:
        """Check `aqm`, which messages call `label`; `UsageError` says what is wrong with it.

        `values` are values of its parameters as a scenario has them, given by overrides or a setting
        (`origin`). Names that it does not declare are ignored.
        """
        self.label = label
        kind = aqm if isinstance(aqm, type) else type(aqm)
        self.name = _name(kind)
        """Module and class."""
        self.params: tuple[Param, ...] = _checked(label, kind) if isinstance(aqm, type) else ()
        """Declared parameters; none of an object, whose parameters are fixed."""
        given = {name: text for name, text in (values or {}).items() if name in self.parameters}
        self._origins = {name: origin if name in given else "default" for name in self.parameters}
        self.values: dict[str, Value] = {
            each.name: each.read(given[each.name], f"setting {label}: {each.name}")
            if each.name in given
            else each.default
            for each in self.params
        }
        """Values of the parameters in base units."""
        self._original = _constructed(label, aqm, self.values) if isinstance(aqm, type) else aqm
        self.placement: str = getattr(self._original, "placement", PLACEMENTS[0])
        self._check()
        self.source = _source_digest(kind)
        """SHA-256 of the files that define the class; None without such files."""
        try:
            self.state: dict[str, Any] | None = _described(_state(self._original), _own_modules(kind))
        except TypeError:
            self.state = None
        """Initial attributes of the object in JSON's types; None if they have no such form."""

    @property
    def parameters(self) -> list[str]:
        """Names of the parameters."""
        return [each.name for each in self.params]

    @property
    def identified(self) -> bool:
        """True if source and state distinguish it from any other AQM."""
        return self.source is not None and self.state is not None

    def keys(self) -> list[tuple[str, str, str, str]]:
        """Return its rows among the scenario's effective keys: key, value, origin and note."""
        rows = [
            ("algorithm", self.name, "setting", "written in Python"),
            *(
                (each.name, each.write(self.values[each.name]), self._origins[each.name], each.doc)
                for each in self.params
            ),
            ("source", self.source or "unknown", "setting", "SHA-256 of its files"),
        ]
        if self.state is None:
            return [*rows, ("state", "unknown", "setting", "its attributes cannot be written as JSON")]
        known = {row[0] for row in rows}
        return rows + [
            (name, json.dumps(value), "setting", "")
            for name, value in self.state.items()
            if name not in known
        ]

    def entry(self) -> dict[str, Any]:
        """Return the description in the form of the registry's."""
        return {"name": self.name, "params": [each.entry() for each in self.params], "presets": []}

    def methods(self) -> dict[str, Callable[..., Any]]:
        """Return the methods that a new copy defines."""
        fresh = copy.deepcopy(self._original)
        return {name: getattr(fresh, name) for name in self._defined()}

    def packed(self) -> bytes:
        """Return the AQM with its code, for `unpacked`; `UsageError` if it cannot be pickled."""
        import cloudpickle

        own = [sys.modules[name] for name in _own_modules(type(self._original)) if name in sys.modules]
        own = [module for module in own if module.__name__ not in cloudpickle.list_registry_pickle_by_value()]
        for module in own:
            cloudpickle.register_pickle_by_value(module)
        try:
            return pickle.dumps((sys.version_info[:2], cloudpickle.dumps(self)))
        except (Exception, SystemExit) as error:
            raise UsageError(
                f"setting {self.label}: {self.name} cannot be sent to the workers of a cluster:"
                f" {_described_error(error)}; use threads (--jobs), or make it picklable"
            ) from error
        finally:
            for module in own:
                cloudpickle.unregister_pickle_by_value(module)

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
                f"setting {label}: {name} is not an AQM: it has no method arrive(pkt, cx);"
                f" allowed: a class with that method, and with any of {', '.join(METHODS[1:])}"
            )
        if ("wake_at" in self._defined()) != ("wake" in self._defined()):
            raise UsageError(
                f"setting {label}: {name} has only one of wake_at and wake; allowed: both or neither"
            )
        if self.placement not in PLACEMENTS:
            raise UsageError(
                f"setting {label}: {name}.placement is {self.placement!r}; allowed: {', '.join(PLACEMENTS)}"
            )
        try:
            copy.deepcopy(self._original)
        except (Exception, SystemExit) as error:
            raise UsageError(
                f"setting {label}: {name} cannot be copied, and each run needs a copy:"
                f" {_described_error(error)}; define __deepcopy__"
            ) from error


def unpacked(data: bytes) -> PythonAqm:
    """Return the AQM that `PythonAqm.packed` made elsewhere; `UsageError` if it cannot be loaded here."""
    version, code = pickle.loads(data)  # noqa: S301
    if version != sys.version_info[:2]:
        here, there = (".".join(map(str, each)) for each in (sys.version_info[:2], version))
        raise UsageError(
            f"a worker runs Python {here}, but the AQM comes from Python {there}; allowed: the same version"
        )
    try:
        found: PythonAqm = pickle.loads(code)  # noqa: S301
    except (Exception, SystemExit) as error:
        raise UsageError(
            f"a worker cannot load an AQM written in Python: {_described_error(error)}"
        ) from error
    return found


def _checked(label: str, kind: type) -> tuple[Param, ...]:
    """Return the parameters that a class declares."""
    params = getattr(kind, "params", ())
    if not isinstance(params, Sequence) or not all(isinstance(each, Param) for each in params):
        raise UsageError(f"setting {label}: {_name(kind)}.params: allowed: a list of bentpipe.Param")
    names = [each.name for each in params]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"setting {label}: {_name(kind)}.params: found {', '.join(sorted(twice))} twice")
    return tuple(params)


def declared(settings: Iterable[object]) -> list[str]:
    """Return the parameter names that the AQMs written in Python among `settings` declare.

    A scenario accepts overrides of these. Settings that cannot be imported are reported later, when they
    are used.
    """
    found: list[str] = []
    for each in settings:
        aqm: object = each.aqm if isinstance(each, Setting) else None
        if isinstance(each, str) and is_path(each.strip()):
            try:
                aqm = imported(each.strip())
            except UsageError:
                continue
        params = getattr(aqm, "params", ()) if isinstance(aqm, type) else ()
        if isinstance(params, Sequence):
            found += [param.name for param in params if isinstance(param, Param)]
    return list(dict.fromkeys(found))


def is_path(name: str) -> bool:
    """Return True if `name` has the form of a class in a module: `mypkg.MyAqm`."""
    return re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)+", name) is not None


def imported(path: str) -> AqmLike | type[AqmLike]:
    """Import the class or object that `path` names, as `mypkg.MyAqm`; `UsageError` if it does not exist."""
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if module_name != missing and not module_name.startswith(f"{missing}."):
            raise _not_importable(path, module_name, error) from error
        raise UsageError(
            f"setting {path}: no setting, preset or algorithm has that name, and no Python module is called"
            f" {missing}; allowed: a name (bentpipe list aqms), or a class as MODULE.CLASS, its module in the"
            " current folder or installed"
        ) from None
    except (Exception, SystemExit) as error:
        raise _not_importable(path, module_name, error) from error
    if not hasattr(module, name):
        known = sorted(key for key, value in vars(module).items() if _is_aqm(value))
        near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
        hint = f"; did you mean {module_name}.{near[0]}?" if near else ""
        allowed = ", ".join(known) or "nothing, no class there has a method arrive"
        raise UsageError(
            f"setting {path}: the Python module {module_name} has no {name}; allowed: {allowed}{hint}"
        )
    found: AqmLike | type[AqmLike] = getattr(module, name)
    return found


def _is_aqm(value: object) -> bool:
    own = not inspect.isabstract(value) and value not in (Aqm, AqmLike)
    return own and callable(getattr(value, "arrive", None))


def _not_importable(path: str, module: str, error: BaseException) -> UsageError:
    return UsageError(
        f"setting {path}: the Python module {module} cannot be imported: {_described_error(error)}"
    )


def _constructed(label: str, kind: type[AqmLike], values: Mapping[str, Value]) -> AqmLike:
    name = _name(kind)
    given = ", ".join(f"{key}={value!r}" for key, value in values.items())
    try:
        return kind(**values)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        raise UsageError(f"setting {label}: {name}({given}) failed: {_described_error(error)}") from error


def _described_error(error: BaseException) -> str:
    """Return the last line of an exception, with the file and line that raised it."""
    text = traceback.format_exception_only(error)[-1].strip()
    frames = traceback.extract_tb(error.__traceback__)
    if isinstance(error, SyntaxError):
        return f"{text} ({error.filename}, line {error.lineno})"
    if not frames or frames[-1].filename == __file__:
        return text
    return f"{text} ({frames[-1].filename}, line {frames[-1].lineno})"


# ----- identity -----------------------------------------------------------------------


def _source_digest(kind: type) -> str | None:
    """Return the SHA-256 of the files that define `kind`, with the modules of its project that it uses."""
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
    """Return the modules that define `kind` and its bases, and those that these use, with their files.

    Modules of Python, of Bentpipe and of installed libraries are excluded, unless `kind` itself is in one.
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
"""Nesting depth of objects."""


def _described(value: Any, own: Container[str], depth: int = 0) -> Any:  # noqa: ANN401
    """Return `value` in JSON's types; `TypeError` if different values could have the same form.

    Objects must be of classes in the modules `own`, whose source is part of the AQM's identity.
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


_STATELESS = {object, ABC, Aqm, Generic, Protocol, AqmLike}
"""Bases without attributes."""


def _state(value: object) -> dict[str, Any]:
    """Return the attributes of an object, including those in slots."""
    slots = (slot for kind in type(value).__mro__ for slot in _listed(vars(kind).get("__slots__", ())))
    held = {slot: getattr(value, slot) for slot in slots if hasattr(value, slot)}
    return held | getattr(value, "__dict__", {})


def _listed(slots: str | Iterable[str]) -> Iterable[str]:
    return [slots] if isinstance(slots, str) else slots


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"
