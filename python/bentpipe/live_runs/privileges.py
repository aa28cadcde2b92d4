"""Whether this process may make networks, and how one that may not can get namespaces of its own for that."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bentpipe.live_runs.processes import environment

__all__ = ["INSIDE", "own_system", "prepare", "why_not", "why_not_tcp"]

INSIDE = "BENTPIPE_OWN_SYSTEM"
"""Set in the environment of a process that runs as root of a user namespace of its own."""
_TUN = "/dev/net/tun"
_CAP_NET_ADMIN, _CAP_SYS_ADMIN = 12, 21
_OPTIONS = ("--user", "--map-root-user", "--net", "--mount")
_PROBE = (
    "mount -t tmpfs tmpfs /run && mkdir /run/netns && ip netns add probe && ip tuntap add dev probe mode tun"
)
_ADVICE = (
    "a live run makes network namespaces and needs root: repeat it with sudo, or allow user namespaces and"
    " /dev/net/tun to this user"
)


def _able() -> bool:
    """Whether this process has the capabilities that namespaces and their networks need."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return os.geteuid() == 0
    word = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    held = int(word, 16)
    return bool(held >> _CAP_NET_ADMIN & 1 and held >> _CAP_SYS_ADMIN & 1)


def why_not() -> str | None:
    """Say why nothing can run live in this process, and what to do; None if it can."""
    if not _able():
        return _ADVICE
    if not _has_tun():
        return f"{_TUN} cannot be opened, and a live run needs it: load the module tun, or allow it here"
    return None


def _has_tun() -> bool:
    return os.access(_TUN, os.R_OK | os.W_OK)


def why_not_tcp(congestions: Sequence[str]) -> str | None:
    """Say which of these congestion controls the kernel's TCP does not have; None if it has all."""
    for name in congestions:
        with socket.socket() as probe:
            try:
                # Which loads its module, if there is one.
                probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
            except OSError:
                known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
                allowed = ", ".join(known.read_text(encoding="ascii").split())
                return f"this kernel's TCP does not have the congestion control {name}; allowed: {allowed}"
    return None


def own_system(arguments: Sequence[str]) -> list[str] | str | None:
    """Return the command that repeats this one as root of its own namespaces, or why there is none.

    None if this process needs no other.
    """
    if _able() or INSIDE in os.environ:
        return None
    if not _has_tun():
        return f"{_ADVICE} (as it is: {_TUN} cannot be opened)"
    try:
        done = subprocess.run(  # noqa: S603
            ["unshare", *_OPTIONS, "sh", "-c", _PROBE],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            env=environment(),
        )
        said = done.stderr.strip().splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        return f"{_ADVICE} ({error})"
    if done.returncode:
        return f"{_ADVICE} (as it is: {said[-1] if said else 'not allowed'})"
    again = [sys.executable, "-c", "from bentpipe.cli import main; main()", *arguments]
    return ["unshare", *_OPTIONS, *again]


def prepare() -> None:
    """Give a process in namespaces of its own a place for the names of more; `OSError` if that fails."""
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"],  # noqa: S607
        check=True,
        capture_output=True,
        timeout=20,
        env=environment(),
    )
    Path("/run/netns").mkdir()
