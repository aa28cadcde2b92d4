"""One TCP connection of this machine's kernel, between two network namespaces, over an emulated bottleneck.

    sender ══ TUN ── relay: FIFO queue, rate, delay, losses ── TUN ══ receiver

`measure(case)` runs it in a separate process; the namespaces have no names and end with that process. The
relay follows an absolute timetable and records its lateness: if it was late, the machine was too busy and the
run is not valid.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

SENDER, RECEIVER = "10.77.0.1", "10.77.0.2"
PORT = 5001
MTU = 1500
BUFFER = 4 << 20
"""Send buffer, larger than any case needs [bytes]."""
RECEIVE_WINDOW = 6_000_000
"""Maximum receive window [bytes]."""

CLONE_NEWNET = 0x4000_0000
PR_SET_PDEATHSIG, PR_SET_TIMERSLACK = 1, 29
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x4004_54CA, 1, 0x1000
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33

SAMPLE = struct.Struct("<d5I")

SYSCTL = {
    "net.ipv6.conf.all.disable_ipv6": "1",
    "net.ipv4.tcp_no_metrics_save": "1",
    "net.ipv4.tcp_mtu_probing": "0",
    "net.ipv4.tcp_slow_start_after_idle": "1",
    "net.ipv4.tcp_ecn": "0",
    "net.ipv4.tcp_sack": "1",
    "net.ipv4.tcp_dsack": "1",
    "net.ipv4.tcp_timestamps": "1",
    "net.ipv4.tcp_window_scaling": "1",
    "net.ipv4.tcp_recovery": "1",
    "net.ipv4.tcp_early_retrans": "3",
    "net.ipv4.tcp_frto": "2",
    "net.ipv4.tcp_reordering": "3",
    "net.ipv4.tcp_syn_retries": "6",
    "net.ipv4.tcp_rmem": "4096 131072 6291456",
    "net.ipv4.tcp_wmem": f"4096 16384 {BUFFER}",
}
"""Linux defaults of all sysctls that affect results, so that the machine's settings do not."""


@dataclass(frozen=True)
class Case:
    """A transfer and its path."""

    name: str
    congestion: str = "cubic"
    rate: int = 10_000_000
    """Rate of the bottleneck [bit/s]."""
    rtt: int = 40
    """Round-trip propagation delay [ms]."""
    queue: int = 100
    """Limit of the queue, without the packet on the link [packets]."""
    lost: tuple[int, ...] = ()
    """Lost data packets, counted from 1 as they leave the queue."""
    seconds: float = 15
    """Duration from the SYN on [s]."""
    bytes: int = 0
    """Length of the transfer [bytes]; 0: unlimited."""
    writes: tuple[tuple[float, int], ...] = ()
    """In place of a transfer, what the application writes: time from the handshake on [s], and bytes."""


@dataclass
class Trace:
    """Result of a case in the kernel."""

    goodput: float = 0.0
    """Payload received in order, divided by the time since the SYN [bit/s]."""
    finished: float | None = None
    """Arrival of the last byte of a finite transfer [s]."""
    sent: int = 0
    """Data packets, including retransmissions."""
    retransmitted: int = 0
    overflowed: int = 0
    """Data packets dropped because the queue was full."""
    lost: int = 0
    """Data packets lost by the case's definition."""
    late_mean: float = 0.0
    """Mean lateness of the relay's packets [ms]."""
    late_max: float = 0.0
    packets: list[tuple[float, str, int, int, str]] = field(default_factory=list)
    """Time [s]; "data" or "ack"; position; payload, of ACKs length [bytes]; "", "lost" or "overflow"."""
    samples: list[tuple[float, int, int, int, int, int]] = field(default_factory=list)
    """Sender state: time [s], cwnd, ssthresh [segments], smoothed RTT [µs], recovery state, lost segments."""


def unavailable() -> str | None:
    """Return why the kernel cannot be measured here; None if it can."""
    if sys.platform != "linux":
        return "there is no Linux kernel here"
    if os.geteuid() != 0:
        return "network namespaces need root"
    if not Path("/dev/net/tun").exists():
        return "there is no /dev/net/tun"
    done = subprocess.run(
        [sys.executable, __file__, "probe"], capture_output=True, text=True, timeout=300, check=False
    )
    return None if done.returncode == 0 else (done.stderr.strip().splitlines() or ["no namespaces"])[-1]


def is_short_of_memory() -> bool:
    """Return True if TCP is under memory pressure, which keeps windows small (tcp_mem)."""
    counts = Path("/proc/net/sockstat").read_text().split("TCP:")[1].split()
    return int(counts[counts.index("mem") + 1]) > int(
        Path("/proc/sys/net/ipv4/tcp_mem").read_text().split()[0]
    )


def algorithms() -> set[str]:
    """Return the congestion controls that this kernel offers."""
    return set(Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split())


def measure(case: Case, *, verbose: bool = False) -> Trace:
    """Run `case` in real time."""
    command = [sys.executable, __file__, "run", json.dumps(asdict(case)), str(int(verbose))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=case.seconds + 20, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{case.name}: {done.stderr.strip()}")
    return Trace(**json.loads(done.stdout))


# The rest runs in the process of the case.

libc = ctypes.CDLL(None, use_errno=True)


def _namespace(address: str, peer: str) -> int:
    """Move into a fresh namespace with a TUN device; return its descriptor, which stays valid elsewhere."""
    if libc.unshare(CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "unshare(CLONE_NEWNET)")
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", b"path", IFF_TUN | IFF_NO_PI))
    for name, value in SYSCTL.items():
        path = Path("/proc/sys", *name.split("."))
        if path.exists():
            path.write_text(value)
    # Without segmentation offload, so that the relay gets packets as a network does.
    _ip("link", "set", "path", "mtu", str(MTU), "txqueuelen", "20000", "gso_max_segs", "1", "up")
    _ip("address", "add", address, "peer", peer, "dev", "path")
    return tun


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=300)  # noqa: S607


def _socket() -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER)
    # Closes at once with its process; otherwise unsent data occupies kernel memory for minutes.
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return sock


def _child(priority: int) -> bool:
    """Fork; the child ends with its parent."""
    if os.fork() != 0:
        return False
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    _schedule(priority)
    return True


def _schedule(priority: int) -> None:
    """Request real-time scheduling; without the permission, the recorded lateness grows."""
    libc.prctl(PR_SET_TIMERSLACK, 1)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))


def _receive(server: socket.socket) -> None:
    """Read and discard everything."""
    connection, _ = server.accept()
    # The window grows from the initial 64 KiB to a fixed one, 5/4 of this buffer.
    connection.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_WINDOW * 4 // 5)
    while connection.recv(1 << 20, socket.MSG_TRUNC):
        pass
    signal.pause()


def _send(case: Case, sock: socket.socket, report: int) -> None:
    """Send the bytes of the case, or send forever; write the TCP state to `report` every 10 ms."""
    sock.connect((RECEIVER, PORT))
    sock.setblocking(False)
    begun = time.monotonic()
    writes = deque(case.writes or [(0.0, case.bytes or sys.maxsize)])
    left = 0
    chunk = bytes(1 << 18)
    while True:
        while writes and time.monotonic() >= begun + writes[0][0]:
            left += writes.popleft()[1]
        while left:
            try:
                left -= sock.send(memoryview(chunk)[: min(left, len(chunk))])
            except BlockingIOError:
                break
            if not left and not case.writes:
                sock.shutdown(socket.SHUT_WR)
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
        # struct tcp_info: eight bytes, the second of which is the state, then words.
        word = struct.unpack_from("<24I", info, 8)
        os.write(report, SAMPLE.pack(time.monotonic(), word[18], word[17], word[15], info[1], word[6]))
        time.sleep(0.01)


def _run(case: Case) -> Trace:
    far = _namespace(RECEIVER, SENDER)
    server = _socket()
    server.bind((RECEIVER, PORT))
    server.listen(1)
    if _child(10):
        _receive(server)
    near = _namespace(SENDER, RECEIVER)
    sock = _socket()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, case.congestion.encode())
    samples, report = os.pipe()
    fcntl.fcntl(samples, fcntl.F_SETPIPE_SZ, 1 << 20)  # capacity for a whole run
    if _child(10):
        _send(case, sock, report)
    _schedule(20)
    relay = Relay(case, near, far)
    relay.run()
    trace = relay.trace()
    os.set_blocking(samples, False)
    with contextlib.suppress(BlockingIOError):
        while sample := os.read(samples, SAMPLE.size):
            at, *rest = SAMPLE.unpack(sample)
            trace.samples.append((at - relay.begun / 1e9, *rest))
    return trace


class Relay:
    """The path between two TUN devices, with queue, rate, delay and losses. Times are in nanoseconds."""

    def __init__(self, case: Case, near: int, far: int) -> None:
        self.case = case
        self.near, self.far = near, far
        self.delay = case.rtt * 500_000
        self.losses = frozenset(case.lost)
        self.begun = 0
        """Time of the SYN."""
        self.isn = 0
        """The sender's initial sequence number."""
        self.forward: deque[tuple[int, bytes]] = deque()
        """Packets in flight to the receiver, with their due times."""
        self.back: deque[tuple[int, bytes]] = deque()
        self.free, self.free_back = 0, 0
        """Times at which the links are free again."""
        self.waiting: deque[int] = deque()
        """Transmission start of each queued packet."""
        self.late: list[int] = []
        self.log: list[tuple[float, str, int, int, str]] = []
        self.arrived: list[tuple[int, int, int]] = []
        """Payload: arrival time, position, length."""
        self.sent = 0

    def run(self) -> None:
        """Relay packets until the case's duration since the SYN has passed."""
        end = time.monotonic_ns() + 10_000_000_000
        while (now := time.monotonic_ns()) < end:
            self._deliver(self.forward, self.far)
            self._deliver(self.back, self.near)
            for packet in _packets(self.near):
                self._forward(packet)
            for packet in _packets(self.far):
                self._return(packet)
            if self.begun:
                end = self.begun + int(self.case.seconds * 1e9)
            now = time.monotonic_ns()
            due = min([end, *(line[0][0] for line in (self.forward, self.back) if line)])
            if due > now:
                select.select([self.near, self.far], [], [], (due - now) / 1e9)
        if not self.begun:
            raise TimeoutError("no SYN arrived within 10 s")

    def _deliver(self, line: deque[tuple[int, bytes]], tun: int) -> None:
        """Deliver packets that are due."""
        while line and line[0][0] <= (now := time.monotonic_ns()):
            due, packet = line.popleft()
            os.write(tun, packet)
            self.late.append(now - due)

    def _forward(self, packet: bytes) -> None:
        """Put a packet of the sender through queue, link and loss."""
        now = time.monotonic_ns()
        (seq,) = struct.unpack_from(">I", packet, 24)
        if not self.begun:
            self.begun, self.isn = now, seq
        position = (seq - self.isn) & 0xFFFF_FFFF
        payload = len(packet) - 20 - (packet[32] >> 4) * 4
        kind = "data" if payload else "ack"
        while self.waiting and self.waiting[0] <= now:
            self.waiting.popleft()
        if self.free > now:
            if len(self.waiting) >= self.case.queue:
                self.log.append((self._seconds(now), kind, position, payload, "overflow"))
                return
            self.waiting.append(self.free)
        self.free = max(self.free, now) + len(packet) * 8_000_000_000 // self.case.rate
        self.sent += payload > 0
        lost = payload > 0 and self.sent in self.losses
        self.log.append((self._seconds(now), kind, position, payload, "lost" if lost else ""))
        if not lost:
            self.forward.append((self.free + self.delay, packet))
            self.arrived.append((self.free + self.delay, position, payload))

    def _return(self, packet: bytes) -> None:
        """Put a packet of the receiver on the return link, which has no losses and no queue limit."""
        now = time.monotonic_ns()
        (ack,) = struct.unpack_from(">I", packet, 28)
        self.free_back = max(self.free_back, now) + len(packet) * 8_000_000_000 // self.case.rate
        self.log.append((self._seconds(now), "ack", (ack - self.isn) & 0xFFFF_FFFF, len(packet), ""))
        self.back.append((self.free_back + self.delay, packet))

    def _seconds(self, at: int) -> float:
        return (at - self.begun) / 1e9

    def trace(self) -> Trace:
        """Return the result of the case."""
        trace = Trace()
        end = self.begun + int(self.case.seconds * 1e9)
        expected = 1
        ahead: dict[int, int] = {}
        for at, position, length in self.arrived:
            if at > end:
                break
            ahead[position] = max(ahead.get(position, 0), length)
            while length := ahead.pop(expected, 0):
                expected += length
            if self.case.bytes and expected > self.case.bytes:
                trace.finished = self._seconds(at)
                break
        trace.goodput = (expected - 1) * 8 / (trace.finished or self.case.seconds)
        data = [(position, fate) for _, kind, position, _, fate in self.log if kind == "data"]
        trace.sent = len(data)
        trace.retransmitted = len(data) - len({position for position, _ in data})
        trace.overflowed = sum(fate == "overflow" for _, fate in data)
        trace.lost = sum(fate == "lost" for _, fate in data)
        late = sorted(self.late)
        trace.late_mean = sum(late) / len(late) / 1e6
        trace.late_max = late[-1] / 1e6
        trace.packets = self.log
        return trace


def _packets(tun: int) -> Iterator[bytes]:
    """Yield the TCP packets that are ready at a device."""
    try:
        while True:
            packet = os.read(tun, 2048)
            if packet[0] >> 4 == 4 and packet[9] == socket.IPPROTO_TCP:
                yield packet
    except BlockingIOError:
        return


def main(arguments: Sequence[str]) -> None:
    """Check that a namespace can be created, or run a case."""
    if arguments[0] == "probe":
        os.close(_namespace(RECEIVER, SENDER))
        return
    fields = json.loads(arguments[1])
    writes = tuple((at, count) for at, count in fields["writes"])
    trace = _run(Case(**{**fields, "lost": tuple(fields["lost"]), "writes": writes}))
    if not int(arguments[2]):
        trace.packets, trace.samples = [], []
    json.dump(asdict(trace), sys.stdout)


if __name__ == "__main__":
    main(sys.argv[1:])
