"""Measure the simulator's speed beside ns-2: `make speed`.

    python tools/simulator_speed.py DOCS

Runs the benchmark of crates/sim and renews the generated parts of DOCS/performance-simulator.md.
"""

import re
import subprocess
import sys
from functools import partial
from pathlib import Path

from blocks import table, with_blocks

__all__ = ["blocks"]

_BENCH = ("cargo", "bench", "--locked", "--quiet", "-p", "bentpipe-sim")


def blocks(printed: str) -> dict[str, str]:
    """Return the generated parts of the page from what the benchmark printed.

    Exits if a part is missing, such as the times of ns-2, which has to be installed.
    """
    dumbbells = re.findall(r"^(S\d: .*?) {2,}(\d+) +(\S+) +(\S+)$", printed, re.MULTILINE)
    beam = re.findall(r"^(\d+) terminals +(\d+) +([\d.]+)$", printed, re.MULTILINE)
    scenarios = re.findall(r"^(\S+-\S+ .*?) {2,}[\d.]+ +(\d+) +\d+ +\d+$", printed, re.MULTILINE)
    large = re.search(r"^ +([\d.]+) CPU s for (\d+) s, memory up to (\d+) MB$", printed, re.MULTILINE)
    beside = [row for row in dumbbells if row[3] != "–"]
    if not (beside and beam and scenarios and large):
        raise SystemExit(
            "simulator_speed: the benchmark printed no times of ns-2, or not all its tables; install ns2"
        )
    seconds, simulated, memory = large.groups()
    name = dumbbells[-1][0].partition(":")[0]
    return {
        "speed": "\n".join(
            [
                table(("scenario", "ns per packet", "of ns-2", "ns-2 = 1"), dumbbells),
                "",
                f"{name} takes {seconds} CPU s for {simulated} s, and {memory} MB. Other scenarios:",
                "",
                table(
                    ("scenario, setting", "simulated seconds per CPU second"),
                    ([", ".join(label.split(maxsplit=1)), speed] for label, speed in scenarios),
                ),
            ]
        ),
        "beam": table(
            ("terminals", "ns per packet", "10 = 1"),
            ([f"{int(terminals):,}", each, growth] for terminals, each, growth in beam),
        ),
    }


def main(docs: Path) -> None:
    """Measure, and renew the page."""
    root = Path(__file__).resolve().parents[1]
    done = subprocess.run(_BENCH, cwd=root, stdout=subprocess.PIPE, text=True, check=True)  # noqa: S603
    print(done.stdout, end="")
    with_blocks(
        docs / "performance-simulator.md",
        {name: partial(str, text) for name, text in blocks(done.stdout).items()},
        "speed",
    )


if __name__ == "__main__":
    if len(sys.argv) != 2:
        print(__doc__)
        sys.exit(2)
    main(Path(sys.argv[1]))
