"""Measure the time per packet of AQMs for `papers/byun2007/costs.csv`: `make costs`.

Or `python tools/costs.py FILE`. The least of several runs of the benchmark with 1,000 flows counts, because
other load on the machine only lengthens it. The dissertation has 400 flows.
"""

import csv
import subprocess
import sys
from pathlib import Path

AQMS = ("avqred", "pfavqred", "sred", "choke", "vqred")
RUNS = 3
_BENCH = ("cargo", "bench", "--locked", "--quiet", "-p", "bentpipe-queue", "--bench", "packets")
_COLUMN = 2
"""Column of the benchmark's table with 1,000 flows."""


def measured() -> dict[str, float]:
    """Return the time per packet of each AQM [ns]."""
    least: dict[str, float] = {}
    command = [
        "cargo",
        "bench",
        "--locked",
        "--quiet",
        "-p",
        "bentpipe-queue",
        "--bench",
        "packets",
        "--",
        *AQMS,
    ]
    for _ in range(RUNS):
        for line in subprocess.check_output(command, text=True).splitlines():  # noqa: S603
            cells = line.split()
            if cells and cells[0] in AQMS:
                time = float(cells[_COLUMN].rstrip("*!"))
                least[cells[0]] = min(time, least.get(cells[0], time))
    return least


def main(path: Path) -> None:
    """Write the file."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["aqm", "ns"])
        rows.writerows(measured().items())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
