"""What of a scenario is where in the chain of a live run, and which scenarios have one.

servers ══ ground links ── gateway ~~ satellite ~~ terminal ── links of the users' side ══ clients

Nothing is started here.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bentpipe.errors import UsageError
from bentpipe.plan import Plan, Setting

__all__ = ["ADDRESSES", "CLIENTS", "SERVERS", "Chain", "Hosts", "Listener", "chain", "check"]

ADDRESSES = 1000
"""Hosts of a group that have addresses of their own; further ones share them, round and round."""

SERVERS, CLIENTS = "servers", "clients"
_NETWORKS = {SERVERS: 1, CLIENTS: 3}
"""Second byte of the IPv4 addresses of each side; the satellite has 2."""
_STREAMS = ("pages", "bulk")
"""Traffic over TCP that the load generator knows; packets go over UDP, whatever their pattern."""
_KERNEL = {"reno": "reno", "newreno": "reno", "cubic": "cubic", "cubic-linux": "cubic"}
"""What the kernel calls congestion controls that have other names here."""
_LONGEST_FILE = 64 << 20
"""What is written to disk for nginx to serve, at most [bytes]."""
_PORT = 8000
"""Of the first traffic; the next ones count on."""


@dataclass(frozen=True, slots=True)
class Listener:
    """How one table of traffic is served."""

    traffic: str
    kind: str
    port: int
    congestion: str
    """The kernel's name of the senders' congestion control; empty for datagrams."""
    rate_cap: int | None
    """Of a connection [bit/s]."""
    largest: int | None
    """The longest object that nginx serves [bytes]; None where the load generator's own server does."""


@dataclass(frozen=True, slots=True)
class Hosts:
    """A group of hosts: addresses of one namespace."""

    side: str
    """`SERVERS` or `CLIENTS`."""
    addresses: tuple[tuple[str, str], ...]
    """IPv4 and IPv6 of each."""


@dataclass(frozen=True, slots=True)
class Step:
    """A link on the way from the servers to the clients."""

    link: str
    against: bool
    """Whether the way goes from the link's second node to its first."""


@dataclass(frozen=True)
class Chain:
    """A scenario's places, links and addresses in a live run."""

    ground: tuple[Step, ...]
    """From the servers to the gateway."""
    satellite: Step
    users: tuple[Step, ...]
    """From the terminal to the clients."""
    listeners: tuple[Listener, ...]
    hosts: Mapping[str, Hosts]
    """By the groups' names."""
    transport: Mapping[str, Any]
    """The TCP of the first traffic that has one, as the canonical scenario has it; empty without."""
    satellite_rates: tuple[int | None, int | None]
    """Of the satellite, to the terminal and back [bit/s]."""

    def addresses(self, side: str) -> list[tuple[str, str]]:
        """Return all IPv4 and IPv6 addresses of a side."""
        return [pair for hosts in self.hosts.values() if hosts.side == side for pair in hosts.addresses]

    @property
    def mtu(self) -> int:
        """Longest packet of the servers and the clients [bytes]."""
        if not self.transport:
            return 1500
        options = 12 if self.transport.get("timestamps") else 0
        return max(1280, min(1500, int(self.transport["mss"]) + 40 + options))


def check(plan: Plan) -> Chain:
    """Return the chain that all settings of a plan share; `UsageError` names what cannot be live."""
    if plan.trace:
        raise UsageError(f"{plan.scenario.name}: flows of a live run cannot be traced")
    chains = [_of_setting(each) for each in plan.settings]
    return chains[0]


def _of_setting(setting: Setting) -> Chain:
    if setting.algorithm is not None:
        raise UsageError(
            f"{setting.name} cannot be live: it is written in Python, and the live gateway runs those of"
            " `bentpipe list aqms`"
        )
    return chain(setting.scenario.name, json.loads(setting.scenario.canonical()))


def chain(name: str, scenario: Mapping[str, Any]) -> Chain:
    """Return the chain of a canonical scenario called `name`; `UsageError` names what cannot be live."""

    def fault(what: str) -> UsageError:
        return UsageError(
            f"{name} cannot be live: {what}; allowed: one gateway in the chain servers – gateway –"
            " satellite – terminal – clients, with pages or long transfers over TCP, or packets over UDP"
        )

    gateways, links, hosts = scenario["gateways"], scenario["links"], scenario["hosts"]
    if len(gateways) != 1:
        raise fault("it has no gateway" if not gateways else f"it has {len(gateways)} gateways")
    if "gateway" not in scenario["subject"]:
        raise fault(f"its settings are those of the link {links[scenario['subject']['link']]['name']}")
    gateway, traffic = gateways[0], scenario["traffic"]
    if not traffic:
        raise fault("it has no traffic")
    route = [(hop["link"], hop["forward"]) for hop in traffic[0]["route"]]
    for each in traffic:
        if [(hop["link"], hop["forward"]) for hop in each["route"]] != route:
            raise fault(f"traffic.{each['name']} takes another way than traffic.{traffic[0]['name']}")
    over = [at for at, (link, _) in enumerate(route) if link == gateway["link"]]
    if len(over) != 1:
        raise fault(f"traffic.{traffic[0]['name']} does not cross the satellite of {gateway['name']}")
    if route[over[0]][1] != gateway["link_forward"]:
        raise fault(f"traffic.{traffic[0]['name']} goes from the terminal to the gateway")
    if any(_transport(each) is not None for each in traffic) and "tcp" not in gateway["pep"]["split"]:
        raise fault(f"{gateway['name']} splits no TCP (pep.split)")
    steps = tuple(Step(links[link]["name"], not forward) for link, forward in route)
    listeners = [_listener(at, each, scenario, fault) for at, each in enumerate(traffic)]
    groups: dict[str, Hosts] = {}
    for side, end in ((SERVERS, "from"), (CLIENTS, "to")):
        used = 0
        for number in dict.fromkeys(each[end] for each in traffic):
            host = hosts[number]
            if host["name"] in groups:
                raise fault(f"host.{host['name']} is on both sides")
            count = min(host["count"], ADDRESSES)
            groups[host["name"]] = Hosts(side, _addresses(_NETWORKS[side], used, count))
            used += count
    tcps = [each for each in traffic if _transport(each) is not None]
    link = links[gateway["link"]]
    rates = tuple(link[way]["rate"] for way in ("forward", "reverse"))
    forward = bool(gateway["link_forward"])
    return Chain(
        steps[: over[0]],
        steps[over[0]],
        steps[over[0] + 1 :],
        tuple(listeners),
        groups,
        scenario["transports"][_transport(tcps[0])] if tcps else {},
        (rates[0], rates[1]) if forward else (rates[1], rates[0]),
    )


def _kind(traffic: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    ((kind, what),) = traffic["kind"].items()
    return kind, what


def _transport(traffic: Mapping[str, Any]) -> int | None:
    number = _kind(traffic)[1].get("transport")
    return None if number is None else int(number)


def _listener(
    at: int,
    traffic: Mapping[str, Any],
    scenario: Mapping[str, Any],
    fault: Callable[[str], UsageError],
) -> Listener:
    """Return how a table of traffic is served."""
    kind, what = _kind(traffic)
    number = _transport(traffic)
    tcp = {} if number is None else scenario["transports"][number]
    where = f"traffic.{traffic['name']}"
    if number is not None and tcp.get("protocol", "tcp") != "tcp":
        raise fault(f"{where} goes over {tcp['protocol']}")
    if number is not None and kind not in _STREAMS:
        raise fault(f"{where} is {kind} over TCP")
    if number is None and kind in {*_STREAMS, "files"}:
        raise fault(f"{where} is {kind} without TCP")
    algorithm = tcp.get("algorithm", "")
    if algorithm == "prague":
        raise fault(f"{where} has the congestion control prague, which no kernel offers")
    return Listener(
        traffic["name"],
        kind,
        _PORT + at,
        _KERNEL.get(algorithm, algorithm),
        what.get("rate_cap"),
        _largest(what["object_size"]) if kind == "pages" else None,
    )


def _largest(law: Mapping[str, Any]) -> int | None:
    """Return the greatest length that a law draws [bytes]; None where there is none, or no file so long."""
    if "fixed" in law:
        found = law["fixed"]
    elif "uniform" in law:
        found = law["uniform"]["high"]
    else:
        return None
    return int(found) if found <= _LONGEST_FILE else None


def _addresses(network: int, first: int, count: int) -> tuple[tuple[str, str], ...]:
    """Return addresses of a side from number `first` on: 250 in each /24, and one /64 of IPv6."""
    return tuple(
        (f"10.{network}.{at // 250}.{at % 250 + 1}", f"fd00:b:0:{network}::{at + 1:x}")
        for at in range(first, first + count)
    )
