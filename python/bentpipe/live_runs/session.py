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
import shutil
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
from bentpipe.live_runs.chain import CLIENTS, SERVERS, Chain, Listener, Step, Terminal
from bentpipe.live_runs.namespaces import PLACES, Network, listening
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
from bentpipe.live_runs.terminals import with_terminals
from bentpipe.runs.plan import Setting

if TYPE_CHECKING:
    import socket

__all__ = ["Session", "scenario_entry", "versions"]

_LEADS = (5.0, 15.0)
"""Time from the start of the set-up to time zero [s]: first attempt, and second if that is too short."""
_READY = 10.0
"""Longest time until a program is ready [s]."""
_SPACELINK = "10.2.0.{}"
"""Addresses of the gateway, number 1, and of the terminals, from 2 on."""
_SPACELINK_PORT = 4400
_GATEWAYS = {"servers": ("10.1.255.254", "fd00:b:0:1::fffe"), "clients": ("10.3.255.254", "fd00:b:0:3::fffe")}
"""Addresses of gateway and terminal on the servers' and the clients' side."""
_DEVICES = {
    "internet": ("net0", "in0"),
    "space": ("sat{}", "sat"),
    "lan": ("tc0", "lan{}"),
}
"""Devices of a segment, with the terminal's number: at the end nearer to the servers, and at the other."""
_TABLE = 100
"""Routing table of the clients behind the first of several terminals; the others follow."""

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
        self._ends_of_links = terminal_places(chain)
        others = [place for place in PLACES if place != "terminal"]
        self._network = Network(places=[*others, *self._ends_of_links])
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
            for place in ("servers", "gateway", *self._ends_of_links, "clients"):
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
            # Exit codes report records that could not be written. The end whose record is read comes first,
            # since the stop of another one is a loss of the spacelink to it.
            first = sorted(ends, key=lambda end: end.name != self.chain.subject)
            for end in first if self.chain.has_return else first[:1]:
                end.stop(10)
                end.check(well=(0,))
            if serve is not None and self.chain.uploads:
                serve.stop(10)
                serve.check(well=(0, -signal.SIGTERM))
            links = _last_json(emulator.stop())
            recorded = self._recorded(folder / "flows.jsonl", links.get("statistics", {}))
            more = {"links": links, "load": _last_json(output)}
            return replace(recorded, live=dict(recorded.live) | more)

    def _ends(self, stack: ExitStack) -> list[Child]:
        """Start gateway and terminals, and wait until the spacelinks between them are up."""
        folder = self._network.folder
        keys = folder / "keys"
        if self.chain.has_several_terminals:
            self._write_terminals(keys)
        else:
            run([self.programs.gateway, "keygen", str(keys)])
        self._write_scenario()
        ends = []
        for place in ("gateway", *self._ends_of_links):
            config = folder / f"{place}.toml"
            config.write_text(self._config(place, keys), encoding="utf-8")
            ends.append(self._start(stack, place, place, [self.programs.gateway, "run", str(config)]))
        for end in ends:
            _wait_for(end, "ready", True)
        for end in [*ends[:1] * len(self._ends_of_links), *ends[1:]]:
            _wait_for(end, "spacelink", "up")
        return ends

    def _write_terminals(self, keys: Path) -> None:
        """Write the keys of gateway and terminals, and the file of each terminal for the gateway."""
        run([self.programs.gateway, "keygen", str(keys), "gateway"])
        folder = self._network.folder / "terminals"
        folder.mkdir()
        for place, terminal in zip(self._ends_of_links, self.chain.terminals, strict=True):
            run([self.programs.gateway, "keygen", str(keys / place), "terminal"])
            shutil.copyfile(keys / "gateway.crt", keys / place / "gateway.crt")
            shutil.copyfile(keys / place / "terminal.crt", folder / f"{place}.crt")
            lines = {"certificate": f"{place}.crt", "clients": list(terminal.networks)}
            if self.chain.queues_per == "terminal" and terminal.plan is not None:
                lines["plan"] = terminal.group
            text = "".join(f"{key} = {_toml(value)}\n" for key, value in lines.items())
            (folder / f"{terminal.name}.toml").write_text(text, encoding="utf-8")

    def _recorded(self, load: Path, links: Mapping[str, Any]) -> Recorded:
        """Read the records of gateway and load generator; `links` are the emulator's statistics."""
        folder, warmup, duration = self._network.folder, self._scenario.warmup, self._scenario.duration
        # The server records uploads, whose data it receives.
        loads = [load, *([load.with_suffix(".serve.jsonl")] if self.chain.uploads else [])]
        flows = read_flows(loads)
        recorded = read_record(folder / f"{self.chain.subject}.jsonl", flows, warmup, duration)
        counters = dict(recorded.counters) | page_counters(load, self._scenario) | link_counters(links)
        if self.chain.has_return and not self.chain.has_several_terminals:
            counters |= return_counters(folder / "terminal.jsonl", flows, warmup, duration)
        counters |= probe_counters(load, self._scenario)
        counters |= unit_counters(loads, flows, self._scenario)
        counters |= repeated_counters(recorded.live["carried"], self._scenario)
        recorded = replace(recorded.with_classes(self._scenario), counters=counters)
        if not self.chain.has_several_terminals:
            return recorded
        places = self._ends_of_links if self.chain.has_return else []
        backs = [read_record(folder / f"{place}.jsonl", flows, warmup, duration) for place in places]
        return with_terminals(recorded, flows, load, self.chain, self._scenario, backs)

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
        if place in {"gateway", *self._ends_of_links}:
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

        def segment(
            name: str, number: int, ends: tuple[str, str], steps: tuple[Step, ...], more: dict[str, Any]
        ) -> dict[str, Any]:
            near, far = ends
            first, second = _devices(name, number)
            mtu = 1500 if name == "space" else self.chain.mtu
            several = name != "internet" and self.chain.has_several_terminals
            return {
                "name": f"{name}-{number}" if several else name,
                "mtu": mtu,
                "a": end(near, first),
                "b": end(far, second),
                "links": [asdict(step) | more for step in steps],
            }

        def of_terminal(number: int, place: str, terminal: Terminal) -> Iterator[dict[str, Any]]:
            member = {} if terminal.number is None else {"terminal": terminal.number}
            yield segment("space", number, ("gateway", place), (terminal.satellite,), modem | member)
            yield segment("lan", number, (place, "clients"), terminal.users, {})

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
                segment("internet", 0, ("servers", "gateway"), self.chain.ground, {}),
                *(
                    each
                    for number, (place, terminal) in enumerate(
                        zip(self._ends_of_links, self.chain.terminals, strict=True)
                    )
                    for each in of_terminal(number, place, terminal)
                ),
            ],
            "traffic": {each.traffic: _served(each) for each in self.chain.listeners},
            "out": str(network.folder / "flows.jsonl"),
        }

    def _address(self) -> None:
        """Give every device its addresses and routes."""
        own, router = _DEVICES["internet"]
        self._address_hosts(SERVERS, own, self.chain.addresses(SERVERS), self._window(), None)
        self._address_router("gateway", router, _GATEWAYS[SERVERS], _network(*_GATEWAYS[SERVERS]))
        window = self._window() if self.chain.uploads else ""
        several = self.chain.has_several_terminals
        for number, (place, terminal) in enumerate(
            zip(self._ends_of_links, self.chain.terminals, strict=True)
        ):
            router, own = _devices("lan", number)
            users = self.chain.behind(number) if several else self.chain.addresses(CLIENTS)
            self._address_hosts(CLIENTS, own, users, window, (number, terminal) if several else None)
            four, six = (network.split("/")[0] for network in terminal.networks)
            router_of = (f"{four.removesuffix('0')}254", f"{six}fffe") if several else _GATEWAYS[CLIENTS]
            self._address_router(place, router, router_of, terminal.networks)
            near, far = _devices("space", number)
            first, second = _SPACELINK.format(1), _SPACELINK.format(number + 2)
            for at, device, ends, networks in (
                ("gateway", near, (first, second), terminal.networks),
                (place, far, (second, first), ("default", "::/0")),
            ):
                commands = [
                    f"link set {device} mtu 1500 txqueuelen 10000 up",
                    f"addr add {ends[0]}/32 peer {ends[1]} dev {device}",
                    *(f"route add {network} dev {device}" for network in networks),
                ]
                self._network.ip(at, commands)

    def _address_hosts(
        self,
        side: str,
        device: str,
        addresses: list[tuple[str, str]],
        window: str,
        behind: tuple[int, Terminal] | None,
    ) -> None:
        """Give hosts on a device their addresses and routes; those `behind` one of several have a table."""
        commands = [f"link set {device} mtu {self.chain.mtu} txqueuelen 10000 up"]
        for four, six in addresses:
            commands += [f"addr add {four}/32 dev {device}", f"addr add {six}/128 dev {device} nodad"]
        table = ""
        if behind is not None:
            number, terminal = behind
            table = f" table {_TABLE + number}"
            for network in terminal.networks:
                rule = f"rule add from {network} lookup {_TABLE + number}"
                self._network.ip(side, [rule], six=":" in network)
        commands += [f"route add {each} dev {device}{table}{window}" for each in ("default", "::/0")]
        self._network.ip(side, commands)

    def _address_router(
        self, place: str, device: str, addresses: tuple[str, str], networks: tuple[str, str]
    ) -> None:
        """Give the device of gateway or terminal towards hosts its addresses, and the routes to them."""
        four, six = addresses
        commands = [
            f"link set {device} mtu {self.chain.mtu} txqueuelen 10000 up",
            f"addr add {four}/32 dev {device}",
            f"addr add {six}/128 dev {device} nodad",
            *(f"route add {network} dev {device}" for network in networks),
        ]
        self._network.ip(place, commands)

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

    def _config(self, place: str, keys: Path) -> str:
        """Return the configuration of the gateway, or of the terminal at a place."""
        scenario = scenario_entry(self._scenario)
        folder = self._network.folder
        role = "gateway" if place == "gateway" else "terminal"
        number = 0 if role == "gateway" else self._ends_of_links.index(place)
        terminal, several = self.chain.terminals[number], self.chain.has_several_terminals
        ends = _SPACELINK.format(1), _SPACELINK.format(number + 2)
        near, far = ends if role == "gateway" else ends[::-1]
        peer = {} if several and role == "gateway" else {"peer": f"{far}:{_SPACELINK_PORT}"}
        back = terminal.rates[1]
        tables: dict[str, dict[str, Any]] = {
            "scenario": {
                "file": str(folder / "scenario" / "scenario.toml"),
                "overrides": scenario["overrides"],
            }
            | ({} if scenario["setting"] is None else {"setting": scenario["setting"]}),
            "satellite": {
                "local": f"{near}:{_SPACELINK_PORT}",
                **peer,
                "keys": str(keys / place if several and role == "terminal" else keys),
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
            tables["users"] = {"device": _DEVICES["lan"][0], "clients": list(terminal.networks)}
        if several and role == "gateway":
            tables |= self._terminals_and_plans()
        if role == "gateway" or self.chain.has_return:
            tables["record"] = {
                "file": str(folder / f"{place}.jsonl"),
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

    def _terminals_and_plans(self) -> dict[str, dict[str, Any]]:
        """Return the tables of a gateway's terminals and their plans."""
        folder = str(self._network.folder / "terminals")
        tables: dict[str, dict[str, Any]] = {
            "terminals": {"folder": folder, "queues_per": self.chain.queues_per}
        }
        if self.chain.queues_per != "terminal":
            return tables
        for terminal in self.chain.terminals:
            if terminal.plan is not None:
                rates = {key: f"{terminal.plan[key]} bps" for key in ("cir", "pir") if terminal.plan.get(key)}
                share = {"weight": terminal.plan["weight"], "burst": f"{terminal.plan['burst']} B"}
                tables[f"plan.{_toml(terminal.group)}"] = rates | share
        return tables


def terminal_places(chain: Chain) -> list[str]:
    """Return the namespace of each terminal."""
    if not chain.has_several_terminals:
        return ["terminal"]
    return [f"terminal-{number}" for number in range(len(chain.terminals))]


def _devices(segment: str, number: int) -> tuple[str, str]:
    """Return the devices of a segment at a terminal, by its number."""
    near, far = _DEVICES[segment]
    return near.format(number), far.format(number)


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
