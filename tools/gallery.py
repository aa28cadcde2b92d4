"""Run the scenarios of the gallery and write docs/gallery.md with its pictures.

Usage: gallery.py [FOLDER]; default: docs.
"""

# ruff: noqa: E501

import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

import bentpipe as bp
from bentpipe.format import with_unit
from bentpipe.report.decimate import decimate
from bentpipe.report.panels import CONFIG
from bentpipe.report.plots import SERIES
from bentpipe.stats.metrics import find

SEED, WIDTH, ROW = 1, 390, 84
"""A picture is narrow, so that its text is legible on a telephone."""
PADDING = {"left": 24, "right": 16, "top": 12, "bottom": 12}
COLOURS = ["#b5482f", "#2f6db5", "#4b8a3a"]
DARK = (
    "<style>@media screen and (prefers-color-scheme: dark)"
    " { :root { filter: invert(0.93) hue-rotate(180deg) } }</style>"
)


@dataclass(frozen=True)
class Case:
    """A setting, under overrides of the scenario's keys."""

    setting: str
    label: str = ""
    overrides: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Return the name in the picture."""
        return self.label or self.setting


@dataclass(frozen=True)
class Entry:
    """A scenario of the gallery. In `metric`, the first case has at least `factor` times the last one's value."""

    name: str
    scenario: str
    title: str
    sentence: str
    """May hold {first}, {last}: the metric under the first and the last case; {NAME.first}: another metric."""
    metric: str
    factor: float
    cases: tuple[Case, ...]
    picture: str | tuple[str, ...] = "queue_delay"
    """A series, drawn over time, or metrics of one unit, drawn as bars."""
    duration: str = "60 s"

    def commands(self) -> list[list[str]]:
        """Return the command's arguments for each set of overrides."""
        found = []
        for overrides in dict.fromkeys(case.overrides for case in self.cases):
            settings = ",".join(case.setting for case in self.cases if case.overrides == overrides)
            words = ["bentpipe", "compare", self.scenario, "--settings", settings]
            words += [word for each in overrides for word in ("--set", each)]
            found.append([*words, "--runs", "1", "--duration", self.duration])
        return found

    def run(self, seed: int) -> dict[str, tuple[bp.Result, str]]:
        """Simulate the cases; return each one's result and setting by its name."""
        found: dict[str, tuple[bp.Result, str]] = {}
        for overrides in dict.fromkeys(case.overrides for case in self.cases):
            cases = [case for case in self.cases if case.overrides == overrides]
            result = bp.compare(
                self.scenario,
                [case.setting for case in cases],
                set=[f"run.duration={self.duration}", *overrides],
                runs=1,
                seed=seed,
                progress=False,
            )
            found |= {case.name: (result, case.setting) for case in cases}
        return {case.name: found[case.name] for case in self.cases}


def of(*settings: str) -> tuple[Case, ...]:
    """Return cases without overrides."""
    return tuple(Case(setting) for setting in settings)


def value(run: tuple[bp.Result, str], metric: str) -> float:
    """Return a metric of the only run."""
    found = run[0].values()[run[1]][metric][0]
    if found is None:
        raise SystemExit(f"gallery: {metric} has no value under {run[1]}; set a longer duration")
    return float(found)


def claim(entry: Entry, runs: dict[str, tuple[bp.Result, str]]) -> tuple[float, float]:
    """Return the metric under the first and the last case."""
    ends = [value(runs[entry.cases[at].name], entry.metric) for at in (0, -1)]
    return ends[0], ends[1]


def sentence(entry: Entry, runs: dict[str, tuple[bp.Result, str]]) -> str:
    """Return the sentence with its numbers."""

    def number(match: re.Match[str]) -> str:
        *other, end = match[1].rsplit(".", 1)
        case = entry.cases[0 if end == "first" else -1]
        found = value(runs[case.name], other[0] if other else entry.metric)
        return f"{found:,.0f}" if found >= 100 else f"{found:.3g}"

    return re.sub(r"\{([^}]+)\}", number, entry.sentence)


def picture(entry: Entry, runs: dict[str, tuple[bp.Result, str]]) -> str:
    """Return the picture as SVG."""
    names = list(runs)
    colour = alt.Color("case:N", scale=alt.Scale(domain=names, range=COLOURS), legend=None)
    drawn: Any
    if isinstance(entry.picture, str):
        label, unit, factor = SERIES[entry.picture]
        rows = []
        for case, (result, setting) in runs.items():
            series = result.one("series", setting, result.seeds[0])
            table = decimate(series.select("time", value=entry.picture), 300).select("time", "mean")
            rows += [{"case": case, "time": time, "y": y * factor} for time, y in table.iter_rows()]
        most = max(row["y"] for row in rows)
        panels = [
            alt.Chart(alt.InlineData(values=[row for row in rows if row["case"] == case]))
            .mark_line(strokeWidth=1.4)
            .encode(
                x=alt.X("time:Q", title="time [s]" if case == names[-1] else None),
                y=alt.Y("y:Q", title=unit, axis=alt.Axis(tickCount=3), scale=alt.Scale(domain=[0, most])),
                color=colour,
            )
            .properties(width=WIDTH, height=ROW, title=f"{label}, {case}")
            for case in names
        ]
        drawn = alt.vconcat(*panels, spacing=8)
    else:
        bars = []
        for metric in entry.picture:
            known = find(metric)
            unit = known.unit if known else ""
            group = metric.split(".")[0] if len(entry.picture) > 1 else ""
            bars += [
                {"case": case, "y": value(run, metric), "of": f"{case}: {group}" if group else case}
                for case, run in runs.items()
            ]
        text = known.label if known else metric
        text = text.split(": ")[-1] if len(entry.picture) > 1 else text
        base = alt.Chart(alt.InlineData(values=bars)).encode(
            x=alt.X("y:Q", title=with_unit(text, unit)),
            y=alt.Y("of:N", title=None, sort=[str(bar["of"]) for bar in bars], axis=alt.Axis(labelLimit=200)),
        )
        drawn = (
            base.mark_bar(height=16).encode(color=colour)
            + base.mark_text(align="left", dx=4).encode(text=alt.Text("y:Q", format=".3~g"))
        ).properties(width=WIDTH - 80, height=30 * len(bars))
    whole = drawn.properties(background="white", padding=PADDING).configure(**CONFIG)
    svg = vl_convert.vegalite_to_svg(whole.to_dict())
    return svg.replace(">", f">{DARK}", 1) + "\n"


PEP = ("gateway.pep.split=[]",)
DELAY = ('gateway.pep.delay="40 ms"',)
NARROW, WIDE = (f'link.satellite.reverse.rate="{rate}"' for rate in ("32 kbps", "2 Mbps"))
ENTRIES = [
    Entry(
        "bufferbloat", "geo-bufferbloat", "Bufferbloat: downloads fill the buffer of a GEO link",
        "The mean queueing delay is {first} ms under DropTail and {last} ms under FQ-CoDel.",
        "queue_delay_mean", 20, of("droptail", "codel", "fq_codel"),
    ),
    Entry(
        "udp", "udp-hog", "PFAVQRED limits a UDP flow that does not slow down",
        "A UDP flow of 4 Mbit/s on a link of 6 Mbit/s gets {first} Mbit/s under AVQRED and {last} Mbit/s under"
        " PFAVQRED.",
        "hog.goodput", 1.2, of("avqred", "pfavqred"), ("hog.goodput", "downloads.goodput"),
    ),
    Entry(
        "rain-fade", "rain-fade", "Rain lowers the capacity: the queue of DropTail follows",
        "The mean queueing delay is {first} ms under DropTail and {last} ms under CoDel.",
        "queue_delay_mean", 5, of("droptail", "red", "codel"), duration="100 s",
    ),
    Entry(
        "leo-handover", "leo-handover", "LEO handovers every 15 s: DropTail keeps a standing queue",
        "The mean queueing delay is {first} ms under DropTail and {last} ms under FQ-CoDel.",
        "queue_delay_mean", 5, of("droptail", "fq_codel"),
    ),
    Entry(
        "lte", "lte-cell", "LTE, a synthetic trace: DropTail delays packets by more than a second",
        "The mean queueing delay is {first} ms under DropTail and {last} ms under FQ-CoDel, whose download gets"
        " {download.goodput.last} Mbit/s instead of {download.goodput.first}.",
        "queue_delay_mean", 20, of("droptail", "codel", "fq_codel"),
    ),
    Entry(
        "ship", "ship", "A ship: FQ-CoDel shortens the queue of the crew's traffic",
        "The mean queueing delay is {first} ms under DropTail and {last} ms under FQ-CoDel.",
        "queue_delay_mean", 1.5, of("droptail", "fq_codel"),
    ),
    Entry(
        "village", "village-wifi", "A village behind one GEO terminal: FQ-CoDel shortens the queue",
        "The mean queueing delay is {first} ms under DropTail and {last} ms under FQ-CoDel.",
        "queue_delay_mean", 1.5, of("droptail", "fq_codel"),
    ),
    Entry(
        "video-voice", "cell-backhaul", "A cell's backhaul: calls beside videos and downloads",
        "The calls' mean opinion score is {first} under FQ-CoDel and {last} under DropTail.",
        "voice.mos", 1.05, of("fq_codel", "droptail"), ("voice.mos",),
    ),
    Entry(
        "short-files", "short-files", "SWF serves short files first",
        "Three quarters of the pages load within {first} s under DropTail and within {last} s under SWF.",
        "web.page_time_p75", 2, of("droptail", "swf"), ("web.page_time_p75",),
    ),
    Entry(
        "return-link", "narrow-return", "A return link too narrow for acknowledgements slows downloads",
        "The forward link carries {first} Mbit/s with a return link of 2 Mbit/s, and {last} Mbit/s with one of"
        " 32 kbit/s.",
        "throughput", 1.1, (Case("droptail", "2 Mbit/s", (WIDE,)), Case("droptail", "32 kbit/s", (NARROW,))),
        "throughput",
    ),
    Entry(
        "l4s", "l4s-geo", "L4S over GEO: Prague gets less than CUBIC",
        "DualPI2 lowers the mean queueing delay from {first} to {last} ms; the Prague flows get {prague.goodput.last}"
        " Mbit/s and the CUBIC flows {cubic.goodput.last} Mbit/s.",
        "queue_delay_mean", 20, of("droptail", "dualpi2"), ("prague.goodput", "cubic.goodput"),
    ),
    Entry(
        "quic", "quic-geo", "QUIC beside split TCP: a fair scheduler more than halves QUIC's page load times",
        "Three quarters of the pages over QUIC load within {first} s under RED and within {last} s under DRR; over TCP within"
        " {web_tcp.page_time_p75.first} s and {web_tcp.page_time_p75.last} s.",
        "web_quic.page_time_p75", 2, of("red", "drr"), ("web_quic.page_time_p75", "web_tcp.page_time_p75"), "120 s",
    ),
    Entry(
        "two-gateways", "two-gateways", "Two gateways in a row: AVQRED carries more than RED",
        "The second gateway's link of 10 Mbit/s carries {first} Mbit/s under AVQRED and {last} Mbit/s under RED.",
        "throughput", 1.1, of("avqred", "red"), "throughput",
    ),
    Entry(
        "pep", "small-gateway", "A PEP shortens page load times",
        "Three quarters of the pages load within {first} s without a PEP and within {last} s with one.",
        "web.page_time_p75", 1.05, (Case("avqred", "no PEP", PEP), Case("avqred", "PEP")), ("web.page_time_p75",),
    ),
    Entry(
        "red-avqred", "byun2007-gateway", "Behind a PEP, RED 4 keeps a longer queue than AVQRED",
        "The mean queue is {first} packets under RED 4 and {last} packets under AVQRED.",
        "queue_mean", 1.3, of("RED 4", "AVQRED"), "transmit_queue", "40 s",
    ),
    Entry(
        "swing", "byun2007-gateway", "40 ms between a gateway's queues: RED swings and leaves the link idle",
        "The queue's standard deviation is {first} packets under RED 4 and {last} under AVQRED; the link of 20 Mbit/s"
        " carries {throughput.first} and {throughput.last} Mbit/s.",
        "queue_std", 1.8, (Case("RED 4", "", DELAY), Case("AVQRED", "", DELAY)), "transmit_queue", "40 s",
    ),
    Entry(
        "synchronization", "unsplit-udp", "Global synchronization: RED drops longer runs of packets",
        "RED drops {first} packets in a row on average, AVQRED {last}; independent drops would come in runs of"
        " {drop_run_independent.first}.",
        "drop_run_mean", 1.2, of("red", "avqred"), ("drop_run_mean",),
    ),
    Entry(
        "dumbbell", "red-dumbbell", "Fifty long connections over one link, without a gateway",
        "The mean queue is {first} packets under DropTail and {last} packets under AVQRED.",
        "queue_mean", 3, of("droptail", "RED 60/120", "avqred"), "transmit_queue", "100 s",
    ),
]  # fmt: skip


def main(folder: Path) -> None:
    """Write the page and its pictures; exits before if a comparison does not hold."""
    made = [(entry, entry.run(SEED)) for entry in ENTRIES]
    failing = []
    for entry, runs in made:
        first, last = claim(entry, runs)
        found = f"{entry.name}: {first:.4g} against {last:.4g}, wanted {entry.factor} times as much"
        print(found, flush=True)
        failing += [found] * (first < entry.factor * last)
    if failing:
        raise SystemExit(f"gallery: does not hold: {'; '.join(failing)}")
    figures = folder / "figures" / "gallery"
    figures.mkdir(parents=True, exist_ok=True)
    lines = [
        "# Gallery",
        "",
        "`make gallery` runs these scenarios, draws the pictures and computes the numbers, each from one run. A test",
        "checks every comparison on another seed. For conclusions, use several runs ([statistics](statistics.md)).",
    ]
    for entry, runs in made:
        (figures / f"{entry.name}.svg").write_text(picture(entry, runs), encoding="utf-8")
        lines += ["", f"## {entry.title}", "", sentence(entry, runs), ""]
        lines += [f"![{entry.title}](figures/gallery/{entry.name}.svg)", "", "```sh"]
        lines += [*(shlex.join(command) for command in entry.commands()), "```"]
    (folder / "gallery.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
