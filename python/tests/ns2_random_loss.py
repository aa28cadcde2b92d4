"""Run flows with random losses on ns-2.35 (Debian's package ns2) and write the order of their packets.

    python python/tests/ns2_random_loss.py

It takes a minute or two. A flow of the table `truth/random_loss.csv` loses the data packets that
`lost_packets` draws from its seed, so the table holds no list of them. `sent` lists the numbers of the data
packets as they were sent, retransmissions included, as ranges: "1-5 3 6" are seven packets.
"""

import csv
import random
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from pathlib import Path

HERE = Path(__file__).parent / "truth"
TABLE = HERE / "random_loss.csv"
PACKETS = 400
"""Data packets per flow, lost ones and retransmissions included."""
SEEDS = 30


def lost_packets(loss: float, seed: int) -> list[int]:
    """Return the numbers of the lost packets among the first `PACKETS` that are sent, counted from 1."""
    draws = random.Random(seed)  # noqa: S311 - not for cryptography
    return [number for number in range(1, PACKETS + 1) if draws.random() < loss]


def ranges(numbers: Sequence[int]) -> str:
    """Return numbers as ranges of consecutive ones."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return " ".join(str(first) if first == last else f"{first}-{last}" for first, last in parts)


def _sent(tcp: str, lost: Sequence[int], seconds: int) -> Iterator[tuple[float, int]]:
    """Run a flow; yield the time of each data packet since the SYN [s], and its number."""
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        # ns-2 warns of an empty list at each packet.
        numbers = " ".join(map(str, lost or [10 * PACKETS]))
        command = ["ns", str(HERE / "one_flow.tcl"), tcp, numbers, str(seconds), str(trace)]
        subprocess.run(command, check=True, capture_output=True, timeout=600)
        begin = None
        for line in trace.read_text(encoding="ascii").splitlines():
            event, time, _, _, kind, _, _, _, _, _, number, _ = line.split()
            if event == "+" and kind == "tcp":
                begin = float(time) if begin is None else begin
                if int(number) > 0:
                    yield float(time) - begin, int(number)


def row(flow: tuple[str, float, int]) -> list[str]:
    """Return the table's row of a flow."""
    tcp, loss, seed = flow
    for seconds in (40, 160, 640):
        sent = list(_sent(tcp, lost_packets(loss, seed), seconds))[:PACKETS]
        if len(sent) == PACKETS:
            break
    else:
        raise RuntimeError(f"{flow}: fewer than {PACKETS} packets in {seconds} s")
    numbers = [number for _, number in sent]
    return [tcp, f"{loss:g}", str(seed), f"{sent[-1][0] * 1000:.1f}", ranges(numbers)]


def main() -> None:
    """Write the table."""
    flows = list(product(("Reno", "Newreno", "Sack1"), (0.01, 0.03, 0.1), range(1, SEEDS + 1)))
    with ThreadPoolExecutor() as pool, TABLE.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["tcp", "loss", "seed", "last_ms", "sent"])
        writer.writerows(pool.map(row, flows))


if __name__ == "__main__":
    main()
