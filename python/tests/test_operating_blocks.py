"""Code blocks for programs that the tests do not have: Slurm, Kubernetes, Prometheus, a running systemd.

A stand-in takes the place of each. The pages are cluster.md, gateway.md, gateway-terminals.md,
gateway-monitoring.md and kernel.md.
"""

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml  # type: ignore[import-untyped]
from clusters import Processes
from code_blocks import Block, blocks
from conftest import ROOT, environment
from patience import PATIENCE

import bentpipe as bp
from bentpipe.live_runs.processes import programs

SWEEP = """
[sweep]
scenario = "small-gateway"
settings = ["red"]
runs = 1
set = { run.duration = "1 s", run.warmup = "1 s" }

[vary]
gateway.aqm.w_q = "0.01,0.2"
"""


def found(page: str, kind: str, part: str = "") -> Block:
    """Return the one block of a page in a language that contains `part`."""
    (block,) = (block for block in blocks(page) if block.kind == kind and part in block.body)
    return block


def points(folder: Path) -> int:
    """Return the number of points of a finished sweep."""
    swept = bp.open_sweep(folder)
    assert swept.complete
    assert swept.failures == []
    return swept.frame().height


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty current folder with the reader's sweep."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-sweep.toml").write_text(SWEEP, encoding="utf-8")
    return tmp_path


# ----- clusters ----------------------------------------------------------------------------------------


def test_job_script_sweeps_on_the_workers_that_srun_starts(here: Path) -> None:
    """The stand-in for `srun` starts two workers; the network between the nodes is the loopback device."""
    srun = here / "bin" / "srun"
    srun.parent.mkdir()
    srun.write_text('#!/bin/sh\n"$@" &\n"$@" &\nwait\n', encoding="utf-8")
    srun.chmod(0o755)
    script = here / "job.sh"
    script.write_text(found("docs/cluster.md", "bash").body.replace(" ib0 ", " lo "), encoding="utf-8")
    search = os.pathsep.join([str(srun.parent), str(Path(sys.executable).parent), os.environ["PATH"]])
    log = here / "log"
    with log.open("wb") as file:
        job = subprocess.Popen(
            ["bash", "-eu", str(script)],  # noqa: S607
            env={**environment(), "PATH": search, "SLURM_JOB_ID": "17", "TMPDIR": str(here)},
            stdout=file,
            stderr=file,
            start_new_session=True,
        )
    try:
        code = job.wait(timeout=PATIENCE)
    finally:
        # As Slurm does at the end of a job.
        os.killpg(job.pid, signal.SIGKILL)
    assert code == 0, log.read_text()
    assert points(here / "results" / "my-sweep") == 2


class StandIn(Processes):
    """A scheduler that a program starts and ends, with one worker at most."""

    def __init__(self) -> None:
        """Start the scheduler in the current folder."""
        super().__init__(Path.cwd())
        self.scheduler_address = self.address

    def __enter__(self) -> "StandIn":
        """Return the cluster."""
        return self

    def __exit__(self, *_: object) -> None:
        """End its processes."""
        self.close()


class SlurmStandIn(StandIn):
    """Takes the arguments of dask-jobqueue 0.9.0 that describe a job."""

    def __init__(self, *, cores: int, processes: int, memory: str, walltime: str, interface: str) -> None:
        """Start a scheduler without workers."""
        assert (cores, processes) == (1, 1)
        assert re.fullmatch(r"\d+GB", memory)
        assert re.fullmatch(r"\d\d:\d\d:\d\d", walltime)
        assert interface
        super().__init__()

    def scale(self, *, jobs: int) -> None:
        """Start one worker in place of `jobs`."""
        assert jobs > 1
        self.worker()

    def wait_for_workers(self, n: int) -> None:
        """Wait until `n` workers have joined."""
        self.wait(n)


class KubernetesStandIn(StandIn):
    """Takes the arguments of dask-kubernetes 2025.7.0 that describe a cluster."""

    def __init__(self, *, name: str, image: str, n_workers: int) -> None:
        """Start a scheduler and one worker in place of `n_workers`."""
        assert name
        assert "bentpipe" in image
        assert n_workers > 1
        super().__init__()
        self.worker()


@pytest.mark.parametrize(
    ("module", "name", "stand_in"),
    [
        ("dask_jobqueue", "SLURMCluster", SlurmStandIn),
        ("dask_kubernetes.operator", "KubeCluster", KubernetesStandIn),
    ],
)
def test_programs_sweep_on_the_cluster_that_they_start(
    here: Path, monkeypatch: pytest.MonkeyPatch, module: str, name: str, stand_in: type
) -> None:
    made = ModuleType(module)
    setattr(made, name, stand_in)
    monkeypatch.setitem(sys.modules, module.partition(".")[0], ModuleType(module.partition(".")[0]))
    monkeypatch.setitem(sys.modules, module, made)
    block = found("docs/cluster.md", "python", module)
    exec(compile(block.body, block.place, "exec"), {})  # noqa: S102
    assert points(here / "results" / "my-sweep") == 2


# ----- the gateway -------------------------------------------------------------------------------------


def moved(block: Block, root: Path) -> str:
    """Return the commands of a block with their folders below `root`."""
    return re.sub(r" /(etc|usr)/", rf" {root}/\1/", block.body)


def run_in_bash(commands: str, folder: Path, code: int = 0) -> str:
    """Run commands in `folder`, where `bentpipe-gateway` is a command; their output."""
    search = os.pathsep.join([str(folder / "bin"), str(Path(programs().gateway).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "-eu", "-c", commands],  # noqa: S607
        cwd=folder,
        env={**environment(), "PATH": search},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_gateway_is_installed_by_hand(tmp_path: Path) -> None:
    """The stand-in for `cargo` copies the built program."""
    block = found("docs/gateway.md", "sh", "cargo build")
    (package,) = re.findall(r"cargo build .* -p (\S+)", block.body)
    manifest = tomllib.loads((ROOT / "crates" / "gatewayd" / "Cargo.toml").read_text())
    assert manifest["package"]["name"] == package
    cargo = tmp_path / "bin" / "cargo"
    cargo.parent.mkdir()
    program = shlex.quote(programs().gateway)
    cargo.write_text(f"#!/bin/sh\nmkdir -p target/release && cp {program} target/release/\n")
    cargo.chmod(0o755)
    (tmp_path / "deploy").symlink_to(ROOT / "deploy")
    for folder in ("usr/local/bin", "etc/systemd/system"):
        (tmp_path / folder).mkdir(parents=True)
    run_in_bash(moved(block, tmp_path), tmp_path)
    unit = (tmp_path / "etc/systemd/system/bentpipe-gateway@.service").read_text()
    (started,) = re.findall(r"^ExecStart=(\S+) run", unit, re.MULTILINE)
    installed = tmp_path / started.removeprefix("/")
    assert "usage" in subprocess.run([installed, "--help"], capture_output=True, text=True, check=True).stdout


def test_gateway_makes_keys_reports_a_wrong_value_and_takes_a_rate(tmp_path: Path) -> None:
    root = tmp_path / "etc" / "bentpipe"
    root.mkdir(parents=True)
    run_in_bash(moved(found("docs/gateway.md", "sh", "keygen"), tmp_path), tmp_path)
    ends = ("gateway", "terminal")
    assert {path.name for path in (root / "keys").iterdir()} == {
        f"{end}.{kind}" for end in ends for kind in ("key", "crt")
    }

    text = (ROOT / "deploy" / "gateway.toml").read_text(encoding="utf-8")
    (root / "gateway.toml").write_text(text.replace('"20 Mbps"', '"20 Mbs"'), encoding="utf-8")
    check = moved(found("docs/gateway.md", "sh", " check "), tmp_path)
    shown = found("docs/gateway.md", "text", '"20 Mbs"').body.strip()
    assert shown in run_in_bash(check, tmp_path, code=2)

    modem = tmp_path / "modem"
    given = text.replace('rate = "20 Mbps"', 'rate = "link"')
    given = given.replace("[satellite]", f'[satellite]\nrate = "20 Mbps"\nmodem = "{modem}"')
    (root / "gateway.toml").write_text(given, encoding="utf-8")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as taken:
        taken.bind(str(modem))
        run_in_bash(moved(found("docs/gateway.md", "sh", " rate "), tmp_path), tmp_path)
        assert taken.recv(100).decode().strip() == "12000000 bps"


def test_gateway_with_terminals_makes_keys_and_reports_overlapping_prefixes(tmp_path: Path) -> None:
    page, root = "docs/gateway-terminals.md", tmp_path / "etc" / "bentpipe"
    root.mkdir(parents=True)
    run_in_bash(moved(found(page, "sh", "keygen"), tmp_path), tmp_path)
    ends = ("gateway", "terminal")
    assert {path.name for path in (root / "keys").iterdir()} == {
        f"{end}.{kind}" for end in ends for kind in ("key", "crt")
    }
    shutil.copytree(ROOT / "deploy" / "beam", root, dirs_exist_ok=True)
    office = root / "terminals" / "office-2.toml"
    office.write_text(office.read_text(encoding="utf-8").replace("10.3.2.0/24", "10.3.1.128/25"), "utf-8")
    shown = found(page, "text", "overlaps").body.strip()
    assert shown in run_in_bash(f"bentpipe-gateway check {root}/gateway.toml", tmp_path, code=2)

    shutil.copy(ROOT / "deploy" / "beam" / "terminals" / "office-2.toml", office)
    status = moved(found(page, "sh", " status "), tmp_path)
    with socket.socket() as silent:
        # Bound without listening: nobody else answers at the port.
        silent.bind(("127.0.0.1", 0))
        text = (root / "gateway.toml").read_text(encoding="utf-8")
        text = text.replace("127.0.0.1:9180", f"127.0.0.1:{silent.getsockname()[1]}")
        (root / "gateway.toml").write_text(text, encoding="utf-8")
        assert "required: a gateway that runs" in run_in_bash(status, tmp_path, code=1)


@pytest.mark.skipif(shutil.which("systemctl") is None, reason="needs systemctl")
def test_systemd_enables_both_ends(tmp_path: Path) -> None:
    """In a folder in place of /; test_systemd_unit.py starts the unit under its own systemd."""
    units = tmp_path / "etc" / "systemd" / "system"
    units.mkdir(parents=True)
    shutil.copy(ROOT / "deploy" / "bentpipe-gateway@.service", units)
    for line in found("docs/gateway.md", "sh", "systemctl").commands():
        words = shlex.split(line)
        assert words[:3] == ["systemctl", "enable", "--now"]
        subprocess.run(["systemctl", f"--root={tmp_path}", "enable", *words[3:]], check=True)  # noqa: S607
    enabled = {path.name for path in (units / "multi-user.target.wants").iterdir()}
    assert enabled == {"bentpipe-gateway@gateway.service", "bentpipe-gateway@terminal.service"}
    # The comment of each line names the file that its instance reads.
    read = re.findall(r"#.*(/etc/\S+)", found("docs/gateway.md", "sh", "systemctl").body)
    (pattern,) = re.findall(
        r"^ExecStart=\S+ run (\S+)", (units / "bentpipe-gateway@.service").read_text(), re.M
    )
    assert read == [pattern.replace("%i", end) for end in ("gateway", "terminal")]


def test_prometheus_scrapes_the_address_of_the_shipped_configuration(tmp_path: Path) -> None:
    """Keys of `scrape_config` in Prometheus' documentation; `promtool`, if installed, checks it."""
    block = found("docs/gateway-monitoring.md", "yaml")
    (job,) = yaml.safe_load(block.body)["scrape_configs"]
    shipped = tomllib.loads((ROOT / "deploy" / "gateway.toml").read_text())
    assert job == {"job_name": "bentpipe", "static_configs": [{"targets": [shipped["metrics"]["listen"]]}]}
    if tool := shutil.which("promtool"):
        file = tmp_path / "prometheus.yml"
        file.write_text(block.body, encoding="utf-8")
        subprocess.run([tool, "check", "config", str(file)], check=True)


def test_kernel_comparison_takes_the_arguments_of_its_page() -> None:
    """The comparison takes minutes, as root. Here its options are parsed, and its case is looked up."""
    make, compare = found("docs/kernel.md", "").commands()
    targets = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(rf"^{make.split()[1]}:", targets, re.MULTILINE)
    program, *arguments = shlex.split(compare)
    assert program == ".venv/bin/python"
    folder = (ROOT / arguments[0]).parent
    names = "import compare\nfor case in compare.cases(): print(case.name)"
    for words in ([arguments[0], *arguments[1:], "--help"], ["-c", names]):
        done = subprocess.run(
            [sys.executable, *words],
            cwd=ROOT,
            env={**environment(), "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "python")])},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
    assert any(arguments[-1] in name for name in done.stdout.splitlines())
