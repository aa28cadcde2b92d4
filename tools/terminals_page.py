"""Renew the table of docs/terminals.md: `make terminals`, or `python tools/terminals_page.py docs`.

Compares queues of the whole carrier, of each terminal and of each subscriber on the beam of a thousand
terminals.
"""

import re
import sys
from collections.abc import Mapping
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


def row(scenario: Scenario, setting: str) -> list[str]:
    """Return the cells of a setting: the mean of each metric over the seeds."""
    runs = [measure(scenario.with_setting(setting), seed, bp._core.Progress()) for seed in SEEDS]
    cells = []
    for metric in METRICS:
        values = [value for run in runs if (value := run.get(metric)) is not None]
        cells.append(number(sum(values) / len(values), 3) if values else "–")
    return cells


def table() -> str:
    """Return the comparison as a Markdown table."""
    lines = [
        f"| queues | setting | {' | '.join(METRICS.values())} |",
        "| --- | --- |" + " --: |" * len(METRICS),
    ]
    for queues, words in QUEUES.items():
        scenario = beam(queues)
        for setting in SETTINGS[queues]:
            cells = row(scenario, setting)
            lines.append(f"| {words} | {setting} | {' | '.join(cells)} |")
            print(lines[-1], file=sys.stderr, flush=True)
    return "\n".join(lines)


def renew(page: Path) -> None:
    """Replace the table of the page."""
    text = page.read_text(encoding="utf-8")
    made = f"{BEGIN}\n{table()}\n{END}"
    page.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: made, text, flags=re.DOTALL), encoding="utf-8")


if __name__ == "__main__":
    renew(Path(sys.argv[1]) / PAGE)
