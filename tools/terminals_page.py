"""Renew the tables of docs/terminals.md and docs/return-direction.md.

    python tools/terminals_page.py DOCS [TABLE …]

Compares queues of the whole carrier, of each terminal and of each subscriber on the beam of a thousand
terminals under independent and shared rain and on a carrier of two pools, queues at the terminals on the
beam in both directions, algorithms on board and on the ground of a mesh, and a fleet in low orbit.
"""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import bentpipe as bp
import blocks
from bentpipe import Scenario
from bentpipe.format import number
from bentpipe.runs.workers import measure

SEEDS = (9001, 9002, 9003)
"""Seeds of the runs, which no choice has used."""
RAIN_SEEDS = tuple(range(9001, 9013))
"""More seeds, because a run sees one sky."""
BEGIN, END = "<!-- begin: {} made by tools/terminals_page.py -->", "<!-- end -->"
QUEUES = {
    "carrier": "one for all terminals",
    "terminal": "one per terminal",
    "subscriber": "one per terminal, flows by subscriber",
}
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "carrier": ("droptail", "red", "avqred", "pfavqred", "fq_codel", "cake", "cake_users"),
    "terminal": ("droptail", "red", "avqred", "avqred_backlog", "pfavqred", "fq_codel", "cake", "cake_users"),
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

RAIN = (None, 0.24, 0.73, 1.0)
"""Correlations of rain between two terminals: none, ITU-R P.618's at 50 km and at 10 km, and all."""
RAIN_METRICS = {
    "throughput": "carried [Mbit/s]",
    "committed_share_max": "committed rates, most [% of the carrier]",
    "web.page_time_p95": "home pages, p95 [s]",
    "office_web.page_time_p95": "office pages, p95 [s]",
    "video.mos": "video, MOS",
}

PLAN_METRICS = {
    "throughput": "carried [Mbit/s]",
    "web.page_time_p95": "home pages, p95 [s]",
    "office_web.page_time_p95": "office pages, p95 [s]",
    "video.mos": "video, MOS",
    "downloads.goodput": "downloads [Mbit/s]",
}

_QUEUE = "gateway.return.transmit_queue.scheduler"
RETURN = {"gateway.return.carrier.request": "rbdc"}
RETURN_CASES: Mapping[str, Mapping[str, str]] = {
    "fifo": {_QUEUE: "fifo"},
    "fifo, red ahead of the PEP": {_QUEUE: "fifo", "gateway.return.aqm.algorithm": "red"},
    "fifo, avqred ahead of the PEP": {_QUEUE: "fifo", "gateway.return.aqm.algorithm": "avqred"},
    "drr": {_QUEUE: "drr"},
    "fq_codel": {_QUEUE: "fq_codel"},
    "cake": {_QUEUE: "cake"},
    "drr, requests of volume (VBDC)": {_QUEUE: "drr", "gateway.return.carrier.request": "vbdc"},
}
"""Queues at the terminals, and changes to the scenario that make them."""
RETURN_METRICS = {
    "return_throughput": "return [Mbit/s]",
    "voice up.mos": "home calls up, MOS",
    "office voice up.mos": "office calls up, MOS",
    "photos.fct_p95": "photos, p95 [s]",
    "backups.goodput": "backups [Mbit/s]",
    "web.page_time_p95": "home pages, p95 [s]",
    "office_web.page_time_p95": "office pages, p95 [s]",
    "office voice.mos": "office calls down, MOS",
}

POOL_CASES = (
    ("terminal", "droptail"),
    ("terminal", "fq_codel"),
    ("subscriber", "droptail"),
    ("subscriber", "red"),
    ("subscriber", "fq_codel"),
)
"""Owner of each queue, and settings."""
POOL_METRICS = {
    "throughput": "carried [Mbit/s]",
    "web.page_time_p95": "home pages, p95 [s]",
    "office_web.page_time_p95": "office pages, p95 [s]",
    "passengers.mos": "passengers' video, MOS",
    "bridge voice.mos": "bridge calls, MOS",
    "charts.fct_p95": "sea charts, p95 [s]",
    "rain_goodput": "goodput in rain [%]",
    "rain_carrier_time": "carrier time in rain [%]",
}

MESH_CASES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "none": ("droptail", {}),
    "red, on board": ("red", {}),
    "codel, on board": ("codel", {}),
    "fq_codel, on board": ("fq_codel", {}),
    "fq_codel, at the terminals": ("fq_codel", {"run.subject": "satellite return"}),
    "fq_codel, on both": ("fq_codel", {"gateway.return.transmit_queue.scheduler": "fq_codel"}),
}
"""Place of the algorithm: its setting, and changes to the scenario."""
MESH_METRICS = {
    "intranet.page_time_p95": "intranet pages, p95 [s]",
    "updates.goodput": "updates [Mbit/s]",
    "logs.goodput": "logs of ships [Mbit/s]",
    "calls to branches.mos": "calls to branches, MOS",
    "calls from branches.mos": "calls from branches, MOS",
    "calls from ships.mos": "calls from ships, MOS",
}

FLEET_SETTINGS = ("droptail", "red", "avqred", "fq_codel", "cake")
FLEET_METRICS = {
    "throughput": "carried [Mbit/s]",
    "web.page_time_p95": "pages, p95 [s]",
    "voice.mos": "calls, MOS",
    "video.mos": "video, MOS",
    "games.lost_or_late": "game packets lost or late [%]",
    "downloads.goodput": "downloads [Mbit/s]",
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


def cells(
    runs: Sequence[Mapping[str, float | None]], metrics: Iterable[str], *, ends: bool = False
) -> list[str]:
    """Return the mean of each metric over runs, with the least and the greatest value if `ends`."""
    found = []
    for metric in metrics:
        values = [value for each in runs if (value := each.get(metric)) is not None]
        if not values:
            found.append("–")
            continue
        text = number(sum(values) / len(values), 3)
        found.append(f"{text} ({number(min(values), 3)} to {number(max(values), 3)})" if ends else text)
    return found


def table(
    heads: Sequence[str],
    cases: Sequence[tuple[str, Scenario]],
    metrics: Mapping[str, str],
    *,
    seeds: Sequence[int] = SEEDS,
    ends: bool = False,
) -> str:
    """Return a comparison as a Markdown table; a case has the cells of `heads`, and its scenario.

    A cell is the mean over the seeds, with the least and the greatest run if `ends`.
    """
    rows = []
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        found = pool.map(run, [(scenario, seed) for _, scenario in cases for seed in seeds])
        for words, _ in cases:
            runs = [next(found) for _ in seeds]
            rows.append([words, *cells(runs, metrics, ends=ends)])
            print(f"| {' | '.join(rows[-1])} |", file=sys.stderr, flush=True)
    return blocks.table([*heads, *metrics.values()], rows, texts=len(heads))


def forward() -> str:
    """Return the table of queues at the gateway."""
    cases = [
        (f"{words} | {setting}", beam(queues).with_setting(setting))
        for queues, words in QUEUES.items()
        for setting in SETTINGS[queues]
    ]
    return table(["queues", "setting"], cases, METRICS)


def rain() -> str:
    """Return the table of rain that terminals share, with cake in queues per terminal."""
    cases = []
    for correlation in RAIN:
        tables = beam("terminal").to_dict()
        if correlation is not None:
            for name in ("homes", "offices"):
                tables["link"][name]["capacity"]["fade"] |= {"region": "beam", "correlation": correlation}
        words = "independent" if correlation is None else f"{correlation:g}"
        cases.append((words, bp.Scenario.from_dict(tables, name="beam").with_setting("cake")))
    return table(["correlation of rain"], cases, RAIN_METRICS, seeds=RAIN_SEEDS, ends=True)


def back() -> str:
    """Return the table of queues at the terminals, with cake at the gateway."""
    cases = [
        (words, bp.load("beam-two-way", set={**RETURN, **changes}).with_setting("cake"))
        for words, changes in RETURN_CASES.items()
    ]
    return table(["at the terminal"], cases, RETURN_METRICS)


def pools() -> str:
    """Return the table of queues of terminals and of subscribers on a carrier of two pools."""
    cases = []
    for queues, setting in POOL_CASES:
        tables = bp.load("beam-pools").to_dict()
        if queues == "terminal":
            tables["gateway"]["queues_per"] = queues
            del tables["host"]["master"]["plan"], tables["plan"]["bridge"]
        scenario = bp.Scenario.from_dict(tables, name="beam-pools").with_setting(setting)
        cases.append((f"one per {queues} | {setting}", scenario))
    return table(["queues", "setting"], cases, POOL_METRICS)


def mesh() -> str:
    """Return the table of algorithms on board and at the terminals of a mesh."""
    cases = [
        (words, bp.load("mesh-on-board", set=dict(changes)).with_setting(setting))
        for words, (setting, changes) in MESH_CASES.items()
    ]
    return table(["algorithm"], cases, MESH_METRICS)


def fleet() -> str:
    """Return the table of settings for a fleet in low orbit."""
    cases = [(setting, bp.load("leo-fleet").with_setting(setting)) for setting in FLEET_SETTINGS]
    return table(["setting"], cases, FLEET_METRICS)


def plans() -> str:
    """Return the table of the sweep of plans, whose dataset is kept in results/beam-plans."""
    found = bp.sweep("beam-plans", out="results/beam-plans", cluster="local:4")
    points: dict[tuple[str, str], dict[str, float | None]] = {}
    for row in found.rows():
        point = (row["plan.home.down.pir"], row["plan.office.down.weight"])
        points.setdefault(point, {})[row["metric"]] = row["mean"]
    rows = [
        [*point, *(number(means[metric], 3) for metric in PLAN_METRICS)] for point, means in points.items()
    ]
    return blocks.table(["home, `pir`", "office, `weight`", *PLAN_METRICS.values()], rows, texts=2)


TABLES = {
    "queues": forward,
    "rain": rain,
    "plans": plans,
    "pools": pools,
    "fleet": fleet,
    "return": back,
    "mesh": mesh,
}
PAGES = {
    "terminals.md": ("queues", "rain", "plans", "pools", "fleet"),
    "return-direction.md": ("return", "mesh"),
}


def renew(page: Path, names: Iterable[str]) -> None:
    """Replace tables of a page."""
    for name in names:
        made = TABLES[name]()
        text = blocks.replaced(page.read_text(encoding="utf-8"), BEGIN.format(name), END, made, str(page))
        page.write_text(text, encoding="utf-8")


def main(docs: Path, *wanted: str) -> None:
    """Replace the wanted tables, by default all; exits for an unknown one."""
    unknown = [name for name in wanted if name not in TABLES]
    if unknown:
        raise SystemExit(f"{', '.join(unknown)}: unknown tables; allowed: {', '.join(TABLES)}")
    for page, names in PAGES.items():
        renew(docs / page, [name for name in names if name in wanted or not wanted])


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
