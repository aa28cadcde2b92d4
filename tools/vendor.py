"""Renew the libraries of the lab's page from their published packages.

    python tools/vendor.py [NAME@VERSION ...]

Without arguments the committed files are compared with the packages of their versions. With arguments these
versions take their place, and python/bentpipe/lab/page/vendor/vendor.json gets their digests. Needs npm.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "python/bentpipe/lab/page/vendor"


def digest(content: bytes) -> str:
    """Return the SHA-256 of a file's content."""
    return hashlib.sha256(content).hexdigest()


def published(name: str, version: str) -> tuple[str, dict[str, bytes]]:
    """Return the licence of a package, and its files by their paths."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("error: npm is missing; install Node.js, which has it")
    with tempfile.TemporaryDirectory() as folder:
        command = [npm, "pack", "--silent", f"{name}@{version}"]
        packed = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True)  # noqa: S603
        with tarfile.open(Path(folder) / packed.stdout.split()[-1]) as archive:
            files = {
                each.name.removeprefix("package/"): archive.extractfile(each).read()  # type: ignore[union-attr]
                for each in archive
                if each.isfile()
            }
    return json.loads(files["package.json"])["license"], files


def renew(package: dict[str, Any], version: str) -> list[str]:
    """Write the files of a package, and return those that differ from the committed ones."""
    licence, files = published(package["name"], version)
    changed = []
    for file in package["files"]:
        content = files[file["path"]]
        if digest(content) != file["sha256"]:
            changed.append(file["name"])
        (FOLDER / file["name"]).write_bytes(content)
        file["sha256"] = digest(content)
    package |= {"version": version, "license": licence}
    return changed


def main() -> int:
    """Compare, or renew."""
    wanted = dict(each.rpartition("@")[::2] for each in sys.argv[1:])
    manifest = FOLDER / "vendor.json"
    packages = json.loads(manifest.read_text(encoding="utf-8"))
    unknown = wanted.keys() - {package["name"] for package in packages}
    if unknown:
        sys.exit(f"error: {', '.join(sorted(unknown))}: not in {manifest}")
    failed = False
    for package in packages:
        version = wanted.get(package["name"], package["version"])
        changed = renew(package, version)
        failed |= bool(changed) and version == package["version"] and package["name"] not in wanted
        print(f"{package['name']} {version}: {', '.join(changed) or 'as committed'}")
    manifest.write_text(json.dumps(packages, indent=2) + "\n", encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
