"""Results on disk: contents of the folder, written so that an unfinished result never reads as complete.

A run's folder is renamed into place when all its files are on the disk; the manifest says `complete` last. A
folder is locked while it is written, and the lock ends with the process.
"""

import contextlib
import hashlib
import importlib.metadata
import json
import math
import os
import platform
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from types import NoneType
from typing import Any, Protocol, TypeVar

import polars as pl

from bentpipe import _core, files, qoe, stats
from bentpipe import format as formatting
from bentpipe.errors import FolderExistsError, ResultError, UsageError
from bentpipe.runs.former_names import current_printed
from bentpipe.runs.plan import Plan, Setting
from bentpipe.tables import parquet

__all__ = [
    "FIGURES",
    "LIVE",
    "MANIFEST",
    "PAGES",
    "REPORT",
    "RETURN",
    "SIMULATOR",
    "TABLES",
    "TERMINALS",
    "TERMINAL_SERIES",
    "TRACE",
    "Store",
    "read_manifest",
]

T = TypeVar("T")

SIMULATOR, LIVE = ENGINES = ("simulator", "live")
"""Engines of the runs of a result."""

FORMAT = "bentpipe-result"
FORMAT_VERSION = 2
"""Version 1 has former names of metrics, series and counters (`former_names`)."""
MANIFEST = "manifest.json"
METRICS = "metrics.parquet"
COMPARISON = "comparison.json"
REPORT = "report.html"
FIGURES = "figures"
RUNS = "runs"
COUNTERS = "counters.json"
TABLES = ("series", "drops", "flows", "drop_runs")
TRACE = "trace"
TERMINALS = "terminals"
TERMINAL_SERIES = "terminal_series"
PAGES = "pages"
RETURN = "return"
"""Key of a manifest: true if the terminals of the subject have queues in the return direction."""
_RUN_FILES = {COUNTERS, *(f"{table}.parquet" for table in TABLES)}
OPTIONAL = (TERMINALS, TERMINAL_SERIES, PAGES, TRACE)
"""Tables that not every run has: those for which its manifest has a key of the same name."""
_OPTIONAL_FILES = {f"{table}.parquet" for table in OPTIONAL}
_TOP = {MANIFEST, METRICS, COMPARISON, REPORT, FIGURES, RUNS, files.SUMS}
_SHAPE = {
    "status": str,
    "core": {"version": str, "sha256": str},
    "scenario": {
        "name": str,
        "duration": (int, float),
        "warmup": (int, float),
        "sample_interval": (int, float),
    },
    "settings": [
        {"name": str, "slug": str, "capacity": (int, float, NoneType), "sha256": str, "effective": [dict]}
    ],
    "seeds": [int],
    "runs": [{"setting": str, "seed": int}],
}
"""Keys of a manifest that readers rely on."""
_REST = 10
"""Time between two writings of a manifest, for the time that one takes."""
_LIBRARIES = ("polars", "altair", "vl-convert-python", "scipy", "numpy", "jinja2")


class Written(Protocol):
    """A run to store, simulated or live, with tables that polars reads."""

    @property
    def series(self) -> Any: ...  # noqa: ANN401
    @property
    def drops(self) -> Any: ...  # noqa: ANN401
    @property
    def flows(self) -> Any: ...  # noqa: ANN401
    @property
    def drop_runs(self) -> Any: ...  # noqa: ANN401
    @property
    def terminals(self) -> Any: ...  # noqa: ANN401
    @property
    def terminal_series(self) -> Any: ...  # noqa: ANN401
    @property
    def pages(self) -> Any: ...  # noqa: ANN401
    @property
    def trace(self) -> Any: ...  # noqa: ANN401
    @property
    def counters(self) -> Mapping[str, float]: ...


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return the manifest of a result, complete or not; `ResultError` if the folder is not a result."""
    files.restore(folder)
    if not folder.is_dir():
        raise ResultError(
            f"{folder}: " + ("is not a folder" if folder.exists() else "there is no such folder")
        )
    path = folder / MANIFEST
    try:
        manifest = files.read_json(path)
    except FileNotFoundError:
        raise ResultError(f"{folder}: is not a Bentpipe result: it has no {MANIFEST}") from None
    except (OSError, ValueError) as error:
        raise ResultError(f"{path}: cannot be read: {error}") from None
    if isinstance(manifest, dict) and manifest.get("format") == "bentpipe-sweep":
        raise ResultError(f"{folder}: is the dataset of a sweep; bentpipe.open_sweep opens it")
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ResultError(f"{folder}: is not a Bentpipe result: its {MANIFEST} has another format")
    if manifest.get("format_version") not in (1, FORMAT_VERSION):
        raise ResultError(
            f"{folder}: has result format {manifest.get('format_version')}, but this Bentpipe"
            f" ({_core.__version__}) reads formats 1 and {FORMAT_VERSION}"
        )
    manifest = files.unsealed(manifest, path)
    files.require_shape(manifest, _SHAPE, path)
    manifest["printed"] = current_printed(manifest.get("printed", []))
    return manifest


class Store:
    """A result's folder that is being written, from `create` or `resume`."""

    def __init__(self, folder: Path, plan: Plan, manifest: dict[str, Any], lock: int | None) -> None:
        """Take an existing folder with its `manifest`, locked by the open handle `lock`."""
        self.folder = folder
        self.plan = plan
        self._manifest = manifest
        self._lock = lock
        self._next_write = 0.0
        self._is_written = True

    @classmethod
    def create(
        cls,
        folder: Path,
        plan: Plan,
        *,
        force: bool = False,
        engine: str = SIMULATOR,
        versions: Mapping[str, str] | None = None,
    ) -> "Store":
        """Create the folder of a new result and its manifest, before anything runs.

        `force` replaces a result or an empty folder, and nothing else. `engine` is that of the runs,
        `versions` are those of other software involved. Raises `UsageError` if the folder exists, or another
        process makes it meanwhile, or it cannot be written.
        """
        files.restore(folder)
        if os.path.lexists(folder):
            clear(folder, force=force)
        manifest = _manifest(plan, engine, versions)
        # The folder appears with its manifest, so that a stop at any moment leaves nothing that neither
        # --resume nor --force takes.
        with files.new_folder(folder) as partial:
            lock = files.lock(partial)
            (partial / RUNS).mkdir()
            files.write_json(partial / MANIFEST, files.sealed(manifest))
        return cls(folder, plan, manifest, lock)

    @classmethod
    def resume(cls, folder: Path, plan: Plan) -> "Store":
        """Resume an interrupted result; `UsageError` if it belongs to another plan."""
        manifest = read_manifest(folder)
        if manifest.get("engine", SIMULATOR) != SIMULATOR:
            raise UsageError(f"{folder}: cannot be resumed: its runs are {manifest['engine']}, not simulated")
        for setting in plan.settings:
            aqm = setting.scenario.python_aqm
            if aqm is not None and not aqm.identified:
                what = "its source file" if aqm.source is None else "its state"
                raise UsageError(
                    f"{folder}: cannot be resumed: {what} does not show whether {aqm.name} is"
                    " still the same; repeat the comparison without --resume"
                )
        _check_same(folder, manifest, _manifest(plan))
        try:
            lock = files.lock(folder)
            files.remove_partials(folder)
        except OSError as error:
            raise UsageError(f"{folder}: cannot be written: {error.strerror}") from None
        manifest = read_manifest(folder)
        limits = _thresholds(plan.scenario)
        if manifest.get("thresholds") != limits.get("thresholds"):
            # No run depends on them.
            manifest.pop("thresholds", None)
            manifest |= limits
            files.write_json(folder / MANIFEST, files.sealed(manifest))
        return cls(folder, plan, manifest, lock)

    @property
    def complete(self) -> bool:
        """True if the result is complete."""
        return bool(self._manifest["status"] == "complete")

    def has(self, setting: Setting, seed: int) -> bool:
        """Return True if the run is stored: all its files, undamaged, and its duration in the manifest."""
        if not any(
            (run["setting"], run["seed"]) == (setting.name, seed) and "cpu_seconds" in run
            for run in self._manifest["runs"]
        ):
            return False
        folder = run_folder(self.folder, setting.slug, seed)
        if not _names(folder) >= _wanted(self._manifest):
            return False
        try:
            files.check(folder)
        except ResultError:
            return False
        return True

    def add(self, setting: Setting, seed: int, run: Written) -> None:
        """Write one finished run; thread-safe. Raises `OSError` and writes nothing if that fails."""
        tables = {name: pl.DataFrame(getattr(run, name)) for name in TABLES}
        for name in OPTIONAL:
            if (table := getattr(run, name)) is not None:
                tables[name] = pl.DataFrame(table)
        write_run(run_folder(self.folder, setting.slug, seed), tables, run.counters)

    def note(
        self,
        setting: Setting,
        seed: int,
        wall_seconds: float,
        cpu_seconds: float,
        live: Mapping[str, Any] | None = None,
    ) -> None:
        """Record the duration of a finished run in the manifest; from one thread only.

        `live` is the data of a live run beside its tables. With many settings, for which writing the manifest
        takes longer, durations are written together.
        """
        entry: dict[str, Any] = {
            "setting": setting.name,
            "seed": seed,
            "wall_seconds": round(wall_seconds, 3),
            "cpu_seconds": round(cpu_seconds, 3),
        }
        if live is not None:
            entry["live"] = dict(live)
        others = [
            run for run in self._manifest["runs"] if (run["setting"], run["seed"]) != (setting.name, seed)
        ]
        self._manifest["runs"] = [*others, entry]
        self._is_written = False
        begin = time.monotonic()
        if begin >= self._next_write:
            self._write_manifest()
            end = time.monotonic()
            self._next_write = end + _REST * (end - begin)

    def finish(
        self, metrics: pl.DataFrame, comparison: list[dict[str, Any]], warmup: list[dict[str, Any]]
    ) -> None:
        """Write the summary tables, then mark the result complete.

        `warmup` holds the settling times for the manifest.
        """
        table = parquet(metrics)
        files.write(self.folder / METRICS, table)
        files.write_json(self.folder / COMPARISON, comparison)
        compared = (self.folder / COMPARISON).read_bytes()
        listed = [(METRICS, files.digest(table)), (COMPARISON, files.digest(compared))]
        files.write(self.folder / files.SUMS, files.sums(listed))
        self._manifest["warmup"] = warmup
        self._manifest["status"] = "complete"
        self._manifest["finished"] = _now()
        self._write_manifest()

    def discard(self) -> None:
        """Remove the folder of an impossible experiment if it holds no run and no file of the user."""
        if not any((self.folder / RUNS).glob("*/[0-9]*")) and next(_foreign(self.folder), None) is None:
            shutil.rmtree(self.folder, ignore_errors=True)

    def close(self) -> None:
        """Write the durations that are not written yet, unless that fails, and release the lock."""
        if not self._is_written:
            with contextlib.suppress(OSError):
                self._write_manifest()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _write_manifest(self) -> None:
        order = {(s.name, seed): n for n, (s, seed) in enumerate(pairs(self.plan))}
        self._manifest["runs"].sort(key=lambda run: order[run["setting"], run["seed"]])
        files.write_json(self.folder / MANIFEST, files.sealed(self._manifest))
        self._is_written = True


def pairs(plan: Plan) -> Iterator[tuple[Setting, int]]:
    """Yield every run of a plan: all settings with the first seed, then with the next."""
    return ((setting, seed) for seed in plan.seeds for setting in plan.settings)


def run_folder(folder: Path, slug: str, seed: int) -> Path:
    """Return the folder of one run inside a result."""
    return folder / RUNS / slug / str(seed)


def write_run(final: Path, tables: Mapping[str, pl.DataFrame], counters: Mapping[str, float]) -> None:
    """Write a run's tables and counters to a folder that appears, or is replaced, atomically.

    `SHA256SUMS` lists them.

    Thread-safe. Raises `OSError` and writes nothing if that fails.
    """
    files.make_folder(final.parent)
    with files.unfinished(final) as partial:
        listed = []
        for name, content in _contents(tables, counters):
            files.write_new(partial / name, content)
            listed.append((name, files.digest(content)))
        files.write_new(partial / files.SUMS, files.sums(listed))


def _contents(
    tables: Mapping[str, pl.DataFrame], counters: Mapping[str, float]
) -> Iterator[tuple[str, bytes]]:
    """Yield the files of a run, name and content."""
    for name, table in tables.items():
        yield f"{name}.parquet", parquet(table)
    known = {name: value if math.isfinite(value) else None for name, value in counters.items()}
    text = json.dumps(known, indent=2, sort_keys=True, allow_nan=False)
    yield COUNTERS, (text + "\n").encode()


def _wanted(manifest: Mapping[str, Any]) -> set[str]:
    """Return the names of the files of every run."""
    return _RUN_FILES | {f"{table}.parquet" for table in OPTIONAL if manifest.get(table)}


def missing_runs(folder: Path, manifest: dict[str, Any]) -> list[str]:
    """Return the runs missing from a result."""
    wanted = _wanted(manifest)
    return [
        f"{setting['name']}, seed {seed}"
        for setting in manifest["settings"]
        for seed in manifest["seeds"]
        if not _names(run_folder(folder, setting["slug"], seed)) >= wanted
    ]


def _names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()} if folder.is_dir() else set()


def clear(folder: Path, *, force: bool) -> None:
    """Remove a result or an empty folder, and nothing else; `UsageError` without `force`."""
    if not force:
        raise FolderExistsError(folder, " as out")
    if folder.is_symlink() or not folder.is_dir():
        raise UsageError(
            f"{folder}: is not a folder; --force replaces only a Bentpipe result or an empty folder"
        )
    try:
        if any(folder.iterdir()):
            try:
                read_manifest(folder)
            except ResultError as error:
                raise UsageError(
                    f"{error}; --force replaces only a Bentpipe result or an empty folder"
                ) from None
            foreign = next(_foreign(folder), None)
            if foreign is not None:
                raise UsageError(
                    f"{folder}: --force would delete {foreign.relative_to(folder)}, which is not part of a"
                    " Bentpipe result; move it away first"
                )
            with _held(folder):
                shutil.rmtree(folder)
        else:
            folder.rmdir()
    except OSError as error:
        raise UsageError(f"{folder}: cannot be replaced: {error.strerror}") from None


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[None]:
    handle = files.lock(folder)
    try:
        yield
    finally:
        os.close(handle)


def _foreign(folder: Path) -> Iterator[Path]:
    """Yield the entries of a result's folder that Bentpipe did not write."""
    for entry in sorted(folder.rglob("*")):
        parts = entry.relative_to(folder).parts
        if any(part.startswith(files.PARTIAL) for part in parts):
            continue
        match parts:
            case (name,) if name in _TOP:
                pass
            case ("figures", name) if Path(name).suffix in {".svg", ".png", ".pdf"}:
                pass
            case ("runs", _) | ("runs", _, _) if entry.is_dir() and not entry.is_symlink():
                pass
            case ("runs", _, _, name) if name in _RUN_FILES | _OPTIONAL_FILES | {files.SUMS}:
                pass
            case _:
                yield entry


def _check_same(folder: Path, there: dict[str, Any], asked: dict[str, Any]) -> None:
    """Raise `UsageError` unless the result in `folder` and the requested one are the same."""

    def differ(what: str, old: object, new: object) -> UsageError:
        return UsageError(f"{folder}: cannot be resumed: it was started with {what} {old}, now with {new}")

    if there["core"] != asked["core"]:
        old, new = there["core"], asked["core"]
        if old["version"] != new["version"]:
            raise differ("Bentpipe", old["version"], new["version"])
        raise differ("a build of the core with hash", old["sha256"][:12], new["sha256"][:12])
    old_settings = [setting["name"] for setting in there["settings"]]
    new_settings = [setting["name"] for setting in asked["settings"]]
    if old_settings != new_settings:
        raise differ("settings", ", ".join(old_settings), ", ".join(new_settings))
    if there["seeds"] != asked["seeds"]:
        raise differ("seeds", *(", ".join(map(str, seeds)) for seeds in (there["seeds"], asked["seeds"])))
    if there.get("trace", []) != asked["trace"]:
        old, new = (", ".join(traced) or "none" for traced in (there.get("trace", []), asked["trace"]))
        raise differ("traced flows", old, new)
    if there["scenario"]["name"] != asked["scenario"]["name"]:
        raise differ("scenario", there["scenario"]["name"], asked["scenario"]["name"])
    for old, new in zip(there["settings"], asked["settings"], strict=True):
        if old["sha256"] != new["sha256"]:
            before = {row["key"]: row["value"] for row in old["effective"]}
            after = {row["key"]: row["value"] for row in new["effective"]}
            changed = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
            if changed:
                key = changed[0]
                raise differ(key, before.get(key, "unset"), after.get(key, "unset"))
            raise UsageError(f"{folder}: cannot be resumed: its scenario has changed since")


def scenario_description(scenario: _core.Scenario) -> dict[str, Any]:
    """Return the entry of a manifest that describes the scenario."""
    return {
        "name": scenario.name,
        "title": scenario.title,
        "description": scenario.description,
        "source": scenario.source,
        "text": scenario.text,
        "overrides": scenario.overrides,
        "duration": scenario.duration,
        "warmup": scenario.warmup,
        "sample_interval": scenario.sample_interval,
    }


def _manifest(
    plan: Plan, engine: str = SIMULATOR, versions: Mapping[str, str] | None = None
) -> dict[str, Any]:
    scenario = plan.scenario
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "status": "incomplete",
        "engine": engine,
        **({} if versions is None else {"versions": dict(versions)}),
        "core": {"version": _core.__version__, "sha256": core_digest()},
        "libraries": {name: importlib.metadata.version(name) for name in _LIBRARIES},
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "git": _git_state(),
        "scenario": scenario_description(scenario),
        "settings": [
            {
                "name": setting.name,
                "slug": setting.slug,
                "aqm": setting.scenario.aqm,
                "behind_pep": setting.scenario.behind_pep,
                "python": _written(setting),
                "capacity": setting.scenario.capacity,
                "sha256": setting.digest,
                "effective": setting.scenario.effective(),
                "warnings": setting.scenario.warnings,
                "warning_codes": setting.scenario.warning_codes,
            }
            for setting in plan.settings
        ],
        "traffic": [list(each) for each in scenario.traffic],
        **({TERMINALS: scenario.terminals, TERMINAL_SERIES: True, PAGES: True} if scenario.terminals else {}),
        **({RETURN: True} if scenario.has_return else {}),
        **_thresholds(scenario),
        "seeds": list(plan.seeds),
        "trace": list(plan.trace),
        "printed": [] if _is_changed(scenario) else current_printed(scenario.printed()),
        "runs": [],
        "started": _now(),
        "finished": None,
    }


def _thresholds(scenario: _core.Scenario) -> dict[str, Any]:
    """Return the entry of the limits of good and bad that a scenario sets; none if it sets none."""
    return {"thresholds": [list(each) for each in scenario.thresholds]} if scenario.thresholds else {}


def _written(setting: Setting) -> dict[str, Any] | None:
    """Return the identity of an AQM written in Python; None for other AQMs."""
    aqm = setting.scenario.python_aqm
    if aqm is None:
        return None
    return {
        "class": aqm.name,
        "source_sha256": aqm.source,
        "state": aqm.state,
        "params": [each.entry() | {"value": aqm.values[each.name]} for each in aqm.params],
    }


def _is_changed(scenario: _core.Scenario) -> bool:
    """Return True if an override changes the experiment, so that printed values no longer apply.

    Overrides of models do not.
    """
    same = ("run.seed", "run.runs", "run.settings")
    keys = (change.split("=")[0].strip() for change in scenario.overrides)
    return any(key not in same and not key.startswith("model.") for key in keys)


def _now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="seconds")


@cache
def core_digest() -> str:
    """Return the SHA-256 of the compiled core, which identifies runs with the scenario and the seed.

    Every build from changed sources differs, even if only comments changed.
    """
    path = _core.__file__
    return hashlib.sha256(Path(path).read_bytes()).hexdigest() if path else ""


@cache
def build_digest() -> str:
    """Return the SHA-256 of the code that computes metrics: the core, `bentpipe.stats` and `bentpipe.qoe`."""
    found = hashlib.sha256(core_digest().encode())
    for path in metric_sources():
        found.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return found.hexdigest()


def metric_sources() -> list[Path]:
    """Return the Python files that metrics depend on, in a fixed order."""
    found = [path for package in (stats, qoe) for path in sorted(Path(package.__path__[0]).glob("*.py"))]
    return [*found, Path(formatting.__file__)]


@cache
def _git_state() -> dict[str, Any] | None:
    """Return the commit of the checkout and whether it was modified; None outside a checkout."""
    here = Path(__file__).parent

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(here), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)  # noqa: S603
        return done.stdout.strip()

    try:
        git("ls-files", "--error-unmatch", Path(__file__).name)
        lines = git("status", "--porcelain=v2", "--branch", "-uno").splitlines()
    except (OSError, subprocess.SubprocessError):
        return None
    known = dict(line.split(" ", 2)[1:] for line in lines if line.startswith("# "))
    return {"commit": known["branch.oid"], "modified": any(not line.startswith("#") for line in lines)}


def default_folder(scenario: str) -> Path:
    """Return an unused folder below `results/`, named after the scenario and the time."""
    base = Path("results") / f"{scenario}-{datetime.now().astimezone():%Y%m%d-%H%M%S}"
    folder, number = base, 2
    while os.path.lexists(folder):
        folder, number = base.with_name(f"{base.name}-{number}"), number + 1
    return folder


def made_folder(out: Path | None, name: str, make: Callable[[Path], T]) -> tuple[Path, T]:
    """Return the folder of a new result, and what `make` returns for it.

    The folder is `out`, or else the `default_folder` of `name`; if another process makes that one at the same
    moment, the next one.
    """
    while True:
        folder = out if out is not None else default_folder(name)
        try:
            return folder, make(folder)
        except FolderExistsError:
            if out is not None or not os.path.lexists(folder):
                raise
