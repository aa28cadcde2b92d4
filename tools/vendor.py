"""Renew the libraries of the lab's page from their published packages.

    python tools/vendor.py [NAME@VERSION ...]

Without arguments the committed files and those of the packages are compared with the digests in
python/bentpipe/lab/page/vendor/vendor.json, and nothing is written. With arguments these versions take the
place of the committed ones, and vendor.json gets their digests. Needs npm.
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


def differing(package: dict[str, Any], files: dict[str, bytes]) -> list[str]:
    """Return the files of a package that vendor.json does not list so, published or committed."""
    found = []
    for file in package["files"]:
        path = FOLDER / file["name"]
        committed = path.read_bytes() if path.exists() else None
        for what, content in (("published", files.get(file["path"])), ("committed", committed)):
            if content is None or digest(content) != file["sha256"]:
                found.append(f"{file['name']} as {what}")
    return found


def renew(package: dict[str, Any], version: str, licence: str, files: dict[str, bytes]) -> None:
    """Write the files of a package, with their digests."""
    for file in package["files"]:
        content = files[file["path"]]
        (FOLDER / file["name"]).write_bytes(content)
        file["sha256"] = digest(content)
    package |= {"version": version, "license": licence}


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
        name = package["name"]
        if name in wanted:
            renew(package, wanted[name], *published(name, wanted[name]))
            print(f"{name} {wanted[name]}: written")
        elif not wanted:
            different = differing(package, published(name, package["version"])[1])
            failed |= bool(different)
            shown = f"{', '.join(different)} differs" if different else "the same"
            print(f"{name} {package['version']}: {shown}")
    if wanted:
        manifest.write_text(json.dumps(packages, indent=2) + "\n", encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
