"""Renew the table of uploads in docs/live.md: `make live-uploads`, as root.

Or `python tools/live_uploads_page.py docs results/live-uploads`. Runs stored in the second folder are not
repeated.
"""

import sys
from pathlib import Path

import bentpipe as bp
from blocks import with_blocks
from engines_table import compared
from live_quic_page import both_engines
from stored_runs import Runs

__all__ = ["renew"]

PAGE = "live.md"
SEED, LIVE_RUNS, SIMULATED_RUNS = 9001, 2, 10
SETTINGS = ("droptail", "avqred", "pie", "fq_codel")
METRICS = {
    "throughput": 3,
    "queue_delay_mean": 30,
    "loss_rate": 20,
    "pep_sojourn": None,
    "photos.fct_p95": None,
    "calls.mos": None,
}
"""Metrics with the bands of docs/live-bench.md [%]; none for those without one."""
SCENARIO = """
title = "Uploads and downloads over one pair of ends"

[run]
duration = "20 s"
warmup = "10 s"
subject = "gateway return"

[host.server]
[host.client]
count = 4

[link.outside]
between = ["server", "gateway"]
delay = "20 ms"
[link.satellite]
between = ["gateway", "terminal"]
delay = "100 ms"
rate = "20 Mbps"
reverse = { rate = "4 Mbps" }
[link.inside]
between = ["terminal", "client"]
delay = "20 ms"

[gateway]
aqm = { algorithm = "droptail" }
regulator = { rate = "20 Mbps" }
transmit_queue = { limit = "200 packets" }
pep = { receive_buffer = "128 KB" }
[gateway.spacelink]
packet = "1425 B"
header = "65 B"
datagram_header = "59 B"
ack_delay = "5 ms"
ack_priority = true
[gateway.return]
transmit_queue = { limit = "100 packets" }

[transport.default]
preset = "linux"
mss = "1360 B"

[traffic.backup]
kind = "bulk"
from = "client"
to = "server"
flows = 4
[traffic.photos]
kind = "files"
from = "client"
to = "server"
sources = 4
size = "100 KB"
interval = { exponential = "1 s" }
[traffic.calls]
kind = "voip"
from = "client"
to = "server"
flows = 2
[traffic.downloads]
kind = "bulk"
from = "server"
to = "client"
flows = 2
"""


def agreement(runs: Runs) -> str:
    """Compare live runs of uploads with simulated ones."""
    scenario, numbers = bp.load(runs.write("uploads.toml", SCENARIO)), (LIVE_RUNS, SIMULATED_RUNS, SEED)
    return compared(both_engines(runs, "", scenario, numbers, SETTINGS, METRICS))


def renew(docs: Path, out: Path) -> None:
    """Perform the runs missing in `out`, and write the page's table of uploads."""
    with_blocks(docs / PAGE, {"uploads": lambda: agreement(Runs(out))}, "live-uploads")


if __name__ == "__main__":
    renew(*map(Path, sys.argv[1:]))
