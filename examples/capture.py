"""The packets of a link for Wireshark, and the congestion windows of a flow over time.

`python capture.py FOLDER` writes FOLDER/red-1-satellite.pcapng and prints the first flow's largest window.
"""

import sys
from pathlib import Path

import polars as pl

import bentpipe as bp


def main(folder: Path) -> None:
    """Simulate ten seconds with a capture and a trace."""
    scenario = bp.load("small-gateway", set={"run.duration": "10 s"})
    capture = bp.Capture(folder, links=["satellite"])
    result = bp.run(scenario, trace=["flow:0"], pcap=capture, progress=False)
    print(f"window: {result.trace().select(pl.col('cwnd').max()).item():.0f} B")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
