"""Generate the synthetic capacity trace of scenarios/lte-cell.toml, in the format of mahimahi.

Usage: lte_trace.py [FILE]; default: scenarios/traces/synthetic-lte.down.

No measurement: the logarithm of the rate is a Gaussian first-order process, as fading is in decibels.
All parameters are assumptions.
"""

import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FILE = ROOT / "scenarios" / "traces" / "synthetic-lte.down"
SEED = 1
SECONDS = 30
MEDIAN = 6e6
"""Median of the rate [bit/s]."""
SIGMA = 0.6
"""Standard deviation of the rate's natural logarithm."""
CORRELATION_TIME = 1.0
"""Time after which the logarithm's autocorrelation is 1/e [s]."""
STEP = 0.001
"""Resolution of the format [s]."""
BITS = 12_000
"""Bits of an opportunity: 1500 bytes."""


def opportunities(seed: int = SEED) -> Iterator[int]:
    """Yield the time of each opportunity to send 1500 bytes [ms]."""
    stream = random.Random(seed)  # noqa: S311
    keep = math.exp(-STEP / CORRELATION_TIME)
    spread = SIGMA * math.sqrt(1 - keep * keep)
    level, credit, time = stream.gauss(0, SIGMA), 0.0, 0
    for time in range(1, round(SECONDS / STEP) + 1):
        level = keep * level + stream.gauss(0, spread)
        credit += MEDIAN * math.exp(level) * STEP
        while credit >= BITS:
            credit -= BITS
            yield time
    # The last time is the trace's period.
    yield time


def main(file: Path) -> None:
    """Write the trace."""
    file.write_text("".join(f"{time}\n" for time in opportunities()), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else FILE)
