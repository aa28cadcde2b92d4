"""Captures, checked by Wireshark's dissection of them."""

import os
import re
import resource
import shutil
import subprocess
from pathlib import Path

import polars as pl
import pytest
from conftest import Command, command_line, digests, environment
from patience import PATIENCE

import bentpipe as bp
from bentpipe.report.decimate import as_float

RETRANSMISSION = (
    "tcp.analysis.retransmission || tcp.analysis.fast_retransmission || tcp.analysis.spurious_retransmission"
)
OURS = 'frame.comment contains "retransmission"'

# Two long transfers. Most delay is in the bottleneck's queue: a segment takes 4.2 ms there, and a round trip
# through the empty queue less than 2 ms.
SLOW = """
title = "Two transfers over a slow link"
[run]
duration = "30 s"
subject = "bottleneck"
[host.s]
count = 2
[host.d]
count = 2
[router.r]
[router.t]
[link.access]
between = ["s", "r"]
rate = "100 Mbps"
delay = "0.2 ms"
[link.bottleneck]
between = ["r", "t"]
rate = "2 Mbps"
delay = "0.2 ms"
loss = 0.02
queue = { limit = "30 packets", aqm = { algorithm = "droptail" } }
[link.exit]
between = ["t", "d"]
rate = "100 Mbps"
delay = "0.2 ms"
[transport.plain]
mss = "1000 B"
receive_window = "200 KB"
[traffic.bulk]
kind = "bulk"
from = "s"
to = "d"
transport = "plain"
flows = 2
"""


@pytest.fixture(scope="module")
def tshark(tmp_path_factory: pytest.TempPathFactory) -> "TShark":
    assert shutil.which("tshark"), "tshark is missing; `make test` installs it"
    return TShark(tmp_path_factory.mktemp("home"))


class TShark:
    """Runs tshark on captures, without a user's preferences."""

    def __init__(self, home: Path) -> None:
        self.environment = {**os.environ, "HOME": str(home), "LC_ALL": "C.UTF-8"}

    def __call__(self, *arguments: str | Path) -> str:
        done = subprocess.run(
            ["tshark", *map(str, arguments)],  # noqa: S607
            capture_output=True,
            text=True,
            check=True,
            timeout=PATIENCE,
            env=self.environment,
        )
        messages = [line for line in done.stderr.splitlines() if line and "Running as user" not in line]
        assert messages == []
        return done.stdout

    def frames(self, capture: Path, wanted: str, *options: str) -> list[int]:
        """Return the numbers of the frames that pass a display filter."""
        text = self("-r", capture, *options, "-Y", wanted, "-T", "fields", "-e", "frame.number")
        return [int(line) for line in text.splitlines()]

    def table(self, capture: Path, *fields: str, wanted: str = "frame") -> list[tuple[str, ...]]:
        """Return fields of the frames that pass a display filter."""
        names = [word for field in fields for word in ("-e", field)]
        text = self("-r", capture, "-Y", wanted, "-T", "fields", *names)
        return [tuple(line.split("\t")) for line in text.splitlines()]


def scenario(tmp_path: Path, **values: object) -> bp.Scenario:
    path = tmp_path / "slow.toml"
    path.write_text(SLOW)
    return bp.load(path, set={key.replace("__", "."): value for key, value in values.items()})


CHECKED = [word for layer in ("ip", "tcp", "udp") for word in ("-o", f"{layer}.check_checksum:TRUE")]


def is_clean(tshark: TShark, capture: Path) -> None:
    """Assert that no packet is malformed, damaged or missing."""
    faults = [f"{layer}.checksum.status == Bad" for layer in ("ip", "tcp", "udp")]
    faults += ["_ws.malformed", "_ws.expert.severity == error"]
    faults += ["tcp.analysis.lost_segment", "tcp.analysis.ack_lost_segment"]
    assert tshark.frames(capture, " || ".join(faults), *CHECKED) == []


def test_tshark_dissects_sctp(tshark: TShark, tmp_path: Path) -> None:
    """All packets of both associations are complete and have a correct CRC32c and known chunks."""
    text = SLOW.replace("[transport.plain]", '[transport.plain]\nprotocol = "sctp"')
    text = text.replace('mss = "1000 B"\nreceive_window = "200 KB"', 'pmtu = "1032 B"')
    path = tmp_path / "slow.toml"
    path.write_text(text.replace("flows = 2", 'flows = 2\nbytes = "200 KB"'))
    bp.run(bp.load(path), pcap=bp.Capture(tmp_path / "pcap", links=["access"], snap=65535))
    captures = sorted((tmp_path / "pcap").iterdir())
    kinds: set[str] = set()
    for capture in captures:
        assert tshark.frames(capture, "_ws.malformed || _ws.expert.severity == error") == []
        checked = ("-o", "sctp.checksum:CRC 32c")
        packets = tshark.frames(capture, "sctp")
        assert len(packets) > 500
        assert tshark.frames(capture, "sctp.checksum.status == 1", *checked) == packets
        assert len(tshark.frames(capture, "sctp.chunk_type == 0 && " + OURS)) > 0
        for (types,) in tshark.table(capture, "sctp.chunk_type", wanted="sctp"):
            kinds.update(types.split(","))
    # DATA, INIT, INIT ACK, SACK, SHUTDOWN, SHUTDOWN ACK, COOKIE ECHO, COOKIE ACK, SHUTDOWN COMPLETE.
    assert {int(kind) for kind in kinds} == {0, 1, 2, 3, 7, 8, 10, 11, 14}


def test_tshark_dissects_quic(tshark: TShark, tmp_path: Path) -> None:
    """Each connection begins with Initial packets of version 1, padded to 1200 bytes, in both directions."""
    text = SLOW.replace("[transport.plain]", '[transport.plain]\nprotocol = "quic"')
    text = text.replace('mss = "1000 B"\nreceive_window = "200 KB"', "")
    path = tmp_path / "slow.toml"
    path.write_text(text.replace("flows = 2", 'flows = 2\nbytes = "200 KB"'))
    bp.run(bp.load(path), pcap=bp.Capture(tmp_path / "pcap", links=["access"], snap=65535))
    found = 0
    for capture in sorted((tmp_path / "pcap").iterdir()):
        assert tshark.frames(capture, "_ws.malformed || _ws.expert.severity == error") == []
        assert tshark.frames(capture, "udp.checksum.status == 0", "-o", "udp.check_checksum:TRUE") == []
        assert len(tshark.frames(capture, "udp")) > 300
        initials = tshark.table(capture, "quic.version", "udp.length", wanted="quic.long.packet_type == 0")
        for versions, length in initials:
            assert set(versions.split(",")) == {"0x00000001"}
            assert int(length) == 1200 + 8
        found += len(initials)
    # Two connections: the client's first, the server's answer, and the client's acknowledgement.
    assert found >= 6


@pytest.mark.long
@pytest.mark.parametrize("sack", [False, True])
@pytest.mark.parametrize("loss", [0.0, 0.02, 0.05])
def test_tshark_finds_every_retransmission(
    tshark: TShark, tmp_path: Path, loss: float, *, sack: bool
) -> None:
    """The senders' link neither loses nor reorders packets, so the capture has all segments in order.

    Wireshark takes a retransmission for an out-of-order segment if it follows new data by less than 3 ms or
    the round trip of the handshake (Wireshark User's Guide, "TCP Analysis"). This does not happen here:
    segments are sent on ACKs and timeouts, ACKs are at least 4.2 ms apart because of the bottleneck, the
    handshake takes less than 2 ms, and on one ACK retransmissions are sent before new data.
    """
    slow = scenario(tmp_path, link__bottleneck__loss=loss, transport__plain__sack=sack)
    capture = bp.Capture(tmp_path / "pcap", links=["access"])
    result = bp.run(slow, pcap=capture, trace=["flow:0", "flow:1"])
    (path,) = (tmp_path / "pcap").iterdir()
    is_clean(tshark, path)
    found = tshark.frames(path, RETRANSMISSION)
    assert found == tshark.frames(path, OURS)
    assert len(found) == counted(result)
    assert len(found) > 50
    assert bool(tshark.frames(path, "tcp.options.sack.count > 1")) == sack


@pytest.mark.long
@pytest.mark.parametrize(
    "transport",
    [
        {"transport__plain__sack": False},
        {"transport__plain__sack": True},
        {"transport__plain__preset": "linux"},
    ],
    ids=["newreno", "sack", "linux"],
)
def test_out_of_order_segments_are_retransmissions(
    tshark: TShark, tmp_path: Path, transport: dict[str, object]
) -> None:
    """On a long and fast path, some retransmissions follow new data within that time.

    Wireshark before 4.2 calls these out of order, although it has seen the same segment before (its issues
    13284 and 13843). A sender's link does not reorder packets, so both classes together are exactly our
    retransmissions.
    """
    longer = scenario(
        tmp_path, link__bottleneck__rate="20 Mbps", link__bottleneck__delay="30 ms", **transport
    )
    result = bp.run(longer, pcap=bp.Capture(tmp_path / "pcap", links=["access"]), trace=["flow:0", "flow:1"])
    (path,) = (tmp_path / "pcap").iterdir()
    is_clean(tshark, path)
    ours = tshark.frames(path, OURS)
    assert tshark.frames(path, f"{RETRANSMISSION} || tcp.analysis.out_of_order") == ours
    assert len(ours) == counted(result)
    assert len(ours) > 50


def counted(result: bp.Result) -> int:
    """Return the number of retransmissions counted by the traced senders."""
    per_flow = result.trace().group_by("flow").agg(pl.col("retransmissions").max())
    return int(per_flow["retransmissions"].sum())


def test_ce_marks_match_the_queue(tshark: TShark, tmp_path: Path) -> None:
    marking = {
        "link__bottleneck__queue__limit": "1000 packets",
        "link__bottleneck__queue__marking": "ecn",
        "link__bottleneck__queue__aqm.algorithm": "red",
        "link__bottleneck__loss": 0,
    }
    result = bp.run(
        scenario(tmp_path, transport__plain__ecn=True, **marking),
        pcap=bp.Capture(tmp_path / "pcap", links=["bottleneck"]),
    )
    (path,) = (tmp_path / "pcap").iterdir()
    is_marked = "ip.dsfield.ecn == 3"
    marked = len(tshark.frames(path, is_marked))
    known = {row["counter"]: row["value"] for row in result.counters().iter_rows(named=True)}
    # Packets without ECN capability were dropped instead; packets in the queue at the end were not captured.
    waiting = as_float(result.series("transmit_queue")["value"].tail(1).item())
    assert 0 <= known["marked_packets"] - known["aqm_drops"] - marked <= waiting
    assert marked > 50
    # RFC 3168: offered with ECE and CWR, accepted with ECE, echoed, and answered with CWR.
    assert len(tshark.frames(path, "tcp.flags.syn == 1 && tcp.flags.ece == 1 && tcp.flags.cwr == 1")) == 2
    assert tshark.frames(path, "tcp.flags.syn == 0 && tcp.flags.ece == 1 && ip.src == 10.0.0.3")
    assert tshark.frames(path, "tcp.flags.syn == 0 && tcp.flags.cwr == 1 && ip.src == 10.0.0.1")


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Captures of all links of a gateway scenario with TCP and datagrams, with complete packets."""
    folder = tmp_path_factory.mktemp("everything") / "pcap"
    voice = bp.load("unsplit-udp", set={"run.duration": "5 s", "run.warmup": "2 s"})
    bp.run(voice, seed=3, pcap=bp.Capture(folder, links=["ingress", "satellite", "access"], snap=65_535))
    return folder


def test_every_kind_of_packet_is_dissected(tshark: TShark, everything: Path) -> None:
    kinds = set()
    for path in sorted(everything.iterdir()):
        is_clean(tshark, path)
        # The packets are complete, so every checksum can be verified.
        assert tshark.frames(path, "tcp && tcp.checksum.status != Good", *CHECKED) == []
        assert tshark.frames(path, "udp && udp.checksum.status != Good", *CHECKED) == []
        kinds |= {line[0] for line in tshark.table(path, "frame.protocols")}
    assert kinds == {"raw:ip:tcp", "raw:ip:tcp:data", "raw:ip:udp:data"}
    names = sorted(path.name for path in everything.iterdir())
    assert names == ["red-3-access.pcapng", "red-3-ingress.pcapng", "red-3-satellite.pcapng"]


def test_corrupt_checksum_is_detected(tshark: TShark, everything: Path, tmp_path: Path) -> None:
    content = bytearray((everything / "red-3-access.pcapng").read_bytes())
    first = content.index(b"\x45\x00\x00")  # IPv4, twenty bytes of header, no marks, a length below 256
    content[first + 8] ^= 1
    (tmp_path / "wrong.pcapng").write_bytes(content)
    with pytest.raises(AssertionError):
        is_clean(tshark, tmp_path / "wrong.pcapng")


def test_times_interfaces_and_file_names_are_correct(tshark: TShark, everything: Path) -> None:
    path = everything / "red-3-satellite.pcapng"
    rows = tshark.table(
        path, "frame.time_epoch", "frame.interface_name", "frame.interface_description", "ip.src"
    )
    times = [float(row[0]) for row in rows]
    assert times == sorted(times)
    assert 6.9 < times[-1] <= 7.0
    assert any(not row[0].endswith("000") for row in rows), "whole microseconds"
    assert {row[1:3] for row in rows} == {
        ("satellite", "gateway to terminal, on departure"),
        ("satellite reverse", "terminal to gateway, on arrival"),
    }
    # Sources: the gateway, its terminal, and the servers, whose datagrams are not split.
    sources = {row[3] for row in rows}
    assert {"172.16.0.1", "172.16.0.2"} < sources
    assert all(source.startswith(("172.16.0.", "10.0.0.")) for source in sources)
    hosts = tshark("-r", path, "-q", "-z", "hosts")
    assert re.search(r"^172\.16\.0\.1\s+gateway$", hosts, flags=re.MULTILINE)
    assert re.search(r"^10\.0\.0\.1\s+server\.0$", hosts, flags=re.MULTILINE)


def test_pep_link_payload_is_readable_text(tshark: TShark, everything: Path) -> None:
    path = everything / "red-3-satellite.pcapng"
    payloads = tshark.table(path, "udp.payload", wanted="udp.port == 41000")
    texts = [bytes.fromhex(row[0]).split(b"\n")[0].decode() for row in payloads]
    form = r"DATA \d+ stream \d+\.\d+ bytes \d+\+\d+ below \d+( (open|fin|reset|retransmission))*"
    form += r"|ACK( \d+-\d+)+ after \d+ ns( window \d+\.\d+ \d+)*"
    assert texts
    assert [text for text in texts if not re.fullmatch(form, text)] == []


def test_first_round_trip_in_capture_and_trace_agree(tshark: TShark, tmp_path: Path) -> None:
    exact = scenario(tmp_path, run__duration="2 s", transport__plain__clock_granularity="0 s")
    result = bp.run(exact, pcap=bp.Capture(tmp_path / "pcap", ["access"]), trace=["flow:0", "flow:1"])
    (path,) = (tmp_path / "pcap").iterdir()
    answer = "tcp.flags.syn == 1 && tcp.flags.ack == 1"
    rows = tshark.table(path, "tcp.stream", "tcp.analysis.ack_rtt", wanted=answer)
    theirs = {int(stream): round(float(rtt) * 1e9) for stream, rtt in rows}
    known = result.trace().drop_nulls("rtt").group_by("flow").agg(pl.col("rtt").sort_by("time").first())
    ours = {flow: round(rtt * 1e9) for flow, rtt in known.iter_rows()}
    assert theirs == ours
    assert len(ours) == 2


def test_snap_keeps_headers_and_the_original_length(tshark: TShark, tmp_path: Path) -> None:
    bp.run(scenario(tmp_path, run__duration="2 s"), pcap=tmp_path / "pcap")
    (path,) = (tmp_path / "pcap").iterdir()
    assert path.name == "droptail-1-bottleneck.pcapng"
    rows = tshark.table(path, "frame.len", "frame.cap_len", "ip.len", "tcp.len", wanted="tcp.len > 0")
    assert set(rows) == {("1040", "40", "1040", "1000")}


def test_capture_does_not_change_the_result(tmp_path: Path) -> None:
    slow = scenario(tmp_path, run__duration="5 s")
    plain = bp.run(slow, out=tmp_path / "plain")
    captured = bp.run(slow, out=tmp_path / "captured", pcap=tmp_path / "one")
    again = bp.run(slow, out=tmp_path / "again", pcap=tmp_path / "two", trace="flow:1")
    assert digests(plain.folder) == digests(captured.folder)
    traced = digests(again.folder)
    assert set(traced) - set(digests(plain.folder)) == {"runs/droptail/1/trace.parquet"}
    assert digests(plain.folder).items() <= traced.items()
    (one,), (two,) = (tmp_path / "one").iterdir(), (tmp_path / "two").iterdir()
    assert one.read_bytes() == two.read_bytes()


def test_full_capture_ends_with_a_warning(tshark: TShark, bentpipe: Command, tmp_path: Path) -> None:
    (tmp_path / "slow.toml").write_text(SLOW)
    command = ["run", "slow.toml", "--duration", "2 s", "--pcap", "pcap", "--pcap-packets", "100"]
    done = bentpipe(*command, "--out", "here", check=0)
    assert "Packets: 1 file in pcap" in done.stdout
    warning = re.search(
        r"warning: (\S+): holds the first 100 packets; ([\d,]+) more were left out", done.stderr
    )
    assert warning
    path = tmp_path / warning[1]
    assert len(tshark.frames(path, "frame")) == 100
    assert [entry.name for entry in (tmp_path / "pcap").iterdir()] == [path.name]
    with pytest.warns(UserWarning, match="holds the first 10 packets"):
        bp.run(
            scenario(tmp_path, run__duration="2 s"),
            pcap=bp.Capture(tmp_path / "more", ["exit.1"], packets=10),
        )


def test_each_setting_run_and_link_has_a_file_and_none_is_replaced(bentpipe: Command, tmp_path: Path) -> None:
    command = ["compare", "small-gateway", "--duration", "2 s", "--settings", "red,avqred", "--runs", "2"]
    command += ["--pcap", "deep/pcap", "--pcap-link", "satellite", "--pcap-link", "ingress.0"]
    bentpipe(*command, "--out", "one", check=0)
    names = {
        f"{s}-{n}-{link}.pcapng"
        for s in ("red", "avqred")
        for n in (1, 2)
        for link in ("satellite", "ingress-0")
    }
    folder = tmp_path / "deep" / "pcap"
    assert {path.name for path in folder.iterdir()} == names
    before = {path: path.stat().st_mtime_ns for path in folder.iterdir()}
    done = bentpipe(*command, "--out", "two", check=2)
    assert "exists already; choose another folder, or replace it with --force" in done.stderr
    assert not (tmp_path / "two").exists()
    assert {path: path.stat().st_mtime_ns for path in folder.iterdir()} == before
    bentpipe(*command, "--out", "one", "--force", check=0)
    assert all(path.stat().st_mtime_ns > time for path, time in before.items())
    # All runs are complete, so no capture is written, and existing captures are no error.
    bentpipe(*command, "--out", "one", "--resume", check=0)


QUICK = ["run", "small-gateway", "--duration", "2 s"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--pcap-link", "satellite"], "need --pcap DIR"),
        (["--pcap-packets", "5"], "need --pcap DIR"),
        (["--pcap", "p", "--pcap-packets", "0"], "captures of 0 packets: from 1 to"),
        (["--pcap", "p", "--pcap-snap", "64"], "captures of 64 bytes per packet: from 128 to 65535"),
        (["--pcap", "p", "--pcap-link", "sky"], 'no link "sky"; there are ingress, satellite, access'),
        (
            ["--pcap", "p", "--pcap-link", "access", "--pcap-link", "access.3"],
            "link access.3: is named twice",
        ),
        (["--pcap", "/proc/nowhere"], "/proc/nowhere: cannot be written"),
        (["--pcap", "/dev/null"], "--pcap /dev/null: found a file; a folder is needed"),
        (["--trace", "17"], 'trace 17: found "17"; allowed: flow:17'),
        (["--trace", "traffic:bulk:1"], 'trace traffic:bulk:1: found traffic "bulk"; allowed: web'),
        (
            ["--trace", "flow:99999"],
            r"trace flow:99999: the run had \d+ flows, numbered 0 to \d+ \(red, seed 1\)",
        ),
        (["--pcap", "p", "--trace", "flow:99999"], "the run had"),
    ],
)
def test_wrong_capture_options_are_one_message(
    bentpipe: Command, tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = bentpipe(*QUICK, *arguments, "--out", "here", check=2)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert len(errors) == 1
    assert re.search(message, errors[0]), done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_link_without_packets_is_refused(tmp_path: Path) -> None:
    idle = SLOW.replace(
        "[transport.plain]", '[link.idle]\nbetween = ["r", "t"]\nrate = "1 kbps"\n[transport.plain]'
    )
    path = tmp_path / "idle.toml"
    path.write_text(idle)
    with pytest.raises(bp.UsageError, match="link idle: no packet is ever on it"):
        bp.run(path, pcap=bp.Capture(tmp_path / "pcap", links=["idle"]))
    assert not (tmp_path / "pcap").exists()


def test_full_disk_leaves_no_capture(tmp_path: Path) -> None:
    (tmp_path / "slow.toml").write_text(SLOW)
    done = subprocess.run(
        command_line("run", "slow.toml", "--pcap", "pcap", "--out", "here"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        env=environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000)),
    )
    assert done.returncode == 1
    assert done.stderr.count("error: pcap: File too large") == 1
    assert "0 of 1 runs are finished" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "pcap").exists()
