"""`make test`: parts run in lanes, and each that does not run fails the job."""

import os
import subprocess
import sys
from pathlib import Path

from conftest import ROOT


def test_a_target_that_cannot_be_started_fails_the_job(tmp_path: Path) -> None:
    program = tmp_path / "make"
    program.write_text('#!/bin/sh\necho "made $1"\nrm "$0"\n')
    program.chmod(0o755)
    done = subprocess.run(
        [sys.executable, ROOT / "tools/run_parts.py", "first second third"],
        env=os.environ | {"MAKE": str(program)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "made first" in done.stdout
    assert [line.split()[:2] for line in done.stdout.splitlines()[-3:-1]] == [
        ["first", "passed"],
        ["second", "failed"],
    ]
    assert "-- second cannot be run" in done.stderr
    assert done.returncode == 1
