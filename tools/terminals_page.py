"""Renew the table of docs/terminals.md: `make terminals`, or `python tools/terminals_page.py docs`.

Compares queues of the whole carrier, of each terminal and of each subscriber on the beam of a thousand
terminals.
"""

import os
import re
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bentpipe as bp
from bentpipe import Scenario
from bentpipe.format import number
from bentpipe.runs.workers import measure

PAGE = "terminals.md"
SEEDS = (9001, 9002, 9003)
"""Seeds of the runs, which no choice has used."""
BEGIN, END = "<!-- begin: made by tools/terminals_page.py -->", "<!-- end -->"
QUEUES = {
    "carrier": "one for all terminals",
    "terminal": "one per terminal",
    "subscriber": "one per terminal, flows by subscriber",
}
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "carrier": ("droptail", "red", "avqred", "pfavqred", "fq_codel", "cake"),
    "terminal": ("droptail", "red", "avqred", "avqred_backlog", "pfavqred", "fq_codel", "cake"),
    "subscriber": ("pfavqred", "drr", "fq_codel", "cake"),
}
METRICS = {
    "throughput": "carried [Mbit/s]",
    "terminal_jain_index": "Jain, terminals of a plan",
    "terminal_delay_p95_max": "worst terminal's delay, p95 [ms]",
    "web.page_time_p95": "home pages, p95 [s]",
    "office_web.page_time_p95": "office pages, p95 [s]",
    "voice.mos": "home calls, MOS",
    "office voice.mos": "office calls, MOS",
    "video.mos": "video, MOS",
}


def beam(queues: str) -> Scenario:
    """Return the beam with queues of the carrier, of terminals, or of terminals with flows by subscriber."""
    tables = bp.load("beam").to_dict()
    if queues == "carrier":
        del tables["gateway"]["queues_per"], tables["plan"]
        for terminal in tables["terminal"].values():
            del terminal["plan"]
    if queues == "subscriber":
        tables["gateway"]["flow_key"] = "user"
    return bp.Scenario.from_dict(tables, name="beam")


def run(case: tuple[Scenario, int]) -> dict[str, float | None]:
    """Return the metrics of a scenario with a seed."""
    scenario, seed = case
    return measure(scenario, seed, bp._core.Progress())


def cells(runs: Sequence[Mapping[str, float | None]]) -> list[str]:
    """Return the mean of each metric over runs."""
    means = []
    for metric in METRICS:
        values = [value for each in runs if (value := each.get(metric)) is not None]
        means.append(number(sum(values) / len(values), 3) if values else "–")
    return means


def table() -> str:
    """Return the comparison as a Markdown table."""
    named = [
        (words, setting, beam(queues).with_setting(setting))
        for queues, words in QUEUES.items()
        for setting in SETTINGS[queues]
    ]
    heads = " | ".join(METRICS.values())
    lines = [f"| queues | setting | {heads} |", "| --- | --- |" + " --: |" * len(METRICS)]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(run, [(scenario, seed) for _, _, scenario in named for seed in SEEDS])
        for words, setting, _ in named:
            runs = [next(found) for _ in SEEDS]
            lines.append(f"| {words} | {setting} | {' | '.join(cells(runs))} |")
            print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


def renew(page: Path) -> None:
    """Replace the table of the page."""
    text = page.read_text(encoding="utf-8")
    made = f"{BEGIN}\n{table()}\n{END}"
    page.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: made, text, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    renew(Path(sys.argv[1]) / PAGE)
