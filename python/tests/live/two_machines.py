"""Follows section 2 of docs/tutorial-live.md between the namespaces of two_machines.sh.

Usage: two_machines.py ROOT GATEWAY-PROGRAM FOLDER, in the namespaces of two_machines.sh.
"""

import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

SIZE = 1_000_000
"""Bytes of the download."""


@contextmanager
def started(place: str, command: list[str], folder: Path) -> Iterator[None]:
    """Run a command in a namespace until the end."""
    with (folder / f"{place}.log").open("w") as log:
        words = ["ip", "netns", "exec", place, *command]
        child = subprocess.Popen(words, cwd=folder, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        try:
            yield
        finally:
            child.terminate()
            child.wait()


def run(place: str, command: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a shell command in a namespace."""
    words = ["ip", "netns", "exec", place, "bash", "-c", command]
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)


def follow(blocks: list[tuple[str, str]], program: str, folder: Path, deploy: Path) -> None:
    """Run the blocks of the page, kind and text, on the hosts that they are for."""
    hosts = {name: folder / name for name in ("gateway", "terminal", "servers", "users")}
    for name, host in hosts.items():
        host.mkdir()
        if (deploy / f"{name}.toml").exists():
            shutil.copy(deploy / f"{name}.toml", host)
    (hosts["servers"] / "blob").write_bytes(bytes(SIZE))
    keys, check, up, accepted = (text.strip() for kind, text in blocks if kind == "sh")
    shown = [text.strip() for kind, text in blocks if kind == "text"]
    _ok(run("gateway", keys.replace("bentpipe-gateway", shlex.quote(program)), hosts["gateway"]))
    (hosts["terminal"] / "keys").mkdir()
    for name in ("terminal.key", "terminal.crt", "gateway.crt"):
        shutil.copy(hosts["gateway"] / "keys" / name, hosts["terminal"] / "keys")
    _ok(run("terminal", check.replace("bentpipe-gateway", shlex.quote(program)), hosts["terminal"]))
    with ExitStack() as stack:
        server = [sys.executable, "-m", "http.server", "8000", "--bind", "10.1.0.2"]
        stack.enter_context(started("servers", server, hosts["servers"]))
        for end in ("gateway", "terminal"):
            stack.enter_context(started(end, [program, "run", f"{end}.toml"], hosts[end]))
        _until("gateway", up, shown[0], hosts["gateway"])
        fetch = "curl --silent --fail http://10.1.0.2:8000/blob | wc --bytes"
        _until("users", fetch, str(SIZE), hosts["users"])
        _until("gateway", accepted, shown[1].removesuffix(" ..."), hosts["gateway"])


def _ok(done: subprocess.CompletedProcess[str]) -> None:
    if done.returncode:
        raise SystemExit(f"{done.args}\n{done.stdout}{done.stderr}")


def _until(place: str, command: str, wanted: str, folder: Path) -> None:
    """Wait until a command prints a line that begins with `wanted`. The test has a time limit."""
    while not any(line.startswith(wanted) for line in run(place, command, folder).stdout.splitlines()):
        time.sleep(0.1)


if __name__ == "__main__":
    root = Path(sys.argv[1])
    sys.path.insert(0, str(root / "python" / "tests"))
    from code_blocks import blocks

    page = list(blocks("docs/tutorial-live.md"))
    first = next(at for at, block in enumerate(page) if "keygen" in block.body)
    found = [(block.kind, block.body) for block in page[first:]]
    follow(found, sys.argv[2], Path(sys.argv[3]), root / "deploy")
