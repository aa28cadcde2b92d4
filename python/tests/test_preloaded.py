"""Commands of the server are processes as from a shell."""

import os
from pathlib import Path

import pytest
from conftest import environment
from preloaded import server


def test_commands_have_their_own_folder_environment_streams_and_exit_code(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    done = server().run("schema", folder=tmp_path / "one", environment=environment())
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("{")
    done = server().run("run", "absent.toml", folder=tmp_path / "one", environment=environment())
    assert (done.returncode, done.stdout) == (2, "")
    assert "absent.toml" in done.stderr
    command = ("new", "link.toml", "--yes")
    assert server().run(*command, folder=tmp_path, environment=environment()).returncode == 0
    assert (tmp_path / "link.toml").exists()
    bare = environment() | {"PATH": str(tmp_path)}
    text = server().run("doctor", folder=tmp_path, environment=bare).stdout
    assert "apt-get install" in text
    assert os.environ["PATH"] != bare["PATH"]


def test_a_command_is_killed_after_its_time_out(tmp_path: Path) -> None:
    long = (
        "run",
        "byun2007-gateway",
        "--duration",
        "100 h",
        "--set",
        "run.sample_interval=1 min",
        "--out",
        "x",
    )
    with pytest.raises(TimeoutError):
        server().run(*long, folder=tmp_path, environment=environment(), timeout=0.5)
    assert server().run("--version", folder=tmp_path, environment=environment()).returncode == 0
