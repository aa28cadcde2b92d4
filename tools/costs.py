"""Measure what a packet costs, for the dissertation's AQMs and for evaluations: `make costs`.

Or `python tools/costs.py PAPER EVALUATION`. The least of several runs of the benchmark counts, because other
load on the machine only lengthens it. PAPER gets the times with 1,000 flows of the dissertation's AQMs, which
has 400; EVALUATION those of all algorithms with 1, 1,000 and 100,000 flows, and the memory of a flow.
"""

import csv
import subprocess
import sys
from pathlib import Path

from bentpipe.evaluation.costs import controls

AQMS = ("avqred", "pfavqred", "sred", "choke", "vqred")
RUNS = 3
_BENCH = ("cargo", "bench", "--locked", "--quiet", "-p", "bentpipe-queue", "--bench", "packets")
_COLUMNS = {"one": 1, "thousand": 2, "many": 3, "memory": 6}
"""Columns of the benchmark's table."""


def measured() -> dict[str, dict[str, float]]:
    """Return the times per packet of each algorithm [ns], and the memory of a flow [B]."""
    least: dict[str, dict[str, float]] = {}
    known = controls()
    for _ in range(RUNS):
        for line in subprocess.check_output(_BENCH, text=True).splitlines():  # noqa: S603
            cells = line.split()
            if cells and cells[0] in known:
                found = least.setdefault(cells[0], {})
                for name, column in _COLUMNS.items():
                    value = float(cells[column].rstrip("*!"))
                    found[name] = min(value, found.get(name, value))
    return least


def main(paper: Path, evaluation: Path) -> None:
    """Write the files."""
    found = measured()
    rows: dict[Path, list[list[object]]] = {
        paper: [["aqm", "ns"], *([name, found[name]["thousand"]] for name in AQMS)],
        evaluation: [
            ["name", *_COLUMNS],
            *([name, *(costs[each] for each in _COLUMNS)] for name, costs in found.items()),
        ],
    }
    for path, lines in rows.items():
        with path.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file, lineterminator="\n").writerows(lines)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
