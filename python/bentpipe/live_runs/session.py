"""One live run: starts the programs in their namespaces, waits in real time, and stops them."""

import base64
import grp
import hashlib
import json
import math
import os
import platform
import pwd
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from bentpipe._core import Scenario
from bentpipe.errors import LiveError
from bentpipe.live_runs.chain import CLIENTS, SERVERS, Chain, Listener, Step
from bentpipe.live_runs.namespaces import Network, listening
from bentpipe.live_runs.processes import Child, Programs, environment, run, signals_deferred
from bentpipe.live_runs.record import (
    Recorded,
    link_counters,
    page_counters,
    probe_counters,
    read_flows,
    read_record,
    repeated_counters,
    return_counters,
    unit_counters,
)
from bentpipe.runs.plan import Setting

if TYPE_CHECKING:
    import socket

__all__ = ["Session", "scenario_entry", "versions"]

_LEADS = (5.0, 15.0)
"""Time from the start of the set-up to time zero [s]: first attempt, and second if that is too short."""
_READY = 10.0
"""Longest time until a program is ready [s]."""
_SPACELINK = ("10.2.0.1", "10.2.0.2")
_SPACELINK_PORT = 4400
_GATEWAYS = {"servers": ("10.1.255.254", "fd00:b:0:1::fffe"), "clients": ("10.3.255.254", "fd00:b:0:3::fffe")}
"""Addresses of gateway and terminal on the servers' and the clients' side."""
_DEVICES = {
    "internet": ("net0", "in0"),
    "space": ("sat0", "sat1"),
    "lan": ("tc0", "lan0"),
}
"""Devices of each segment: at the end nearer to the servers, and at the other end."""

_SYSCTL = {
    "net.ipv4.ip_forward": "0",
    "net.ipv4.conf.all.rp_filter": "0",
    "net.ipv4.conf.default.rp_filter": "0",
    "net.ipv4.conf.all.send_redirects": "0",
    "net.ipv4.conf.default.send_redirects": "0",
    "net.ipv6.conf.all.disable_ipv6": "0",
    "net.ipv6.conf.default.disable_ipv6": "0",
    "net.ipv6.conf.default.accept_dad": "0",
    "net.ipv6.conf.default.accept_ra": "0",
    "net.ipv6.conf.default.autoconf": "0",
    "net.ipv4.ip_local_port_range": "2000 65000",
    "net.ipv4.tcp_no_metrics_save": "1",
    "net.ipv4.tcp_no_ssthresh_metrics_save": "1",
    "net.ipv4.tcp_mtu_probing": "0",
    "net.ipv4.tcp_max_syn_backlog": "8192",
    "net.core.somaxconn": "8192",
    "net.ipv4.tcp_tw_reuse": "1",
    "net.ipv4.tcp_fin_timeout": "10",
    "net.ipv4.tcp_window_scaling": "1",
    "net.ipv4.tcp_dsack": "1",
    "net.ipv4.tcp_recovery": "1",
    "net.ipv4.tcp_early_retrans": "3",
    "net.ipv4.tcp_frto": "2",
    "net.ipv4.tcp_reordering": "3",
    "net.ipv4.tcp_syn_retries": "6",
    "net.ipv4.tcp_wmem": "4096 16384 4194304",
    "net.ipv4.tcp_rmem": "4096 131072 6291456",
}
"""Linux defaults of all sysctls that affect results, so that the machine's settings do not."""


_OFFERED = 0.6
"""Receive window as a share of the receive buffer: a full segment's payload over its memory."""
_RECEIVE_BUFFER = 128_000
"""Default receive buffer of the sockets of gateway and terminal, tcp.receive_buffer [bytes]."""


class _LateError(Exception):
    """The set-up took longer than its lead time."""


class Session:
    """A live run of a scenario under one setting."""

    def __init__(self, setting: Setting, chain: Chain, seed: int, programs: Programs) -> None:
        """Prepare the run of `setting` with `seed`."""
        self.setting = setting
        self.chain = chain
        self.seed = seed
        self.programs = programs
        self._network = Network()
        self._origin = 0

    @property
    def _scenario(self) -> Scenario:
        return self.setting.scenario

    @property
    def _follows(self) -> bool:
        """True if the regulator follows the satellite's capacity."""
        (gateway,) = json.loads(self._scenario.canonical())["gateways"]
        return bool(gateway["regulator"].get("follows_link", False))

    @property
    def _modem(self) -> Path:
        """Socket by which the emulated satellite reports its capacity to the gateway."""
        return self._network.folder / "modem"

    @property
    def _end(self) -> float:
        """End of the measurement since time zero [s]."""
        return self._scenario.warmup + self._scenario.duration

    def run(self, progress: Callable[[float], None], keep: Path | None = None) -> Recorded:
        """Perform the run; `progress` receives the completed share, 0 to 1.

        `keep` is a folder for the run's configurations, plan and logs. Raises `LiveError`.
        """
        for lead in _LEADS:
            with suppress(_LateError):
                return self._run(lead, progress, keep)
        raise LiveError(f"setting up took longer than {_LEADS[-1]:g} s: the machine is too busy")

    def _run(self, lead: float, progress: Callable[[float], None], keep: Path | None) -> Recorded:
        """Perform the run with its time zero `lead` [s] from now."""
        self._origin = time.monotonic_ns() + int(lead * 1e9)
        with _exit_stack_without_signals() as stack:
            stack.enter_context(self._network)
            if keep is not None:
                stack.callback(self._keep, keep)
            folder = self._network.folder
            for place in ("servers", "gateway", "terminal", "clients"):
                self._network.sysctl(place, self._sysctls(place))
            plan = folder / "plan.json"
            plan.write_text(json.dumps(self._plan(), indent=1), encoding="utf-8")
            emulator = self._start(stack, "emulator", "satellite", [self.programs.lab, "emulate", str(plan)])
            _wait_for(emulator, "ready", True)
            self._address()
            web = self._serve(stack)
            serve = None
            if any(each.largest is None for each in self.chain.listeners):
                serve = self._start(stack, "serve", "servers", [self.programs.lab, "serve", str(plan)])
                web.append(serve)
                _wait_for(serve, "ready", True)
            ends = self._ends(stack)
            if time.monotonic_ns() > self._origin:
                raise _LateError
            load = self._start(stack, "load", "clients", [self.programs.lab, "load", str(plan)])
            self._wait([emulator, *web, *ends], load, progress)
            load.wait(time.monotonic() + 10)
            output = load.stop(10)
            load.check(well=(0, -signal.SIGTERM))
            # Exit codes report records that could not be written.
            for end in ends[: 2 if self.chain.has_return else 1]:
                end.stop(10)
                end.check(well=(0,))
            if serve is not None and self.chain.uploads:
                serve.stop(10)
                serve.check(well=(0, -signal.SIGTERM))
            links = _last_json(emulator.stop())
            recorded = self._recorded(folder / "flows.jsonl", links.get("statistics", {}))
            return _with(recorded, {"links": links, "load": _last_json(output)})

    def _ends(self, stack: ExitStack) -> list[Child]:
        """Start gateway and terminal, and wait until the spacelink between them is up."""
        folder = self._network.folder
        keys = folder / "keys"
        run([self.programs.gateway, "keygen", str(keys)])
        self._write_scenario()
        ends = []
        for role in ("gateway", "terminal"):
            config = folder / f"{role}.toml"
            config.write_text(self._config(role, keys), encoding="utf-8")
            ends.append(self._start(stack, role, role, [self.programs.gateway, "run", str(config)]))
        for key, value in (("ready", True), ("spacelink", "up")):
            for end in ends:
                _wait_for(end, key, value)
        return ends

    def _recorded(self, load: Path, links: Mapping[str, Any]) -> Recorded:
        """Read the records of gateway and load generator; `links` are the emulator's statistics."""
        folder, warmup, duration = self._network.folder, self._scenario.warmup, self._scenario.duration
        # The server records uploads, whose data it receives.
        loads = [load, *([load.with_suffix(".serve.jsonl")] if self.chain.uploads else [])]
        flows = read_flows(loads)
        recorded = read_record(folder / f"{self.chain.subject}.jsonl", flows, warmup, duration)
        counters = dict(recorded.counters) | page_counters(load, self._scenario) | link_counters(links)
        if self.chain.has_return:
            counters |= return_counters(folder / "terminal.jsonl", flows, warmup, duration)
        counters |= probe_counters(load, self._scenario)
        counters |= unit_counters(loads, flows, self._scenario)
        counters |= repeated_counters(recorded.live["carried"], self._scenario)
        return replace(recorded.with_classes(self._scenario), counters=counters)

    def _start(self, stack: ExitStack, name: str, place: str, command: list[str]) -> Child:
        child = Child(name, command, self._network.path(place), self._network.folder)
        return stack.enter_context(child)

    def _wait(self, others: list[Child], load: Child, progress: Callable[[float], None]) -> None:
        """Wait for the end of the measurement; `LiveError` if a program ends early."""
        begin, end = self._origin * 1e-9, self._origin * 1e-9 + self._end
        while (now := time.monotonic()) < end:
            for child in others:
                child.check()
            if load.process.poll():
                load.check()
            progress(max(0.0, (now - begin) / (end - begin)))
            time.sleep(min(0.2, max(0.01, end - now)))
        progress(1.0)

    def _keep(self, folder: Path) -> None:
        """Copy the small files of the run."""
        folder.mkdir(parents=True, exist_ok=True)
        for path in self._network.folder.iterdir():
            if path.suffix in {".log", ".toml", ".json", ".jsonl", ".conf"}:
                (folder / path.name).write_bytes(path.read_bytes())

    def _sysctls(self, place: str) -> dict[str, str]:
        tcp = self.chain.transport
        found = dict(_SYSCTL)
        if place in {"gateway", "terminal"}:
            found |= {"net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1"}
        if tcp:
            found |= {
                "net.ipv4.tcp_sack": str(int(bool(tcp.get("sack")))),
                "net.ipv4.tcp_timestamps": str(int(bool(tcp.get("timestamps")))),
                "net.ipv4.tcp_slow_start_after_idle": str(int(bool(tcp.get("slow_start_restart", True)))),
                "net.ipv4.tcp_ecn": str(_ECN.get(tcp.get("ecn", False), 0)),
            }
        receivers = {"clients", *(["servers"] if self.chain.uploads else [])}
        if place in receivers and self.chain.receive_windows is not None:
            first, most = (math.ceil(window / _OFFERED) for window in self.chain.receive_windows)
            found["net.ipv4.tcp_rmem"] = f"4096 {first} {most}"
        return found

    def _plan(self) -> dict[str, Any]:
        """Return the plan of the emulator and the load generator."""
        network = self._network

        # The gateway's regulator serves the direction to the terminal.
        modem = {"modem": str(self._modem)} if self._follows else {}

        def end(place: str, device: str) -> dict[str, str]:
            return {"netns": str(network.path(place)), "device": device}

        def segment(name: str, near: str, far: str, steps: tuple[Step, ...]) -> dict[str, Any]:
            first, second = _DEVICES[name]
            mtu = 1500 if name == "space" else self.chain.mtu
            return {
                "name": name,
                "mtu": mtu,
                "a": end(near, first),
                "b": end(far, second),
                "links": [asdict(step) | (modem if name == "space" else {}) for step in steps],
            }

        return {
            "scenario": scenario_entry(self._scenario),
            "seed": self.seed,
            "origin_ns": self._origin,
            "until_s": self._end,
            "netns": {side: str(network.path(side)) for side in (SERVERS, CLIENTS)},
            "hosts": {
                name: {"side": hosts.side, "addresses": [list(pair) for pair in hosts.addresses]}
                for name, hosts in self.chain.hosts.items()
            },
            "segments": [
                segment("internet", "servers", "gateway", self.chain.ground),
                segment("space", "gateway", "terminal", (self.chain.satellite,)),
                segment("lan", "terminal", "clients", self.chain.users),
            ],
            "traffic": {each.traffic: _served(each) for each in self.chain.listeners},
            "out": str(network.folder / "flows.jsonl"),
        }

    def _address(self) -> None:
        """Give every device its addresses and routes."""
        network, mtu = self._network, self.chain.mtu
        for side, segment, place in ((SERVERS, "internet", "gateway"), (CLIENTS, "lan", "terminal")):
            devices = _DEVICES[segment]
            own, router = devices if side == SERVERS else devices[::-1]
            four, six = _GATEWAYS[side]
            net_four, net_six = _network(four, six)
            commands = [f"link set {own} mtu {mtu} txqueuelen 10000 up"]
            for address, sixth in self.chain.addresses(side):
                commands += [f"addr add {address}/32 dev {own}", f"addr add {sixth}/128 dev {own} nodad"]
            window = self._window() if side == SERVERS or self.chain.uploads else ""
            commands += [f"route add default dev {own}{window}", f"route add ::/0 dev {own}{window}"]
            network.ip(side, commands)
            network.ip(
                place,
                [
                    f"link set {router} mtu {mtu} txqueuelen 10000 up",
                    f"addr add {four}/32 dev {router}",
                    f"addr add {six}/128 dev {router} nodad",
                    f"route add {net_four} dev {router}",
                    f"route add {net_six} dev {router}",
                ],
            )
        for place, device, own, peer, far in (
            ("gateway", _DEVICES["space"][0], *_SPACELINK, CLIENTS),
            ("terminal", _DEVICES["space"][1], *_SPACELINK[::-1], None),
        ):
            commands = [
                f"link set {device} mtu 1500 txqueuelen 10000 up",
                f"addr add {own}/32 peer {peer} dev {device}",
            ]
            if far is None:
                commands += [f"route add default dev {device}", f"route add ::/0 dev {device}"]
            else:
                four, six = _network(*_GATEWAYS[far])
                commands += [f"route add {four} dev {device}", f"route add {six} dev {device}"]
            network.ip(place, commands)

    def _window(self) -> str:
        """Return the route options of the senders: initial window and minimum RTO."""
        tcp = self.chain.transport
        if not tcp:
            return ""
        return f" initcwnd {tcp['initial_window']} rto_min {max(1, tcp['min_rto'] // 1_000_000)}ms"

    def _serve(self, stack: ExitStack) -> list[Child]:
        """Start nginx on prepared sockets, if it serves any traffic."""
        pages = [each for each in self.chain.listeners if each.largest is not None]
        if not pages:
            return []
        folder = self._network.folder / "nginx"
        (folder / "files").mkdir(parents=True)
        largest = max(each.largest or 0 for each in pages)
        run([self.programs.lab, "object", str(folder / "files" / "object"), str(largest)])
        listen: list[socket.socket] = []
        for each in pages:
            pacing = None if each.rate_cap is None else max(1, each.rate_cap // 8)
            opened = partial(listening, each.port, each.congestion, pacing, each.dscp)
            listen += self._network.within(SERVERS, opened)
        try:
            config = self._network.folder / "nginx.conf"
            config.write_text(_nginx(folder, [each.port for each in pages]), encoding="utf-8")
            numbers = [sock.fileno() for sock in listen]
            child = Child(
                "nginx",
                # In its own PID namespace, the worker ends with the master.
                [
                    "unshare",
                    "--pid",
                    "--fork",
                    "--kill-child",
                    "nginx",
                    "-e",
                    "stderr",
                    "-p",
                    str(folder),
                    "-c",
                    str(config),
                ],
                self._network.path(SERVERS),
                self._network.folder,
                # nginx inherits sockets as in an upgrade; they set congestion control and pacing.
                extra={"NGINX": "".join(f"{number};" for number in numbers)},
                keep=numbers,
            )
            return [stack.enter_context(child)]
        finally:
            for sock in listen:
                sock.close()

    def _write_scenario(self) -> None:
        """Write the scenario and its files for gateway and terminal."""
        scenario = scenario_entry(self._scenario)
        folder = self._network.folder / "scenario"
        folder.mkdir()
        (folder / "scenario.toml").write_text(scenario["text"], encoding="utf-8")
        for path, data in scenario["files"].items():
            pure = PurePosixPath(path)
            if pure.is_absolute() or ".." in pure.parts:
                continue
            target = folder / pure
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(base64.b64decode(data))

    def _config(self, role: str, keys: Path) -> str:
        """Return the configuration of `role`, "gateway" or "terminal"."""
        scenario = scenario_entry(self._scenario)
        folder = self._network.folder
        users = list(_network(*_GATEWAYS[CLIENTS]))
        near, far = _SPACELINK if role == "gateway" else _SPACELINK[::-1]
        back = self.chain.satellite_rates[1]
        tables: dict[str, dict[str, Any]] = {
            "scenario": {
                "file": str(folder / "scenario" / "scenario.toml"),
                "overrides": scenario["overrides"],
            }
            | ({} if scenario["setting"] is None else {"setting": scenario["setting"]}),
            "satellite": {
                "local": f"{near}:{_SPACELINK_PORT}",
                "peer": f"{far}:{_SPACELINK_PORT}",
                "keys": str(keys),
                "mtu": "1500 B",
            }
            | ({"rate": f"{back} bps"} if role == "terminal" and back else {})
            | ({"modem": str(self._modem)} if role == "gateway" and self._follows else {}),
        }
        if role == "gateway":
            tables["internet"] = {
                "device": _DEVICES["internet"][1],
                "clients": list(_network(*_GATEWAYS[CLIENTS])),
            }
        else:
            tables["users"] = {"device": _DEVICES["lan"][0], "clients": users}
        if role == "gateway" or self.chain.has_return:
            tables["record"] = {
                "file": str(folder / f"{role}.jsonl"),
                "interval": f"{self._scenario.sample_interval:.9f} s",
                "origin_ns": self._origin,
                "warmup": f"{self._scenario.warmup:.9f} s",
                "duration": f"{self._scenario.duration:.9f} s",
                "drops": True,
            }
        for congestion in self.chain.congestions[:1]:
            tables["tcp"] = {"congestion": congestion}
        # The kernel doubles a socket's own buffer size.
        if self.chain.receive_windows is not None:
            least = math.ceil(self.chain.receive_windows[1] / _OFFERED / 2)
            if least < _RECEIVE_BUFFER:
                tables["tcp"]["receive_buffer"] = f"{least} B"
        lines = [f"role = {_toml(role)}", f"seed = {self.seed}"]
        for name, values in tables.items():
            lines += ["", f"[{name}]", *(f"{key} = {_toml(value)}" for key, value in values.items())]
        return "\n".join(lines) + "\n"


def scenario_entry(scenario: Scenario) -> dict[str, Any]:
    """Return a scenario in the form of the plan; `LiveError` if its AQM is written in Python."""
    packed = scenario.packed()
    if packed is None or scenario.python_aqm is not None:
        raise LiveError(f"{scenario.name}: an AQM written in Python cannot be live")
    file, text, overrides, setting, _, files = packed
    contents = {path: base64.b64encode(scenario.file(path) or b"").decode() for path, _ in files}
    return {"file": file, "text": text, "overrides": overrides, "setting": setting, "files": contents}


@contextmanager
def _exit_stack_without_signals() -> Iterator[ExitStack]:
    """Yield a stack whose contexts are closed with signals deferred."""
    stack = ExitStack()
    try:
        yield stack
    finally:
        with signals_deferred():
            stack.close()


_ECN = {False: 0, True: 1, "classic": 1, "accurate": 3}


def _served(listener: Listener) -> dict[str, Any]:
    """Return a traffic table's server in the form of the plan."""
    if listener.largest is not None:
        return {"port": listener.port, "by": "nginx", "path": "/object", "family": 4}
    congestion = {"congestion": listener.congestion} if listener.congestion else {}
    return {"port": listener.port, "by": "serve", "family": 4} | congestion


def _toml(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _network(four: str, six: str) -> tuple[str, str]:
    """Return the networks of a router's addresses."""
    return ".".join([*four.split(".")[:2], "0", "0"]) + "/16", six.rsplit("::", 1)[0] + "::/64"


def _nginx(folder: Path, ports: list[int]) -> str:
    listen = "".join(f"        listen {port};\n        listen [::]:{port};\n" for port in ports)
    temporary = "".join(
        f"    {name}_temp_path {folder}/{name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    # In single-process mode, nginx crashes with inherited sockets.
    return f"""daemon off;
worker_processes 1;
user {_server_user()};
pid {folder}/nginx.pid;
error_log stderr warn;
worker_rlimit_nofile 20000;
events {{
    worker_connections 16000;
}}
http {{
{temporary}    access_log off;
    sendfile on;
    sendfile_max_chunk 256k;
    tcp_nodelay on;
    keepalive_timeout 1h;
    keepalive_requests 1000000000;
    send_timeout 1h;
    client_header_timeout 1h;
    default_type application/octet-stream;
    server {{
{listen}        root {folder}/files;
    }}
}}
"""


def _server_user() -> str:
    """Return user and group of the web server's worker: nobody, or root in a namespace with only root."""
    lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    if sum(int(line.split()[2]) for line in lines) > 1:
        with suppress(KeyError):
            nobody = pwd.getpwnam("nobody")
            return f"nobody {grp.getgrgid(nobody.pw_gid).gr_name}"
    return "root root"


def _wait_for(child: Child, key: str, value: object) -> None:
    """Wait until a program prints a JSON line with `key` equal to `value`.

    `LiveError` if the program ends first or takes too long.
    """
    lines: queue.Queue[str] = queue.Queue()

    def read() -> None:
        for line in child.out:
            lines.put(line)
            if _json(line).get(key) == value:
                return

    threading.Thread(target=read, daemon=True).start()
    until = time.monotonic() + _READY
    while time.monotonic() < until:
        try:
            if _json(lines.get(timeout=0.05)).get(key) == value:
                return
        except queue.Empty:
            child.check()
    raise LiveError(f"{child.name} was not ready within {_READY:g} s: {child.last_words()}")


def _json(line: str) -> dict[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _last_json(text: str) -> dict[str, Any]:
    """Return the last JSON line of a program's output."""
    return next((found for line in reversed(text.splitlines()) if (found := _json(line))), {})


def _with(recorded: Recorded, more: Mapping[str, Any]) -> Recorded:
    return Recorded(
        recorded.series,
        recorded.drops,
        recorded.flows,
        recorded.drop_runs,
        recorded.counters,
        dict(recorded.live) | dict(more),
    )


def versions(programs: Programs) -> dict[str, str]:
    """Return the versions of the software that affects a live run."""
    found = {"kernel": platform.release(), "cpus": str(len(os.sched_getaffinity(0)))}
    for name, path in {"bentpipe-gateway": programs.gateway, "bentpipe-testbed": programs.lab}.items():
        found[name] = f"sha256 {hashlib.sha256(Path(path).read_bytes()).hexdigest()}"
    for name, command in {"nginx": ["nginx", "-v"], "iptables": ["iptables-nft", "--version"]}.items():
        try:
            done = subprocess.run(  # noqa: S603
                command, capture_output=True, text=True, timeout=10, check=False, env=environment()
            )
            found[name] = (done.stdout or done.stderr).strip().splitlines()[0]
        except (OSError, subprocess.SubprocessError, IndexError):
            found[name] = "unknown"
    return found
