"""Text of a new scenario file, from its answers."""

import math
from dataclasses import dataclass
from textwrap import wrap

from bentpipe.format import and_list, brief, plural
from bentpipe.new_scenario.answers import (
    Answers,
    default_aqm,
    is_scheduler,
    marks_where_it_watches,
)
from bentpipe.new_scenario.tables import CLEAR_SKY, LOWEST_VIDEO, USES, DayProfile, Demand, rate_text

__all__ = ["Written", "command", "write"]

_ACK_DELAY = 50
"""Delay of an acknowledgement on the spacelink [ms], its default."""
_BACKLOG = 100
"""Backlog that the spacelink's window allows in the transmit queue [ms]."""
_GROUND = (10, 40)
"""One-way delay between a server and the gateway [ms]."""
_ACCESS = 1
"""Delay of the access links [ms]."""
_OUTAGE = 60
"""Outage at a handover [ms]."""
_SMALLEST_WINDOW = 64_000
"""Smallest window of the spacelink [bytes]: some forty packets."""
_LARGEST_BUFFER = 6_000_000
"""Largest receive buffer of Linux's TCP [bytes] (tcp_rmem)."""
_ACK_SHARE = 0.02
"""Acknowledgements of TCP as a share of the data: 52 B for every two segments of 1500 B, rounded up."""
_DAY = 24
"""Minutes into which a day is compressed."""
_WIDTH = 118


@dataclass(frozen=True, slots=True)
class Written:
    """A scenario as text, with what its author should know."""

    text: str
    load: str
    """Load by use, and as a share of the carrier."""
    notes: list[str]
    """Doubts about the answers."""


def command(answers: Answers) -> str:
    """Return the command that writes the same scenario, without the file's name."""
    words = ["bentpipe", "new", "--orbit", answers.orbit.name, "--down", _word(answers.down)]
    words += ["--up", _word(answers.up), "--subscribers", str(answers.subscribers)]
    words += ["--plan", "none" if answers.plan is None else _word(answers.plan)]
    words += ["--mix", ",".join(f"{name}={count}" for name, count in answers.mix.items())]
    words.append("--pep" if answers.pep else "--no-pep")
    words.append("--rain" if answers.rain else "--no-rain")
    if answers.orbit.handover_ms:
        words.append("--handover" if answers.handover else "--no-handover")
    words += ["--aqm", answers.aqm]
    return " ".join([*words, *(["--profile", answers.profile.name] if answers.profile else [])])


def write(answers: Answers) -> Written:
    """Return the scenario of `answers`, with its load and doubts."""
    plan = _Plan(answers)
    parts = [
        plan.head(),
        plan.run(),
        plan.ground(),
        plan.gateway(),
        plan.satellite(),
        plan.access(),
        plan.traffic(),
        plan.settings(),
    ]
    text = "\n\n".join(part for part in parts if part) + "\n"
    return Written(text, plan.load(), plan.notes())


class _Plan:
    """Values derived from the answers, and the parts of the file."""

    def __init__(self, answers: Answers) -> None:
        self.answers = answers
        orbit = answers.orbit
        self.delay = orbit.handover_delay_ms if answers.handover else orbit.delay_ms
        longest = self.delay + (orbit.handover_ms if answers.handover else 0)
        self.satellite_rtt = 2 * longest + (_OUTAGE if answers.handover else 0)
        """Longest round trip between gateway and terminal [ms], an outage included."""
        self.rtt = 10 * round(2 * (longest + _GROUND[1] + _ACCESS) / 10)
        """Longest round trip between server and subscriber [ms]."""
        self.window = self.satellite_rtt + _ACK_DELAY + _BACKLOG
        """Window of the spacelink [ms]."""
        self.symbol_rate = answers.down / CLEAR_SKY["efficiency"]
        self.demands = {
            name: Demand(count, answers.down, answers.plan) for name, count in answers.mix.items()
        }

    def head(self) -> str:
        """Return the comment at the top, the title and the description."""
        a = self.answers
        people = plural(a.subscribers, "subscriber")
        rates = f"{_rate(a.down)} down, {_rate(a.up)} up"
        extra = [
            *([] if a.plan is None else [f"{_rate(a.plan)} per subscriber"]),
            "a PEP that splits TCP" if a.pep else "no PEP",
            *(["rain fade"] if a.rain else []),
            *(["handovers"] if a.handover else []),
            *([f"a day of {_DAY} min"] if a.profile else []),
        ]
        lines = [
            "#:schema ./scenario.schema.json",
            f"# {people} behind a {a.orbit.title} satellite: {rates}. Written by:",
            "#",
            *_command_lines(command(a)),
            "#",
            "#   server ══ gateway ~~ satellite ~~ terminal ── subscriber",
            "#",
            *_comment(
                "Data flows to the subscribers only; the return link carries requests and acknowledgements"
                " (docs/return-direction.md describes uploads). Values without a source are assumptions;"
                " change them to yours."
            ),
            "",
            f'title = "{people} behind a {a.orbit.title} satellite"',
            'description = """',
            *wrap(
                f"{rates}, {', '.join(extra)}. {self.load()} Which queue serves the subscribers best?", _WIDTH
            ),
            '"""',
        ]
        return "\n".join(lines)

    def run(self) -> str:
        """Return the table of the runs."""
        names = ", ".join(f'"{name}"' for name in self._settings())
        duration = f"{_DAY} min" if self.answers.profile else "5 min" if self.answers.rain else "2 min"
        return "\n".join(
            [
                "[run]",
                'warmup = "60 s"      # all sessions start within 40 s',
                f'duration = "{duration}"',
                "runs = 5             # seeds of a comparison; with fewer, confidence intervals are wide",
                f"settings = [{names}]   # for `bentpipe compare`",
            ]
        )

    def ground(self) -> str:
        """Return the servers and their links."""
        low, high = _GROUND
        return "\n".join(
            [
                _rule("ground network, internet side"),
                "",
                "[host.server]",
                "count = 20",
                "",
                "[link.ingress]   # one per server",
                'between = ["server", "gateway"]',
                'rate = "1 Gbps"',
                f'delay = {{ uniform = ["{low} ms", "{high} ms"], per = "connection" }}   # an assumption',
            ]
        )

    def gateway(self) -> str:
        """Return the gateway: its AQM or scheduler, PEP, queues and regulator."""
        a = self.answers
        lines = [_rule("gateway and satellite"), "", "[gateway]"]
        if is_scheduler(a.aqm):
            lines.append(
                'aqm = { algorithm = "droptail" }   # none beside the scheduler of the transmit queue'
            )
        else:
            lines.append(f"aqm = {self._table(a.aqm)}")
        if not a.pep:
            lines.append('mark = "transmit"   # where it watches: without a PEP, all senders notice a drop')
        elif marks_where_it_watches(a.aqm):
            lines.append(f'mark = "transmit"   # {a.aqm} marks only where it watches')
        else:
            lines.append('mark = "receive"   # ahead of the PEP, where senders notice a drop')
        lines += ["", "[gateway.pep]"]
        if a.pep:
            share = "a plan" if a.plan else "the carrier"
            lines += [
                'split = ["tcp"]',
                *_comment(
                    f"One window of {share} over the satellite, at most 6 MB (Linux's largest receive"
                    " buffer): less limits a connection, more lets data wait where no scheduler orders it."
                ),
                f'buffer = "{self._buffer()}"',
                'buffer_per = "connection"',
            ]
        else:
            lines.append("split = []   # TCP runs from server to subscriber")
        lines += ["", "[gateway.transmit_queue]", *self._transmit_queue(), "", "[gateway.regulator]"]
        if a.rain:
            lines.append('rate = "link"   # as the modem reports it')
        else:
            lines.append(f'rate = "{rate_text(a.down)}"')
        if a.pep:
            lines += [
                "",
                "[gateway.spacelink]",
                *_comment(
                    f"A round trip of {self.satellite_rtt} ms, {_ACK_DELAY} ms for acknowledgements and a"
                    f" backlog of {_BACKLOG} ms, at {_rate(a.down)}: a smaller window leaves the link idle,"
                    " a larger one makes the transmit queue longer."
                ),
                f'window = "{self._window(a.down)}"',
                f'stream_window = "{self._buffer()}"   # as the PEP\'s buffer',
            ]
        return "\n".join(lines)

    def satellite(self) -> str:
        """Return the satellite link."""
        a = self.answers
        lines = ["[link.satellite]", 'between = ["gateway", "terminal"]']
        if not a.rain:
            lines.append("# No rate: the regulator limits it.")
        delay = f"{a.orbit.title}: {a.orbit.source}"
        if a.handover:
            delay = f"{a.orbit.title}; each satellite adds up to {a.orbit.handover_ms} ms"
        lines += [
            *_comment(delay),
            f'delay = "{self.delay} ms"',
            f'reverse = {{ rate = "{rate_text(a.up)}" }}   # requests and acknowledgements only',
        ]
        if a.handover:
            lines += [
                "",
                "# Starlink changes satellites every 15 s (Tanveer et al., CoNEXT 2023); delays and outage"
                " are assumptions.",
                "[link.satellite.handover]",
                'interval = "15 s"',
                f'delay = ["0 ms", "{a.orbit.handover_ms} ms"]',
                f'outage = "{_OUTAGE} ms"',
            ]
        if a.rain:
            lines += [
                "",
                *_comment(
                    "Rain fade with adaptive coding and modulation. The attenuation follows ITU-R P.1853"
                    " with its time constant of 5000 s divided by 100, so that a run of minutes has several"
                    " fades; median and sigma are assumptions."
                    f" {_rate(a.down)} is the capacity in clear sky, with 16APSK 5/6."
                ),
                "[link.satellite.capacity]",
                f'symbol_rate = "{self.symbol_rate / 1e6:.6g} Mbaud"',
                f"fade = {{ clear_sky = {CLEAR_SKY['es_n0']}, margin = {CLEAR_SKY['margin']}, median = 2,"
                " sigma = 1,"
                ' correlation_time = "50 s" }',
            ]
        return "\n".join(lines)

    def access(self) -> str:
        """Return the subscribers and their links."""
        a = self.answers
        lines = [
            _rule("subscribers"),
            "",
            "[host.subscriber]",
            f"count = {a.subscribers}",
            "",
            "[link.access]   # one per subscriber",
            'between = ["terminal", "subscriber"]',
        ]
        if a.plan is None:
            lines.append('rate = "1 Gbps"   # no plan: each subscriber may use the whole carrier')
        else:
            lines += [
                *_comment(
                    "The plan. Hubs enforce it ahead of the satellite; here the terminal does, with the"
                    " same rate for the subscriber."
                ),
                f'rate = "{rate_text(a.plan)}"',
            ]
        lines.append(f'delay = "{_ACCESS} ms"')
        if a.plan is not None:
            span = 200 if a.pep else self.rtt
            lines.append(
                f'queue = {{ scheduler = "fq_codel", limit = "{_size(a.plan * span / 8e3)}" }}   # {span} ms'
            )
        return "\n".join(lines)

    def traffic(self) -> str:
        """Return the transport and the traffic."""
        parts = [
            _rule("traffic"),
            "\n".join(
                _comment(
                    "Session i, stream i and call i belong to subscriber i: the first subscribers do"
                    " several things at a time."
                )
            ),
            '[transport.linux]   # CUBIC, as Linux has it by default\npreset = "linux"',
        ]
        profile = self.answers.profile
        if profile is not None:
            parts.append(
                "\n".join(
                    _comment(
                        f"Load over a day, as shares of the peak: {profile.source}. A day takes {_DAY} min,"
                        " which leaves the times within the load as they are; the warm-up ends at midnight."
                    )
                )
            )
        for name, demand in self.demands.items():
            use = USES[name]
            lines = [*_comment(use.comment), f"[traffic.{name}]"]
            first, *rest = use.keys(demand)
            lines += [first, 'from = "server"', 'to = "subscriber"', *rest]
            if profile is not None and use.has_days:
                lines += _profile(profile)
            parts.append("\n".join(lines))
        return "\n\n".join(parts)

    def settings(self) -> str:
        """Return the settings that need a table."""
        tables = [(name, lines) for name, lines in self._settings().items() if lines is not None]
        if not tables:
            return ""
        parts = [_rule("settings that a comparison uses")]
        parts += ["\n".join([f'[setting."{name}"]', *lines]) for name, lines in tables]
        return "\n\n".join(parts)

    def load(self) -> str:
        """Return the load by use, in one or more sentences."""
        rates = self._rates()
        users = {name: plural(each.count, USES[name].noun) for name, each in self.demands.items()}
        texts = []
        if rates:
            parts = ", ".join(f"{users[name]} {_rate(rate)}" for name, rate in rates.items())
            share = 100 * sum(rates.values()) / self.answers.down
            load = "Load at the peak" if self.answers.profile else "Load"
            texts.append(f"{load}: {parts}; together {brief(share, 2)} % of the carrier.")
        rest = and_list(users[name] for name in users if name not in rates)
        if rest:
            texts.append(f"{rest}: all that is left.")
        return " ".join(texts)

    def _rates(self) -> dict[str, float]:
        """Return the load of the uses that do not take all that they get [bit/s]."""
        found = {}
        for name, demand in self.demands.items():
            rate = USES[name].rate
            if rate is not None:
                found[name] = rate(demand) * demand.count
        return found

    def notes(self) -> list[str]:
        """Return doubts about the answers."""
        a = self.answers
        notes = []
        share = sum(self._rates().values()) / a.down
        if share > 1.2:
            notes.append(
                f"the mix offers {brief(100 * share, 2)} % of the carrier, so every queue will be full;"
                " reduce --mix or"
                " --subscribers, or raise --down"
            )
        acks = _ACK_SHARE * a.down
        if not a.pep and a.up < acks:
            notes.append(
                f"--up {rate_text(a.up)}: TCP acknowledges {_rate(a.down)} with about {_rate(acks)}, so"
                " the return link"
                " limits the downloads; raise --up or use --pep"
            )
        if "video" in self.demands and a.plan is not None and a.plan < LOWEST_VIDEO:
            notes.append(f"--plan {rate_text(a.plan)}: below the lowest video bitrate, {_rate(LOWEST_VIDEO)}")
        return notes

    def _window(self, rate: float, largest: float = math.inf) -> str:
        """Return the bytes in flight over the satellite at `rate` with a backlog."""
        return _size(min(max(rate * self.window / 8e3, _SMALLEST_WINDOW), largest))

    def _buffer(self) -> str:
        """Return the PEP's buffer of a connection."""
        return self._window(self.answers.plan or self.answers.down, _LARGEST_BUFFER)

    def _transmit_queue(self) -> list[str]:
        a = self.answers
        span = 100 * math.ceil((self.window + 200) / 100) if a.pep else self.rtt
        reason = (
            f"{span} ms: more than the spacelink's window, so that nothing is dropped behind the PEP"
            if a.pep
            else f"{span} ms, the longest round trip"
        )
        scheduler = self._table(a.aqm) if is_scheduler(a.aqm) else '"fifo"'
        limit = _size(max(a.down * span / 8e3, 2 * _SMALLEST_WINDOW))
        return [f"scheduler = {scheduler}", *_comment(reason), f'limit = "{limit}"']

    def _parameters(self, name: str) -> list[str]:
        """Return parameters that depend on the answers: the round trip."""
        match name:
            case "codel" | "fq_codel":
                # RFC 8289, sections 4.2 and 4.3: the longest round trip, and 5 % of it.
                target = max(5, round(self.rtt / 20))
                return [f'interval = "{max(100, self.rtt)} ms"', f'target = "{target} ms"']
            case "cake" | "cake_users":
                return [f'rtt = "{max(100, self.rtt)} ms"']
        return []

    def _table(self, name: str) -> str:
        """Return an AQM or scheduler as an inline table."""
        return f"{{ {', '.join([f'algorithm = {chr(34)}{name}{chr(34)}', *self._parameters(name)])} }}"

    def _settings(self) -> dict[str, list[str] | None]:
        """Return the settings of a comparison by name, each with the lines of its table if it needs one."""
        a = self.answers
        found: dict[str, list[str] | None] = {}
        chosen = self._parameters(a.aqm)
        if not chosen:
            found[a.aqm] = None
        elif is_scheduler(a.aqm):
            found[f"own {a.aqm}"] = ["# the gateway's scheduler with its parameters, and no AQM"]
        else:
            found[f"own {a.aqm}"] = [f'algorithm = "{a.aqm}"', *chosen]
        found.setdefault("fifo", None)
        for other in ("red", "avqred") if a.pep else ("red", "codel"):
            if other == a.aqm:
                continue
            lines = [f'algorithm = "{other}"', 'scheduler = "fifo"', *self._parameters(other)]
            found[f"fifo + {other}"] = lines
        usual = default_aqm(pep=a.pep)
        if usual != a.aqm:
            found[usual] = None
        return found


def _profile(profile: DayProfile) -> list[str]:
    """Return the keys of a traffic entry's load over a day."""
    points = [f'["{hour} h", {share:g}]' for hour, share in enumerate(profile.shares)]
    rows = [", ".join(points[start : start + 6]) for start in range(0, len(points), 6)]
    return [
        "profile.points = [",
        *(f"  {row}," for row in rows),
        "]",
        f'profile.day = "{_DAY} min"',
        'profile.start = "23 h"',
    ]


def _comment(text: str) -> list[str]:
    """Return a text as comment lines."""
    return [f"# {line}" for line in wrap(text, _WIDTH - 2, break_long_words=False)]


def _command_lines(text: str) -> list[str]:
    """Return a command as comment lines, to be copied without their lead."""
    lines = wrap(text, _WIDTH - 6, break_on_hyphens=False, break_long_words=False)
    return [f"#   {line}{'' if line is lines[-1] else ' ' + chr(92)}" for line in lines]


def _rule(title: str) -> str:
    """Return a comment that begins a section."""
    return f"# --- {title} ".ljust(_WIDTH, "-")


def _rate(rate: float) -> str:
    """Write a rate for a reader, for example `20 Mbit/s`."""
    number, unit = rate_text(float(f"{rate:.2g}") if rate < 1e6 else float(f"{rate:.3g}")).split()
    return f"{number} {unit.replace('bps', 'bit/s')}"


def _word(rate: float) -> str:
    """Write a rate as one word of a command."""
    return rate_text(rate).replace(" ", "")


def _size(length: float) -> str:
    """Write a number of bytes with two digits, rounded up."""
    digits = 10 ** max(0, math.floor(math.log10(length)) - 1)
    rounded = math.ceil(length / digits) * digits
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("KB", 1e3)):
        if rounded >= size:
            return f"{rounded / size:g} {unit}"
    return f"{rounded:g} B"
