"""Connections in qvis (https://qvis.quictools.info), which reads logs in the older format qlog 0.3.

`python qvis.py FOLDER LOGS` converts the logs of a run (`bentpipe run ... --qlog DIR`; LOGS is
DIR/SETTING-SEED) to files of the same names in FOLDER/qvis; load both ends of a connection there.
Without LOGS it logs the first connections of a user of a short run. Logs of TCP are left out: qvis
does not know its events.
"""

import json
import sys
from pathlib import Path
from typing import Any

import bentpipe as bp

NAMES = {
    "packet_sent": "transport:packet_sent",
    "packet_received": "transport:packet_received",
    "packet_dropped": "transport:packet_dropped",
    "parameters_set": "transport:parameters_set",
    "packet_lost": "recovery:packet_lost",
    "recovery_metrics_updated": "recovery:metrics_updated",
    "congestion_state_updated": "recovery:congestion_state_updated",
    "connection_started": "connectivity:connection_started",
    "connection_closed": "connectivity:connection_closed",
}
"""Names of QUIC's events in qlog 0.3; events without a counterpart are left out."""


def convert(text: str) -> str:
    """Return the text of a log in qlog 0.3."""
    header, *events = (json.loads(record) for record in text.split("\x1e")[1:])
    trace = header["trace"] | {"title": header["description"]}
    trace["common_fields"] |= {"time_format": "relative", "reference_time": 0}
    new = {"qlog_version": "0.3", "qlog_format": "JSON-SEQ", "title": header["title"], "trace": trace}
    records: list[dict[str, Any]] = [new]
    for event in events:
        namespace, name = event["name"].split(":")
        if namespace != "quic" or name not in NAMES:
            continue
        for frame in event["data"].get("frames", []):
            if "length" in frame.get("raw", {}):
                frame["length"] = frame["raw"]["length"]
        records.append(event | {"name": NAMES[name]})
    return "".join(f"\x1e{json.dumps(record)}\n" for record in records)


def main(folder: Path, logs: Path | None = None) -> None:
    """Write the converted logs, and print the number of their events."""
    if logs is None:
        scenario = bp.load("quic-geo", set={"run.duration": "5 s", "run.warmup": "0 s"})
        bp.run(scenario, qlog=bp.Qlog(folder / "logs", flows=["traffic:web_quic:0"]), progress=False)
        [logs] = (folder / "logs").iterdir()
    out = folder / "qvis"
    out.mkdir(parents=True)
    for path in sorted(logs.glob("*.sqlog")):
        text = convert(path.read_text(encoding="utf-8"))
        if events := text.count("\x1e") - 1:
            (out / path.name).write_text(text, encoding="utf-8")
            print(f"{path.name}: {events} events")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."), *map(Path, sys.argv[2:3]))
