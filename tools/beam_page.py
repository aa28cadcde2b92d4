"""Renew the tables of docs/gateway-terminals.md from docs/gateway-terminals.json.

    python tools/beam_page.py DOCS [FILE …]

FILEs have figures of one `make beam-bench`: an object, or a line with an object for each figure. They replace
all data first; a row without a figure is left out.
"""

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from blocks import replaced, table

BEGIN, END = "<!-- begin: {} made by tools/beam_page.py -->", "<!-- end -->"

Row = tuple[str, str, str]
"""Measured quantity, format of its figures, target."""

SHARES: Sequence[Row] = (
    (
        "one connection, weight 3, beside sixteen of a terminal with weight 1: ratio of bytes",
        "{weights:.3f}",
        "3",
    ),
    ("the same after a reload that makes the weights 9 and 3", "{weights_after_reload:.3f}", "3"),
    ("payload under a peak rate of 2 Mbit/s [Mbit/s]", "{peak:.2f}", "below 2"),
    (
        "seven terminals, two connections each: greatest deviation from an equal share [%]",
        "{share_alone:.2f}",
        "1",
    ),
    ("beside a flood of UDP to an eighth", "{share_flood:.2f}", "1"),
    ("after a reload that changes a hundred plans and adds 92 terminals", "{share_reload:.2f}", "1"),
    ("after kill -9 of one", "{share_kill:.2f}", "1"),
)

SIZE: Sequence[Row] = (
    ("programs built with full optimization (1) or as for tests (0)", "{release:.0f}", ""),
    ("until all {terminals:.0f} terminals have joined [s]", "{joined:.1f}", "20"),
    ("the gateway's CPU time for a join [ms]", "{join_cpu:.2f}", ""),
    ("the gateway's CPU while all are idle [% of a core]", "{idle_cpu:.1f}", ""),
    ("memory of the gateway for a configured terminal [KB]", "{memory_configured:.0f}", ""),
    ("and for a connected, idle one [KB]", "{memory_idle:.0f}", "256"),
    ("and under load [KB]", "{memory_load:.0f}", ""),
    ("received by all users over a carrier of {rate:.0f} Mbit/s [Mbit/s]", "{goodput:.1f}", "200"),
    ("the gateway's CPU under that load [cores]", "{load_cpu:.2f}", "1.5"),
    ("of it the thread that sends [cores]", "{send_cpu:.2f}", ""),
    ("CPU of emulated terminals and servers [cores]", "{others_cpu:.2f}", ""),
    ("CPU of the whole machine, the kernel's work for all included [cores]", "{machine_cpu:.2f}", ""),
    (
        "Jain's index of terminals within plans of weight 1, 2, 4",
        "{jain_home:.4f}, {jain_shop:.4f}, {jain_office:.4f}",
        "0.98",
    ),
    ("difference between plans, by weight [%]", "{plans:.1f}", ""),
    (
        "lost ahead of the AQM, QUIC packets lost, connections reset",
        "{nfqueue_lost:.0f}, {spacelink_lost:.0f}, {resets:.0f}",
        "0",
    ),
    ("a reload under load [ms]", "{reload:.0f}", ""),
    ("an answer with the metrics [ms, KB]", "{metrics:.0f}, {metrics_size:.0f}", ""),
)


def measured(rows: Sequence[Row], figures: Mapping[str, float]) -> str:
    """Return a table of the rows that have figures."""
    cells = []
    for label, found, target in rows:
        try:
            cells.append((label.format(**figures), found.format(**figures), target))
        except KeyError:
            continue
    return table(["measured", "found", "target"], cells)


TABLES: Mapping[str, Callable[[Mapping[str, float]], str]] = {
    "shares": lambda figures: measured(SHARES, figures),
    "size": lambda figures: measured(SIZE, figures),
}


def read(path: Path) -> dict[str, float]:
    """Return the figures of a file: an object, or a line with an object for each figure."""
    text = path.read_text()
    parts = [text] if text.startswith("{\n") else text.splitlines()
    return {name: value for part in parts for name, value in json.loads(part).items()}


def main(docs: str, *files: str) -> None:
    """Renew the data and the tables."""
    data, page = Path(docs, "gateway-terminals.json"), Path(docs, "gateway-terminals.md")
    figures: dict[str, float] = {} if files else json.loads(data.read_text())
    for file in files:
        figures |= read(Path(file))
    data.write_text(json.dumps(figures, indent=2, sort_keys=True) + "\n")
    text = page.read_text()
    for name, make in TABLES.items():
        text = replaced(text, BEGIN.format(name), END, make(figures), page.name)
    page.write_text(text)


if __name__ == "__main__":
    main(*sys.argv[1:])
