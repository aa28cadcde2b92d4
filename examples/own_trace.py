"""A capacity trace of your own: a link that stops for a second in every ten.

`python own_trace.py FOLDER` writes the trace in the format of mahimahi and compares two queues behind it.
"""

import sys
from pathlib import Path

import bentpipe as bp


def main(folder: Path) -> None:
    """Write the trace, and print the 95th percentile of the queueing delay."""
    trace = folder / "stops.down"
    # 12 Mbit/s: an opportunity to send 1500 bytes in every millisecond, for nine seconds; the trace repeats.
    times = [*range(1, 9001), 10_000]
    trace.write_text("".join(f"{time}\n" for time in times), encoding="utf-8")
    tables = bp.load("lte-cell").to_dict()
    tables["link"]["radio"]["capacity"] = {"trace": str(trace)}
    tables["run"] |= {"runs": 1, "settings": ["droptail", "fq_codel"]}
    result = bp.compare(bp.Scenario.from_dict(tables, "stops"), progress=False)
    for setting, metrics in result.values().items():
        print(f"{setting}: {metrics['queue_delay_p95'][0]:.0f} ms")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
