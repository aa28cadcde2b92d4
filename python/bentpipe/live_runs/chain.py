"""The chain of a live run: maps a scenario's hosts, links and traffic, and rejects unsupported scenarios.

servers ══ ground links ── gateway ~~ satellite ~~ terminal ── links of the users' side ══ clients

A gateway may have several terminals, each with its own satellite link and its own users. This module starts
nothing.
"""

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate
from typing import Any

from bentpipe._core import Scenario
from bentpipe.errors import UsageError
from bentpipe.runs.plan import Plan, Setting

__all__ = ["ADDRESSES", "CLIENTS", "SERVERS", "Chain", "Hosts", "Listener", "Terminal", "chain", "check"]

ADDRESSES = 1000
"""Addresses per group of hosts; further hosts share them round-robin."""

MOST_TERMINALS = 16
"""Most terminals of a live run: each has a namespace and a process."""
_MOST_BEHIND = 250
"""Most hosts behind each of several terminals."""

SERVERS, CLIENTS = "servers", "clients"
_NETWORKS = {SERVERS: 1, CLIENTS: 3}
"""Second byte of the IPv4 addresses of each side; the satellite has 2."""
_NETWORK_OF_ALL = {side: (f"10.{at}.0.0/16", f"fd00:b:0:{at}::/64") for side, at in _NETWORKS.items()}
"""IPv4 and IPv6 network of each side."""
_TAKEN = {
    "name",
    "algorithm",
    "mss",
    "initial_window",
    "min_rto",
    "sack",
    "timestamps",
    "option_bytes",
    "ecn",
    "slow_start_restart",
    "receive_window",
    "initial_receive_window",
}
"""Transport keys that a live run applies; the kernel determines the rest."""
_OF_ALL = _TAKEN - {"name", "algorithm", "option_bytes"}
"""Applied keys that all connections of a namespace share."""
_OBJECTS = {"pages": "object_size", "files": "size"}
"""Kinds of traffic that nginx may serve, with their key of the object size."""
_FROM_SERVERS = {"pages", "dash"}
"""Kinds of traffic that only servers send."""
_OVER_QUIC = {"pages", "files", "bulk", "dash"}
"""Kinds of traffic that the load generator carries over QUIC."""
_KERNEL = {"reno": "reno", "newreno": "reno", "cubic": "cubic", "cubic-linux": "cubic"}
"""Kernel names of congestion controls that have other names here."""
_LONGEST_FILE = 64 << 20
"""Maximum size of the file that nginx serves [bytes]."""
_UDP_HEADERS = 28
"""IPv4 and UDP headers of a packet [bytes]."""
_PORT = 8000
"""Port of the first traffic; the others follow."""


@dataclass(frozen=True, slots=True)
class Listener:
    """Server of one traffic table."""

    traffic: str
    kind: str
    port: int
    congestion: str
    """Kernel name of the senders' congestion control; empty for datagrams and QUIC."""
    rate_cap: int | None
    """Cap of a TCP connection's payload rate, which the kernel paces [bit/s]."""
    largest: int | None
    """Largest object that nginx serves [bytes]; `None` if the load generator's server serves instead."""
    dscp: int = 0
    """Codepoint of the sender's packets."""
    upload: bool = False
    """True if clients send."""
    clients: str = ""
    """Group of hosts of the clients."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """A group of hosts: addresses of one namespace."""

    side: str
    """`SERVERS` or `CLIENTS`."""
    addresses: tuple[tuple[str, str], ...]
    """IPv4 and IPv6 address of each host."""
    terminals: tuple[int, int] = (0, 1)
    """Of clients: number of the first terminal that they are behind, and how many terminals there are."""

    def terminal_of(self, host: int) -> int:
        """Return the number of the terminal that a host of the group is behind."""
        first, count = self.terminals
        return first + host % count


@dataclass(frozen=True, slots=True)
class Step:
    """A link on the path from the servers to the clients."""

    link: str
    against: bool
    """True if the path crosses the link from its second node to its first."""


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal with its satellite link and the links to its users."""

    name: str
    """Its name in results: that of its group, with its number there if there are several."""
    group: str
    number: int | None
    """Its number in a group of several."""
    satellite: Step
    users: tuple[Step, ...]
    """Links from the terminal to the clients."""
    rates: tuple[int | None, int | None]
    """Rates of its forward and return link [bit/s]."""
    networks: tuple[str, str]
    """IPv4 and IPv6 network of its users."""
    plan: Mapping[str, Any] | None = None
    """Its share of the carrier, as in the canonical scenario."""


@dataclass(frozen=True)
class Chain:
    """Links, servers and addresses of a scenario in a live run."""

    ground: tuple[Step, ...]
    """Links from the servers to the gateway."""
    terminals: tuple[Terminal, ...]
    listeners: tuple[Listener, ...]
    hosts: Mapping[str, Hosts]
    """Groups of hosts by name."""
    transport: Mapping[str, Any]
    """First TCP of the traffic, as in the canonical scenario; empty without TCP."""
    queues_per: str | None = None
    """Terminals that share a queue at the gateway, `carrier` or `terminal`; `None` with one terminal."""
    carrier: int | None = None
    """Rate of the carrier that several terminals share [bit/s]."""
    uploads: bool = False
    """True if clients send as well."""
    has_return: bool = False
    """True if the terminal has queues of the return direction."""
    subject: str = "gateway"
    """End whose queues the settings and the metrics concern: `gateway`, or `terminal`."""
    notes: tuple[str, ...] = ()
    """Deviations from the scenario, with reasons."""

    @property
    def satellite(self) -> Step:
        """Satellite link of the first terminal."""
        return self.terminals[0].satellite

    @property
    def users(self) -> tuple[Step, ...]:
        """Links from the first terminal to its clients."""
        return self.terminals[0].users

    @property
    def has_several_terminals(self) -> bool:
        """True if the gateway has several terminals, as tables of results have them."""
        return self.queues_per is not None

    def behind(self, terminal: int) -> list[tuple[str, str]]:
        """Return the addresses of the clients behind a terminal, by its number among all."""
        return [
            pair
            for hosts in self.hosts.values()
            if hosts.side == CLIENTS
            for host, pair in enumerate(hosts.addresses)
            if hosts.terminal_of(host) == terminal
        ]

    def addresses(self, side: str) -> list[tuple[str, str]]:
        """Return all IPv4 and IPv6 addresses of a side."""
        return [pair for hosts in self.hosts.values() if hosts.side == side for pair in hosts.addresses]

    @property
    def receive_windows(self) -> tuple[int, int] | None:
        """Initial and maximum receive window [bytes]; `None` for Linux defaults."""
        tcp, linux = self.transport, _linux()
        keys = ("initial_receive_window", "receive_window")
        if not tcp or all(tcp.get(key) == linux[key] for key in keys):
            return None
        most = int(tcp["receive_window"])
        return min(int(tcp.get("initial_receive_window") or most), most), most

    @property
    def congestions(self) -> list[str]:
        """Kernel names of the servers' congestion controls; gateway and terminal use the first."""
        return list(dict.fromkeys(each.congestion for each in self.listeners if each.congestion))

    @property
    def mtu(self) -> int:
        """MTU of servers and clients [bytes]."""
        return _mtu(self.transport)


def check(plan: Plan) -> Chain:
    """Return the common chain of a plan's settings; `UsageError` if the plan is not supported live."""
    if plan.trace:
        raise UsageError(f"{plan.scenario.name}: flows of a live run cannot be traced")
    chains = [_of_setting(each) for each in plan.settings]
    return chains[0]


def _of_setting(setting: Setting) -> Chain:
    if setting.scenario.python_aqm is not None:
        raise UsageError(
            f"{setting.name} cannot be live: it is written in Python; allowed: the AQMs of"
            " `bentpipe list aqms`"
        )
    if setting.scenario.marks_behind_pep:
        raise UsageError(
            f"{setting.scenario.name} cannot be live: {setting.name} marks behind the PEP, and the kernel's"
            ' TCP cannot echo that; allowed: marking = "drop", or marks ahead of the PEP'
        )
    return chain(setting.scenario.name, json.loads(setting.scenario.canonical()))


def chain(name: str, scenario: Mapping[str, Any]) -> Chain:
    """Return the chain of a canonical scenario; `UsageError` if it is not supported live."""

    def fault(what: str, allowed: str = "") -> UsageError:
        chain = (
            "one gateway in the chain servers – gateway – satellite – terminal – clients, with up to"
            f" {MOST_TERMINALS} terminals, and traffic over TCP, QUIC or UDP"
        )
        return UsageError(f"{name} cannot be live: {what}; allowed: {allowed or chain}")

    gateways, links, hosts = scenario["gateways"], scenario["links"], scenario["hosts"]
    if len(gateways) != 1:
        raise fault("it has no gateway" if not gateways else f"it has {len(gateways)} gateways")
    if "link" in scenario["subject"]:
        raise fault(f"its settings are those of the link {links[scenario['subject']['link']]['name']}")
    gateway, traffic = gateways[0], scenario["traffic"]
    if "terminals" in gateway:
        _check_terminals(gateway, scenario, fault)
    if not traffic:
        raise fault("it has no traffic")
    only = {"name": "terminal", "count": 1} | {key: gateway.get(key) for key in ("link", "link_forward")}
    groups_of_terminals = gateway.get("terminals", [only])
    routes, group_of, uploads = _routes(gateway["name"], groups_of_terminals, traffic, fault)
    _check_return(gateway.get("return", {}), fault)
    if "throughput_advice" in gateway:
        raise fault("its gateway gives throughput advice (gateway.throughput_advice)")
    listeners = [
        replace(
            _listener(at, each, scenario, fault, upload=each["name"] in uploads),
            upload=each["name"] in uploads,
            clients=hosts[each["from" if each["name"] in uploads else "to"]]["name"],
        )
        for at, each in enumerate(traffic)
    ]
    firsts = list(accumulate((group["count"] for group in groups_of_terminals), initial=0))
    several = "terminals" in gateway
    groups: dict[str, Hosts] = {}
    for side, ends in ((SERVERS, ("from", "to")), (CLIENTS, ("to", "from"))):
        at, behind = 0, [0] * firsts[-1]
        for number, its in {each[ends[each["name"] in uploads]]: each["name"] for each in traffic}.items():
            host = hosts[number]
            if "address_changes" in host:
                raise fault(f"host.{host['name']} has address_changes, which only simulations know")
            if host["name"] in groups:
                raise fault(f"host.{host['name']} is on both sides")
            if side == CLIENTS and several:
                group = group_of[its]
                terminals = firsts[group], groups_of_terminals[group]["count"]
                groups[host["name"]] = _behind(host, terminals, behind, fault)
                continue
            count = min(host["count"], ADDRESSES)
            groups[host["name"]] = Hosts(side, _addresses(_NETWORKS[side], at, count))
            at += count
    numbers = [_transport(each) for each in traffic]
    used = [scenario["transports"][n] for n in dict.fromkeys(numbers) if n is not None]
    tcp = [each for each in used if _protocol(each) == "tcp"]
    quic = [each for each in used if _protocol(each) == "quic"]
    for each in quic:
        for key in ("zero_rtt", "scone"):
            if key in each:
                raise fault(f"transport.{each['name']} has {key}, which only simulations know")
        most = _mtu(tcp[0] if tcp else {}) - _UDP_HEADERS
        if each["max_udp_payload"] > most:
            found = f"transport.{each['name']} has max_udp_payload = {each['max_udp_payload']} B"
            raise fault(f"{found}, and the MTU has room for {most} B")
    shared = [
        host
        for host in hosts
        if host["name"] in groups and host["count"] > len(groups[host["name"]].addresses)
    ]
    return Chain(
        _steps(next(iter(routes.values()))[0], links),
        tuple(_terminals(groups_of_terminals, routes, links, several=several)),
        tuple(listeners),
        groups,
        tcp[0] if tcp else {},
        gateway.get("queues_per", "carrier") if several else None,
        gateway["regulator"]["rate"] if several else None,
        bool(uploads),
        "return" in gateway,
        "terminal" if "return" in scenario["subject"] else "gateway",
        tuple(_notes(tcp, quic, shared)),
    )


Route = Sequence[tuple[int, bool]]
"""Links that packets pass, and true for each that they cross from its first node to its second."""


def _check_terminals(
    gateway: Mapping[str, Any], scenario: Mapping[str, Any], fault: Callable[..., UsageError]
) -> None:
    """Check that several terminals of a gateway can be live."""
    count = sum(group["count"] for group in gateway["terminals"])
    if count > MOST_TERMINALS:
        raise fault(f"it has {count} terminals")
    if gateway.get("queues_per") == "subscriber":
        raise fault(
            f'{gateway["name"]}.queues_per is "subscriber"',
            '"carrier" and "terminal", because the live gateway has no queues for subscribers',
        )
    if gateway.get("pools"):
        raise fault(f"it has pool.{gateway['pools'][0]['name']}", "terminals that share the carrier by plan")
    for group in gateway["terminals"]:
        if "handover" in group:
            raise fault(f"terminal.{group['name']} has a handover", "terminals that stay at their gateway")
    if gateway["regulator"].get("follows_link"):
        raise fault(
            f'{gateway["name"]}.regulator.rate is "link" with several terminals',
            'a rate such as "20 Mbps", because the live carrier has one rate for all of them',
        )
    if "return" in scenario["subject"]:
        raise fault(
            f'run.subject is "{gateway["name"]} return" with several terminals', f'"{gateway["name"]}"'
        )


def _routes(
    gateway: str,
    groups: Sequence[Mapping[str, Any]],
    traffic: Sequence[Mapping[str, Any]],
    fault: Callable[[str], UsageError],
) -> tuple[dict[int, tuple[Route, Route, Route]], dict[str, int], set[str]]:
    """Return routes to each group of terminals with traffic, the group of each traffic entry, and uploads.

    A route has three parts: links from the servers to the gateway, the satellite link, and links from the
    terminal to the clients.
    """
    of_link = {group["link"]: (number, group["link_forward"]) for number, group in enumerate(groups)}
    routes: dict[int, tuple[Route, Route, Route]] = {}
    first: dict[int, str] = {}
    group_of, uploads = {}, set()
    for each in traffic:
        where = f"traffic.{each['name']}"
        route: Route = [(hop["link"], hop["forward"]) for hop in each["route"]]
        over = [hop for hop in route if hop[0] in of_link]
        if len(over) > 1:
            raise fault(f"{where} goes from terminal to terminal")
        if not over:
            raise fault(f"{where} does not cross the satellite of {gateway}")
        number, forward = of_link[over[0][0]]
        if over[0][1] != forward:
            uploads.add(each["name"])
            route = _back(route)
        at = next(at for at, (link, _) in enumerate(route) if link in of_link)
        parts = route[:at], route[at : at + 1], route[at + 1 :]
        known = routes.setdefault(number, parts)
        other = first.setdefault(number, where)
        if known != parts:
            raise fault(f"{where} has another route than {other}")
        if parts[0] != next(iter(routes.values()))[0]:
            raise fault(f"{where} has another route to the gateway than {next(iter(first.values()))}")
        group_of[each["name"]] = number
    return routes, group_of, uploads


def _steps(route: Route, links: Sequence[Mapping[str, Any]]) -> tuple[Step, ...]:
    return tuple(Step(links[link]["name"], not forward) for link, forward in route)


def _terminals(
    groups: Sequence[Mapping[str, Any]],
    routes: Mapping[int, tuple[Route, Route, Route]],
    links: Sequence[Mapping[str, Any]],
    *,
    several: bool,
) -> Iterator[Terminal]:
    """Yield the terminals of all groups; one that no traffic passes has no links to users."""
    at = 0
    for number, group in enumerate(groups):
        link, forward = links[group["link"]], bool(group["link_forward"])
        rates = tuple(link[way]["rate"] for way in ("forward", "reverse"))
        users = routes[number][2] if number in routes else []
        for member in range(group["count"]):
            yield Terminal(
                f"{group['name']}.{member}" if group["count"] > 1 else group["name"],
                group["name"],
                member if group["count"] > 1 else None,
                Step(link["name"], not forward),
                _steps(users, links),
                (rates[0], rates[1]) if forward else (rates[1], rates[0]),
                _networks(at) if several else _NETWORK_OF_ALL[CLIENTS],
                group.get("plan"),
            )
            at += 1


def _networks(terminal: int) -> tuple[str, str]:
    """Return the networks of the users behind a terminal, by its number among several."""
    network = _NETWORKS[CLIENTS]
    return f"10.{network}.{terminal}.0/24", f"fd00:b:0:{network}:{terminal:x}::/80"


def _behind(
    host: Mapping[str, Any],
    terminals: tuple[int, int],
    behind: list[int],
    fault: Callable[[str], UsageError],
) -> Hosts:
    """Return a group of hosts behind several terminals: those with numbers from the first of `terminals` on.

    `behind` counts the hosts behind each terminal.
    """
    addresses = []
    first, count = terminals
    for number in range(host["count"]):
        terminal = first + number % count
        behind[terminal] += 1
        at = behind[terminal]
        if at > _MOST_BEHIND:
            raise fault(f"host.{host['name']} has more than {_MOST_BEHIND} hosts behind a terminal")
        four, six = (network.split("/")[0] for network in _networks(terminal))
        addresses.append((f"{four.removesuffix('0')}{at}", f"{six}{at:x}"))
    return Hosts(CLIENTS, tuple(addresses), terminals)


def _back(route: Route) -> Route:
    """Return the way back along a route of links, each forward or not."""
    return [(link, not forward) for link, forward in reversed(route)]


def _check_return(queues: Mapping[str, Any], fault: Callable[[str], UsageError]) -> None:
    """Check that the queues at the terminal are those of a live terminal."""
    if queues.get("carrier"):
        raise fault("its terminal has gateway.return.carrier, which only simulations know")
    marking = queues.get("marking", "drop")
    if (marking if isinstance(marking, str) else marking["method"]) == "window":
        raise fault('its terminal has gateway.return.marking = "window"; at a terminal "drop" and "ecn"')


def _notes(
    transports: Sequence[Mapping[str, Any]],
    quic: Sequence[Mapping[str, Any]],
    hosts: Sequence[Mapping[str, Any]],
) -> list[str]:
    """Return the deviations of a live run from these TCPs, QUICs and oversized groups of hosts."""
    notes = []
    linux = _linux()
    for tcp in transports:
        own = sorted(key for key in tcp.keys() | linux.keys() if tcp.get(key) != linux.get(key))
        own = [key for key in own if key not in _TAKEN]
        if own:
            notes.append(
                f'transport.{tcp["name"]}: the kernel\'s values (preset "linux") apply for {", ".join(own)}'
            )
        payload = _mtu(tcp) - _headers(tcp)
        if payload != tcp["mss"]:
            notes.append(
                f"transport.{tcp['name']}: mss is {payload} B instead of {tcp['mss']} B: packets have 1280 to"
                " 1500 bytes"
            )
        first = transports[0]
        shared = sorted(key for key in _OF_ALL if tcp.get(key) != first.get(key))
        if shared:
            notes.append(
                f"transport.{tcp['name']}: transport.{first['name']} determines {', '.join(shared)}: all"
                " connections of a namespace share these settings"
            )
    notes += [
        f"transport.{each['name']}: packets have {_UDP_HEADERS} B of IP and UDP headers instead of"
        f" {each['udp_header']} B"
        for each in quic
        if each["udp_header"] != _UDP_HEADERS
    ]
    notes += [
        f"host.{host['name']}: {host['count']} hosts share {ADDRESSES} addresses and their links"
        for host in hosts
    ]
    return notes


@cache
def _linux() -> Mapping[str, Any]:
    """Return Linux's default transport, as in a canonical scenario."""
    text = """
        title = "Linux"
        [run]
        duration = "1 s"
        [host.a]
        [host.b]
        [link.l]
        between = ["a", "b"]
        rate = "1 Mbps"
        queue = { aqm = { algorithm = "droptail" } }
        [transport.linux]
        preset = "linux"
        [traffic.t]
        kind = "bulk"
        from = "a"
        to = "b"
        transport = "linux"
    """
    (found,) = json.loads(Scenario.parse(text, "linux", []).canonical())["transports"]
    return dict(found)


def _mtu(tcp: Mapping[str, Any]) -> int:
    """Return the MTU for a TCP's MSS, within the limits of Ethernet and IPv6 [bytes]."""
    return max(1280, min(1500, int(tcp["mss"]) + _headers(tcp))) if tcp else 1500


def _headers(tcp: Mapping[str, Any]) -> int:
    """Return the length of a segment's headers over IPv4 [bytes]."""
    return 40 + (12 if tcp.get("timestamps") else 0)


def _kind(traffic: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    ((kind, what),) = traffic["kind"].items()
    return kind, what


def _protocol(transport: Mapping[str, Any]) -> str:
    return str(transport.get("protocol", "tcp"))


def _transport(traffic: Mapping[str, Any]) -> int | None:
    number = _kind(traffic)[1].get("transport")
    return None if number is None else int(number)


def _listener(
    at: int,
    traffic: Mapping[str, Any],
    scenario: Mapping[str, Any],
    fault: Callable[[str], UsageError],
    *,
    upload: bool,
) -> Listener:
    """Return the server of traffic table number `at`."""
    kind, what = _kind(traffic)
    number = _transport(traffic)
    tcp = {} if number is None else scenario["transports"][number]
    where = f"traffic.{traffic['name']}"
    protocol = _protocol(tcp)
    for key in ("keep_alive", "patience", "rendering"):
        if key in what:
            name = "render_blocking" if key == "rendering" else key
            raise fault(f"{where} has {name}, which only simulations know")
    if upload and (kind in _FROM_SERVERS or protocol == "quic"):
        over = " over QUIC" if protocol == "quic" else ""
        raise fault(f"{where} uploads {kind}{over}; live uploads are files, bulk and packets over TCP or UDP")
    if upload and what.get("rate_cap") is not None:
        raise fault(f"{where} has rate_cap, which live uploads do not have")
    if protocol == "quic" and kind in _OVER_QUIC:
        return Listener(traffic["name"], kind, _PORT + at, "", None, None, traffic.get("dscp", 0))
    if protocol != "tcp":
        raise fault(f"{where} sends {kind} over {protocol}")
    algorithm = tcp.get("algorithm", "")
    if algorithm == "prague":
        raise fault(f"{where} has the congestion control prague, which no kernel offers")
    return Listener(
        traffic["name"],
        kind,
        _PORT + at,
        _KERNEL.get(algorithm, algorithm),
        _payload(what.get("rate_cap"), tcp),
        # Of a probe the server is to say when it answers.
        _file(what[_OBJECTS[kind]])
        if kind in _OBJECTS and what.get("http") != "probe" and not upload
        else None,
        traffic.get("dscp", 0),
    )


def _payload(rate: int | None, tcp: Mapping[str, Any]) -> int | None:
    """Return the payload rate of full segments for a rate that includes headers [bit/s]."""
    if rate is None:
        return None
    options = 12 if tcp.get("option_bytes") and tcp.get("timestamps") else 0
    return rate * int(tcp["mss"]) // (int(tcp["mss"]) + int(tcp["header"]) + options)


def _file(distribution: Mapping[str, Any]) -> int | None:
    """Return the size of a file for all object sizes of a distribution [bytes]; None if too large."""
    largest = _largest(distribution)
    return int(largest) if largest <= _LONGEST_FILE else None


def _largest(distribution: Mapping[str, Any]) -> float:
    """Return the upper bound of a distribution of sizes [bytes]; infinite if unbounded."""
    ((name, what),) = distribution.items()
    if name == "fixed":
        return float(what)
    if name == "uniform":
        return float(what["high"])
    if name == "choice":
        return max(_largest(each) for _, each in what)
    return math.inf


def _addresses(network: int, first: int, count: int) -> tuple[tuple[str, str], ...]:
    """Return `count` addresses of a side from number `first` on: 250 per IPv4 /24, all in one IPv6 /64."""
    return tuple(
        (f"10.{network}.{at // 250}.{at % 250 + 1}", f"fd00:b:0:{network}::{at + 1:x}")
        for at in range(first, first + count)
    )
