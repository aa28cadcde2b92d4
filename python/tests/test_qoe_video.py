"""The formulas of P.1203 against values of the reference implementation, itu-p1203 1.10.0.

The Recommendation's text was at hand for P.1203 (10/2017), the introduction with the ranges, but not for
P.1203.1 and P.1203.3. Their formulas and coefficients are those that the reference implementation documents;
the model's authors wrote its examples and its test suite.
"""

from itertools import pairwise

import numpy as np
import pytest

from bentpipe.errors import UsageError
from bentpipe.qoe.video import Device, Segment, Session, coding_quality, out_of_range, quality, segment_mos

FULL_HD = (1920, 1080)
LADDER = [
    Segment(4, 235, 320, 240, 25),
    Segment(4, 560, 512, 384, 25),
    Segment(4, 1050, 640, 480, 25),
    Segment(4, 2350, 1280, 720, 25),
    Segment(4, 5800, 1920, 1080, 25),
]
EXAMPLE = (
    Segment(5.48, 691.72, *FULL_HD, 25),
    Segment(5.0, 4158.04, *FULL_HD, 25),
    Segment(5.0, 7172.66, *FULL_HD, 25),
    Segment(4.598, 6593.59, *FULL_HD, 25),
)
"""Segments of the reference implementation's examples/mode0.json."""


@pytest.mark.parametrize(
    ("segment", "mos"),
    [
        (Segment(1, 2801.27587623, 1920, 1080, 30), 4.311),
        (Segment(1, 629.203792838, 852, 480, 30), 2.664),
        (Segment(1, 224.771246112, 426, 240, 30), 1.085),
    ],
)
def test_segment_has_the_quality_of_the_reference_tests(segment: Segment, mos: float) -> None:
    """Test suite of itu-p1203, mode 0."""
    assert segment_mos(segment) == pytest.approx(mos, abs=6e-4)


def test_low_frame_rate_has_the_quality_of_the_reference() -> None:
    """Computed with itu-p1203."""
    assert segment_mos(Segment(1, 1500, 1280, 720, 15)) == pytest.approx(3.2182987, abs=1e-4)
    assert segment_mos(Segment(1, 1500, 1280, 720, 23.9)) == pytest.approx(3.7174123, abs=1e-4)
    assert segment_mos(Segment(1, 1500, 1280, 720, 24)) == pytest.approx(3.7230713, abs=1e-4)


def test_seconds_have_the_quality_of_the_reference_example() -> None:
    """Output O22 for examples/mode0.json in the test suite of itu-p1203."""
    expected = [4.072543327] * 5 + [4.387760508] * 5 + [4.468355548] * 5 + [4.457277348] * 5
    assert quality(Session(EXAMPLE)).seconds == pytest.approx(expected, abs=1e-4)


def test_larger_display_shows_the_upscaling() -> None:
    """Output O22 for examples/mode0_with_display_res_switch.json in the test suite of itu-p1203."""
    segment = Segment(5, 5000, *FULL_HD, 25)
    assert segment_mos(segment, (1280, 720)) == pytest.approx(4.4172545, abs=1e-4)
    assert segment_mos(segment, FULL_HD) == pytest.approx(4.4172545, abs=1e-4)
    assert segment_mos(segment, (3840, 2160)) == pytest.approx(3.3790479, abs=1e-4)


def test_mobile_device_has_the_quality_of_the_reference() -> None:
    """Computed with itu-p1203 from the quality on a PC."""
    assert segment_mos(EXAMPLE[0], device="mobile") == pytest.approx(4.2229883, abs=1e-4)


@pytest.mark.parametrize(
    ("session", "stalling"),
    [
        (Session(EXAMPLE), 5.0),
        (Session(EXAMPLE, 2, [(5, 2)]), 3.7471461951950604),
        (Session(EXAMPLE, 5, [(5, 30)]), 1.9003358607261784),
        (Session([Segment(298, 1000, *FULL_HD, 25)], 2), 4.5816540429887915),
    ],
)
def test_stalls_have_the_quality_of_the_reference_tests(session: Session, stalling: float) -> None:
    """Outputs O23 for mode0, mode0_without_audio, mode0_long_stalling and request in its test suite."""
    assert quality(session).stalling == pytest.approx(stalling, abs=1e-9)


@pytest.mark.parametrize(
    ("video", "audio", "coding"),
    [
        ([2.7641848972245264] * 9, 5.0, 3.7937758648099993),
        ([1.17643751299321] * 9, 5.0, 2.055784057874599),
        (
            [3.6388712431] * 5 + [3.9788931027] * 5 + [4.3916706865] * 5 + [4.4042438839] * 4,
            4.5595879322,
            4.9095486283,
        ),
        ([3.8815643211] * 5 + [3.7669812861] * 5 + [3.6712013388] * 4, 4.5595879322, 4.7581715920),
        ([4.2] * 6 + [2.1] * 6 + [4.0] * 6 + [1.8] * 6 + [4.4] * 6 + [2.5] * 6, 4.0, 3.3636971268),
        ([2.0] * 30 + [4.0] * 30, 4.5, 3.6469254553),
        (([3.0] * 9 + [2.6] * 9) * 6, 4.0, 3.2353717668),
        (([3.4] * 6 + [2.1] * 6) * 8, 4.0, 1.7745933766),
        (([1.5] * 3 + [2.5] * 3 + [3.5] * 3 + [2.5] * 3) * 6, 4.0, 1.5928565596),
        (([3.1] * 7 + [2.3] * 5 + [3.6] * 8 + [1.9] * 4) * 5, 4.0, 1.9045337363),
        (([4.6] * 3 + [2.5] * 3) * 30, 4.0, 2.1130865637),
        (([3.4] * 9 + [2.1] * 9) * 5, 4.0, 3.1068025701),
    ],
)
def test_switches_have_the_quality_of_the_reference(video: list[float], audio: float, coding: float) -> None:
    """Outputs O35 of itu-p1203: the first four are in its test suite, the others were computed with it."""
    assert coding_quality(video, audio) == pytest.approx(coding, abs=1e-6)


def test_quality_stays_on_the_scale_under_fast_oscillation() -> None:
    """The reference implementation returns 0.896, below the scale."""
    assert coding_quality(([3.8] * 3 + [1.2] * 3) * 30, 4.0) == 1


def test_overall_quality_is_the_formula_with_the_final_mapping() -> None:
    """P.1203.3, equations 28 and 30, computed by hand from the parts."""
    found = quality(Session(EXAMPLE, 2, [(5, 2)], audio=1.5))
    assert found.mos == pytest.approx(
        0.02833052 + 0.98117059 * (1 + (found.coding - 1) * (found.stalling - 1) / 4)
    )


def test_overall_quality_is_near_that_of_the_full_model() -> None:
    """Outputs O46 in itu-p1203's test suite; with the forest they differ by less than its error of 0.47."""
    assert quality(Session(EXAMPLE)).mos == pytest.approx(4.8566, abs=0.47)
    assert quality(Session(EXAMPLE, 2, [(5, 2)])).mos == pytest.approx(3.8389, abs=0.47)
    assert quality(Session(EXAMPLE, 5, [(5, 30)])).mos == pytest.approx(1.6592, abs=0.47)
    assert quality(Session([Segment(298, 1000, *FULL_HD, 25)], 2)).mos == pytest.approx(4.4983, abs=0.47)


def test_quality_rises_with_the_bitrate() -> None:
    values = [segment_mos(Segment(1, bitrate, 1280, 720, 25)) for bitrate in range(75, 12_500, 75)]
    assert all(before <= after for before, after in pairwise(values))
    assert values[-1] > values[0] + 0.5


@pytest.mark.parametrize("device", ["pc", "mobile"])
def test_quality_rises_with_each_step_of_a_ladder(device: Device) -> None:
    values = [quality(Session([segment] * 15, device=device)).mos for segment in LADDER]
    assert all(before < after or after > 4.9 for before, after in pairwise(values))


def test_quality_falls_with_the_time_and_the_number_of_stalls() -> None:
    video = [LADDER[3]] * 15
    longer = [quality(Session(video, stalls=[(30, duration)])).mos for duration in (0.5, 1, 2, 5, 10, 30)]
    more = [quality(Session(video, stalls=[(10 * k, 1) for k in range(1, n)])).mos for n in range(1, 7)]
    start = [quality(Session(video, startup)).mos for startup in (0, 0.5, 1, 2, 5, 10)]
    for values in (longer, more, start):
        assert all(before > after for before, after in pairwise(values))


def test_late_stall_costs_more_than_an_early_one() -> None:
    video = [LADDER[3]] * 15
    early, late = (quality(Session(video, stalls=[(time, 5)])).mos for time in (5, 55))
    assert late < early


def test_oscillation_costs_more_than_one_switch() -> None:
    once = [LADDER[1]] * 8 + [LADDER[4]] * 8
    often = [LADDER[1], LADDER[1], LADDER[4], LADDER[4]] * 4
    assert quality(Session(often)).coding < quality(Session(once)).coding


def test_quality_is_on_the_scale_for_any_session() -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        segments = [LADDER[k] for k in rng.integers(len(LADDER), size=rng.integers(1, 40))]
        end = 4 * len(segments)
        times = sorted(rng.uniform(0, end, rng.integers(0, 30)).tolist())
        stalls = [(time, rng.uniform(0.1, 60)) for time in times]
        found = quality(Session(segments, rng.uniform(0, 60), stalls, audio=rng.uniform(1, 5)))
        assert 1 <= found.mos <= 5
        assert 1 <= found.stalling <= 5
        assert len(found.seconds) == end


def test_tenths_of_seconds_add_up_to_whole_seconds() -> None:
    assert len(quality(Session([Segment(0.1, 1000, *FULL_HD, 25)] * 300)).seconds) == 30


def test_stall_at_the_end_may_be_a_rounding_error_behind_it() -> None:
    session = Session(LADDER)
    late = np.nextafter(session.duration, np.inf)
    found = quality(Session(LADDER, stalls=[(float(late), 2.0)]))
    assert found == quality(Session(LADDER, stalls=[(session.duration, 2.0)]))
    shortest = float(np.nextafter(1.0, 0.0))
    assert len(quality(Session([Segment(shortest, 235, 320, 240, 25)])).seconds) == 1


def test_values_outside_the_validated_ranges_are_reported() -> None:
    assert out_of_range(Session([LADDER[3]] * 15)) == ()
    strange = Session([Segment(10, 50, *FULL_HD, 60)], display=(3840, 2160))
    assert out_of_range(strange) == ("bitrate", "frame_rate", "display_pixels", "duration")


def test_limits_of_the_validated_ranges_are_those_of_p1203() -> None:
    """P.1203 (10/2017), summary and Table 1."""
    for segment in (Segment(30, 75, 1280, 720, 8), Segment(300, 12_500, 1280, 720, 30)):
        assert out_of_range(Session([segment])) == ()
    assert out_of_range(Session([Segment(29, 74, 1280, 720, 7)])) == ("bitrate", "frame_rate", "duration")
    assert out_of_range(Session([Segment(301, 12_501, 1280, 720, 31)])) == (
        "bitrate",
        "frame_rate",
        "duration",
    )


def test_impossible_sessions_are_refused() -> None:
    video = [LADDER[3]] * 15
    with pytest.raises(UsageError, match=r"^bitrate of a video segment is 0: a number above 0 is allowed$"):
        Segment(4, 0, *FULL_HD, 25)
    with pytest.raises(UsageError, match=r"^a video session lasts 0 s: at least 1 s of media is allowed$"):
        Session([])
    with pytest.raises(
        UsageError, match=r"^start-up delay of a video session is -1 s: at least 0 is allowed$"
    ):
        Session(video, -1)
    with pytest.raises(UsageError, match=r"^a stall of a video session is at 61 s: 0 to 60 s is allowed"):
        Session(video, stalls=[(61, 1)])
    with pytest.raises(UsageError, match=r"^a stall of a video session is at 5 s: 9 to 60 s is allowed"):
        Session(video, stalls=[(9, 1), (5, 1)])
    with pytest.raises(
        UsageError, match=r"^a stall of a video session lasts 0 s: a time above 0 is allowed$"
    ):
        Session(video, stalls=[(9, 0)])
    with pytest.raises(UsageError, match=r"^audio quality of a video session is 6: 1 to 5 is allowed$"):
        Session(video, audio=6)
    with pytest.raises(
        UsageError, match=r"^display of a video session is \(0, 1080\): at least 1 pixel each"
    ):
        Session(video, display=(0, 1080))
    with pytest.raises(UsageError, match=r"^device of a video session is 'tv': pc, mobile are allowed$"):
        Session(video, device="tv")  # type: ignore[arg-type]
