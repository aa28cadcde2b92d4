"""The systemd unit under a real systemd, which is process 1 in separate namespaces."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from patience import PATIENCE

from bentpipe.live_runs.processes import programs

SYSTEMD = "/lib/systemd/systemd"
HERE = Path(__file__).parent

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not Path(SYSTEMD).exists(), reason="needs root, and systemd installed"
)


@pytest.mark.long
def test_systemd_starts_reloads_and_restarts_the_gateway(tmp_path: Path) -> None:
    out = tmp_path / "out"
    (out / "system").mkdir(parents=True)
    unshare = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--net", "--cgroup", "--fork", "--kill-child"]
    deploy = HERE.parent.parent / "deploy"
    command = [*unshare, "bash", str(HERE / "live" / "unit.sh"), programs().gateway, str(deploy), str(out)]
    # The root may hide the virtual environment, as below /tmp; the interpreter behind it is mounted there.
    command += [str(Path(sys.executable).resolve()), sys.base_prefix]
    done = subprocess.run(command, timeout=PATIENCE, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    logs = {p.name: p.read_text() for p in out.iterdir() if p.is_file()}
    output = "\n".join([done.stdout, done.stderr, *(f"== {name}\n{text}" for name, text in logs.items())])
    facts = dict(line.split(" ", 1) for line in logs.get("facts", "").splitlines())
    assert "unsplit" in facts, output[-20_000:]
    blob = facts["blob"]

    assert facts["started"] == "active"
    assert (facts["split"], facts["again"], facts["unsplit"]) == (blob, blob, blob)
    assert int(facts["connections"]) >= 2
    # Servers see the user's address.
    assert int(facts["client"]) >= 1
    # CAP_NET_ADMIN and CAP_NET_RAW, and a filter of system calls.
    assert (int(facts["capabilities"], 16), facts["seccomp"]) == (1 << 12 | 1 << 13, "2")
    assert int(facts["rules"]) > 5
    # A reload keeps the process; a killed or hanging process is restarted.
    assert (facts["reloaded"], facts["same"]) == ("1250000", "yes")
    assert (facts["killed"], facts["hung"]) == ("active 1", "active 2")
    # A gateway that cannot start is not restarted repeatedly and leaves no rules.
    assert facts["broken"] == "failed 2 3 0"
    assert facts["repaired"] == "active"
    assert facts["stopped"] == "inactive 0"
    assert "event=spacelink_up" in logs["journal"]
