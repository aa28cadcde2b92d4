"""Rules of advice on made-up values; each table shows one rule."""

from dataclasses import replace
from typing import Any

import pytest

from bentpipe.advice.judge import Rule
from bentpipe.advice.rules import Candidate, Decision, decide, sentences
from bentpipe.report.advice import candidate_rows
from bentpipe.stats.objectives import Limit, Objective, limits_from
from bentpipe.stats.services import services
from bentpipe.tuning.holdout import Samples

OBJECTIVES = (Objective("throughput", "max"), Objective("queue_delay_mean", "min"))
RED = Candidate("RED 4", "red", "present")
DROPTAIL = Candidate("droptail", "droptail", "reference")
TABLE = {"algorithm": '"avqred"', "min_th": "20", "max_th": "60"}
AVQRED = Candidate("avqred tuned", "avqred", "tuned", TABLE)
GKVQ = Candidate("gkvq tuned", "gkvq", "tuned", {"algorithm": '"gkvq"', "theta": "0.97"})
# Common effect of a seed on all candidates, which have the same traffic.
TRAFFIC = (-0.3, 0.1, 0.0, 0.25, -0.15, 0.1)


def samples_around(**settings: tuple[float, float]) -> dict[str, dict[str, list[float | None]]]:
    """Return six runs of each setting around a throughput and a delay, with common and separate noise."""
    found: dict[str, dict[str, list[float | None]]] = {}
    for index, (name, (throughput, delay)) in enumerate(settings.items()):
        noise = [0.01 * (((index + 2) * (run + 3)) % 5 - 2) for run in range(6)]
        found[name.replace("_", " ")] = {
            "throughput": [
                throughput * (1 + 0.02 * each) + own for each, own in zip(TRAFFIC, noise, strict=True)
            ],
            "queue_delay_mean": [
                delay * (1 + 0.1 * each) + own for each, own in zip(TRAFFIC, noise, strict=True)
            ],
        }
    return found


def decided(
    candidates: list[Candidate], samples: Samples, *limits: str
) -> tuple[Decision, dict[str, list[str]]]:
    decision = decide(candidates, samples, Rule(OBJECTIVES, tuple(limits_from(limits))))
    return decision, sentences(decision, candidates, 6)


def test_clear_winner_is_recommended_without_doubt() -> None:
    samples = samples_around(
        RED_4=(19.9, 31.0), droptail=(20.0, 800.0), avqred_tuned=(19.8, 18.0), gkvq_tuned=(18.0, 25.0)
    )
    decision, words = decided([RED, DROPTAIL, AVQRED, GKVQ], samples)
    assert (decision.answer, decision.first, decision.alike) == ("avqred tuned", "avqred tuned", ())
    assert decision.shares["avqred tuned"] == 1
    assert words["answer"] == [
        "Use avqred with min_th = 20, max_th = 60. Against RED 4, the current setting: throughput 19.9 → 19.8"
        " Mbit/s (−0.49 %, 95 % interval −0.57 to −0.42); queueing delay 31 → 18 ms (−41.9 %, 95 %"
        " interval −42.8 to −41.1)."
    ]
    assert words["sure"] == ["avqred tuned is first in 100 % of the resamples of 6 fresh seeds."]
    worst = decision.cells["droptail"]["queue_delay_mean"]
    assert worst.certain
    assert worst.behind is not None
    assert worst.behind.mean == pytest.approx(782, abs=1)
    assert decision.cells["avqred tuned"]["queue_delay_mean"].behind is None


def test_best_present_setting_is_kept() -> None:
    samples = samples_around(RED_4=(19.9, 15.0), droptail=(20.0, 800.0), avqred_tuned=(19.0, 18.0))
    decision, words = decided([RED, DROPTAIL, AVQRED], samples)
    assert decision.answer == "RED 4"
    assert decision.changes == ()
    assert words["answer"] == ["Keep RED 4, the current setting: none of 2 other candidates is better."]


def test_indistinguishable_candidates_are_listed_and_the_simpler_one_recommended() -> None:
    """Equal values except for noise; one parameter is simpler than three."""
    samples = samples_around(RED_4=(19.9, 31.0), avqred_tuned=(19.8, 18.0), gkvq_tuned=(19.8, 18.0))
    three = Candidate("avqred tuned", "avqred", "tuned", {**TABLE, "alpha": "0.1"})
    decision, words = decided([RED, three, GKVQ], samples)
    assert {decision.first, *decision.alike} == {"avqred tuned", "gkvq tuned"}
    assert decision.answer == "gkvq tuned"
    assert words["answer"][0].startswith("Use gkvq with theta = 0.97. Against RED 4")
    assert "cannot be told apart" in words["sure"][1]


def test_close_decision_is_reported() -> None:
    """One has less delay, the other more throughput; the rank sums depend on a third one and on the seeds."""
    samples = samples_around(avqred_tuned=(19.8, 18.0), gkvq_tuned=(19.0, 14.0), RED_4=(19.2, 16.0))
    noisy = {name: dict(mine) for name, mine in samples.items()}
    noisy["RED 4"]["queue_delay_mean"] = [10.0, 25.0, 11.0, 24.0, 12.0, 14.0]
    decision, words = decided([RED, AVQRED, GKVQ], noisy)
    assert 0.05 < decision.shares[decision.first] < 0.9
    assert any("close call" in line for line in words["sure"])


def test_limits_rank_before_objectives() -> None:
    samples = samples_around(
        RED_4=(19.9, 31.0), droptail=(20.0, 800.0), avqred_tuned=(19.8, 18.0), gkvq_tuned=(18.0, 11.0)
    )
    decision, _ = decided([RED, DROPTAIL, AVQRED, GKVQ], samples, "queue_delay_mean<=12")
    assert decision.answer == "gkvq tuned"
    assert decision.kept


def test_limit_that_no_candidate_meets_is_reported() -> None:
    samples = samples_around(RED_4=(19.9, 31.0), avqred_tuned=(19.8, 18.0), gkvq_tuned=(18.0, 11.0))
    decision, words = decided([RED, AVQRED, GKVQ], samples, "queue_delay_mean<=5")
    assert (decision.answer, decision.kept) == ("gkvq tuned", False)
    assert words["answer"][1] == "No candidate meets queue_delay_mean <= 5 ms; gkvq tuned comes nearest."


def test_holdout_values_decide_instead_of_search_values() -> None:
    """The search values of gkvq were luck; only fresh runs decide, and both values are reported."""
    lucky = Candidate(
        "gkvq tuned", "gkvq", "tuned", GKVQ.table, {"throughput": 19.9, "queue_delay_mean": 9.0}, 100
    )
    samples = samples_around(RED_4=(19.9, 31.0), avqred_tuned=(19.8, 18.0), gkvq_tuned=(19.5, 24.0))
    decision, _ = decided([RED, AVQRED, lucky], samples)
    assert decision.answer == "avqred tuned"
    cell = decision.cells["gkvq tuned"]["queue_delay_mean"]
    assert cell.searched == 9.0
    assert cell.found.mean == pytest.approx(24.0, abs=0.1)


def test_warnings_of_a_candidate_are_reported_once() -> None:
    codel = Candidate(
        "codel tuned", "codel", "tuned", {"algorithm": '"codel"'}, behind_pep=True, warnings=("hm",)
    )
    samples = samples_around(RED_4=(19.9, 31.0), codel_tuned=(18.0, 40.0), gkvq_tuned=(17.0, 50.0))
    _, words = decided([RED, codel, GKVQ], samples)
    assert words["warnings"][0].startswith("codel tuned: Drops behind the PEP")
    assert words["warnings"][1:] == ["codel tuned: hm"]


def samples_of_power(**settings: tuple[float, float]) -> dict[str, dict[str, list[float | None]]]:
    """Return six runs of each setting with a throughput that varies and a constant response time."""
    found: dict[str, dict[str, list[float | None]]] = {}
    for index, (name, (rate, response)) in enumerate(settings.items()):
        noise = [0.005 * (((index + 2) * (run + 3)) % 5 - 2) for run in range(6)]
        both = zip(TRAFFIC, noise, strict=True)
        rates = [rate * (1 + 0.02 * each) + own for each, own in both]
        found[name.replace("_", " ")] = {"throughput": list(rates), "pep_sojourn": [response] * 6}
    return found


def test_power_weighs_throughput_against_response_time() -> None:
    """Powers: 20 / 0.80 = 25, 19.5 / 0.76 = 25.66, 19.4 / 0.76 = 25.53 (half a per cent less), 20 / 32."""
    samples = samples_of_power(
        RED_4=(20.0, 0.8), droptail=(20.0, 32.0), avqred_tuned=(19.5, 0.76), gkvq_tuned=(19.4, 0.76)
    )
    candidates = [RED, DROPTAIL, AVQRED, GKVQ]
    objectives = (Objective("throughput", "max"), Objective("pep_sojourn", "min"))
    decision = decide(candidates, samples, Rule(objectives, by="power"))
    assert (decision.answer, decision.near, decision.alike) == ("avqred tuned", ["gkvq tuned"], ())
    assert [1 / each.total for each in decision.order] == pytest.approx([25.66, 25.53, 25, 0.625], abs=0.02)
    assert (
        "Almost as good, with a power at most 1 % lower: gkvq tuned."
        in sentences(decision, candidates, 6)["sure"]
    )
    within = decide(candidates, samples, Rule(objectives, (Limit("throughput", ">=", 19.8),), by="power"))
    assert within.answer == "RED 4"


def test_equal_power_is_indistinguishable() -> None:
    samples = samples_of_power(RED_4=(19.0, 0.8), avqred_tuned=(19.5, 0.76), gkvq_tuned=(19.5, 0.76))
    decision = decide([RED, AVQRED, GKVQ], samples, Rule(OBJECTIVES[:1], by="power"))
    assert {decision.first, *decision.alike} == {"avqred tuned", "gkvq tuned"}
    assert decision.answer == "gkvq tuned"


VOICE = Limit("voice.mos", ">=", 3.1)
WEB = Limit("web.page_time_p75", "<=", 4.0)


def with_service(
    samples: dict[str, dict[str, list[float | None]]], **service: tuple[float, float]
) -> dict[str, dict[str, list[float | None]]]:
    """Add a MOS of calls and a page load time to the runs of each setting."""
    for name, (mos, page) in service.items():
        mine = samples[name.replace("_", " ")]
        mine["voice.mos"] = [mos + 0.01 * run for run in range(6)]
        mine["web.page_time_p75"] = [page + 0.01 * run for run in range(6)]
    return samples


def guarded(candidates: list[Candidate], samples: Samples) -> tuple[Decision, dict[str, list[str]]]:
    rule = Rule(OBJECTIVES, (Limit("queue_delay_mean", "<=", 20.0),), guards=(VOICE, WEB))
    decision = decide(candidates, samples, rule)
    return decision, sentences(decision, candidates, 6)


def test_setting_that_makes_a_class_bad_is_not_advised() -> None:
    """AVQRED meets the limit and has the better queue, but ruins calls; GKVQ serves everybody."""
    samples = with_service(
        samples_around(RED_4=(19.9, 31.0), avqred_tuned=(19.8, 11.0), gkvq_tuned=(18.0, 25.0)),
        RED_4=(2.0, 5.0),
        avqred_tuned=(2.0, 2.0),
        gkvq_tuned=(3.6, 3.0),
    )
    decision, words = guarded([RED, AVQRED, GKVQ], samples)
    assert decision.answer == "gkvq tuned"
    assert [each.name for each in decision.order] == ["gkvq tuned", "avqred tuned", "RED 4"]
    assert decision.alike == ()
    assert words["answer"][0].startswith("Use gkvq")
    assert words["answer"][-1] == (
        "It misses queue_delay_mean <= 20 ms, because every candidate that meets it serves a class badly."
    )
    assert words["answer"][-2] == (
        "Not advised, since they serve a class badly: RED 4 (voice, web), avqred tuned (voice)."
    )


def test_class_that_every_candidate_serves_badly_is_reported_first() -> None:
    samples = with_service(
        samples_around(avqred_tuned=(19.8, 11.0), gkvq_tuned=(18.0, 10.9)),
        avqred_tuned=(3.5, 6.0),
        gkvq_tuned=(3.5, 6.1),
    )
    decision, words = guarded([AVQRED, GKVQ], samples)
    assert words["answer"][0] == (
        "No candidate serves web well (web: page load time, 75th percentile 6.025 s, bad above 4 s). More"
        " capacity, fewer subscribers, a plan for each subscriber or another scheduler may help."
    )
    assert words["answer"][1].startswith("Use ")
    # The rule decides among those that fail as many classes.
    assert decision.first == "avqred tuned"


def test_candidate_with_the_fewest_bad_classes_is_compared_with_those_that_have_more() -> None:
    samples = with_service(
        samples_around(RED_4=(19.8, 11.0), avqred_tuned=(19.8, 11.0), gkvq_tuned=(18.0, 10.9)),
        RED_4=(2.0, 6.0),
        avqred_tuned=(3.5, 6.0),
        gkvq_tuned=(2.0, 3.0),
    )
    _, words = guarded([RED, AVQRED, GKVQ], samples)
    (line,) = (each for each in words["answer"] if each.startswith("It does not serve"))
    assert line.endswith(", but every other candidate fails at least as many classes.")


def test_search_picks_among_points_that_serve_most_classes() -> None:
    values: dict[str, dict[str, float | None]] = {
        "fast": {"throughput": 20.0, "queue_delay_mean": 10.0, "voice.mos": 2.0},
        "kind": {"throughput": 18.0, "queue_delay_mean": 30.0, "voice.mos": 3.5},
        "silent": {"throughput": 21.0, "queue_delay_mean": 5.0, "voice.mos": None},
    }
    for rule in (
        Rule(OBJECTIVES, guards=(VOICE,)),
        Rule(OBJECTIVES, (), by="power", round_trip=0.5, guards=(VOICE,)),
    ):
        assert [each.name for each in rule.pick(values)] == ["kind"]


TRAFFIC_OF_CLASSES = [("calls", "voice", "voip"), ("w", "web", "pages"), ("d", "backup", "bulk")]
SERVICES = tuple(services(TRAFFIC_OF_CLASSES))


def of_classes(
    power: float, mos: float, page: float, goodput: float = 100.0, noise: float = 0.0
) -> dict[str, list[float | None]]:
    """Return six runs with a power, the figures of three classes, and noise in the MOS that cancels."""
    return {
        "throughput": [power] * 6,
        "pep_sojourn": [1.0] * 6,
        "voice.mos": [mos + noise * sign for sign in (1, -1, 1, -1, 1, -1)],
        "web.page_time_p75": [page] * 6,
        "backup.flow_goodput": [goodput] * 6,
    }


def judged_by_classes(samples: Samples) -> tuple[Decision, dict[str, list[str]]]:
    candidates = [replace(AVQRED, name=name) for name in samples]
    decision = decide(candidates, samples, Rule(OBJECTIVES[:1], by="classes", services=SERVICES))
    return decision, sentences(decision, candidates, 6)


def test_best_worst_class_decides_before_power() -> None:
    """Scores: MOS 3.6 1 + (3.6 − 3.1) / (4.03 − 3.1) = 1.54, 3 s 2 − (3 − 2) / (4 − 2) = 1.5, 3.5 s 1.25."""
    decision, words = judged_by_classes(
        {"a": of_classes(30, 3.6, 3.5), "b": of_classes(20, 3.6, 3.0), "c": of_classes(40, 3.2, 2.0)}
    )
    assert [each.name for each in decision.order] == ["b", "a", "c"]
    assert decision.scores["b"]["worst score"] == pytest.approx(1.5)
    assert decision.scores["c"]["worst score"] == pytest.approx(1 + 0.1 / 0.93)
    # Equal goodputs of transfers without thresholds count as good.
    assert decision.scores["b"]["mean score"] == pytest.approx((1 + 0.5 / 0.93 + 1.5 + 2) / 3)
    assert words["reason"] == [
        "The worst-served class of b is web (page load time, 75th percentile 3 s, fair). Every other"
        " candidate serves its worst class worse; a comes next with web (page load time, 75th percentile"
        " 3.5 s, fair)."
    ]


def test_equal_worst_class_leaves_the_decision_to_the_mean() -> None:
    """The calls are the worst class of both; b has the better pages."""
    decision, words = judged_by_classes({"a": of_classes(30, 3.2, 3.0), "b": of_classes(20, 3.25, 2.0)})
    assert decision.answer == "b"
    assert words["reason"] == [
        "b and a cannot be told apart by their worst-served class, which is voice (MOS 3.25, fair) under b."
        " Of these, b serves the classes best on average."
    ]


def test_transfers_without_thresholds_count_in_the_mean_only() -> None:
    """Half the best goodput has the score 1, a third of a class less than 2 in the mean."""
    decision, _ = judged_by_classes(
        {"a": of_classes(30, 3.6, 3.0, goodput=50.0), "b": of_classes(20, 3.6, 3.0, goodput=100.0)}
    )
    scores = decision.scores
    assert scores["a"]["worst score"] == scores["b"]["worst score"]
    assert scores["b"]["mean score"] - scores["a"]["mean score"] == pytest.approx(1 / 3)
    assert decision.answer == "b"


def test_equal_service_leaves_the_decision_to_the_power() -> None:
    decision, words = judged_by_classes(
        {"a": of_classes(20, 3.6, 3.0), "b": of_classes(30, 3.6, 3.05), "c": of_classes(40, 2.0, 1.0)}
    )
    assert decision.answer == "b"
    assert [each.name for each in decision.order] == ["b", "a", "c"]
    assert "Of these, b has the highest power" in words["reason"][0]


def test_reason_names_the_only_graded_class() -> None:
    samples = {"a": of_classes(20, 3.6, 3.0), "b": of_classes(30, 3.6, 3.05), "c": of_classes(40, 3.2, 1.0)}
    candidates = [replace(AVQRED, name=name) for name in samples]

    def reason(*names: str) -> str:
        known = {name: samples[name] for name in names}
        mine = [each for each in candidates if each.name in names]
        rule = Rule(OBJECTIVES[:1], by="classes", services=SERVICES[:1])
        return sentences(decide(mine, known, rule), mine, 6)["reason"][0]

    assert reason("a", "c") == "a serves voice (MOS 3.6, fair) best; c comes next with voice (MOS 3.2, fair)."
    assert reason("a", "b") == (
        "b and a cannot be told apart by how they serve voice. Of these, b, with voice (MOS 3.6, fair), has"
        " the highest power, throughput over response time."
    )


def test_throughput_that_repeats_data_has_no_power() -> None:
    """A quarter of a's 32 Mbit/s is repeated over the satellite, which leaves 24."""
    samples = {"a": of_classes(32, 3.6, 3.0), "b": of_classes(30, 3.6, 3.0)}
    for mine, share in ((samples["a"], 25.0), (samples["b"], 0.0)):
        mine["retransmitted"] = [share] * 6
    decision, _ = judged_by_classes(samples)
    assert decision.answer == "b"
    assert [1 / each.total for each in decision.order] == pytest.approx([30, 24])


def test_differences_within_their_interval_do_not_decide() -> None:
    """The MOS of a is 0.2 above that of b, a score of 0.215, but its runs vary by 0.5."""
    for noise, answer in ((0.0, "a"), (0.5, "b")):
        decision, _ = judged_by_classes(
            {"a": of_classes(20, 3.4, 2.0, noise=noise), "b": of_classes(30, 3.2, 2.0)}
        )
        assert decision.answer == answer


def test_search_picks_the_point_that_serves_the_worst_class_best() -> None:
    values: dict[str, dict[str, float | None]] = {
        "fast": {"throughput": 20.0, "pep_sojourn": 0.5, "voice.mos": 3.2, "web.page_time_p75": 2.0},
        "kind": {"throughput": 18.0, "pep_sojourn": 0.9, "voice.mos": 3.6, "web.page_time_p75": 2.9},
        "lost": {"throughput": 20.0, "pep_sojourn": 0.4, "voice.mos": None, "web.page_time_p75": 1.0},
    }
    rule = Rule(OBJECTIVES[:1], by="classes", services=SERVICES[:2])
    assert [each.name for each in rule.pick(values)] == ["kind", "fast", "lost"]


def test_front_matches_a_worked_example() -> None:
    """b dominates c in both metrics, a dominates d in one and equals it in the other, and e has no delay."""
    values: dict[str, dict[str, float | None]] = {
        "a": {"throughput": 20.0, "queue_delay_mean": 30.0},
        "b": {"throughput": 19.0, "queue_delay_mean": 10.0},
        "c": {"throughput": 18.0, "queue_delay_mean": 12.0},
        "d": {"throughput": 20.0, "queue_delay_mean": 31.0},
        "e": {"throughput": 21.0, "queue_delay_mean": None},
    }
    assert {each.name for each in Rule(OBJECTIVES).pick(values)} == {"a", "b"}
    assert [
        each.name for each in Rule(OBJECTIVES, (Limit("queue_delay_mean", "<=", 20.0),)).pick(values)
    ] == ["b"]
    # No point meets this limit, so all are ranked, the nearest first.
    assert Rule(OBJECTIVES, (Limit("queue_delay_mean", "<=", 9.0),)).pick(values)[0].name == "b"


def test_dominated_points_do_not_change_the_pick() -> None:
    """Many dominated points around one end of a front of three do not change the pick."""
    values: dict[str, dict[str, float | None]] = {
        "full": {"throughput": 20.0, "queue_delay_mean": 40.0},
        "middle": {"throughput": 19.5, "queue_delay_mean": 20.0},
        "short": {"throughput": 17.0, "queue_delay_mean": 10.0},
    }
    crowd: dict[str, dict[str, float | None]] = {
        f"dominated {n}": {"throughput": 17.0 - 0.1 * n, "queue_delay_mean": 10.0 + n} for n in range(9)
    }
    del crowd["dominated 0"]
    assert Rule(OBJECTIVES).pick({**crowd, **values})[0].name == "middle"


def test_table_and_sentence_write_the_same_share_of_resamples() -> None:
    shares = {"a": 0.998, "b": 0.002, "c": 0.0, "d": 1.0, "e": 0.61}
    rows: list[dict[str, Any]] = [
        {
            "setting": name,
            "role": "tuned",
            "behind_pep": False,
            "first_in": share,
            "power": None,
            "metrics": {},
        }
        for name, share in shares.items()
    ]
    found = {"metrics": [], "judge": "rank", "answer": "a", "candidates": rows}
    written = [row["first"] for row in candidate_rows(found)]
    assert written == ["over 99 %", "under 1 %", "0 %", "100 %", "61 %"]


def test_setting_is_written_as_toml() -> None:
    assert AVQRED.toml == '[setting."avqred tuned"]\nalgorithm = "avqred"\nmin_th = 20\nmax_th = 60'
    assert AVQRED.override == 'setting."avqred tuned"={ algorithm = "avqred", min_th = 20, max_th = 60 }'
    assert (DROPTAIL.toml, DROPTAIL.override, AVQRED.parameters, DROPTAIL.parameters) == ("", "", 2, 0)
