"""Judges and fresh seeds: tables worked out by hand, and messages."""

from functools import partial
from pathlib import Path

import pytest

from bentpipe._core import Progress
from bentpipe.errors import UsageError
from bentpipe.runs.dataset import Dataset, Run
from bentpipe.runs.plan import load, make_plan
from bentpipe.runs.workers import Threads, measure
from bentpipe.stats.intervals import paired
from bentpipe.stats.objectives import Limit, Objective, by_power, judged, kept, limits_from, objectives_from
from bentpipe.tuning.holdout import APART, figures, fresh_seeds, means, rerun, winners

THROUGHPUT = Objective("throughput", "max")
DELAY = Objective("queue_delay_mean", "min")
STEADY = Objective("throughput_std", "min")


def table(**settings: tuple[float | None, float | None, float | None]) -> dict[str, dict[str, float | None]]:
    names = ("throughput", "queue_delay_mean", "throughput_std")
    return {name: dict(zip(names, row, strict=True)) for name, row in settings.items()}


FOUR = table(a=(20.0, 40.0, 0.1), b=(19.0, 10.0, 0.3), c=(19.0, 20.0, 0.1), d=(15.0, None, 0.1))


def test_rank_sums_match_a_worked_example() -> None:
    """Ranks and sums, with ties and a missing value.

    |   | throughput | delay   | deviation | sum of 2^rank   |
    | a | 20 → 1      | 40 → 3  | 0.1 → 1   | 2 + 8 + 2 = 12  |
    | b | 19 → 2      | 10 → 1  | 0.3 → 4   | 4 + 2 + 16 = 22 |
    | c | 19 → 2      | 20 → 2  | 0.1 → 1   | 4 + 4 + 2 = 10  |
    | d | 15 → 4      | – → 4   | 0.1 → 1   | 16 + 16 + 2 = 34|

    The mean ranks of a and c are equal (5/3): the powers of two tell them apart.
    """
    order = judged(FOUR, [THROUGHPUT, DELAY, STEADY])
    assert [(each.name, each.place, each.total) for each in order] == [
        ("c", 1, 10),
        ("a", 2, 12),
        ("b", 3, 22),
        ("d", 4, 34),
    ]
    assert {each.name: tuple(each.ranks.values()) for each in order} == {
        "a": (1, 3, 1),
        "b": (2, 1, 4),
        "c": (2, 2, 1),
        "d": (4, 4, 1),
    }
    assert kept(order, 3) == ["c", "a", "b"]
    assert kept(order, 9) == ["c", "a", "b", "d"]
    with pytest.raises(UsageError, match="0 settings are to be kept; allowed: 1 or more"):
        kept(order, 0)


def test_equal_sums_share_a_place_and_keep_their_order() -> None:
    """By hand: x has ranks 1 and 2, y has 2 and 1, z is last in both."""
    order = judged(
        table(z=(1.0, 9.0, None), y=(2.0, 1.0, None), x=(3.0, 2.0, None)), [THROUGHPUT, DELAY, STEADY]
    )
    assert [(each.name, each.place, each.total) for each in order] == [
        ("y", 1, 4 + 2 + 2),
        ("x", 1, 2 + 4 + 2),
        ("z", 3, 8 + 8 + 2),
    ]


def test_many_settings_have_exact_sums() -> None:
    """2^200 + 2 and 2^200 + 4 are the same number in floating point."""
    values = {f"s{n}": {"throughput": float(-n), "queue_delay_mean": 0.0} for n in range(200)}
    values["s199"]["queue_delay_mean"] = None  # type: ignore[assignment]
    order = judged(values, [THROUGHPUT, DELAY])
    assert (order[0].name, order[-1].total) == ("s0", 2**200 + 2**200)
    assert order[1].total == 2**2 + 2


def test_settings_within_limits_rank_first_among_themselves() -> None:
    """By hand, with a delay of at most 20 ms: b and c keep it, c is best in one metric and b in the other.

    Among those two the ranks are (1, 1, 2) and (1, 2, 1). Of the others, a is 100 % outside, and d's delay
    is not known.
    """
    order = judged(FOUR, [THROUGHPUT, DELAY, STEADY], limits_from(["queue_delay_mean<=20"]))
    assert [(each.name, each.place, each.total, each.excess) for each in order] == [
        ("b", 1, 8, 0.0),
        ("c", 1, 8, 0.0),
        ("a", 3, 6, 1.0),
        ("d", 4, 10, float("inf")),
    ]


def test_margin_ignores_small_differences() -> None:
    """19 is 5 % below 20: with a margin of 5 % a is not better than b and c."""
    order = judged(FOUR, [THROUGHPUT], margin=0.05)
    assert {each.name: each.ranks["throughput"] for each in order} == {"a": 1, "b": 1, "c": 1, "d": 4}


def test_power_matches_a_worked_example() -> None:
    """Rates over response times, behind a PEP: 20 / 0.8 = 25, 19 / 0.75 = 25.3, 16 / 0.74 = 21.6, 20 / 32.

    With a round trip of 0.5 s and queues of 40, 10 and 20 ms: 20 / 0.54 = 37.0, 19 / 0.51 = 37.3,
    16 / 0.52 = 30.8; the last one has no queueing delay.
    """
    names = ("throughput", "pep_sojourn", "queue_delay_mean")
    rows = {
        "full": (20.0, 0.8, 40.0),
        "both": (19.0, 0.75, 10.0),
        "short": (16.0, 0.74, 20.0),
        "none": (20.0, 32.0, None),
    }
    values = {name: dict(zip(names, row, strict=True)) for name, row in rows.items()}
    order = by_power(values)
    assert [each.name for each in order] == ["both", "full", "short", "none"]
    assert [1 / each.total for each in order] == pytest.approx([19 / 0.75, 25, 16 / 0.74, 20 / 32])
    order = by_power(values, 0.5)
    assert [each.name for each in order] == ["both", "full", "short", "none"]
    assert [1 / each.total for each in order[:3]] == pytest.approx([19 / 0.51, 20 / 0.54, 16 / 0.52])
    assert order[3].total == float("inf")
    within = by_power(values, limits=limits_from(["throughput>=19.5"]))
    assert [(each.name, each.place) for each in within] == [
        ("full", 1),
        ("none", 2),
        ("both", 3),
        ("short", 4),
    ]


def test_objectives_are_parsed() -> None:
    assert objectives_from("throughput:max, queue_delay_mean:min,throughput_std:min") == [
        THROUGHPUT,
        DELAY,
        STEADY,
    ]
    assert objectives_from(["throughput", "loss_rate"]) == [THROUGHPUT, Objective("loss_rate", "min")]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "utilisation:max",
            r'objective utilisation:max: there is no metric "utilisation"; did you mean util',
        ),
        ("xyzzy", r'there is no metric "xyzzy"; docs/metrics.md lists them'),
        ("queue_mean", r"queue_mean: found no direction, .*; allowed: queue_mean:max, queue_mean:min"),
        ("throughput:up", r'throughput:up: found the direction "up"; allowed: max, min'),
        ("throughput:", r'found the direction ""; allowed: max, min'),
        ("throughput,throughput:min", r"objective throughput: found twice; allowed: each metric once"),
        ("", r'objective \(empty\): there is no metric ""'),
    ],
)
def test_wrong_objectives_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        objectives_from(text)


def test_limits_are_parsed_in_the_metrics_unit() -> None:
    assert limits_from(["queue_delay_p95<=50", "queue_delay_p95 <= 0.05 s", "throughput>=1.5e3 kbit/s"]) == [
        Limit("queue_delay_p95", "<=", 50.0),
        Limit("queue_delay_p95", "<=", 50.0),
        Limit("throughput", ">=", 1.5),
    ]
    assert str(Limit("queue_delay_p95", "<=", 50.0)) == "queue_delay_p95 <= 50 ms"
    # Scenarios write KB, too.
    both = limits_from(["pep_buffers_mean<=5 KB", "pep_buffers_mean<=5000 B"])
    assert list(map(str, both)) == ["pep_buffers_mean <= 5 kB"] * 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("queue_delay_p95=50", "found no bound; allowed: METRIC<=NUMBER"),
        ("queue_delay_95<=50", 'there is no metric "queue_delay_95"; did you mean queue_delay_p95'),
        ("queue_delay_p95<=many", "found the bound many; allowed"),
        ("queue_delay_p95<=nan", "found the bound nan; allowed"),
        ("queue_delay_p95<=50 KB", "found the unit KB; allowed: ms"),
        ("utilization>=19 Mbit/s", "utilization is a share .*, at most 100 %; limit throughput for a rate"),
        ("utilization>=500", "utilization is a share of the link's capacity, at most 100 %"),
    ],
)
def test_wrong_limits_are_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        limits_from([text])


def test_holdout_seeds_differ_from_those_of_the_search() -> None:
    assert fresh_seeds([3, 4, 5], 2) == [3 + APART, 4 + APART]
    assert fresh_seeds([3, 3 + APART], 2) == [4 + APART, 5 + APART]
    assert fresh_seeds([3, 4, 5, 6, 7], 2) == fresh_seeds([3, 4], 2)
    assert fresh_seeds([2**64 - 1], 1) == [APART - 1]
    with pytest.raises(UsageError, match="0 fresh runs are wanted; allowed: 1 or more"):
        fresh_seeds([1], 0)


def test_figures_hold_search_and_holdout_means_and_the_corrected_difference() -> None:
    """Two differences by hand: their p-values are doubled or kept, the smaller one doubled."""
    samples: dict[str, dict[str, list[float | None]]] = {
        "old": {"throughput": [10.0, 12.0, 11.0], "queue_delay_mean": [30.0, 31.0, 33.0]},
        "new": {"throughput": [10.5, 12.0, 11.6], "queue_delay_mean": [20.0, 21.0, 22.0]},
    }
    found = figures(
        samples, ["throughput", "queue_delay_mean"], {"new": {"throughput": 12.5}}, baseline="old"
    )
    rows = {(each.setting, each.metric): each for each in found}
    new = rows["new", "throughput"]
    assert new.searched == 12.5
    assert new.found.mean == pytest.approx(34.1 / 3)
    assert rows["old", "throughput"].against is None
    both = [paired(samples["new"][name], samples["old"][name]) for name in ("throughput", "queue_delay_mean")]
    assert new.against == both[0]
    assert both[1].p is not None
    assert both[0].p is not None
    assert both[1].p < both[0].p
    assert rows["new", "queue_delay_mean"].p_holm == pytest.approx(2 * both[1].p)
    assert new.p_holm == pytest.approx(max(both[0].p, 2 * both[1].p))
    assert means(samples)["new"]["queue_delay_mean"] == 21.0


def test_winner_shares_of_two_runs_match_a_worked_example() -> None:
    """By hand: of the draws (1,1), (1,2), (2,1) and (2,2), b has the higher mean in the last only."""
    samples: dict[str, dict[str, list[float | None]]] = {
        "a": {"throughput": [12.0, 10.0]},
        "b": {"throughput": [11.0, 10.5]},
    }
    shares = winners(samples, partial(judged, objectives=[THROUGHPUT]))
    assert shares["a"] == pytest.approx(3 / 4, abs=0.05)
    assert sum(shares.values()) == pytest.approx(1)


def test_equal_settings_share_the_win_and_settings_outside_limits_never_win() -> None:
    run: dict[str, list[float | None]] = {
        "throughput": [12.0, 10.0, None],
        "queue_delay_mean": [5.0, 6.0, 7.0],
    }
    slow: dict[str, list[float | None]] = {
        "throughput": [20.0, 20.0, 20.0],
        "queue_delay_mean": [50.0, 60.0, 70.0],
    }
    judge = partial(judged, objectives=[THROUGHPUT], limits=limits_from(["queue_delay_mean<=9"]))
    shares = winners({"a": run, "b": dict(run), "slow": slow}, judge)
    assert shares == pytest.approx({"a": 0.5, "b": 0.5, "slow": 0.0}, abs=0.03)
    assert shares["slow"] == 0
    with pytest.raises(UsageError, match="different numbers of runs"):
        winners({"a": run, "b": {"throughput": [1.0]}}, judge)


def test_repeated_runs_equal_those_of_compare(tmp_path: Path) -> None:
    scenario = load("small-gateway", {"run.duration": "2 s", "run.warmup": "1 s"})
    plan = make_plan(scenario, settings=["red", "avqred"])
    chosen = {each.name: Run((), each.name, each.scenario, each.digest, 1) for each in plan.settings}
    seeds = fresh_seeds(plan.seeds, 2)
    with Dataset(tmp_path / "d", (), {}) as dataset:
        samples, failures = rerun(chosen, seeds, ["throughput", "queue_delay_mean"], dataset, Threads(1))
    assert not failures
    for each in plan.settings:
        expected = [measure(each.scenario, seed, Progress()) for seed in seeds]
        for metric, values in samples[each.name].items():
            assert values == [row[metric] for row in expected]
    told: list[tuple[int, int, int]] = []
    with Dataset(tmp_path / "d", (), {}) as dataset:
        again, _ = rerun(chosen, seeds, ["throughput"], dataset, Threads(1), lambda *each: told.append(each))
    assert told == [(4, 4, 0)]
    assert again["red"]["throughput"] == samples["red"]["throughput"]


@pytest.mark.parametrize(
    ("limit", "scale"),
    [
        ("queue_delay_p95<=-5", "queue_delay_p95 is 0 or more ms"),
        ("loss_rate>=101", "loss_rate is 0 to 100 %"),
        ("jain_index>=1.1", "jain_index is 0 to 1"),
        ("voice.mos>=5.5", "voice.mos is 1 to 5"),
        ("voice.mos<=0.9", "voice.mos is 1 to 5"),
        ("voice.terminal_mos_p10>=6", "voice.terminal_mos_p10 is 1 to 5"),
        ("delay_goodput_correlation<=-1.1", "delay_goodput_correlation is -1 to 1"),
    ],
)
def test_a_limit_that_no_value_can_meet_is_refused(limit: str, scale: str) -> None:
    with pytest.raises(UsageError) as caught:
        limits_from([limit])
    assert str(caught.value) == f'limit "{limit}": no value can meet it; {scale}'


def test_limits_at_the_ends_of_a_scale_are_accepted() -> None:
    given = ["queue_delay_p95<=0", "loss_rate>=100", "loss_rate<=200", "voice.mos>=5"]
    assert [limit.bound for limit in limits_from(given)] == [0, 100, 200, 5]


@pytest.mark.parametrize(
    "limit",
    [
        "delay_goodput_correlation<=-0.2",
        "rain_carrier_time>=110",
        "rain_goodput>=105",
        "committed_share_max>=101",
        "video.stalled>=150",
        "video.terminal_stalled_p90>=150",
    ],
)
def test_limits_beyond_zero_and_100_percent_are_accepted_where_values_can_be(limit: str) -> None:
    assert len(limits_from([limit])) == 1
