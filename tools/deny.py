"""Check licences, sources, duplicates and known vulnerabilities of the crates with cargo-deny: `make deny`.

    python tools/deny.py CARGO_DENY

CARGO_DENY is the program. BENTPIPE_ADVISORIES is the path of a clone or a bundle of RustSec's advisory
database, for machines that cannot fetch it. If it is not set and fetching fails, advisories are not checked,
and a message says so.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

__all__ = ["DATABASE", "VARIABLE", "main"]

ROOT = Path(__file__).resolve().parents[1]
VARIABLE = "BENTPIPE_ADVISORIES"
DATABASE = ROOT / "target" / "advisory-dbs" / "advisory-db-3157b0e258782691"
"""Folder in which cargo-deny looks for its default database, named by a hash of its address."""
_EXPECTED = "a clone or a bundle of RustSec's advisory-db"
_FETCH_SECONDS = 60


def main(program: str) -> int:
    """Run all checks; return 2 if one fails."""
    command = [program, "--locked", "--manifest-path", str(ROOT / "Cargo.toml")]
    checks = ["licenses", "bans", "sources", "advisories"]
    if given := os.environ.get(VARIABLE):
        if message := _clone(given):
            print(message, file=sys.stderr)
            return 2
    elif not _fetched(command):
        checks.remove("advisories")
        print(
            "deny: advisories were not checked, because their database cannot be fetched: "
            f"set {VARIABLE} to {_EXPECTED}"
        )
    done = subprocess.run(  # noqa: S603
        [*command, "--offline", "check", *checks], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if done.returncode:
        print(done.stdout + done.stderr, file=sys.stderr)
        return 2
    return 0


def _clone(given: str) -> str:
    """Replace the database by the given one; return what is wrong with that, which then replaces nothing."""
    new = DATABASE.with_name(f"{DATABASE.name}-new")
    shutil.rmtree(new, ignore_errors=True)
    command = ["git", "clone", "--quiet", given, str(new)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        return f"deny: {VARIABLE}: found {given}, which git cannot clone; expected: {_EXPECTED}"
    if not (new / "crates").is_dir():
        return f"deny: {VARIABLE}: found {given}, which has no folder crates; expected: {_EXPECTED}"
    shutil.rmtree(DATABASE, ignore_errors=True)
    new.rename(DATABASE)
    return ""


def _fetched(command: list[str]) -> bool:
    """Fetch the database; return False if that fails."""
    try:
        done = subprocess.run(  # noqa: S603
            [*command, "fetch", "db"],
            cwd=ROOT,
            env={**os.environ, "GIT_TERMINAL_PROMPT": "0"},
            capture_output=True,
            timeout=_FETCH_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        sys.exit(2)
    sys.exit(main(sys.argv[1]))
