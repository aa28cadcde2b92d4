"""A scenario from a dictionary, compared under two settings: what callers and downloads get.

A satellite link of 20 Mbit/s carries ten calls beside eight endless downloads. `python who_gets_what.py`
prints the quality of the calls under a plain queue and under FQ-CoDel, and draws it as an SVG file.
"""

import sys
from pathlib import Path
from typing import Any

import bentpipe as bp

TABLES: dict[str, Any] = {
    "title": "Calls beside downloads",
    "run": {"warmup": "10 s", "duration": "30 s", "runs": 3, "settings": ["droptail", "fq_codel"]},
    "host": {"server": {"count": 4}, "office": {"count": 20}},
    "router": {"hub": {}, "terminal": {}},
    "link": {
        "internet": {"between": ["server", "hub"], "rate": "1 Gbps", "delay": "10 ms"},
        "satellite": {
            "between": ["hub", "terminal"],
            "rate": "20 Mbps",
            "delay": "250 ms",
            "queue": {"limit": "1000 packets"},
        },
        "access": {"between": ["terminal", "office"], "rate": "100 Mbps", "delay": "1 ms"},
    },
    "traffic": {
        "downloads": {"kind": "bulk", "from": "server", "to": "office", "flows": 8},
        "voice": {"kind": "voip", "from": "server", "to": "office", "flows": 10},
    },
}


def main(folder: Path) -> None:
    """Compare, print a line per setting, and write the chart to `folder`."""
    scenario = bp.Scenario.from_dict(TABLES, name="calls")
    result = bp.compare(scenario)
    for row in result.table().iter_rows(named=True):
        if row["metric"] in ("voice.mos", "downloads.goodput"):
            print(f"{row['setting']}: {row['metric']} {row['mean']:.2f} {row['unit']}".rstrip())
    result.plot("voice.mos").save(folder / "calls.svg")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
