"""The profile that the core is compiled with, and the runs that it is made from."""

import shutil
import subprocess
from pathlib import Path

import pytest
from patience import PATIENCE

import simulator_profile

ROOT = Path(__file__).parents[2]


def test_long_runs_take_scenarios_and_settings_that_exist() -> None:
    labels = [label for label, _ in simulator_profile.long_runs()]
    assert len(set(labels)) == len(simulator_profile.LONG) >= 5


def test_short_runs_take_every_shipped_scenario_and_every_algorithm() -> None:
    labels = [label for label, _ in simulator_profile.short_runs()]
    found = {label.split(" ", 1)[0] for label in labels}
    assert found == {path.stem for path in (ROOT / "scenarios").glob("*.toml")}
    assert {"byun2007-gateway cake", "byun2007-gateway AVQRED", "byun2007-gateway dualpi2"} <= set(labels)


def test_profile_is_named_by_the_compilers_version() -> None:
    path = simulator_profile.profile_path("rustc 1.95.0\nLLVM version: 22.1.2\n")
    assert path.name == "llvm-22.1.2.profdata"
    with pytest.raises(SystemExit, match="names no version of LLVM"):
        simulator_profile.profile_path("rustc 1.95.0\n")


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make")
@pytest.mark.parametrize("flags", [None, "-g --cfg x"])
def test_core_is_compiled_with_the_profile_of_this_compiler(tmp_path: Path, flags: str | None) -> None:
    folder = tmp_path / "a folder"
    profiles = folder / "tools" / "profiles"
    profiles.mkdir(parents=True)
    shutil.copy(ROOT / "Makefile", folder)
    compiler = subprocess.run(("rustc", "-vV"), capture_output=True, text=True, check=True).stdout  # noqa: S607
    (folder / "print.mk").write_text(
        "include Makefile\nprint:\n\t@$(PROFILED) printenv CARGO_ENCODED_RUSTFLAGS\n"
    )

    def encoded() -> str:
        given = [] if flags is None else [f"RUSTFLAGS={flags}"]
        command = ("make", "--silent", "-f", "print.mk", "print", *given)
        done = subprocess.run(
            command, cwd=folder, capture_output=True, text=True, check=False, timeout=PATIENCE
        )
        return done.stdout.rstrip("\n")

    assert encoded() == ""
    (profiles / "llvm-0.0.profdata").touch()
    assert encoded() == ""
    own = profiles / simulator_profile.profile_path(compiler).name
    own.touch()
    expected = [] if flags is None else flags.split()
    assert encoded().split("\x1f") == [
        *expected,
        "-Cllvm-args=-no-pgo-warn-mismatch",
        f"-Cprofile-use={own}",
    ]
