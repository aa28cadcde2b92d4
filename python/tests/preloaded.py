"""Runs commands of `bentpipe` in processes that begin with the package imported.

The import takes longer than most commands, so a server imports the package and forks for each command. The
command is a process with its own folder, environment, standard streams and exit code, as from a shell. The
server only compiles the report's templates, so a command inherits no results, no locks and no worker threads.
"""

import gc
import json
import os
import signal
import socket
import subprocess
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import faults
from patience import PATIENCE

from bentpipe.runs import workers

_LENGTH = 1 << 16
"""Maximum length of a request [bytes]."""
_SERVER = """
import sys
sys.path.append({folder!r})
import preloaded
arguments = preloaded.serve({descriptor})
sys.path.remove({folder!r})
from bentpipe.cli import main
main(arguments)
"""


def serve(descriptor: int) -> list[str]:
    """Fork for each request on a socket; return its arguments in the child. Exit with the client."""
    # SciPy and the modules for reports are what commands import when they write one.
    import scipy.special  # noqa: F401

    import bentpipe.cli.paper_tables  # noqa: F401
    from bentpipe.cli.app import cli
    from bentpipe.report.pages import environment

    # Each command is imported when it is looked up.
    list(cli.commands.values())
    for template in ("page", "macros", "report"):
        environment().get_template(f"{template}.html.j2")
    # The child's garbage collector leaves the imported modules alone, so that their memory stays shared.
    gc.freeze()
    with socket.socket(fileno=descriptor) as client:
        while True:
            request, streams, *_ = socket.recv_fds(client, _LENGTH, 3)
            if not request:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                break
            for stream in streams:
                os.close(stream)
            client.send(str(pid).encode())
            _, status = os.waitpid(pid, 0)
            client.send(str(os.waitstatus_to_exitcode(status)).encode())
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    command: dict[str, Any] = json.loads(request)
    os.chdir(command["folder"])
    os.environ.clear()
    os.environ.update(command["environment"])
    if faults.VARIABLE in os.environ:
        faults.install()
        # Every row is written at once: a busy machine takes the same steps.
        workers._FLUSH_SECONDS = 0.0
    return list(command["arguments"])


class Server:
    """Runs one command at a time."""

    def __init__(self) -> None:
        """Start the server."""
        self._client, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        code = _SERVER.format(folder=str(Path(__file__).parent), descriptor=other.fileno())
        self._process = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[other.fileno()],
        )
        other.close()

    def run(
        self, *arguments: str, folder: Path, environment: dict[str, str], timeout: float = PATIENCE
    ) -> subprocess.CompletedProcess[str]:
        """Run `bentpipe` with these arguments in a folder; `TimeoutError` after `timeout` seconds."""
        request = {"arguments": arguments, "folder": str(folder), "environment": environment}
        with TemporaryFile() as out, TemporaryFile() as err, Path(os.devnull).open("rb") as none:
            socket.send_fds(
                self._client, [json.dumps(request).encode()], [none.fileno(), out.fileno(), err.fileno()]
            )
            pid = int(self._client.recv(_LENGTH))
            self._client.settimeout(timeout)
            try:
                code = int(self._client.recv(_LENGTH))
            except BaseException:
                # The server reports the end of the killed command, too.
                os.kill(pid, signal.SIGKILL)
                self._client.settimeout(None)
                self._client.recv(_LENGTH)
                raise
            self._client.settimeout(None)
            out.seek(0)
            err.seek(0)
            return subprocess.CompletedProcess(
                ["bentpipe", *arguments], code, out.read().decode(), err.read().decode()
            )

    def close(self) -> None:
        """End the server."""
        self._client.close()
        self._process.wait(PATIENCE)


@cache
def server() -> Server:
    """Return the server of this process."""
    return Server()
