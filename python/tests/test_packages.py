"""The wheel works without the source tree, and the Debian package installs, removes and purges."""

import gzip
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT

import bentpipe
import sbom
from gateway_package import NAME, debian_package, largest_glibc, static_program

PACKAGES = ROOT / "target" / "package"
WHEELS = sorted(PACKAGES.glob("bentpipe-*.whl"))
PROGRAM = ROOT / "python" / "bentpipe" / "bin" / NAME
DOCUMENTATION = ("changelog.gz", "copyright", "grafana-dashboard.json", sbom.GATEWAY)
SITE = next(path for path in map(Path, sys.path) if path.name == "site-packages")

built = pytest.mark.skipif(len(WHEELS) != 1, reason="no wheel in target/package: make wheel")


def run(*command: str | Path, folder: Path, code: int = 0) -> str:
    """Run a command in `folder` without the environment of the tests; its output."""
    environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": str(folder)}
    done = subprocess.run(
        list(map(str, command)), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


@built
def test_wheel_is_manylinux_and_no_file_needs_a_newer_glibc() -> None:
    found = re.fullmatch(r"bentpipe-[\d.]+-cp311-abi3-manylinux_2_(\d+)_x86_64\.whl", WHEELS[0].name)
    assert found, WHEELS[0].name
    with zipfile.ZipFile(WHEELS[0]) as wheel:
        programs = [name for name in wheel.namelist() if wheel.read(name).startswith(b"\x7fELF")]
        assert {Path(name).name for name in programs} == {"_core.abi3.so", NAME, "bentpipe-testbed"}
        for name in programs:
            assert largest_glibc(wheel.read(name)) <= (2, int(found[1])), name


def test_a_program_without_symbols_of_glibc_is_refused() -> None:
    assert largest_glibc(b"\0GLIBC_2.17\0GLIBC_2.4\0") == (2, 17)
    with pytest.raises(SystemExit, match="uses no symbol of glibc"):
        largest_glibc(b"\x7fELF")


@built
def test_wheel_works_in_a_fresh_environment(tmp_path: Path) -> None:
    """The dependencies are those of the tests' environment; Bentpipe itself comes from the wheel."""
    home = tmp_path / "venv"
    run(sys.executable, "-m", "venv", "--without-pip", home, folder=tmp_path)
    python, bentpipe = home / "bin" / "python", home / "bin" / "bentpipe"
    install: list[str | Path] = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        python,
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
    ]
    run(*install, WHEELS[0], folder=tmp_path)
    site = next((home / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(f"{SITE}\n")

    where = run(
        python, "-c", "import bentpipe; print(bentpipe.__file__, bentpipe.__version__)", folder=tmp_path
    )
    assert where.startswith(str(site))
    version = where.split()[1]
    assert run(bentpipe, "--version", folder=tmp_path) == f"bentpipe {version}\n"
    assert "Bentpipe " + version in run(bentpipe, "doctor", folder=tmp_path)
    run(bentpipe, "run", "small-gateway", "--duration", "2 s", "--out", "result", folder=tmp_path)
    assert (tmp_path / "result" / "manifest.json").is_file()
    assert "RED" in run(bentpipe, "show", "byun2007-gateway", folder=tmp_path)
    assert "usage" in run(site / "bentpipe" / "bin" / NAME, "--help", folder=tmp_path)
    assert (site / "bentpipe" / "data" / "scenarios" / "scenario.schema.json").is_file()
    pages = {path.name for path in (home / "share" / "man" / "man1").iterdir()}
    assert {"bentpipe.1", "bentpipe-run.1", "bentpipe-model-capture.1"} <= pages


@built
def test_wheel_has_the_bill_of_materials() -> None:
    with zipfile.ZipFile(WHEELS[0]) as wheel:
        found = {name: wheel.read(name) for name in wheel.namelist() if "/sboms/" in name}
    assert [Path(name).name for name in found] == [sbom.WHOLE]
    assert list(found.values()) == [(sbom.FOLDER / sbom.WHOLE).read_bytes()]


@built
def test_source_distribution_holds_what_a_wheel_needs() -> None:
    with tarfile.open(next(PACKAGES.glob("bentpipe-*.tar.gz"))) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    package = ROOT / "python" / "bentpipe"
    wanted = {path.relative_to(ROOT).as_posix() for path in package.rglob("*.py")}
    wanted |= {f"python/bentpipe/data/scenarios/{path.name}" for path in (ROOT / "scenarios").glob("*.*")}
    wanted |= {"Cargo.lock", "pyproject.toml", "README.md", "LICENSE", "crates/sim/src/lib.rs"}
    wanted |= {path.relative_to(ROOT).as_posix() for path in (ROOT / "deploy" / "wheel").rglob("*.1")}
    wanted |= {"python/bentpipe/report/templates/report.js", f"deploy/sbom/{sbom.WHOLE}"}
    assert wanted - names == set()


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if shutil.which("dpkg-deb") is None or not PROGRAM.exists():
        pytest.skip("needs dpkg-deb and the live gateway")
    return debian_package(PROGRAM, tmp_path_factory.mktemp("deb"))


@pytest.mark.long
def test_debian_package_is_reproducible(package: Path, tmp_path: Path) -> None:
    assert debian_package(PROGRAM, tmp_path).read_bytes() == package.read_bytes()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder in place of /, with an empty database of packages."""
    root = tmp_path / "root"
    for folder in ("var/lib/dpkg/updates", "var/lib/dpkg/info", "etc/systemd/system/multi-user.target.wants"):
        (root / folder).mkdir(parents=True)
    (root / "var/lib/dpkg/status").touch()
    (root / "run/bentpipe").mkdir(parents=True)
    return root


def dpkg(root: Path, *arguments: str | Path) -> None:
    """Run dpkg in `root` without being root, and without dependencies."""
    forced = ["--force-depends", "--force-script-chrootless", "--force-not-root"]
    run("dpkg", f"--root={root}", *forced, f"--log={root.parent / 'log'}", *arguments, folder=root.parent)


def test_debian_package_installs_removes_and_purges(package: Path, root: Path, tmp_path: Path) -> None:
    def files() -> set[str]:
        every = {path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir()}
        return {name for name in every if not name.startswith("var/")}

    dpkg(root, "--install", package)
    configurations = {"etc/bentpipe/gateway.toml", "etc/bentpipe/terminal.toml"}
    assert files() == configurations | {
        f"usr/bin/{NAME}",
        f"usr/lib/systemd/system/{NAME}@.service",
        f"usr/share/man/man8/{NAME}.8.gz",
        *(f"usr/share/doc/{NAME}/{name}" for name in DOCUMENTATION),
    }
    unit = (root / f"usr/lib/systemd/system/{NAME}@.service").read_text()
    assert set(re.findall(r"(/\S+)/bentpipe-gateway ", unit)) == {"/usr/bin"}
    version = run(root / "usr/bin" / NAME, "--version", folder=tmp_path).split()[1]
    assert package.name.startswith(f"{NAME}_{version}_")
    page = gzip.decompress((root / f"usr/share/man/man8/{NAME}.8.gz").read_bytes()).decode()
    uses = re.findall(rf"{NAME} (\S+)", run(root / "usr/bin" / NAME, "--help", folder=tmp_path))
    assert len(uses) >= 6
    assert all(use.replace("-", "\\-") in page for use in uses)
    assert os.access(root / "usr/bin" / NAME, os.X_OK)
    assert "is valid" not in run(
        root / "usr/bin" / NAME, "check", root / "etc/bentpipe/gateway.toml", folder=tmp_path, code=2
    )

    # A changed configuration, keys and an enabled unit outlive a removal, but not a purge.
    (root / "etc/bentpipe/gateway.toml").write_text("# changed\n")
    run(root / "usr/bin" / NAME, "keygen", root / "etc/bentpipe/keys", folder=tmp_path)
    link = root / f"etc/systemd/system/multi-user.target.wants/{NAME}@gateway.service"
    link.symlink_to(f"/usr/lib/systemd/system/{NAME}@.service")
    dpkg(root, "--remove", NAME)
    assert configurations < files()
    assert not any(name.startswith("usr/") for name in files())
    assert (root / "etc/bentpipe/gateway.toml").read_text() == "# changed\n"
    dpkg(root, "--purge", NAME)
    assert files() == set()
    assert not link.is_symlink()
    assert not (root / "etc/bentpipe").exists()
    assert not (root / "run/bentpipe").exists()


def test_upgrade_keeps_what_the_administrator_changed(package: Path, root: Path, tmp_path: Path) -> None:
    """Both configurations have changed between the versions; the administrator has changed one."""
    tree = tmp_path / "tree"
    run("dpkg-deb", "--raw-extract", package, tree, folder=tmp_path)
    control = (tree / "DEBIAN/control").read_text()
    (version,) = re.findall(r"^Version: (.*)$", control, re.MULTILINE)
    (tree / "DEBIAN/control").write_text(control.replace(f"Version: {version}", "Version: 0.1.9"))
    names = ("gateway.toml", "terminal.toml")
    shipped = {name: (tree / "etc/bentpipe" / name).read_text() for name in names}
    for name in names:
        (tree / "etc/bentpipe" / name).write_text(shipped[name] + "# of the earlier version\n")
    (tree / f"usr/bin/{NAME}").write_text("#!/bin/sh\necho earlier\n")
    earlier = tmp_path / "earlier.deb"
    run("dpkg-deb", "--root-owner-group", "--build", tree, earlier, folder=tmp_path)

    dpkg(root, "--install", earlier)
    assert run(root / "usr/bin" / NAME, folder=tmp_path) == "earlier\n"
    folder = root / "etc/bentpipe"
    (folder / "gateway.toml").write_text("# changed\n")
    (folder / "keys").mkdir()
    (folder / "keys" / "gateway.key").write_text("secret")
    enabled = root / f"etc/systemd/system/multi-user.target.wants/{NAME}@gateway.service"
    enabled.symlink_to(f"/usr/lib/systemd/system/{NAME}@.service")

    # As apt upgrades without questions: changed files stay, the new ones lie beside them.
    dpkg(root, "--force-confdef", "--force-confold", "--install", package)
    assert run(root / "usr/bin" / NAME, "--version", folder=tmp_path) == f"{NAME} {version}\n"
    assert (folder / "gateway.toml").read_text() == "# changed\n"
    assert (folder / "gateway.toml.dpkg-dist").read_text() == shipped["gateway.toml"]
    assert (folder / "terminal.toml").read_text() == shipped["terminal.toml"]
    assert (folder / "keys" / "gateway.key").read_text() == "secret"
    assert enabled.is_symlink()
    dpkg(root, "--purge", NAME)
    left = [path for path in root.rglob("*") if NAME in path.name or "bentpipe" in path.parts]
    assert left == []


def test_debian_package_names_the_given_maintainer(tmp_path: Path, package: Path) -> None:
    # A small program, since compression takes four seconds for the gateway.
    program = tmp_path / NAME
    program.write_text(f"#!/bin/sh\nexec '{PROGRAM}' \"$@\"\n\0GLIBC_2.34\n")
    program.chmod(0o755)
    given = debian_package(program, tmp_path, "A. Packager <packager@example.org>")
    assert (
        run("dpkg-deb", "--field", given, "Maintainer", folder=tmp_path).strip().startswith("A. Packager <")
    )
    # Nobody can own the address without one (RFC 2606, section 2).
    assert run("dpkg-deb", "--field", package, "Maintainer", folder=tmp_path).strip().endswith(".invalid>")
    with pytest.raises(SystemExit, match='MAINTAINER: found "me"; expected: a name and an address'):
        debian_package(program, tmp_path, "me")


def instructions() -> list[tuple[str, str]]:
    """Return the instructions of the Containerfile with their arguments."""
    text = (ROOT / "deploy" / "Containerfile").read_text(encoding="utf-8").replace("\\\n", "")
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


@built
def test_image_copies_existing_files_and_installs_as_tested() -> None:
    """The file is not built here: the image of Python would have to come from a network."""
    steps = instructions()
    assert [word for word, _ in steps[:3]] == ["ARG", "FROM", "COPY"]
    assert steps[0][1].startswith("BASE=")
    assert steps[1][1] == "${BASE}"
    copied = steps[2][1].split()[:-1]
    assert copied[0] == "requirements.txt"
    assert (ROOT / copied[0]).is_file()
    assert list(PACKAGES.glob(copied[1])) == WHEELS
    _, requirements, wheel, *_ = next(rest for word, rest in steps if word == "RUN").split("&&")
    assert "--require-hashes -r" in requirements
    assert "--no-deps --no-index" in wheel
    required = (ROOT / "requirements.txt").read_text(encoding="utf-8")
    assert re.search(r"^distributed==", required, re.MULTILINE)


def test_image_has_the_commands_of_the_kubernetes_operator(tmp_path: Path) -> None:
    """The command lines are those of `kubecluster.py` in dask-kubernetes 2025.7.0."""
    script = next(rest for word, rest in instructions() if word == "RUN" and "dask-$each" in rest)
    for name in ("bentpipe", "bin"):
        (tmp_path / name / "bin").mkdir(parents=True)
    (tmp_path / "bin" / "useradd").symlink_to(shutil.which("true") or "/bin/true")
    search = [
        tmp_path / "bin",
        tmp_path / "bentpipe" / "bin",
        Path(sys.executable).parent,
        "/usr/bin",
        "/bin",
    ]
    environment = {"PATH": os.pathsep.join(map(str, search)), "HOME": str(tmp_path)}
    script = script.replace("/opt/bentpipe", str(tmp_path / "bentpipe"))
    subprocess.run(["sh", "-e", "-c", script], check=True, env=environment)  # noqa: S607
    for command in (
        ["dask-scheduler", "--host", "0.0.0.0"],  # noqa: S104
        ["dask-worker", "--name", "w-1", "--dashboard", "--dashboard-address", "8788"],
    ):
        # Options are parsed before `--help` ends the command.
        program = tmp_path / "bentpipe" / "bin" / command[0]
        done = subprocess.run(
            [program, *command[1:], "--help"], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "Usage" in done.stdout


def test_image_is_built_with_the_given_program_and_base() -> None:
    done = subprocess.run(
        ["make", "--dry-run", "image", "CONTAINER=podman", "BASE=here", "IMAGE_OPTIONS=--network host"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "podman build --build-arg BASE=here --network host --tag bentpipe --file deploy/" in done.stdout


def test_static_program_has_no_shared_libraries(tmp_path: Path) -> None:
    """Of two programs linked with the flags of `make static` and without, only the first is taken."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    flags = re.findall(r'^static:.*\n\tRUSTFLAGS="\$\(RUSTFLAGS\) ([^"]*)"', makefile, re.MULTILINE)[0]
    source = tmp_path / "main.rs"
    source.write_text('fn main() { println!("bentpipe-gateway 1.2.3") }')
    for name, options in (("static", flags.split()), ("shared", [])):
        subprocess.run(["rustc", *options, "-o", str(tmp_path / name), str(source)], check=True)  # noqa: S607
    taken = static_program(tmp_path / "static", tmp_path / "out")
    assert taken.name.startswith(f"{NAME}-1.2.3-")
    assert run(taken, folder=tmp_path) == f"{NAME} 1.2.3\n"
    with pytest.raises(SystemExit, match="is linked to shared libraries"):
        static_program(tmp_path / "shared", tmp_path / "out")


def test_lock_file_of_the_fuzz_targets_has_what_the_crates_depend_on() -> None:
    """Otherwise `make fuzz` refuses to build them."""
    lock = tomllib.loads((ROOT / "fuzz" / "Cargo.lock").read_text(encoding="utf-8"))
    locked = {each["name"]: {d.split()[0] for d in each.get("dependencies", ())} for each in lock["package"]}
    ours = {crate for crate in locked if (ROOT / "crates" / crate.removeprefix("bentpipe-")).exists()}
    for crate in ours:
        path = ROOT / "crates" / crate.removeprefix("bentpipe-") / "Cargo.toml"
        manifest = tomllib.loads(path.read_text(encoding="utf-8"))
        tables = [manifest, *manifest.get("target", {}).values()]
        needed = {
            name
            for table in tables
            for name, given in table.get("dependencies", {}).items()
            if not (isinstance(given, dict) and given.get("optional"))
        }
        assert needed <= locked[crate], crate
    assert "bentpipe-sim" in ours


def test_versions_agree() -> None:
    """The crates' version is the one place; the core, the packages and the pages take it from there."""
    version = tomllib.loads((ROOT / "Cargo.toml").read_text(encoding="utf-8"))["workspace"]["package"][
        "version"
    ]
    for name in ("", "fuzz/"):
        lock = tomllib.loads((ROOT / f"{name}Cargo.lock").read_text(encoding="utf-8"))
        ours = {each["version"] for each in lock["package"] if each["name"].startswith("bentpipe")}
        assert ours == {version}, f"{name}Cargo.lock"
    assert bentpipe.__version__ == version
    if PROGRAM.exists():
        assert run(PROGRAM, "--version", folder=ROOT) == f"{NAME} {version}\n"
    for wheel in WHEELS:
        assert wheel.name.startswith(f"bentpipe-{version}-")
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    released = re.findall(r"^## \[(\d[^]]*)\] - (\S+)$", changelog, re.MULTILINE)[0]
    assert released[0] == version
    assert f"\nversion: {version}\ndate-released: {released[1]}\n" in citation
