"""Quality of adaptive video by ITU-T P.1203 in mode 0, from bitrates, resolutions, start-up delay and stalls.

P.1203.3 averages a formula (weight 0.75) and a random forest (weight 0.25); the forest's 20 trees are trained
data licensed for research only, so they are left out, and the formula has their weight too. A simpler
published model was not chosen, because the formula covers bitrate, resolution, switches and stalls together,
was validated with 30 subjective tests, and differs little from the full model (docs/qoe.md).

The video quality of each second follows P.1203.1 (01/2019), mode 0: degradation by coding, by upscaling and
by a low frame rate. P.1203.3 (01/2019) adds the audio, averages the seconds, and subtracts for switches and
stalls. Times are media times: they do not advance during a stall.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Literal

from bentpipe.errors import UsageError

__all__ = [
    "RANGES",
    "Device",
    "Quality",
    "Segment",
    "Session",
    "coding_quality",
    "out_of_range",
    "quality",
    "segment_mos",
]

Device = Literal["pc", "mobile"]
"""Screen of 24 to 100 inches, or of at most 10 inches in the hand (P.1203, model input interfaces)."""

RANGES: dict[str, tuple[float, float]] = {
    "bitrate": (75, 12_500),
    "frame_rate": (8, 30),
    "display_pixels": (1920 * 1080, 1920 * 1080),
    "duration": (30, 300),
}
"""Ranges for which P.1203 is validated: kbit/s, 1/s, pixels, s (P.1203 (10/2017), summary and Table 1).

The codec is H.264, High profile.
"""


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive video of one representation."""

    duration: float
    """Length in media time [s]."""
    bitrate: float
    """Bitrate of the video without audio [kbit/s]."""
    width: int
    """Width of the coded picture [pixels]."""
    height: int
    """Height of the coded picture [pixels]."""
    frame_rate: float
    """Frames per second [1/s]."""

    def __post_init__(self) -> None:
        """Refuse values that no segment has."""
        for name in ("duration", "bitrate", "width", "height", "frame_rate"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value > 0):
                raise UsageError(f"{name} of a video segment is {value:g}: a number above 0 is allowed")


@dataclass(frozen=True, slots=True)
class Session:
    """One viewing of a video."""

    segments: Sequence[Segment]
    """Segments in order of playing."""
    startup: float = 0.0
    """Start-up delay: time from the request to the first picture [s]."""
    stalls: Sequence[tuple[float, float]] = ()
    """Media time and duration of each stall [s], in order."""
    display: tuple[int, int] = (1920, 1080)
    """Width and height of the display [pixels]."""
    device: Device = "pc"
    """Kind of screen."""
    audio: float = 5.0
    """Quality of the audio coding on the MOS scale; 5, the default, is perfect audio."""

    def __post_init__(self) -> None:
        """Refuse sessions that cannot have been played."""
        # Since Python 3.12 sum() rounds otherwise than the sums of callers.
        if self.duration < 1 - _ROUNDING:
            raise UsageError(f"a video session lasts {self.duration:g} s: at least 1 s of media is allowed")
        if not (math.isfinite(self.startup) and self.startup >= 0):
            raise UsageError(
                f"start-up delay of a video session is {self.startup:g} s: at least 0 is allowed"
            )
        if not 1 <= self.audio <= 5:
            raise UsageError(f"audio quality of a video session is {self.audio:g}: 1 to 5 is allowed")
        if self.device not in ("pc", "mobile"):
            raise UsageError(f"device of a video session is {self.device!r}: pc, mobile are allowed")
        if min(self.display) < 1:
            raise UsageError(
                f"display of a video session is {self.display}: at least 1 pixel each is allowed"
            )
        previous = 0.0
        for time, duration in self.stalls:
            if not previous <= time <= self.duration + _ROUNDING:
                raise UsageError(
                    f"a stall of a video session is at {time:g} s: {previous:g} to {self.duration:g} s is "
                    "allowed, in order of time"
                )
            if not (math.isfinite(duration) and duration > 0):
                raise UsageError(
                    f"a stall of a video session lasts {duration:g} s: a time above 0 is allowed"
                )
            previous = time

    @property
    def duration(self) -> float:
        """Media time of the session [s]."""
        return sum(segment.duration for segment in self.segments)


@dataclass(frozen=True, slots=True)
class Quality:
    """Quality of a session with its parts, all on the MOS scale of 1 (bad) to 5 (excellent)."""

    mos: float
    """Overall quality; P.1203's O.46 with the formula in place of the forest."""
    coding: float
    """Audiovisual quality without stalls, including switches; P.1203's O.35."""
    stalling: float
    """Quality of perfect video with these stalls and start-up delay; P.1203's O.23."""
    seconds: tuple[float, ...]
    """Video quality of each second of media time; P.1203's O.22."""


def quality(session: Session) -> Quality:
    """Return the quality of a session (P.1203.1, mode 0; P.1203.3, clause 8, without the random forest)."""
    video = _seconds(session)
    coding = coding_quality(video, session.audio)
    impact = _stalling(session, len(video))
    mos = min(max(1 + (coding - 1) * impact, 1.0), 5.0)
    return Quality(_F1 + _F2 * mos, coding, 1 + 4 * impact, video)


def segment_mos(segment: Segment, display: tuple[int, int] = (1920, 1080), device: Device = "pc") -> float:
    """Return the video quality of a segment on a display (P.1203.1, clause 8, mode 0)."""
    pixels = segment.width * segment.height
    per_frame = segment.bitrate**2 / (pixels * segment.frame_rate)
    quantizer = _A1 + _A2 * math.log(_A3 + math.log(segment.bitrate) + math.log(per_frame + _A4))
    coded = min(max(_Q1 + _Q2 * math.exp(_Q3 * quantizer), 1.0), 5.0)
    coding = _percent(100 - _r_from_mos(coded))
    scale = max(display[0] * display[1] / pixels, 1.0)
    scaling = _percent(_U1 * math.log10(_U2 * (scale - 1) + 1))
    rate = segment.frame_rate
    slow = (100 - coding - scaling) * (_T1 - _T2 * rate) / (_T3 + rate) if rate < _FLUENT else 0.0
    mos = _mos_from_r(100 - _percent(coding + scaling + _percent(slow)))
    if device == "mobile":
        h1, h2, h3, h4 = _HANDHELD
        mos = min(max(h1 + h2 * mos + h3 * mos**2 + h4 * mos**3, 1.0), 5.0)
    return mos


_A1, _A2, _A3, _A4 = 11.9983519, -2.99991847, 41.2475074001, 0.13183165961
_Q1, _Q2, _Q3 = 4.66, -0.07, 4.06
_U1, _U2 = 72.61, 0.32
_T1, _T2, _T3 = 30.98, 1.29, 64.65
"""Coefficients a1 to t3 of P.1203.1 for coding in mode 0, upscaling and frame rate."""
_FLUENT = 24
"""Frame rate from which motion is fluent [1/s]."""
_HANDHELD = (-0.60293, 2.12382, -0.36936, 0.03409)
"""Polynomial from the MOS on a PC to that on a handheld device (P.1203.1), lowest power first."""
_LEAST, _MOST = 1.05, 4.9
"""MOS of the ratings 0 and 100 (P.1203.1, Annex E)."""


def _percent(value: float) -> float:
    return min(max(value, 0.0), 100.0)


def _mos_from_r(r: float) -> float:
    return _LEAST + (_MOST - _LEAST) * r / 100 + r * (r - 60) * (100 - r) * 7e-6


def _r_from_mos(mos: float) -> float:
    """Return the rating 0 to 100 of a MOS; above 1.05 it is unique."""
    if mos <= _LEAST:
        return 0.0
    least, most = 0.0, 100.0
    for _ in range(60):
        middle = (least + most) / 2
        least, most = (middle, most) if _mos_from_r(middle) < mos else (least, middle)
    return (least + most) / 2


def _seconds(session: Session) -> tuple[float, ...]:
    """Return the video quality of each whole second: that of the segment that plays just before its end."""
    found: list[float] = []
    end = 0.0
    for segment in session.segments:
        end += segment.duration
        mos = segment_mos(segment, session.display, session.device)
        found += [mos] * (math.floor(end + _ROUNDING) - len(found))
    return tuple(found)


_ROUNDING = 1e-9
"""Tolerance for sums of segment durations [s]."""

_AV1, _AV2, _AV3, _AV4 = -0.00069084, 0.15374283, 0.97153861, 0.02461776
_W1, _W2, _W3, _W4, _W5 = (
    0.00666620027943848,
    0.0000404018840273729,
    0.156497800436237,
    0.143179744942738,
    0.0238641564518876,
)
"""Coefficients av1 to av4 and t1 to t5 of P.1203.3: audio, and weight of a second by its time and its MOS."""
_BIAS, _BIAS_FLOOR, _BIAS_HALF = 0.01853820, 1.87403625, 7.85416481
_OSCILLATION = (0.67756080, -8.05533303)
_ADAPTATION = (0.17332553, -0.01035647)
"""Coefficients c23, c1 and c2, comp1 to comp4 of P.1203.3: impairment by low seconds and by switches."""
_STALL_FLOOR, _STALL_HALF = 0.48412879, 10.0
_S1, _S2, _S3 = 9.35158684, 0.91890815, 11.0567558
_F1, _F2 = 0.02833052, 0.98117059
"""Coefficients c_ref7, c_ref8, s1 to s3, f1 and f2 of P.1203.3: stalls, and final linear mapping."""


def _weight(floor: float, half: float, age: float) -> float:
    """Return a weight: 1 at the end of the session, halfway to `floor` after each `half` [s] before it."""
    return floor + (1 - floor) * math.pow(0.5, age / half)


def coding_quality(video: Sequence[float], audio: float) -> float:
    """Return the audiovisual quality without stalls, O.35 (P.1203.3, equations 5 to 7 and 18 to 27).

    `video` is the quality of each second, `audio` that of all audio, both on the MOS scale.
    """
    n = len(video)
    both = [min(max(_AV1 + _AV2 * audio + _AV3 * v + _AV4 * audio * v, 1.0), 5.0) for v in video]
    weights = [(_W1 + _W2 * math.exp(t / n / _W3)) * (_W4 - _W5 * mos) for t, mos in enumerate(both)]
    baseline = sum(w * mos for w, mos in zip(weights, both, strict=True)) / sum(weights)
    differences = [
        (mos - baseline) * _weight(_BIAS_FLOOR, _BIAS_HALF, n - t - 1) for t, mos in enumerate(both)
    ]
    bias = max(0.0, -_percentile(differences, 0.1)) * _BIAS
    spread = max(video) - min(video)
    longest, turns = _directions(video)
    steady = longest / n >= 0.25
    oscillation = adaptation = 0.0
    if not steady and longest < 30:
        a, b = _OSCILLATION
        oscillation = min(max(0.0, 1 + math.log10(spread + 0.001)) * math.exp(a * turns + b), 1.5)
    if not steady:
        a, b = _ADAPTATION
        changes = sum(abs(after - before) > _VISIBLE for before, after in pairwise(video)) / n
        adaptation = min(max(a * spread * changes + b, 0.0), 0.5)
    return max(baseline - bias - oscillation - adaptation, 1.0)


_VISIBLE = 0.2
"""Difference of two seconds' MOS that counts as a change."""
_WINDOW, _STEP = 5, 3
"""Length of the moving average, and distance of the compared values [s]."""


def _directions(video: Sequence[float]) -> tuple[int, int]:
    """Return the longest time without a change of direction [s], and the number of rises and falls."""
    padded = [video[0]] * (_WINDOW - 1) + list(video) + [video[-1]] * (_WINDOW - 1)
    smooth = [sum(padded[i : i + _WINDOW]) / _WINDOW for i in range(len(padded) - _WINDOW + 1)][::_STEP]
    signs = [(after - before > _VISIBLE) - (after - before < -_VISIBLE) for before, after in pairwise(smooth)]
    moves = [(i, sign) for i, sign in enumerate(signs) if sign]
    starts = [next(run)[0] for _, run in groupby(moves, key=lambda move: move[1])]
    bounds = [0, *starts, len(signs)]
    return _STEP * max(after - before for before, after in pairwise(bounds)), len(starts)


def _percentile(values: Sequence[float], share: float) -> float:
    """Return a percentile, linearly interpolated."""
    ordered = sorted(values)
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])


def _stalling(session: Session, n: int) -> float:
    """Return the factor of stalls and start-up delay, 0 to 1 (P.1203.3, clause 8.1.1 and equation 29)."""
    events = [(0.0, session.startup)] if session.startup > 0 else []
    events += [(min(time, n), duration) for time, duration in session.stalls]
    total = sum(duration * _weight(_STALL_FLOOR, _STALL_HALF, n - time) for time, duration in events)
    interval = (events[-1][0] - events[0][0]) / (len(events) - 1) if len(events) > 1 else 0.0
    return math.exp(-len(events) / _S1 - total / n / _S2 - interval / n / _S3)


def out_of_range(session: Session) -> tuple[str, ...]:
    """Return the names of values of a session outside the ranges for which P.1203 is validated."""
    values: dict[str, list[float]] = {
        "bitrate": [segment.bitrate for segment in session.segments],
        "frame_rate": [segment.frame_rate for segment in session.segments],
        "display_pixels": [session.display[0] * session.display[1]],
        "duration": [session.duration],
    }
    return tuple(
        name
        for name, (least, most) in RANGES.items()
        if not least <= min(values[name]) <= max(values[name]) <= most
    )
