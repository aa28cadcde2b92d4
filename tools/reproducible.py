"""Build the packages twice and compare them byte by byte: `make reproducible`.

The last commit is cloned into two folders of different names. In each the wheel, the source distribution and
the Debian package of the live gateway are built with `REPRODUCIBLE=1`. The digests are printed; one that
differs is an error, and both files are kept.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

__all__ = ["compared", "differing_members"]

ROOT = Path(__file__).resolve().parents[1]
BASE = ROOT / "target" / "reproducible"
FOLDERS = ("first", "another/second")
_CORE = "python/bentpipe/_core.abi3.so"
_SCRIPTS = "python/bentpipe/report/templates"
"""Folder of scripts that `make setup` writes."""


def build(folder: Path, commit: str) -> Path:
    """Clone `commit` into `folder`, build its packages, and return where they are."""
    shutil.rmtree(folder, ignore_errors=True)
    subprocess.run(("git", "clone", "--quiet", str(ROOT), str(folder)), check=True)  # noqa: S603, S607
    subprocess.run(("git", "checkout", "--quiet", commit), cwd=folder, check=True)  # noqa: S603, S607
    (folder / ".venv").symlink_to(sys.prefix)
    for script in (ROOT / _SCRIPTS).glob("vega-lite-*.js"):
        shutil.copy(script, folder / _SCRIPTS)
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith(("CARGO_TARGET", "MAKE"))
    }
    # The editable core is not part of a package.
    command = ("make", "-o", _CORE, "REPRODUCIBLE=1", "wheel", "deb")
    subprocess.run(command, cwd=folder, env=environment, check=True)  # noqa: S603
    return folder / "target" / "package"


def compared(first: Path, second: Path) -> tuple[list[str], list[str]]:
    """Return a line with the digest of each package, and a line for each difference."""
    names = sorted({path.name for folder in (first, second) for path in folder.iterdir()})
    digests, different = [], []
    for name in names:
        files = [folder / name for folder in (first, second)]
        if not all(file.is_file() for file in files):
            different.append(f"{name}: only one build has it")
            continue
        contents = [file.read_bytes() for file in files]
        digests.append(f"{hashlib.sha256(contents[0]).hexdigest()}  {name}")
        if contents[0] != contents[1]:
            different.append(f"{name}: {differing_members(*files)}")
    return digests, different


def differing_members(first: Path, second: Path) -> str:
    """Return which members of two wheels differ; for other files that they do."""
    if first.suffix != ".whl":
        return f"{first} and {second} differ"
    with zipfile.ZipFile(first) as one, zipfile.ZipFile(second) as other:
        if one.namelist() != other.namelist():
            return "the names of members, or their order, differ"
        members = [name for name in one.namelist() if one.read(name) != other.read(name)]
    return ", ".join(members) + " differ" if members else "the times or modes of members differ"


def main() -> int:
    """Build, compare and print."""
    commit = subprocess.check_output(("git", "rev-parse", "HEAD"), cwd=ROOT, text=True).strip()  # noqa: S607
    digests, different = compared(*(build(BASE / name, commit) for name in FOLDERS))
    print("\n".join(digests))
    if different:
        print(f"reproducible: two builds differ: {'; '.join(different)}", file=sys.stderr)
        return 2
    for name in FOLDERS:
        shutil.rmtree(BASE / name)
    return 0


if __name__ == "__main__":
    sys.exit(main())
