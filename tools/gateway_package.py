"""Package the live gateway, as `make deb` and `make static` do.

    python tools/gateway_package.py deb PROGRAM FOLDER [MAINTAINER]
    python tools/gateway_package.py static PROGRAM FOLDER

`deb` writes a Debian package with a built PROGRAM into FOLDER, without root and byte-identical for the same
program and MAINTAINER, `NAME <ADDRESS>`. `static` copies a statically linked PROGRAM there. Both print the
path of what they wrote.
"""

import gzip
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from email.utils import format_datetime
from pathlib import Path

from man_pages import gateway_page

__all__ = ["debian_package", "largest_glibc", "static_program"]

ROOT = Path(__file__).resolve().parents[1]
NAME = "bentpipe-gateway"
UNIT = f"{NAME}@.service"
CONFIGURATIONS = ("gateway.toml", "terminal.toml")
MAINTAINER = "The Bentpipe developers <maintainers@bentpipe.invalid>"
"""Stands for the distributor; RFC 2606 reserves `.invalid` for addresses that cannot exist."""
DESCRIPTION = """congestion control for satellite gateways
 One end of a satellite gateway: a PEP that splits TCP connections, queues with
 active queue management, a rate regulator, and a reliable transport over the
 satellite link."""


def debian_package(program: Path, folder: Path, maintainer: str = MAINTAINER) -> Path:
    """Write the Debian package with `program` into `folder`, and return its path."""
    if not re.fullmatch(r"[^<>,\n]+ <[^<>@\s]+@[^<>@\s]+>", maintainer):
        raise SystemExit(f'MAINTAINER: found "{maintainer}"; expected: a name and an address, NAME <ADDRESS>')
    version = _said(program, "--version").split()[1]
    architecture = _output("dpkg", "--print-architecture").strip()
    when = _release_time()
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary) / "tree"
        _install(tree / "usr/bin" / NAME, program.read_bytes(), mode=0o755)
        unit = (ROOT / "deploy" / UNIT).read_text(encoding="utf-8").replace("/usr/local/bin/", "/usr/bin/")
        _install(tree / "usr/lib/systemd/system" / UNIT, unit)
        for name in CONFIGURATIONS:
            _install(tree / "etc/bentpipe" / name, (ROOT / "deploy" / name).read_bytes())
        page = gateway_page(_said(program, "--help"), version)
        _install(tree / "usr/share/man/man8" / f"{NAME}.8.gz", _compressed(page))
        documentation = tree / "usr/share/doc" / NAME
        _install(documentation / "copyright", _copyright())
        _install(documentation / "changelog.gz", _compressed(_changelog(version, when, maintainer)))
        dashboard = "grafana-dashboard.json"
        _install(documentation / dashboard, (ROOT / "deploy" / dashboard).read_bytes())
        bill = "bentpipe-gateway.cdx.json"
        _install(documentation / bill, (ROOT / "deploy" / "sbom" / bill).read_bytes())
        size = sum(each.stat().st_size for each in tree.rglob("*") if each.is_file())
        control = tree / "DEBIAN"
        _install(control / "control", _control(version, architecture, maintainer, program, size))
        _install(control / "conffiles", "".join(f"/etc/bentpipe/{name}\n" for name in CONFIGURATIONS))
        for script in ("postinst", "prerm", "postrm"):
            _install(control / script, (ROOT / "deploy" / "debian" / script).read_bytes(), mode=0o755)
        for each in (tree, *tree.rglob("*")):
            if each.is_dir():
                each.chmod(0o755)
            os.utime(each, (when, when))
        folder.mkdir(parents=True, exist_ok=True)
        package = folder / f"{NAME}_{version}_{architecture}.deb"
        environment = {**os.environ, "SOURCE_DATE_EPOCH": str(when)}
        command = ["dpkg-deb", "--root-owner-group", "-Zxz", "--build", str(tree), str(package)]
        subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)  # noqa: S603
    return package


def static_program(program: Path, folder: Path) -> Path:
    """Copy a statically linked `program` into `folder`, and return its path; exit for another."""
    headers = _output("readelf", "--wide", "--program-headers", "--dynamic", str(program))
    if "INTERP" in headers or "(NEEDED)" in headers:
        raise SystemExit(f"{program}: is linked to shared libraries; expected: a program without any")
    version = _said(program, "--version").split()[1]
    folder.mkdir(parents=True, exist_ok=True)
    copy = folder / f"{NAME}-{version}-{platform.machine()}-linux-static"
    shutil.copy(program, copy)
    subprocess.run(["strip", str(copy)], check=True)  # noqa: S603, S607
    return copy


def largest_glibc(program: bytes) -> tuple[int, int]:
    """Return the newest version of glibc of which an ELF file uses a symbol; exits for a static program."""
    found = re.findall(rb"\0GLIBC_(\d+)\.(\d+)", program)
    if not found:
        raise SystemExit("the program uses no symbol of glibc; expected: one that is linked to glibc")
    return max((int(major), int(minor)) for major, minor in found)


def _control(version: str, architecture: str, maintainer: str, program: Path, size: int) -> str:
    glibc = ".".join(map(str, largest_glibc(program.read_bytes())))
    return (
        f"Package: {NAME}\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {maintainer}\n"
        f"Installed-Size: {-(-size // 1024)}\n"
        f"Depends: libc6 (>= {glibc}), libgcc-s1, iptables, iproute2\n"
        f"Section: net\nPriority: optional\nDescription: {DESCRIPTION}\n"
    )


def _copyright() -> str:
    return (
        "Bentpipe is copyright of the Bentpipe developers, and licensed under the Apache License 2.0.\n"
        "On Debian systems, its text is in /usr/share/common-licenses/Apache-2.0.\n"
    )


def _changelog(version: str, when: int, maintainer: str) -> str:
    date = format_datetime(datetime.fromtimestamp(when, UTC))
    return (
        f"{NAME} ({version}) unstable; urgency=medium\n\n  * See CHANGELOG.md.\n\n -- {maintainer}  {date}\n"
    )


def _release_time() -> int:
    """Return the time of all files [s since 1970]: `SOURCE_DATE_EPOCH`, else the date of the last release."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return int(given)
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    found = re.search(r"^## .*(\d{4}-\d{2}-\d{2})", changelog, re.MULTILINE)
    return int(datetime.fromisoformat(found[1]).replace(tzinfo=UTC).timestamp()) if found else 0


def _install(path: Path, contents: str | bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(contents.encode() if isinstance(contents, str) else contents)
    path.chmod(mode)


def _compressed(text: str) -> bytes:
    return gzip.compress(text.encode(), 9, mtime=0)


def _said(program: Path, option: str) -> str:
    return _output(str(program.resolve()), option)


def _output(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603


if __name__ == "__main__":
    kind, built, target, *more = sys.argv[1:]
    make = {"deb": debian_package, "static": static_program}[kind]
    print(make(Path(built), Path(target), *more))
