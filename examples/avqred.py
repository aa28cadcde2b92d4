"""AVQRED written in Python, equal to the built-in one packet by packet.

RED's uniform dropper on a virtual queue that follows the measured output rate ([B07] 4.2). To compare the
two, to vary a parameter, and to search the parameters:

    cd examples
    bentpipe compare byun2007-gateway --settings AVQRED,avqred.AvqRed --duration "2 min"
    bentpipe sweep byun2007-gateway --settings avqred.AvqRed --vary gateway.aqm.alpha=0.01:0.1:5
    bentpipe tune byun2007-gateway --aqm avqred.AvqRed --metrics utilization:max,queue_delay_mean:min

The results are equal byte for byte, because both do the same arithmetic in the same order and take their
random numbers from the simulator. See docs/python-aqms.md.
"""

from typing import ClassVar

import bentpipe as bp

MEASURE_NS = 1_000_000
"""Minimum interval of a rate measurement."""


class UniformDropper:
    """Marks by a level between two thresholds, with uniform gaps (Floyd & Jacobson 1993, section IV)."""

    def __init__(self, min_th: float, max_th: float) -> None:
        self.min_th = float(min_th)
        self.max_th = float(max_th)
        self.count = -1
        """Packets since the last mark; -1 while the level is below `min_th`."""
        self.p = 0.0
        """Probability of the last decision."""

    def draw(self, x: float, rng: bp.Rng) -> bool:
        """Return True if the packet that arrives at level `x` is marked."""
        if x < self.min_th:
            self.count = -1
            self.p = 0.0
            return False
        if x >= self.max_th:
            self.count = 0
            self.p = 1.0
            return True
        p_b = (x - self.min_th) / (self.max_th - self.min_th)
        self.count += 1
        rest = 1.0 - self.count * p_b
        self.p = 1.0 if rest <= 0.0 else min(p_b / rest, 1.0)
        marked = rng.uniform() < self.p
        if marked:
            self.count = 0
        return marked


class AvqRed(bp.Aqm):
    """Adaptive virtual queue random early detection, with the defaults of [B07] Table 3.1."""

    params: ClassVar = [
        bp.Param("min_th", 60.0, "packets", (0, 1e9), tuning=(6, 240), scale="log", doc="No marks below"),
        bp.Param(
            "max_th", 120.0, "packets", (1e-9, 1e9), tuning=(12, 480), scale="log", doc="All marked from here"
        ),
        bp.Param(
            "alpha",
            0.05,
            "",
            (0, 1),
            tuning=(0.001, 0.5),
            scale="log",
            doc="Weight of the newest output rate",
        ),
        bp.Param("min_capacity", 20e6, "bit/s", (0, 1e12), doc="Least virtual capacity"),
        bp.Param("max_capacity", 20e6, "bit/s", (0, 1e12), doc="Greatest virtual capacity"),
        bp.Param(
            "mean_packet", 1400.0, "B", (1, 65535), doc="Packet length in which the virtual queue is counted"
        ),
    ]

    def __init__(
        self,
        min_th: float = 60,
        max_th: float = 120,
        alpha: float = 0.05,
        min_capacity: float = 20e6,
        max_capacity: float = 20e6,
        mean_packet: float = 1400,
    ) -> None:
        """Thresholds are in packets, capacities in bit/s, `mean_packet` in bytes."""
        self.alpha = alpha
        self.min_capacity = min_capacity / 8.0
        self.max_capacity = max_capacity / 8.0
        self.mean_packet = mean_packet
        self.dropper = UniformDropper(min_th, max_th)
        self.v_cap = self.max_capacity
        """Virtual capacity [bytes/s]."""
        self.vq = 0.0
        """Virtual queue [bytes]."""
        self.last_ns = 0
        """Time of the last measurement [ns]."""
        self.sent = 0
        """Bytes sent until then."""

    def arrive(self, pkt: bp.Packet, cx: bp.Context) -> bp.Verdict:
        """Serve the virtual queue, at most once per millisecond, then draw."""
        now_ns = cx.now_ns
        if now_ns - self.last_ns > MEASURE_NS:
            delta = (now_ns - self.last_ns) / 1e9
            sent = cx.queue.sent_bytes
            output_rate = (sent - self.sent) / delta
            v_cap = self.alpha * output_rate + (1.0 - self.alpha) * self.v_cap
            self.v_cap = min(max(v_cap, self.min_capacity), self.max_capacity)
            self.vq = max(self.vq - self.v_cap * delta, 0.0)
            self.last_ns = now_ns
            self.sent = sent
        marked = self.dropper.draw(self.vq / self.mean_packet, cx.rng)
        return bp.Verdict.MARK if marked else bp.Verdict.PASS

    def admit(self, pkt: bp.Packet, cx: bp.Context) -> None:
        """Add the packet to the virtual queue, marked or not."""
        self.vq += pkt.len

    def probe(self) -> dict[str, float]:
        """Return the virtual queue [packets], its capacity [bit/s] and the last probability."""
        return {"VQ": self.vq / self.mean_packet, "v_cap": 8.0 * self.v_cap, "p": self.dropper.p}
