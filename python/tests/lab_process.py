"""A lab in a separate process."""

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from patience import PATIENCE


@contextmanager
def lab(folder: Path, *arguments: str) -> Iterator[tuple[int, str]]:
    """Run a lab in a folder; yields its port and token."""
    code = "from bentpipe.cli import main; main()"
    command = [sys.executable, "-c", code, "lab", *arguments, "--no-browser"]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"127\.0\.0\.1:(\d+)/\?token=(\S+)", process.stdout.readline())
            assert found
            yield int(found[1]), found[2]
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE) == 0
