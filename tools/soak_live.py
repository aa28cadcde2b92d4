"""Show what `make soak-live` has measured on docs/performance.md.

    python tools/soak_live.py DOCS OUTPUT

OUTPUT is what the test printed: a line for each minute with the connections so far, and memory, open
descriptors and series of both ends.
"""

import re
import sys
from pathlib import Path

import altair as alt
import polars as pl

from blocks import table, with_blocks
from stored_runs import draw

_LINE = re.compile(r"^ *(\d+) +(\d+) \| +(\d+) +(\d+) +(\d+) \| +(\d+) +(\d+) +(\d+)$", re.MULTILINE)
_ENDS = ("gateway", "terminal")


def main() -> int:
    """Write the part of the page and its figure."""
    docs, output = map(Path, sys.argv[1:])
    minutes = [tuple(map(int, each)) for each in _LINE.findall(output.read_text(encoding="utf-8"))]
    if len(minutes) < 4:
        sys.exit(
            f"{output}: found {len(minutes)} minutes; needed: what the test prints, four minutes at least"
        )
    drawn = pl.DataFrame(
        [
            {"minute": each[0], "MB": each[2 + 3 * place] / 1000, "end": end}
            for each in minutes
            for place, end in enumerate(_ENDS)
        ]
    )
    axis = alt.Y("MB:Q", title="memory [MB]", scale=alt.Scale(domainMin=0))
    lines = alt.Chart(drawn).mark_line().encode(alt.X("minute:Q", title="time [min]"), axis, color="end:N")
    draw(docs / "figures" / "soak-live.svg", lines.properties(width=420, height=140))
    shown = [minutes[max(0, len(minutes) * quarter // 4 - 1)] for quarter in range(5)]
    rows = [["connections", *(f"{each[1]:,}" for each in shown)]]
    for end, at in zip(_ENDS, (2, 5), strict=True):
        rows.append([f"{end}: memory [MB]", *(f"{each[at] / 1000:.1f}" for each in shown)])
        rows.append([f"{end}: descriptors", *(str(each[at + 1]) for each in shown)])
        rows.append([f"{end}: series", *(str(each[at + 2]) for each in shown)])
    text = table(["minute", *(str(each[0]) for each in shown)], rows)
    with_blocks(docs / "performance.md", {"churn": lambda: text}, "soak-live")
    print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
