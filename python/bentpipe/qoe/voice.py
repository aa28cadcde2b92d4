"""Conversational quality of voice by the E-model of ITU-T G.107 (06/2015), narrowband.

The rating is R = Ro - Is - Id - Ie,eff + A, from 0 to 100: signal to noise, minus impairments simultaneous
with the voice, by delay and by codec and loss, plus an advantage of access. `Connection` has the parameters
with the defaults of clause 7.7: good handsets on a wireline. A packet network changes delay, loss and codec.
The model predicts the mean opinion of many users for planning. That strong impairments add up is not
validated (Annex A).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from types import MappingProxyType
from typing import Literal

from bentpipe.errors import UsageError

__all__ = [
    "CODECS",
    "RANGES",
    "SATISFACTION",
    "SENSITIVITY",
    "Codec",
    "Connection",
    "Rating",
    "Sensitivity",
    "burst_ratio",
    "call",
    "markdown",
    "mos",
    "out_of_range",
    "rate",
    "satisfaction",
]

Sensitivity = Literal["default", "low", "very low"]
"""Class of delay sensitivity of the users."""

SENSITIVITY: Mapping[Sensitivity, tuple[float, float]] = MappingProxyType(
    {"default": (1.0, 100.0), "low": (0.55, 120.0), "very low": (0.4, 150.0)}
)
"""Delay sensitivity sT and minimum perceivable delay mT [ms] by class (G.107, Table 1).

Carrier and enterprise telephony must be rated with `default`.
"""


@dataclass(frozen=True, slots=True)
class Codec:
    """Impairment by a codec (ITU-T G.113, Appendix I)."""

    name: str
    rate: float
    """Bit rate of the payload [kbit/s]."""
    ie: float
    """Equipment impairment factor without loss, Ie."""
    bpl: float | None
    """Packet-loss robustness factor, Bpl; None if Appendix I has none: loss cannot be rated."""
    packet: float | None
    """Voice per packet for which Bpl holds [ms]."""
    concealment: str
    """Packet loss concealment for which Bpl holds."""
    source: str


_IE, _BPL = "G.113 App. I, Table I.1", "G.113 App. I, Table I.4"

CODECS: Mapping[str, Codec] = MappingProxyType(
    {
        codec.name: codec
        for codec in (
            Codec("g711", 64, 0, 4.3, 10, "none", _BPL),
            Codec("g711-plc", 64, 0, 25.1, 10, "G.711 App. I", _BPL),
            Codec("g729a-vad", 8, 11, 19.0, 20, "native", _BPL),
            Codec("g723.1-vad", 6.3, 15, 16.1, 30, "native", _BPL),
            Codec("gsm-efr", 12.2, 5, 10.0, 20, "native", _BPL),
            Codec("g726-40", 40, 2, None, None, "–", _IE),
            Codec("g726-32", 32, 7, None, None, "–", _IE),
            Codec("g726-24", 24, 25, None, None, "–", _IE),
            Codec("g726-16", 16, 50, None, None, "–", _IE),
            Codec("g728-16", 16, 7, None, None, "–", _IE),
            Codec("g728-12.8", 12.8, 20, None, None, "–", _IE),
            Codec("g729", 8, 10, None, None, "–", _IE),
            Codec("g723.1-5.3", 5.3, 19, None, None, "–", _IE),
            Codec("g723.1-6.3", 6.3, 15, None, None, "–", _IE),
        )
    }
)
"""Narrowband codecs by name.

Wideband codecs (G.722, AMR-WB, Opus, EVS) have the scales of G.107.1 and G.107.2, which are not implemented.
"""

SATISFACTION: tuple[tuple[float, str, str], ...] = (
    (90.0, "best", "very satisfied"),
    (80.0, "high", "satisfied"),
    (70.0, "medium", "some users dissatisfied"),
    (60.0, "low", "many users dissatisfied"),
    (50.0, "poor", "nearly all users dissatisfied"),
    (0.0, "not recommended", "not recommended"),
)
"""Lower limit of R, category of quality and users' satisfaction (ITU-T G.109, Table 1; G.107, Table B.1)."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Parameters of a connection, with the symbols and defaults of G.107, clause 7.7."""

    slr: float = 8.0
    """Send loudness rating, SLR [dB]."""
    rlr: float = 2.0
    """Receive loudness rating, RLR [dB]."""
    stmr: float = 15.0
    """Sidetone masking rating, STMR [dB]."""
    lstr: float = 18.0
    """Listener sidetone rating, LSTR [dB]; STMR + Dr."""
    ds: float = 3.0
    """D-value of the telephone on the send side, Ds."""
    dr: float = 3.0
    """D-value of the telephone on the receive side, Dr; acts through LSTR only."""
    telr: float = 65.0
    """Talker echo loudness rating, TELR [dB]."""
    wepl: float = 110.0
    """Weighted echo path loss, WEPL [dB]."""
    t: float = 0.0
    """Mean one-way delay of the echo path, T [ms]."""
    tr: float = 0.0
    """Round-trip delay in the four-wire loop, Tr [ms]."""
    ta: float = 0.0
    """Absolute one-way delay from mouth to ear, Ta [ms]."""
    qdu: float = 1.0
    """Quantization distortion units, qdu."""
    ie: float = 0.0
    """Equipment impairment factor of the codec, Ie."""
    bpl: float = 1.0
    """Packet-loss robustness factor of the codec, Bpl."""
    ppl: float = 0.0
    """Packet loss, including packets too late for the jitter buffer, Ppl [%]."""
    burst_r: float = 1.0
    """Burst ratio, BurstR: mean length of loss bursts over that of random loss; 1 is random."""
    nc: float = -70.0
    """Circuit noise referred to the 0 dBr point, Nc [dBm0p]."""
    nfor: float = -64.0
    """Noise floor at the receive side, Nfor [dBmp]."""
    ps: float = 35.0
    """Room noise at the send side, Ps [dB(A)]."""
    pr: float = 35.0
    """Room noise at the receive side, Pr [dB(A)]."""
    a: float = 0.0
    """Advantage factor, A: at most 5 if mobile in a building, 10 in an area, 20 in places hard to reach."""
    sensitivity: Sensitivity = "default"
    """Class of delay sensitivity, which sets sT and mT."""

    def __post_init__(self) -> None:
        """Refuse values without a meaning; `out_of_range` reports those outside the validated ranges."""
        if self.sensitivity not in SENSITIVITY:
            raise UsageError(
                f"delay sensitivity of a voice connection is {self.sensitivity!r}: "
                f"{', '.join(SENSITIVITY)} are allowed"
            )
        for field in fields(self):
            if field.name == "sensitivity":
                continue
            value = getattr(self, field.name)
            label, least, most = _LIMITS.get(field.name, (field.name, -math.inf, math.inf))
            if not (math.isfinite(value) and least <= value <= most):
                allowed = "a finite number" if least == -math.inf else f"at least {least:g}"
                raise UsageError(
                    f"{label} of a voice connection is {value:g}: "
                    f"{f'{least:g} to {most:g}' if most < math.inf else allowed} is allowed"
                )


_LIMITS: dict[str, tuple[str, float, float]] = {
    "t": ("one-way delay of the echo path T [ms]", 0.0, math.inf),
    "tr": ("round-trip delay Tr [ms]", 0.0, math.inf),
    "ta": ("one-way delay Ta [ms]", 0.0, math.inf),
    "ppl": ("packet loss Ppl [%]", 0.0, 100.0),
    "burst_r": ("burst ratio BurstR", 1.0, math.inf),
    "bpl": ("robustness factor Bpl", 1.0, math.inf),
    "ie": ("equipment impairment factor Ie", 0.0, 95.0),
    "qdu": ("quantization distortion qdu", 1.0, math.inf),
    "a": ("advantage factor A", 0.0, 20.0),
    "stmr": ("sidetone masking rating STMR [dB]", 0.0, math.inf),
    "telr": ("talker echo loudness rating TELR [dB]", 0.0, math.inf),
    "wepl": ("weighted echo path loss WEPL [dB]", 0.0, math.inf),
}
"""Name, and limits beyond which the value has no meaning, by parameter."""

RANGES: Mapping[str, tuple[float, float]] = MappingProxyType(
    {
        "slr": (0, 18),
        "rlr": (-5, 14),
        "stmr": (10, 20),
        "lstr": (13, 23),
        "ds": (-3, 3),
        "dr": (-3, 3),
        "telr": (5, 65),
        "wepl": (5, 110),
        "t": (0, 500),
        "tr": (0, 1000),
        "ta": (0, 500),
        "qdu": (1, 14),
        "ie": (0, 40),
        "bpl": (1, 40),
        "ppl": (0, 20),
        "burst_r": (1, 2),
        "nc": (-80, -40),
        "ps": (35, 85),
        "pr": (35, 85),
        "a": (0, 20),
    }
)
"""Permitted ranges of the parameters (G.107, clause 7.7).

A burst ratio above 2 is also permitted for losses below 2 % (Annex A).
"""


@dataclass(frozen=True, slots=True)
class Rating:
    """Rating of a connection with its parts, all on the scale of R."""

    r: float
    """Transmission rating factor R, limited to 0 to 100."""
    ro: float
    """Basic signal-to-noise ratio, Ro."""
    i_s: float
    """Impairments simultaneous with the voice, Is."""
    idte: float
    """Impairment by talker echo, Idte."""
    idle: float
    """Impairment by listener echo, Idle."""
    idd: float
    """Impairment by absolute delay, Idd."""
    ie_eff: float
    """Impairment by codec and loss, Ie,eff."""
    a: float
    """Advantage factor, A."""

    @property
    def mos(self) -> float:
        """Estimated conversational quality, MOS-CQE, from 1 to 4.5."""
        return mos(self.r)


def rate(connection: Connection) -> Rating:
    """Return the rating of a connection (G.107, clause 7)."""
    c = connection
    no = _noise(c)
    ro = 15 - 1.5 * (c.slr + no)
    ist = _sidetone(c)
    i_s = _loudness(c, no) + ist + _quantization(c, ro)
    idte = _talker_echo(c, no, ist)
    idle = _listener_echo(c, ro)
    idd = _delay(c)
    ie_eff = c.ie + (95 - c.ie) * c.ppl / (c.ppl / c.burst_r + c.bpl)
    r = ro - i_s - (idte + idle + idd) - ie_eff + c.a
    return Rating(min(max(r, 0.0), 100.0), ro, i_s, idte, idle, idd, ie_eff, c.a)


def _level(*levels: float) -> float:
    """Return the sum of powers as a level [dB]."""
    return 10 * math.log10(sum(math.pow(10, level / 10) for level in levels))


def _root(x: float, n: float) -> float:
    """Return the n-th root of 1 + x^n, about the larger of 1 and x."""
    return math.pow(1 + math.pow(x, n), 1 / n)


def _noise(c: Connection) -> float:
    """Return the sum of noise powers No [dBm0p] (clause 7.2)."""
    olr = c.slr + c.rlr
    nos = c.ps - c.slr - c.ds - 100 + 0.004 * (c.ps - olr - c.ds - 14) ** 2
    pre = c.pr + 10 * math.log10(1 + 10 ** ((10 - c.lstr) / 10))
    nor = c.rlr - 121 + pre + 0.008 * (pre - 35) ** 2
    return _level(c.nc, nos, nor, c.nfor + c.rlr)


def _loudness(c: Connection, no: float) -> float:
    """Return the impairment by too loud a connection, Iolr (clause 7.3)."""
    x = (c.slr + c.rlr + 0.2 * (64 + no - c.rlr)) / 8
    return 20 * (_root(x, 8) - x)


def _sidetone(c: Connection) -> float:
    """Return the impairment by sidetone, Ist (clause 7.3)."""
    stmro = -10 * math.log10(10 ** (-c.stmr / 10) + math.exp(-c.t / 4) * 10 ** (-c.telr / 10))
    return (
        12 * _root(abs(stmro - 13) / 6, 8)
        - 28 * _root((stmro + 1) / 19.4, 35)
        - 13 * _root((stmro - 3) / 33, 13)
        + 29
    )


def _quantization(c: Connection, ro: float) -> float:
    """Return the impairment by quantization, Iq (clause 7.3)."""
    q = 37 - 15 * math.log10(c.qdu)
    g = 1.07 + 0.258 * q + 0.0602 * q**2
    y = (ro - 100) / 15 + 46 / 8.4 - g / 9
    z = 46 / 30 - g / 40
    return 15 * math.log10(1 + 10**y + 10**z)


def _talker_echo(c: Connection, no: float, ist: float) -> float:
    """Return the impairment by talker echo, Idte (clause 7.4); zero below 1 ms, where echo is sidetone."""
    if c.t < 1:
        return 0.0
    terv = c.telr - 40 * math.log10((1 + c.t / 10) / (1 + c.t / 150)) + 6 * math.exp(-0.3 * c.t**2)
    if c.stmr < 9:
        terv += ist / 2
    half = (-1.5 * (no - c.rlr) - (80 + 2.5 * (terv - 14))) / 2
    idte = (half + math.sqrt(half**2 + 100) - 1) * (1 - math.exp(-c.t))
    return math.hypot(idte, ist) if c.stmr > 20 else idte


def _listener_echo(c: Connection, ro: float) -> float:
    """Return the impairment by listener echo, Idle (clause 7.4)."""
    half = (ro - 10.5 * (c.wepl + 7) * math.pow(c.tr + 1, -0.25)) / 2
    return half + math.sqrt(half**2 + 169)


def _delay(c: Connection) -> float:
    """Return the impairment by absolute delay, Idd, with the users' sensitivity (clause 7.4)."""
    sensitivity, least = SENSITIVITY[c.sensitivity]
    if c.ta <= least:
        return 0.0
    x, n = math.log2(c.ta / least), 6 * sensitivity
    return 25 * (_root(x, n) - 3 * _root(x / 3, n) + 2)


def mos(r: float) -> float:
    """Return the MOS of a rating R (G.107, Annex B), from 1 to 4.5.

    Annex B's polynomial falls up to 0.011 below 1 for R < 6.5; the scale's lower end, 1, is returned there.
    """
    if r <= 0:
        return 1.0
    if r >= 100:
        return 4.5
    return max(1.0, 1 + 0.035 * r + r * (r - 60) * (100 - r) * 7e-6)


def satisfaction(r: float) -> str:
    """Return the users' satisfaction with a rating R, in the terms of G.109."""
    return next((words for least, _, words in SATISFACTION if r >= least), SATISFACTION[-1][2])


def out_of_range(connection: Connection) -> tuple[str, ...]:
    """Return the names of parameters outside the ranges for which G.107 permits the model."""
    return tuple(
        name
        for name, (least, most) in RANGES.items()
        if not least <= getattr(connection, name) <= most
        and not (name == "burst_r" and connection.ppl < _BURSTY_LOSS)
    )


_BURSTY_LOSS = 2.0
"""Loss below which any burst ratio is permitted [%] (G.107, Annex A)."""


def call(
    delay: float,
    loss: float,
    codec: str = "g711-plc",
    *,
    burst_r: float = 1.0,
    base: Connection | None = None,
) -> Rating:
    """Return the rating of a call over a packet network.

    `delay` is the one-way delay from mouth to ear [ms] with packetization, look-ahead and jitter buffer.
    `loss` is the share of packets lost or too late [%]. Echo takes the path of the voice (T = Ta, Tr = 2 Ta)
    with the echo loudness rating of `base`, by default 65 dB: good echo control.
    """
    if codec not in CODECS:
        raise UsageError(f"voice codec {codec!r} is unknown: {', '.join(CODECS)} are allowed")
    chosen = CODECS[codec]
    if chosen.bpl is None and loss > 0:
        rated = ", ".join(name for name, each in CODECS.items() if each.bpl is not None)
        raise UsageError(
            f"a loss of {loss:g} % with voice codec {codec!r} cannot be rated, because G.113 gives it no "
            f"robustness factor: {rated} are allowed"
        )
    connection = replace(base or Connection(), ta=delay, ppl=loss, burst_r=burst_r, ie=chosen.ie)
    connection = replace(connection, t=delay, tr=2 * delay)
    return rate(connection if chosen.bpl is None else replace(connection, bpl=chosen.bpl))


def burst_ratio(lost: Sequence[bool]) -> float:
    """Return the burst ratio BurstR of packets in order of sending, True if lost (G.107, clause 7.5).

    It is the mean length of the loss bursts over that of random losses of the same share. It is 1 without
    loss, and if losses are more regular than random, because the model starts at 1.
    """
    losses = sum(lost)
    bursts = sum(now and not before for before, now in pairwise((False, *lost)))
    return max(1.0, losses / bursts * (1 - losses / len(lost))) if losses else 1.0


def markdown() -> str:
    """Return the table of codecs for docs/qoe.md."""
    lines = [
        "| codec | bit rate [kbit/s] | Ie | Bpl | voice per packet [ms] | concealment | source |",
        "| --- | --: | --: | --: | --: | --- | --- |",
    ]
    for codec in CODECS.values():
        bpl, packet = (f"{each:g}" if each is not None else "–" for each in (codec.bpl, codec.packet))
        cells = (
            f"`{codec.name}`",
            f"{codec.rate:g}",
            f"{codec.ie:g}",
            bpl,
            packet,
            codec.concealment,
            codec.source,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
