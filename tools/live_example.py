"""Run the README's live example and write what it prints into the README: half a minute, as root.

python tools/live_example.py README.md
"""

import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

__all__ = ["commands", "shown"]

_BLOCKS = re.compile(r"(```sh\n)(bentpipe live .*?)(```\n+```text\n)(.*?)(```)", re.DOTALL)


def commands(page: str) -> list[str]:
    """Return the commands of the live example of a page."""
    found = _BLOCKS.search(page)
    return found[2].splitlines() if found else []


def shown(printed: str) -> str:
    """Return the table of a comparison without the columns that test the differences."""
    lines = [line.rstrip() for line in printed.splitlines()]
    head = next(line for line in lines if "mean of A" in line)
    end = head.index("mean of B") + len("mean of B")
    rows = [line[:end].rstrip() for line in lines if re.search(r"simulator: |mean of A|^ ─", line)]
    return "\n".join(rows) + "\n"


def main(readme: Path) -> None:
    """Run the commands and renew the page."""
    page = readme.read_text(encoding="utf-8")
    if not commands(page):
        raise SystemExit(f"{readme}: found no block of shell commands with `bentpipe live` and their output")
    printed = ""
    with tempfile.TemporaryDirectory() as folder:
        for command in commands(page):
            words = [sys.executable, "-m", "bentpipe", *shlex.split(command)[1:]]
            printed = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout  # noqa: S603
    readme.write_text(
        _BLOCKS.sub(lambda found: found[1] + found[2] + found[3] + shown(printed) + found[5], page)
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
