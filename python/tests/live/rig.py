"""Live runs sampled by an observer, and the same load without a gateway.

A run is sampled ten times a second: bytes received by devices and processor time of programs are read from
/proc, independently of the programs' own counters.
"""

import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from bentpipe import Scenario
from bentpipe.errors import LiveError
from bentpipe.live_runs import session
from bentpipe.live_runs.chain import check
from bentpipe.live_runs.processes import Child, Programs
from bentpipe.live_runs.record import Recorded, read_flows
from bentpipe.live_runs.session import Session
from bentpipe.runs.plan import make_plan

__all__ = ["HEADERS", "Direct", "Observed", "Sample", "SampledSession", "Unshaped", "first_at", "jain"]

SAMPLE = 0.1
"""Sampling interval [s]."""
SPAN = 5
"""Number of samples over which a rate is averaged."""
HEADERS = 52
"""Headers of IPv4 and of TCP with timestamps [bytes]."""
_TICKS = os.sysconf("SC_CLK_TCK")
_ETHERNET = "02:00:00:00:00:01"


@dataclass(frozen=True, slots=True)
class Sample:
    """State of a run at one time."""

    time: float
    """Time since the run's time zero [s]."""
    payload: int
    """Payload that the clients' device has received [bytes]."""
    wire: int
    """Bytes that the satellite has delivered."""
    cpu: Mapping[str, float]
    """Processor time of each program [s]."""


@dataclass(frozen=True)
class Observed:
    """A run with its samples."""

    warmup: float
    duration: float
    samples: list[Sample]
    recorded: Recorded

    @property
    def goodput(self) -> float:
        """Payload that the clients' programs got while measuring [bit/s]."""
        return float(self.recorded.flows["bytes"].sum()) * 8 / self.duration

    @property
    def wire(self) -> float:
        """Rate that the satellite delivered while measuring [bit/s]."""
        first, last = self._ends()
        return (last.wire - first.wire) * 8 / (last.time - first.time)

    def cores(self, *names: str) -> float:
        """Return the processor time of programs while measuring [cores]."""
        first, last = self._ends()
        return sum(last.cpu[name] - first.cpu[name] for name in names) / (last.time - first.time)

    def _ends(self) -> tuple[Sample, Sample]:
        measured = [each for each in self.samples if each.time >= self.warmup]
        if len(measured) < 2:
            raise LiveError("the run has fewer than two samples of the measured time")
        return measured[0], measured[-1]

    @property
    def live(self) -> Mapping[str, Any]:
        """Counters of the programs."""
        return self.recorded.live

    def satellite(self) -> Mapping[str, Any]:
        """Return the emulator's counters of the forward link."""
        links = self.live["links"]["statistics"]["links"]
        return next(each for each in links if (each["link"], each["direction"]) == ("satellite", "forward"))

    @property
    def late(self) -> float:
        """99th percentile of the emulator's lateness [ms]."""
        return float(self.live["links"]["statistics"]["late"]["p99_s"]) * 1e3

    def rates(self) -> list[tuple[float, float]]:
        """Return times [s] with the payload rate of the half second before each [bit/s]."""
        return [
            (b.time, (b.payload - a.payload) * 8 / (b.time - a.time))
            for a, b in zip(self.samples, self.samples[SPAN:], strict=False)
        ]


def first_at(rates: list[tuple[float, float]], least: float) -> float | None:
    """Return the first time [s] with a rate of at least `least` [bit/s]; None if it is never reached."""
    return next((at for at, rate in rates if rate >= least), None)


def jain(values: list[float]) -> float:
    """Return Jain's index of fairness."""
    squares = sum(value * value for value in values)
    return sum(values) ** 2 / (len(values) * squares) if squares else 0.0


def _cpu(pid: int) -> float:
    """Return the processor time of a process [s]; 0 once it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _received(pid: int, device: str) -> tuple[int, int]:
    """Return the bytes and packets that a device in the namespace of a process has received."""
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/net/dev").read_text(encoding="ascii").splitlines():
            name, _, rest = line.partition(":")
            if name.strip() == device:
                fields = rest.split()
                return int(fields[0]), int(fields[1])
    return 0, 0


class SampledSession(Session):
    """A live run that is sampled."""

    far_end = ("terminal", "sat")
    """Program in whose namespace the satellite ends, and its device there."""

    def __init__(
        self,
        scenario: Scenario,
        programs: Programs,
        *,
        setting: str | None = None,
        seed: int = 1,
        emulated: Scenario | None = None,
        verify: bool = True,
        limits: Mapping[str, int] | None = None,
    ) -> None:
        """Take the scenario and the options of the run.

        Links and load follow the scenario `emulated` if given; it may have a queue that the gateway's
        scenario lacks. Without `verify` the load generator does not compare bytes, which is its main cost.
        `limits` are those of the gateways' configuration.
        """
        plan = make_plan(scenario, settings=None if setting is None else [setting], seed=seed)
        super().__init__(plan.settings[0], check(plan), seed, programs)
        self._children: dict[str, Child] = {}
        self._samples: list[Sample] = []
        self._emulated = emulated
        self._verify = verify
        self._limits = dict(limits or {})

    def observed(self, keep: Path | None = None) -> Observed:
        """Run and return the samples and the record. Raises `LiveError`."""
        recorded = self.run(lambda _: None, keep)
        warmup, duration = self._scenario.warmup, self._scenario.duration
        return Observed(warmup, duration, self._samples, recorded)

    def _start(self, stack: ExitStack, name: str, place: str, command: list[str]) -> Child:
        self._children[name] = super()._start(stack, name, place, command)
        return self._children[name]

    def _config(self, role: str, keys: Path) -> str:
        text = super()._config(role, keys)
        if self._limits:
            text += "\n[limits]\n" + "".join(f"{key} = {value}\n" for key, value in self._limits.items())
        return text

    def _plan(self) -> dict[str, Any]:
        plan = super()._plan()
        if self._emulated is not None:
            plan["scenario"] = session.scenario_entry(self._emulated)
        for each in plan["traffic"].values():
            each["verify"] = self._verify
        return plan

    def _wait(self, others: list[Child], load: Child, progress: Callable[[float], None]) -> None:
        begin, end = self._origin * 1e-9, self._origin * 1e-9 + self._end
        self._samples.clear()
        due = begin
        # No sample at the very end, when programs stop.
        while due < end - SAMPLE / 2:
            time.sleep(max(0.0, due - time.monotonic()))
            for child in others:
                child.check()
            if load.process.poll():
                load.check()
            self._samples.append(self._sample(time.monotonic() - begin))
            due += SAMPLE
        super()._wait(others, load, progress)

    def _sample(self, now: float) -> Sample:
        pids = {name: child.process.pid for name, child in self._children.items()}
        received, packets = _received(pids["load"], "lan0")
        program, device = self.far_end
        wire, _ = _received(pids[program], device)
        cpu = {name: _cpu(pid) for name, pid in pids.items()}
        return Sample(now, received - HEADERS * packets, wire, cpu)


class Unshaped(SampledSession):
    """Gateway and terminal connected to each other and to the hosts by virtual Ethernet only."""

    def _plan(self) -> dict[str, Any]:
        return super()._plan() | {"segments": []}

    def _address(self) -> None:
        # One Ethernet address for all devices and no ARP, since TUN devices have neither.
        for near, far, segment in (
            ("servers", "gateway", "internet"),
            ("gateway", "terminal", "space"),
            ("terminal", "clients", "lan"),
        ):
            first, second = session._devices(segment, 0)
            there = self._network.path(far).name
            self._network.ip(
                near,
                [
                    f"link add {first} address {_ETHERNET} type veth"
                    f" peer name {second} address {_ETHERNET} netns {there}",
                    f"link set {first} arp off",
                ],
            )
            self._network.ip(far, [f"link set {second} arp off"])
        super()._address()


class Direct(SampledSession):
    """The same servers, links and clients without a gateway: connections are end to end."""

    far_end = ("load", "lan0")
    _BUFFERS = "4096 131072 67108864"
    """More than any bandwidth-delay product here, so that congestion control alone decides [bytes]."""

    def _sysctls(self, place: str) -> dict[str, str]:
        buffers = dict.fromkeys(("net.ipv4.tcp_wmem", "net.ipv4.tcp_rmem"), self._BUFFERS)
        return super()._sysctls(place) | buffers

    def _plan(self) -> dict[str, Any]:
        plan = super()._plan()
        first, last = plan["segments"][0], plan["segments"][-1]
        links = [link for each in plan["segments"] for link in each["links"]]
        whole = {"name": "whole", "mtu": first["mtu"], "a": first["a"], "b": last["b"], "links": links}
        return plan | {"segments": [whole]}

    def _address(self) -> None:
        for side, segment, end in (("servers", "internet", 0), ("clients", "lan", 1)):
            device = session._devices(segment, 0)[end]
            commands = [f"link set {device} mtu {self.chain.mtu} txqueuelen 10000 up"]
            commands += [f"addr add {four}/32 dev {device}" for four, _ in self.chain.addresses(side)]
            window = self._window() if side == "servers" else ""
            self._network.ip(side, [*commands, f"route add default dev {device}{window}"])

    def _ends(self, stack: ExitStack) -> list[Child]:
        del stack
        return []

    def _recorded(self, load: Path, links: Mapping[str, Any]) -> Recorded:
        del links
        return Recorded(pl.DataFrame(), pl.DataFrame(), read_flows([load]), pl.DataFrame(), {})
