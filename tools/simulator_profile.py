"""Renew the profile that the core is compiled with, and time what it was made from: `make profile`.

    python tools/simulator_profile.py renew
    python tools/simulator_profile.py times [CORE]     with another compiled module than the installed one

`renew` builds the core with counters, lets it run what users run, and writes the counts to
tools/profiles/llvm-VERSION.profdata. The compiler (LLVM) of that version optimizes the core for them; another
one compiles it as usual. `times` prints the processor time of the longer runs.
"""

import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.machinery import ExtensionFileLoader
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bentpipe._core import Scenario

__all__ = ["LONG", "long_runs", "profile_path", "short_runs"]

ROOT = Path(__file__).resolve().parents[1]
SCENARIOS, PROFILES = ROOT / "scenarios", ROOT / "tools" / "profiles"
TARGET = ROOT / "target" / "profile"

LONG: tuple[tuple[str, str, list[str]], ...] = (
    ("byun2007-gateway", "RED 4", ["run.duration=200 s"]),
    ("byun2007-gateway", "AVQRED", ["run.duration=200 s"]),
    ("red-dumbbell", "RED 60/120", []),
    ("red-dumbbell", "codel", ["link.bottleneck.delay=10 ms", "run.duration=50 s"]),
    ("quic-geo", "pfavqred", ["run.warmup=5 s", "run.duration=15 s"]),
    ("beam", "", ["run.warmup=0 s", "run.duration=10 s"]),
)
"""Scenario, setting and overrides: long and short round trips, with a PEP and without, few users and many."""
SHORT = ["run.warmup=500 ms", "run.duration=1 s"]
"""Overrides of the runs of everything else, which the compiler would take for code that never runs. They are
short, since what runs most counts most."""


def _scenario(name: str, overrides: list[str]) -> "Scenario":
    from bentpipe._core import Scenario

    return Scenario.load(str(SCENARIOS / f"{name}.toml"), overrides)


def long_runs() -> Iterator[tuple[str, "Scenario"]]:
    """Read the scenario of each long run; yield it after its name and setting."""
    for name, setting, overrides in LONG:
        scenario = _scenario(name, overrides)
        yield f"{name} {setting}", scenario.with_setting(setting) if setting else scenario


def short_runs() -> Iterator[tuple[str, "Scenario"]]:
    """Yield every shipped scenario under its settings, and one under every algorithm, each after its name."""
    for path in sorted(SCENARIOS.glob("*.toml")):
        scenario = _scenario(path.stem, SHORT)
        every = path.stem == "byun2007-gateway"
        for setting in scenario.all_settings()[0] if every else scenario.settings:
            yield f"{path.stem} {setting}", scenario.with_setting(setting)


def profile_path(compiler: str) -> Path:
    """Return the profile for the compiler that describes itself so (`rustc -vV`)."""
    version = re.search(r"^LLVM version: (\S+)$", compiler, flags=re.MULTILINE)
    if version is None:
        raise SystemExit("simulator_profile: rustc -vV names no version of LLVM")
    return PROFILES / f"llvm-{version[1]}.profdata"


def _use(core: Path) -> None:
    """Let `bentpipe._core` be the compiled module at a path."""
    loader = ExtensionFileLoader("bentpipe._core", str(core))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    if spec is None:
        raise SystemExit(f"simulator_profile: {core} cannot be imported")
    sys.modules[loader.name] = module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)


def _times() -> None:
    from bentpipe._core import Progress, simulate

    for label, scenario in long_runs():
        print(f"{label:30} {simulate(scenario, 1, Progress()).cpu_seconds:8.3f} CPU s")


def _train() -> None:
    from bentpipe._core import Progress, fluid, simulate, stability

    _times()
    for _, scenario in short_runs():
        simulate(scenario, 1, Progress())
    for name, setting in (("byun2007-gateway", "AVQRED"), ("red-dumbbell", "RED 60/120")):
        scenario = _scenario(name, SHORT).with_setting(setting)
        fluid(scenario, 1)
        stability(scenario, 1, [(None, None, None)], 1)


def _output(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout  # noqa: S603


def _renew() -> None:
    counts = TARGET / "counts"
    flags = {"CARGO_TARGET_DIR": str(TARGET), "CARGO_ENCODED_RUSTFLAGS": f"-Cprofile-generate={counts}"}
    build = ("cargo", "build", "--locked", "--release", "--quiet", "-p", "bentpipe-python")
    subprocess.run(build, cwd=ROOT, env={**os.environ, **flags}, check=True)  # noqa: S603
    for other in counts.glob("*.profraw"):
        # Those of former runs, and of programs that the build ran.
        other.unlink()
    train = (sys.executable, __file__, "train", str(TARGET / "release" / "lib_core.so"))
    subprocess.run(train, cwd=ROOT, check=True)  # noqa: S603
    merge = Path(_output("rustc", "--print", "target-libdir").strip()).parent / "bin" / "llvm-profdata"
    path = profile_path(_output("rustc", "-vV"))
    PROFILES.mkdir(exist_ok=True)
    for old in PROFILES.glob("*.profdata"):
        old.unlink()
    _output(str(merge), "merge", "--sparse", f"--output={path}", *map(str, counts.glob("*.profraw")))
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size:,} bytes")


def main() -> None:
    """Do what the arguments ask for."""
    match sys.argv[1:]:
        case ["renew"]:
            _renew()
        case ["train", core]:
            _use(Path(core))
            _train()
        case ["times"]:
            _times()
        case ["times", core]:
            _use(Path(core))
            _times()
        case _:
            raise SystemExit(__doc__)


if __name__ == "__main__":
    main()
