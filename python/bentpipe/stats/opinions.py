"""Opinion scores of calls and viewings by the models of `bentpipe.qoe`, from a run's flows."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import polars as pl

from bentpipe.qoe import video, voice
from bentpipe.stats.recorded import Recorded

__all__ = ["opinions", "viewings"]


def opinions(run: Recorded, traffic_class: str) -> pl.DataFrame:
    """Return the opinion of each call and viewing of a class: `terminal` of its user, or null, and `mos`.

    A call of which packets were sent and none was played has the MOS of R = 0.
    """
    found = run.opinions.get(traffic_class)
    if found is None:
        flows = run.of_class(traffic_class).table
        if "terminal" not in flows.columns:
            flows = flows.with_columns(terminal=pl.lit(None, dtype=pl.String))
        no_packet = pl.col("mouth_to_ear").is_null()
        silent = flows.filter(no_packet & (pl.col("late") + pl.col("lost_units") > 0))
        rows: list[tuple[str | None, float | None]] = [
            *(
                (each["terminal"], voice.mos(_rating(each).r))
                for each in _rows(flows.filter(~no_packet), _CALL)
            ),
            *((each["terminal"], voice.mos(0.0)) for each in _rows(silent)),
            *((each["terminal"], _opinion(each)) for each in _rows(_seen(flows), _VIEWING)),
        ]
        known = [row for row in rows if row[1] is not None]
        found = pl.DataFrame(known, schema={"terminal": pl.String, "mos": pl.Float64}, orient="row")
        run.opinions[traffic_class] = found
    return found


def viewings(run: Recorded, traffic_class: str) -> pl.DataFrame:
    """Return the viewings of a class of which a period lies in the measured time."""
    return _seen(run.of_class(traffic_class).table)


def _seen(flows: pl.DataFrame) -> pl.DataFrame:
    return flows.filter(pl.col("playback_until").list.len() > 0)


_CALL = ("played", "late", "lost_units", "mouth_to_ear", "burst_ratio", "codec")
_VIEWING = ("opened", "startup_delay", "playback_until", "playback_bitrate")


def _rows(flows: pl.DataFrame, columns: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    if flows.is_empty():
        return iter(())
    return flows.select(*columns, pl.col("terminal").cast(pl.String)).iter_rows(named=True)


def _rating(call: Mapping[str, Any]) -> voice.Rating:
    """Rate a call of which a packet was played."""
    lost = call["late"] + call["lost_units"]
    return voice.call(
        1e3 * call["mouth_to_ear"],
        100 * lost / (lost + call["played"]),
        _CODECS[call["codec"]],
        burst_r=max(1.0, call["burst_ratio"] or 1.0),
    )


_CODECS = {"g711": "g711-plc", "g729": "g729a-vad"}
"""Codecs of G.113 by codec of the scenario.

G.711 has the packet loss concealment of its Appendix I. G.729 is rated as G.729A with voice activity
detection, for which alone G.113 has a robustness factor.
"""

_PICTURES = (
    (145, 416, 234),
    (365, 640, 360),
    (1100, 768, 432),
    (2000, 960, 540),
    (4500, 1280, 720),
    (math.inf, 1920, 1080),
)
"""Bitrate up to which a picture has a width and height [kbit/s, pixels, pixels].

H.264 variants of Apple's *HLS Authoring Specification for Apple Devices*.
"""
_FRAME_RATE = 30.0
"""Frames per second of the same variants."""

_PATIENCE = 10.0
"""Time after which a viewing with less than a second of media has the worst quality [s]; P.1203 has none."""


def _opinion(viewing: Mapping[str, Any]) -> float | None:
    """Return the MOS of a viewing; None if it was too short to be judged."""
    segments, stalls, media, begin = list[video.Segment](), list[tuple[float, float]](), 0.0, None
    for until, bitrate in zip(viewing["playback_until"], viewing["playback_bitrate"], strict=True):
        start = max(viewing["opened"], 0.0) if begin is None else begin
        seconds, begin = until - start, until
        if seconds <= 0:
            continue
        if bitrate is not None:
            rate = 1e-3 * bitrate
            width, height = next((w, h) for most, w, h in _PICTURES if rate <= most)
            segments.append(video.Segment(seconds, rate, width, height, _FRAME_RATE))
            media += seconds
        elif segments or viewing["startup_delay"] is None:
            stalls.append((media, seconds))
    if media < 1:
        waited = (begin or 0.0) - max(viewing["opened"], 0.0)
        return 1.0 if waited >= _PATIENCE else None
    return video.quality(video.Session(segments, viewing["startup_delay"] or 0.0, stalls)).mos
