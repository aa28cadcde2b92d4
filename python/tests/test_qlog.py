"""Logs of connections, checked by the CDDL of the drafts, by captures as Wireshark reads them, by results."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import cbor2
import pycddl  # type: ignore[import-untyped]
import pytest
from conftest import Command
from patience import PATIENCE

import bentpipe as bp

HERE = Path(__file__).parent
OWN = HERE.parents[1] / "docs" / "qlog.cddl"
SCHEMAS = [HERE / "qlog" / "main-schema-14.cddl", HERE / "qlog" / "quic-events-13.cddl", OWN]
TYPES = {
    "quic:connection_started": "QUICConnectionStarted",
    "quic:connection_closed": "QUICConnectionClosed",
    "quic:version_information": "QUICVersionInformation",
    "quic:parameters_set": "QUICParametersSet",
    "quic:packet_sent": "QUICPacketSent",
    "quic:packet_received": "QUICPacketReceived",
    "quic:packet_dropped": "QUICPacketDropped",
    "quic:udp_datagrams_sent": "QUICUDPDatagramsSent",
    "quic:udp_datagrams_received": "QUICUDPDatagramsReceived",
    "quic:timer_updated": "QUICTimerUpdated",
    "quic:recovery_parameters_set": "QUICRecoveryParametersSet",
    "quic:recovery_metrics_updated": "QUICRecoveryMetricsUpdated",
    "quic:congestion_state_updated": "QUICCongestionStateUpdated",
    "quic:packet_lost": "QUICPacketLost",
    "bentpipe:spurious_loss": "BentpipeSpuriousLoss",
    "tcp:connection_started": "TCPConnectionStarted",
    "tcp:connection_closed": "TCPConnectionClosed",
    "tcp:parameters_set": "TCPParametersSet",
    "tcp:recovery_parameters_set": "TCPRecoveryParametersSet",
    "tcp:packet_sent": "TCPPacketSent",
    "tcp:packet_received": "TCPPacketReceived",
    "tcp:packet_lost": "TCPPacketLost",
    "tcp:spurious_loss": "TCPSpuriousLoss",
    "tcp:recovery_metrics_updated": "TCPRecoveryMetricsUpdated",
    "tcp:congestion_state_updated": "TCPCongestionStateUpdated",
}
"""Type of the data of each event."""
FRAMES = {
    "padding": "PaddingFrame",
    "ping": "PingFrame",
    "ack": "AckFrame",
    "crypto": "CryptoFrame",
    "stream": "StreamFrame",
    "max_data": "MaxDataFrame",
    "max_stream_data": "MaxStreamDataFrame",
    "max_streams": "MaxStreamsFrame",
    "new_connection_id": "NewConnectionIDFrame",
    "retire_connection_id": "RetireConnectionIDFrame",
    "connection_close": "ConnectionCloseFrame",
    "handshake_done": "HandshakeDoneFrame",
    "datagram": "DatagramFrame",
    "unknown": "UnknownFrame",
}

# Losses on the link, drops at its queue, and marks of the AQM.
SCENARIO = """
title = "Logged \\"connections\\""
[run]
duration = "20 s"
warmup = "0 s"
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
delay = "40 ms"
loss = 0.02
queue = { limit = "30 packets", marking = "ecn", aqm = { algorithm = "codel" } }
[link.exit]
between = ["t", "d"]
rate = "100 Mbps"
delay = "0.2 ms"
[transport.plain]
mss = "1000 B"
receive_window = "200 KB"
sack = true
rack = true
ecn = "classic"
[transport.q]
protocol = "quic"
ecn = true
[traffic.bulk]
kind = "bulk"
from = "s"
to = "d"
transport = "plain"
flows = 1
bytes = "1 MB"
[traffic.files]
kind = "files"
from = "s"
to = "d"
transport = "q"
size = "60 KB"
sources = 2
interval = "2 s"
"""


@dataclass
class Log:
    """A qlog file."""

    header: dict[str, Any]
    events: list[dict[str, Any]]

    def data(self, *names: str) -> Iterator[dict[str, Any]]:
        """Yield the data of the events with these names."""
        return (event["data"] for event in self.events if event["name"] in names)


def read(path: Path) -> Log:
    """Read JSON text sequences (RFC 7464): each text between a record separator and a line feed."""
    records = path.read_text().split("\x1e")
    assert records[0] == ""
    assert all(record.endswith("\n") for record in records[1:])
    header, *events = [json.loads(record) for record in records[1:]]
    return Log(header, events)


@cache
def schema(of: str) -> pycddl.Schema:
    text = "\n".join(path.read_text() for path in SCHEMAS)
    # A token has 16 bytes, not as many digits; the drafts' own check leaves this out too.
    text = text.replace("hexstring .size 16", "hexstring")
    # The validator lacks the unwrap operator.
    fields = re.search(r"^LogFile = \{\n(.*?)^\}", text, re.DOTALL | re.MULTILINE)
    assert fields is not None
    return pycddl.Schema(f"start = {of}\n" + text.replace("    ~LogFile\n", fields[1]))


def shape(value: object) -> object:
    """Return what a schema distinguishes: keys, texts, types, and of integers sign and length in bits."""
    if isinstance(value, dict):
        return tuple((key, shape(each)) for key, each in value.items())
    if isinstance(value, list):
        return (list, *map(shape, value))
    if isinstance(value, int) and not isinstance(value, bool):
        return (int, value < 0, value.bit_length())
    return float if isinstance(value, float) else (type(value), value)


VALID: set[tuple[str, object]] = set()
"""Types with the shapes of their values that are valid: thousands of events have the same."""


def validate(of: str, value: object) -> None:
    key = of, shape(value)
    if key not in VALID:
        schema(of).validate_cbor(cbor2.dumps(value))
        VALID.add(key)


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> tuple[bp.Result, dict[str, Log], Path]:
    """A run with the log of every connection, and its captures at the senders."""
    folder = tmp_path_factory.mktemp("logged")
    (folder / "s.toml").write_text(SCENARIO)
    capture = bp.Capture(folder / "pcap", links=["access"])
    result = bp.run(bp.load(folder / "s.toml"), qlog=folder / "qlog", pcap=capture, out=folder / "out")
    [run] = (folder / "qlog").iterdir()
    return result, {path.stem: read(path) for path in run.iterdir()}, folder


def test_every_event_conforms_to_the_drafts(logged: tuple[bp.Result, dict[str, Log], Path]) -> None:
    _, logs, _ = logged
    seen: set[str] = set()
    frames: set[str] = set()
    for name, log in logs.items():
        validate("QlogFileSeq", log.header)
        text = json.dumps(log.header, separators=(",", ":"))[:256]
        assert "file_schema" in text
        assert "serialization_format" in text
        assert log.header["serialization_format"] == "application/qlog+json-seq"
        assert log.header["title"] == 'Logged "connections"'
        vantage = log.header["trace"]["vantage_point"]["type"]
        assert name.endswith(f"-{vantage}")
        times = [event["time"] for event in log.events]
        assert times == sorted(times)
        for event in log.events:
            assert set(event) == {"time", "name", "data"}
            assert isinstance(event["time"], float)
            data = dict(event["data"])
            for frame in data.pop("frames", []):
                validate(FRAMES[frame["frame_type"]], frame)
                frames.add(frame["frame_type"])
            for ecn in data.pop("ecn", []) if event["name"].startswith("quic:udp") else ():
                validate("ECN", ecn)
            validate(TYPES[event["name"]], data)
            seen.add(event["name"])
    assert set(TYPES) - seen <= {"bentpipe:spurious_loss", "tcp:spurious_loss"}
    assert {"ack", "crypto", "stream", "padding", "handshake_done", "connection_close"} <= frames


def test_a_schema_rejects_wrong_names_and_values() -> None:
    for of, value in [
        ("QUICPacketLost", {"header": {"packet_type": "1RTT"}, "why": "late"}),
        ("QUICPacketSent", {"header": {"packet_type": "one"}}),
        ("StreamFrame", {"frame_type": "stream", "id": 4}),
        ("TCPPacketLost", {"header": {"sequence_number": 1}, "raw": {}, "trigger": "age"}),
    ]:
        with pytest.raises(pycddl.ValidationError):
            validate(of, value)


def test_bytes_are_those_of_the_capture(logged: tuple[bp.Result, dict[str, Log], Path]) -> None:
    """The capture is at the senders: what they send leaves there, and what they receive arrives there."""
    _, logs, folder = logged
    assert shutil.which("tshark"), "tshark is missing; `make test` installs it"
    [capture] = (folder / "pcap").iterdir()
    fields = ["ip.src", "udp.srcport", "udp.dstport", "udp.length", "tcp.srcport", "tcp.dstport", "tcp.len"]
    command = ["tshark", "-r", str(capture), "-T", "fields", *[word for f in fields for word in ("-e", f)]]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE).stdout
    rows = [dict(zip(fields, line.split("\t"), strict=True)) for line in text.splitlines()]
    for name, log in logs.items():
        started = next(log.data("quic:connection_started", "tcp:connection_started"))
        local, remote = started["local"], started["remote"]
        if local["ip_v4"] not in {"10.0.0.1", "10.0.0.2"}:
            continue
        is_quic = log.events[0]["name"].startswith("quic")
        protocol = "udp" if is_quic else "tcp"
        ports = {str(local["port_v4"]), str(remote["port_v4"])}
        mine = [row for row in rows if {row[f"{protocol}.srcport"], row[f"{protocol}.dstport"]} == ports]
        sent = [row for row in mine if row["ip.src"] == local["ip_v4"]]
        arrived = [row for row in mine if row["ip.src"] == remote["ip_v4"]]
        assert sent, name
        for found, events in (
            (sent, ["quic:packet_sent", "tcp:packet_sent"]),
            (arrived, ["quic:packet_received", "quic:packet_dropped", "tcp:packet_received"]),
        ):
            packets = [data["raw"] for data in log.data(*events)]
            if is_quic:
                # Without the header of UDP, of 8 bytes.
                payload = sum(int(row["udp.length"]) - 8 for row in found)
                assert payload == sum(raw["length"] for raw in packets), name
            else:
                payload = sum(int(row["tcp.len"]) for row in found)
                assert payload == sum(raw["payload_length"] for raw in packets), name
                assert len(found) == len(packets), name


def test_missing_packets_are_the_drops_of_the_result(
    logged: tuple[bp.Result, dict[str, Log], Path],
) -> None:
    """Each packet that one end sends and the other does not receive was dropped at a queue or lost."""
    result, logs, _ = logged
    flows = {row["flow"]: row for row in result.flows().rows(named=True)}
    complete = [flow for flow, row in flows.items() if row["completed"] is not None and row["completed"]]
    assert len(complete) > 5
    drops = 0
    for flow in complete:
        client, server = logs[f"flow{flow}-client"], logs[f"flow{flow}-server"]
        # All datagrams of these connections have ECT(0), with which each of them is an event.
        unit = "udp_datagrams" if "quic" in client.events[0]["name"] else "packet"
        protocol = client.events[0]["name"].split(":")[0]
        sent, received = (
            sum(1 for log in (client, server) for _ in log.data(f"{protocol}:{unit}_{what}"))
            for what in ("sent", "received")
        )
        missing = sent - received
        assert missing == flows[flow]["drops"], flow
        drops += missing
    assert drops > 20


def key(data: dict[str, Any]) -> tuple[str, int]:
    """Type and number of a packet."""
    return data["header"]["packet_type"], data["header"].get("packet_number", -1)


def test_packets_called_lost_did_not_arrive_or_are_called_spurious(
    logged: tuple[bp.Result, dict[str, Log], Path],
) -> None:
    _, logs, _ = logged
    lost = 0
    for name, log in logs.items():
        peer = logs.get(name.replace("client", "x").replace("server", "client").replace("x", "server"))
        if peer is None or "quic" not in log.events[0]["name"]:
            continue
        arrived = {key(data) for data in peer.data("quic:packet_received")}
        spurious = {
            (data["packet_type"], data["packet_number"]) for data in log.data("bentpipe:spurious_loss")
        }
        for data in log.data("quic:packet_lost"):
            lost += 1
            assert key(data) not in arrived or key(data) in spurious
    assert lost > 20


def test_tcp_calls_segments_lost_that_were_dropped(logged: tuple[bp.Result, dict[str, Log], Path]) -> None:
    """With SACK the sender repairs what is missing: each segment was dropped as often as called lost."""
    _, logs, _ = logged
    client, server = logs["flow0-client"], logs["flow0-server"]
    sent = [data["header"]["sequence_number"] for data in client.data("tcp:packet_sent")]
    arrived = [data["header"]["sequence_number"] for data in server.data("tcp:packet_received")]
    spurious = [data["header"]["sequence_number"] for data in client.data("tcp:spurious_loss")]
    lost = [data["header"]["sequence_number"] for data in client.data("tcp:packet_lost")]
    assert len(lost) > 5
    for seq in set(lost):
        dropped = sent.count(seq) - arrived.count(seq)
        assert lost.count(seq) == dropped + spurious.count(seq), seq


def test_ends_agree_on_the_connection(logged: tuple[bp.Result, dict[str, Log], Path]) -> None:
    """Both ends of a connection have its ODCID, and one's local parameters are the other's remote ones."""
    _, logs, _ = logged
    client, server = logs["flow1-client"], logs["flow1-server"]
    group = client.header["trace"]["common_fields"]["group_id"]
    assert group == server.header["trace"]["common_fields"]["group_id"]
    first = next(client.data("quic:packet_sent"))
    assert first["header"]["dcid"] == group

    def parameters(log: Log, initiator: str) -> dict[str, Any]:
        [found] = [data for data in log.data("quic:parameters_set") if data["initiator"] == initiator]
        return {name: value for name, value in found.items() if name != "initiator"}

    assert parameters(client, "local") == parameters(server, "remote")
    assert parameters(server, "local") == parameters(client, "remote")
    assert parameters(server, "local")["original_destination_connection_id"] == group
    assert parameters(client, "local")["initial_max_data"] == 16_000_000
    closed = [next(log.data("quic:connection_closed")) for log in (client, server)]
    assert [data["initiator"] for data in closed] == ["local", "remote"]


def test_logging_changes_no_result(logged: tuple[bp.Result, dict[str, Log], Path], tmp_path: Path) -> None:
    result, _, folder = logged
    plain = bp.run(bp.load(folder / "s.toml"), out=tmp_path / "out")
    assert plain.rows() == result.rows()
    assert plain.flows().equals(result.flows())


def test_limits_are_named_in_warnings(bentpipe: Command, tmp_path: Path) -> None:
    (tmp_path / "s.toml").write_text(SCENARIO)
    run = ["run", "s.toml", "--duration", "10 s", "--warmup", "0 s", "--qlog", "logs"]
    done = bentpipe(*run, "--qlog-connections", "2", "--qlog-events", "20", "--out", "a")
    assert done.returncode == 0, done.stderr
    assert re.search(
        r"logs/codel-1: holds the first 2 connections; \d+ more were left out \(--qlog-connections\)",
        done.stderr,
    )
    assert "4 files with the first 20 events only (--qlog-events)" in done.stderr
    [folder] = (tmp_path / "logs").iterdir()
    names = sorted(path.name for path in folder.iterdir())
    assert names == [f"flow{flow}-{end}.sqlog" for flow in (0, 1) for end in ("client", "server")]
    assert all(len(read(path).events) == 20 for path in folder.iterdir())
    # The folder is not replaced unless asked for, and a selection of a flow logs that flow.
    again = bentpipe(*run, "--out", "b")
    assert again.returncode == 2
    assert "logs/codel-1: exists already" in again.stderr
    one = bentpipe(*run, "--qlog-flow", "flow:1", "--out", "b", "--force")
    assert one.returncode == 0, one.stderr
    assert sorted(path.name for path in folder.iterdir()) == names[2:]
    (folder / "notes.txt").write_text("kept")
    kept = bentpipe(*run, "--out", "c", "--force")
    assert kept.returncode == 2
    assert "holds more than logs" in kept.stderr
    assert (folder / "notes.txt").read_text() == "kept"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--qlog-flow", "flow:1"], "--qlog-events need --qlog DIR, the folder to write to"),
        (["--qlog", "l", "--qlog-connections", "0"], "logs of 0 connections: from 1 to 100000 are possible"),
        (["--qlog", "l", "--qlog-events", "0"], "logs of 0 events per file: from 1 to"),
        (
            ["--qlog", "l", "--qlog-flow", "17"],
            'qlog 17: found "17"; allowed: flow:17',
        ),
        (["--qlog", "l", "--qlog-flow", "traffic:web:0"], 'found traffic "web"; allowed: bulk, files'),
        (["--qlog", "l", "--qlog-flow", "flow:9999"], "qlog flow:9999: the run had"),
        (["--qlog", "s.toml"], "--qlog s.toml: found a file; a folder is needed"),
    ],
)
def test_bad_choices_give_one_message(
    bentpipe: Command, tmp_path: Path, options: list[str], message: str
) -> None:
    (tmp_path / "s.toml").write_text(SCENARIO)
    done = bentpipe("run", "s.toml", "--duration", "2 s", "--out", "a", *options)
    assert done.returncode == 2
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "l").exists()
    assert not (tmp_path / "a").exists()
