"""Words of a scenario's picture: nodes, links and traffic from the parameters in effect."""

import json
import re
import tomllib
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from bentpipe import _core
from bentpipe._core import Scenario
from bentpipe.format import brief, number_of

__all__ = ["Aqm", "Link", "Network", "Node", "Stage", "Traffic", "network"]


@dataclass(frozen=True, slots=True)
class Aqm:
    """An AQM, and where it acts."""

    name: str
    lines: list[str]
    """Its parameters."""
    watch: str
    mark: str
    """Names of the stages that it watches and marks at."""
    verb: str
    """Effect of a mark: `drops`, `sets CE`, `shrinks window`."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One part that packets pass in a node or link."""

    kind: str
    """`queue`, `pep`, `regulator`, or `text` for a line without symbol."""
    name: str
    text: str


@dataclass(frozen=True, slots=True)
class Node:
    """A group of hosts, a router, a terminal, or a gateway with its stages."""

    name: str
    kind: str
    """`hosts`, `router`, `terminal` or `gateway`."""
    note: str
    count: int = 1
    stages: list[Stage] = field(default_factory=list)
    aqm: Aqm | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """A link, whose forward direction leads from the first node to the second."""

    name: str
    between: tuple[str, str]
    note: str
    satellite: bool
    stages: list[Stage]


@dataclass(frozen=True, slots=True)
class Traffic:
    """A traffic with the nodes on its route."""

    name: str
    lines: list[str]
    route: list[str]


@dataclass(frozen=True, slots=True)
class Network:
    """Everything that the picture shows."""

    title: str
    nodes: dict[str, Node]
    links: list[Link]
    traffic: list[Traffic]


_VERBS = {"drop": "drops", "ecn": "sets CE", "window": "shrinks window"}
_NO_PARAMETERS = {"algorithm", "preset", "source", "mean_packet"}
_COUNTS = ("sessions", "flows", "sources")
_NOT_SHOWN = {"kind", "from", "to", "transport", "start", "away", "request_size", *_COUNTS}


class _Values:
    """Parameters in effect, by key."""

    def __init__(self, scenario: Scenario) -> None:
        self._rows = {row["key"]: row for row in scenario.effective()}

    def text(self, *path: str) -> str | None:
        """Return a value as the scenario would give it; `None` if it has none."""
        row = self._rows.get(".".join(map(_step, path)))
        return None if row is None or row["value"] == "none" else row["value"]

    def plain(self, *path: str) -> str | None:
        """Return a value in words; `None` if it has none."""
        text = self.text(*path)
        return None if text is None else _plain(_parsed(text))

    def parsed(self, *path: str) -> Any:  # noqa: ANN401
        """Return a value as an object; `None` if it has none."""
        text = self.text(*path)
        return None if text is None else _parsed(text)

    def below(self, *path: str) -> list[tuple[str, dict[str, str]]]:
        """Return the rows below a key, each with the rest of its key."""
        prefix = ".".join(map(_step, path)) + "."
        return [(key.removeprefix(prefix), row) for key, row in self._rows.items() if key.startswith(prefix)]


def network(scenario: Scenario) -> Network:
    """Return the nodes, links and traffic of a scenario in words."""
    data = json.loads(scenario.canonical())
    values = _Values(scenario)
    several = len(data["gateways"]) > 1
    nodes = {}
    for host in data["hosts"]:
        count = host["count"]
        note = f"{count:,} hosts" if count > 1 else "1 host"
        nodes[host["name"]] = Node(host["name"], "hosts", note, count)
    for name in data["routers"]:
        nodes[name] = Node(name, "router", "router")
    satellites = {}
    for found in data["gateways"]:
        path = ("gateway", found["name"]) if several else ("gateway",)
        nodes[found["name"]] = _gateway(values, path, found)
        splits = bool(values.parsed(*path, "pep", "split"))
        for group in found.get("terminals", [found]):
            name = group.get("terminal", group["name"])
            uploads = _uploads(values, (*path, "return")) if found.get("return") else ""
            nodes[name] = _terminal(values, name, group.get("count", 1), uploads, splits=splits)
            satellites[group["link"]] = path
    links = [_link(values, link, nodes, satellites.get(index)) for index, link in enumerate(data["links"])]
    traffic = [_traffic(values, each, data) for each in data["traffic"]]
    return Network(scenario.title or scenario.name, nodes, links, traffic)


def _uploads(values: _Values, path: tuple[str, ...]) -> str:
    """Return the queues of a terminal in words."""
    limit = values.plain(*path, "transmit_queue", "limit")
    scheduler = _scheduler(values, (*path, "transmit_queue"), _verb(values, path))
    name, _ = _algorithm(values, *path, "aqm")
    aqm = f", AQM {name}" if name not in {"", "droptail"} else ""
    return f"; uploads wait in {scheduler}{f', {limit}' if limit else ''}{aqm}"


def _terminal(values: _Values, name: str, count: int, uploads: str, *, splits: bool) -> Node:
    """Return a terminal, or a group of terminals."""
    if count == 1:
        note = "terminal, far end of the PEP" if splits else "terminal"
        return Node(name, "terminal", f"{note}{uploads}")
    plan, pool = (values.plain("terminal", name, key) for key in ("plan", "pool"))
    note = f"terminals; plan {plan}{_share(values, 'plan', plan)}" if plan else "terminals"
    return Node(name, "terminal", (f"{note}; pool {pool}" if pool else note) + uploads, count)


def _pools(values: _Values, pools: list[dict[str, Any]], parent: int | None = None) -> str:
    """Return the pools in another one, or directly on the carrier, with what is in them."""
    found = []
    for number, pool in enumerate(pools):
        if pool.get("parent") == parent:
            inner = _pools(values, pools, number)
            share = _share(values, "pool", pool["name"])
            found.append(f"{pool['name']}{share}" + (f" with {inner}" if inner else ""))
    return ", ".join(found)


def _share(values: _Values, kind: str, name: str) -> str:
    """Return what a plan or a pool grants, in parentheses."""
    path = (kind, name, "down")
    words = {"cir": "committed {}", "pir": "at most {}", "weight": "weight {}"}
    found = [text.format(value) for key, text in words.items() if (value := values.plain(*path, key))]
    return f" ({', '.join(found)})" if found else ""


def _gateway(values: _Values, path: tuple[str, ...], found: dict[str, Any]) -> Node:
    """Return a gateway."""
    splits = values.parsed(*path, "pep", "split") or []
    receive = _queue("receive", "Receive queue", None, values.plain(*path, "receive_queue", "limit"))
    if rate := values.plain(*path, "receive_queue", "rate"):
        receive = Stage("queue", "receive", f"{receive.text}; served at {rate}")
    stages = [receive]
    delay = values.plain(*path, "pep", "delay")
    wait = "" if delay in {None, "0 s"} else f"; delay {delay}"
    if splits:
        buffer, per = (values.plain(*path, "pep", key) for key in ("buffer", "buffer_per"))
        names = ", ".join(str(each).upper() for each in splits)
        stages.append(Stage("pep", "pep", f"PEP: splits {names}; buffer {buffer} per {per}{wait}"))
    else:
        stages.append(Stage("text", "pep", f"No PEP: connections pass unsplit{wait}"))
    limit = values.plain(*path, "transmit_queue", "limit")
    words = _scheduler(values, (*path, "transmit_queue"), _verb(values, path))
    if not words.startswith("fifo"):
        words += f", a flow per {values.plain(*path, 'flow_key')}"
    stages.append(_queue("transmit", "Transmit queue", words, limit))
    rate, tick = values.plain(*path, "regulator", "rate"), values.plain(*path, "regulator", "tick")
    pace = "follows the satellite link's rate" if rate == "link" else f"{rate}"
    if "terminals" in found:
        pace = "each packet at the rate of its terminal's link" if rate == "link" else pace
        pace += ", shared by plan" if found.get("queues_per") else ""
        pace += f"; pools {_pools(values, found['pools'])}" if "pools" in found else ""
    stages.append(
        Stage("regulator", "regulator", f"Regulator: {pace}" + (f", released every {tick}" if tick else ""))
    )
    aqm = _aqm(values, path, str(values.plain(*path, "watch")), str(values.plain(*path, "mark")))
    each = found.get("queues_per")
    note = f"gateway; queues and AQM for each {each}" if each else "gateway"
    return Node(found["name"], "gateway", note, 1, stages, aqm)


def _aqm(values: _Values, path: tuple[str, ...], watch: str, mark: str) -> Aqm | None:
    """Return the AQM at `path`; `None` for drop tail without parameters."""
    name, parameters = _algorithm(values, *path, "aqm")
    if name in {"", "droptail"} and not parameters:
        return None
    return Aqm(name, parameters, watch, mark, _verb(values, path))


def _scheduler(values: _Values, path: tuple[str, ...], verb: str) -> str:
    """Return the scheduler of the queue at `path`, with its parameters and marks."""
    name, parameters = _algorithm(values, *path, "scheduler")
    words = f"{name} ({', '.join(parameters)})" if parameters else name
    return f"{words}, {verb} inside" if name in _signalling() else words


def _verb(values: _Values, path: tuple[str, ...]) -> str:
    """Return the effect of a mark at `path`."""
    method = values.text(*path, "marking", "method") or values.text(*path, "marking")
    return _VERBS.get(str(method), "marks")


def _algorithm(values: _Values, *path: str) -> tuple[str, list[str]]:
    """Return the name of an AQM or scheduler, and its parameters that are given or derived from the link."""
    name = values.plain(*path) or values.plain(*path, "preset") or values.plain(*path, "algorithm") or ""
    shown = []
    for key, row in values.below(*path):
        chosen = row["origin"] == "given" or (path[-1] == "aqm" and row["note"])
        if chosen and key not in _NO_PARAMETERS and row["value"] not in {"none", "false"}:
            shown.append(key if row["value"] == "true" else f"{key} {_plain(_parsed(row['value']))}")
    return name, shown


@cache
def _signalling() -> frozenset[str]:
    """Return the schedulers that mark or drop as an AQM does."""
    return frozenset(each["name"] for each in json.loads(_core.registry())["schedulers"] if each["signals"])


def _queue(name: str, title: str, scheduler: str | None, limit: str | None) -> Stage:
    room = "unlimited" if limit is None else f"at most {limit.removeprefix('packets ').replace('bytes ', '')}"
    return Stage("queue", name, f"{title}: " + ", ".join([scheduler, room] if scheduler else [room]))


def _link(
    values: _Values, link: dict[str, Any], nodes: dict[str, Node], gateway: tuple[str, ...] | None
) -> Link:
    """Return a link; `gateway` is the key of the gateway whose satellite link it is."""
    name = link["name"]
    start, end = link["between"]
    many = max((start, end), key=lambda each: nodes[each].count)
    stages: list[Stage] = []
    words = {}
    for back in (False, True):
        path = ("link", name, *(["reverse"] if back else []))
        regulator = None if gateway is None or back else values.plain(*gateway, "regulator", "rate")
        words[back] = _direction(values, path, regulator)
        queue = _link_queue(values, path, f"{end} → {start}: " if back else "")
        if queue is not None:
            stages.append(queue)
    same = words[False] == words[True]
    directions = [Stage("text", "forward", f"{start} → {end}: {words[False]}")]
    directions.append(Stage("text", "reverse", f"back: {words[True]}"))
    if same:
        directions = [Stage("text", "forward", f"both ways: {words[False]}")]
    if handover := values.plain("link", name, "handover", "interval"):
        low, high = values.parsed("link", name, "handover", "delay")
        outage = values.plain("link", name, "handover", "outage")
        text = f"Handover every {handover}: additional delay {low} to {high}, outage {outage}"
        directions.append(Stage("text", "handover", text))
    if gateway is not None and values.parsed(*gateway, "pep", "split"):
        window, stream = (values.plain(*gateway, "spacelink", key) for key in ("window", "stream_window"))
        directions.append(
            Stage("text", "spacelink", f"Spacelink: window {window}, at most {stream} per stream")
        )
    note = f"one per {many}" if nodes[many].count > 1 else ""
    return Link(name, (start, end), note, gateway is not None, [*stages, *directions])


def _link_queue(values: _Values, path: tuple[str, ...], lead: str) -> Stage | None:
    if not values.below(*path, "queue"):
        return None
    queue = (*path, "queue")
    words = _scheduler(values, queue, _verb(values, queue))
    stage = _queue("queue", f"{lead}Queue", words, values.plain(*queue, "limit"))
    aqm = _aqm(values, queue, "queue", "queue")
    if aqm is None:
        return stage
    detail = f" ({', '.join(aqm.lines)})" if aqm.lines else ""
    return Stage("aqm", "queue", f"{stage.text}. AQM {aqm.name}{detail} watches it and {aqm.verb}")


def _direction(values: _Values, path: tuple[str, ...], regulator: str | None) -> str:
    """Return rate, delay, loss and access of one direction; `regulator` is the rate that a gateway sets."""
    parts = []
    rate = values.plain(*path, "rate")
    capacity = values.parsed(*path, "capacity")
    if capacity is not None:
        parts.append(_capacity(values, capacity))
    elif rate is not None:
        parts.append(rate)
    else:
        parts.append("unlimited rate" if regulator is None else f"{regulator} (regulator)")
    if values.below(*path, "access"):
        # The way back has a kind only if it differs.
        kind = values.plain(*path, "access", "kind") or values.plain(*path[:2], "access", "kind")
        parts.append(f"access {kind}")
    delay = values.parsed(*path, "delay")
    # A delay drawn per connection is the same on the way back, which then has no key for it.
    parts.append("the same delay" if delay is None else _delay(delay))
    loss = values.parsed(*path, "loss")
    if isinstance(loss, dict):
        parts.append(f"loss {_plain(loss)}")
    elif loss:
        parts.append(f"loss {brief(100 * loss, 3)} %")
    if frame := values.plain(*path, "demand", "frame"):
        parts.append(f"capacity on demand, frames of {frame}")
    return ", ".join(parts)


def _capacity(values: _Values, capacity: dict[str, Any]) -> str:
    if "fade" in capacity or "modcod" in capacity:
        name = capacity.get("carrier")
        rate = values.parsed("carrier", name, "symbol_rate") if name else capacity["symbol_rate"]
        carrier = f"carrier {name} of {_baud(rate)}" if name else f"carrier of {_baud(rate)}"
        return f"{carrier}, {_plain(capacity['modcod']) if 'modcod' in capacity else 'rain fade with ACM'}"
    if "uniform" in capacity:
        return f"{_plain({'uniform': capacity['uniform']})}, drawn every {capacity['every']}"
    if "steps" in capacity:
        rates = [str(rate) for _, rate in capacity["steps"]]
        return f"steps of {_rates(', '.join(rates[:4]))}" + (", …" if len(rates) > 4 else "")
    if "trace" in capacity:
        return f"trace {capacity['trace']}"
    return _plain(capacity)


def _baud(text: str) -> str:
    found = re.fullmatch(r"([0-9.]+) baud", text)
    if found is None:
        return text
    value = float(found[1])
    return f"{brief(value / 1e6, 4)} Mbaud" if value >= 1e6 else f"{brief(value / 1e3, 4)} kbaud"


def _delay(delay: str | dict[str, Any]) -> str:
    if isinstance(delay, str):
        return "no delay" if delay == "0 s" else f"delay {delay}"
    if "fixed" in delay:
        return f"delay {delay['fixed']} and jitter {_plain(delay['jitter'])}"
    shape = {key: value for key, value in delay.items() if key not in {"per", "ordered"}}
    return f"delay {_plain(shape)} per {delay.get('per', 'packet')}"


def _traffic(values: _Values, found: dict[str, Any], data: dict[str, Any]) -> Traffic:
    """Return a traffic entry: number, kind, transport and the given keys."""
    name = found["name"]
    path = ("traffic", name)
    kind = values.plain(*path, "kind")
    numbers = [
        f"{int(float(str(values.text(*path, key)))):,} {key}" for key in _COUNTS if values.text(*path, key)
    ]
    transport = values.plain(*path, "transport")
    over = "UDP" if transport is None else f"transport {transport}"
    if transport is not None:
        protocol = values.plain("transport", transport, "protocol")
        algorithm = values.plain("transport", transport, "algorithm")
        over += f" ({', '.join(each for each in (str(protocol).upper(), algorithm) if each)})"
    given: dict[str, str] = {}
    for key, row in values.below(*path):
        if row["origin"] == "given" and key.split(".")[0] not in {*_NOT_SHOWN, "ramp"}:
            given[key] = _plain(_parsed(row["value"]))
    lines = [f"{', '.join([str(kind), *numbers])}; {over}"]
    if given:
        lines.append(" · ".join(f"{re.sub('[._]', ' ', key)} {value}" for key, value in given.items()))
    route = [data["hosts"][found["from"]]["name"]]
    for hop in found["route"]:
        start, end = data["links"][hop["link"]]["between"]
        route.append(end if hop["forward"] else start)
    return Traffic(name, lines, route)


def _step(name: str) -> str:
    """Return a step of a key, quoted where TOML needs it."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else json.dumps(name, ensure_ascii=False)


def _parsed(text: str) -> Any:  # noqa: ANN401
    """Return the object of a value as the effective parameters write it: strings have no quotes."""
    if text[:1] in {"{", "["}:
        try:
            return tomllib.loads(f"x = {text}")["x"]
        except tomllib.TOMLDecodeError:
            return text
    try:
        return float(text)
    except ValueError:
        return text


def _plain(value: Any) -> str:  # noqa: ANN401
    """Write a value for a reader."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return brief(value)
    if isinstance(value, str):
        found = number_of(value)
        return _rates(_quantity(*found) if found and found[1] else value)
    if isinstance(value, list):
        return ", ".join(map(_plain, value))
    match value:
        case {"uniform": [low, high]}:
            return f"{_plain(low)} to {_plain(high)}"
        case {"exponential": mean}:
            return f"exponential with mean {_plain(mean)}"
        case {"normal": {"mean": mean, "std": std}}:
            return f"normal {_plain(mean)} ± {_plain(std)}"
        case {"choice": [*options]}:
            return " or ".join(map(_plain, options))
    return ", ".join(f"{key} {_plain(each)}" for key, each in value.items())


def _quantity(number: float, unit: str) -> str:
    """Write a number with its unit, in the next larger unit from 1000 on; packet lengths stay in bytes."""
    for units in (("KB", "MB", "GB"), ("bps", "kbps", "Mbps", "Gbps"), ("ns", "us", "ms", "s")):
        while unit in units[:-1] and abs(number) >= 1000:
            number, unit = number / 1000, units[units.index(unit) + 1]
    return f"{brief(number, 4)} {unit}"


def _rates(text: str) -> str:
    """Write rates with the unit bit/s."""
    return re.sub(r"\b([kMG]?)bps\b", r"\1bit/s", text)
