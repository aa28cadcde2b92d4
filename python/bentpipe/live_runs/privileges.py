"""Permissions of a live run, and the command that obtains them in a user namespace."""

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bentpipe.live_runs.processes import environment

__all__ = [
    "IN_USER_NAMESPACE",
    "missing_congestion_control",
    "missing_permission",
    "prepare",
    "user_namespace_command",
]

IN_USER_NAMESPACE = "BENTPIPE_OWN_SYSTEM"
"""Environment variable of a process that runs as root in a separate user namespace."""
_TUN = "/dev/net/tun"
_CAP_NET_ADMIN, _CAP_SYS_ADMIN = 12, 21
_OPTIONS = ("--user", "--map-root-user", "--net", "--mount")
_PROBE = (
    "mount -t tmpfs tmpfs /run && mkdir /run/netns && ip netns add probe && ip tuntap add dev probe mode tun"
)
_ADVICE = (
    "a live run creates network namespaces and needs root: repeat it with sudo, or allow this user to use"
    " user namespaces and /dev/net/tun"
)


def _has_capabilities() -> bool:
    """Return True if this process has the capabilities to create namespaces and networks."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii")
    except OSError:
        return os.geteuid() == 0
    word = next((line.split()[1] for line in status.splitlines() if line.startswith("CapEff:")), "0")
    held = int(word, 16)
    return bool(held >> _CAP_NET_ADMIN & 1 and held >> _CAP_SYS_ADMIN & 1)


def missing_permission() -> str | None:
    """Return why this process cannot run live, and the remedy; None if it can."""
    if not _has_capabilities():
        return _ADVICE
    if not _has_tun():
        return f"{_TUN} cannot be opened, but a live run needs it: load the module tun, or allow access"
    return None


def _has_tun() -> bool:
    return os.access(_TUN, os.R_OK | os.W_OK)


def missing_congestion_control(congestions: Sequence[str]) -> str | None:
    """Return a message on the first congestion control that the kernel's TCP lacks; None if it has all."""
    for name in congestions:
        with socket.socket() as probe:
            try:
                # This loads the module, if there is one.
                probe.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
            except OSError:
                known = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")
                allowed = ", ".join(known.read_text(encoding="ascii").split())
                return f"this kernel's TCP lacks the congestion control {name}; allowed: {allowed}"
    return None


def user_namespace_command(arguments: Sequence[str]) -> list[str] | str | None:
    """Return the command that repeats this one as root in separate namespaces, or a message why that fails.

    None if this process has the permissions itself.
    """
    if _has_capabilities() or IN_USER_NAMESPACE in os.environ:
        return None
    if not _has_tun():
        return f"{_ADVICE} (now: {_TUN} cannot be opened)"
    try:
        done = subprocess.run(  # noqa: S603
            ["unshare", *_OPTIONS, "sh", "-c", _PROBE],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=20,
            check=False,
            env=environment(),
        )
        messages = done.stderr.strip().splitlines()
    except (OSError, subprocess.SubprocessError) as error:
        return f"{_ADVICE} ({error})"
    if done.returncode:
        return f"{_ADVICE} (now: {messages[-1] if messages else 'not allowed'})"
    again = [sys.executable, "-c", "from bentpipe.cli import main; main()", *arguments]
    return ["unshare", *_OPTIONS, *again]


def prepare() -> None:
    """Mount /run and create /run/netns in this process's own namespaces; `OSError` if that fails."""
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "mode=755", "tmpfs", "/run"],  # noqa: S607
        check=True,
        capture_output=True,
        timeout=20,
        env=environment(),
    )
    Path("/run/netns").mkdir()
