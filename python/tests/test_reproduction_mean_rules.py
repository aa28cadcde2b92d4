"""Rules on means: hand-made curves that have the claimed shape and that do not, bounds, and ranks."""

import math
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import reproduction_page as page
from bentpipe.errors import UsageError
from bentpipe.reproduction import load_paper
from bentpipe.reproduction.paper import Paper
from bentpipe.reproduction.rules import (
    DIRECTION_ONLY,
    NOT_REPRODUCED,
    REPRODUCED,
    About,
    Ahead,
    Bound,
    Curve,
    Order,
    Rank,
    Similar,
    Weaker,
    apart,
)
from bentpipe.reproduction.runs import Library, plan
from bentpipe.reproduction.verdicts import Verdicts
from bentpipe.stats.intervals import Summary, difference, summarise

RISING, BENT, LEVEL, HUMP = [1, 2, 3, 4], [1, 3, 2, 4], [10, 9, 11, 10], [1, 4, 3, 2]


def value(mean: float, half: float = 0.2) -> Summary:
    return Summary(mean, None, half, 10, mean - half, mean + half)


def exact(mean: float) -> Summary:
    return Summary(mean, None, None, 1)


def points(means: Sequence[float], half: float = 0.2) -> list[tuple[str, Summary]]:
    return [(f"x{place}", value(mean, half)) for place, mean in enumerate(means, start=1)]


@pytest.mark.parametrize(
    ("shape", "means", "verdict"),
    [
        ("rises", RISING, REPRODUCED),
        ("rises", RISING[::-1], NOT_REPRODUCED),
        ("rises", BENT, DIRECTION_ONLY),
        ("rises", LEVEL, NOT_REPRODUCED),
        # A difference of two points has the half-width sqrt(0.2² + 0.2²) = 0.283.
        ("rises", [1, 1.1, 1.2, 1.29], REPRODUCED),
        ("rises", [1, 1.1, 1.2, 1.28], NOT_REPRODUCED),
        ("falls", RISING[::-1], REPRODUCED),
        ("falls", BENT[::-1], DIRECTION_ONLY),
        ("falls", RISING, NOT_REPRODUCED),
        ("rises then falls", HUMP, REPRODUCED),
        ("rises then falls", RISING, NOT_REPRODUCED),
        ("rises then falls", [4, 1, 2, 3], NOT_REPRODUCED),
        ("falls then rises", [4, 1, 2, 3], REPRODUCED),
        ("falls then rises", HUMP, NOT_REPRODUCED),
        ("constant", LEVEL, REPRODUCED),
        ("constant", [10, 8, 12, 10], NOT_REPRODUCED),
    ],
)
def test_a_curve_has_the_claimed_shape_or_not(shape: str, means: Sequence[float], verdict: str) -> None:
    assert Curve("curve", shape, 0.1).judge(points(means)).verdict == verdict


def test_a_turn_and_a_course_are_in_the_reason() -> None:
    assert "turns at x2" in Curve("curve", "rises then falls").judge(points(HUMP)).reason
    assert "turns between x2 and x3" in Curve("curve", "rises").judge(points(BENT)).reason
    assert Curve("curve", "rises").judge(points(RISING)).reason == "1 at x1, 2 at x2, 3 at x3, 4 at x4"


def test_a_curve_without_a_value_at_a_point_is_not_reproduced() -> None:
    lost = [*points(RISING), ("x5", Summary(None, None, None, 0))]
    assert Curve("curve", "rises").judge(lost).verdict == NOT_REPRODUCED


def test_the_difference_of_means_is_near_welchs_and_never_narrower() -> None:
    # Equal sizes and deviations: Welch's interval has twice the degrees of freedom of each mean's.
    ours, theirs = [1.0, 2.0, 3.0, 4.0, 5.0], [4.0, 5.0, 6.0, 7.0, 8.0]
    found, welch = apart(summarise(ours), summarise(theirs)), difference(ours, theirs)
    assert found.mean == pytest.approx(-3)
    # Student's quantiles of 0.975 for 4 and 8 degrees of freedom are 2.776 and 2.306.
    assert found.low == pytest.approx(-3 - 2.776, abs=2e-3)
    assert welch.low == pytest.approx(-3 - 2.306, abs=2e-3)


def test_a_skew_interval_keeps_its_sides_in_a_difference() -> None:
    ours, theirs = Summary(5, None, None, 20, 4, 8), Summary(1, None, None, 20, 0.5, 3)
    found = apart(ours, theirs)
    assert found.low == pytest.approx(4 - math.hypot(1, 2))
    assert found.high == pytest.approx(4 + math.hypot(3, 0.5))


def test_values_of_a_model_are_exact() -> None:
    assert Curve("curve", "rises").judge([("a", exact(1)), ("b", exact(1.001))]).verdict == REPRODUCED


@pytest.mark.parametrize(
    ("low", "high", "mean", "verdict"),
    [
        (33, math.inf, 34, REPRODUCED),
        (33, math.inf, 33.1, NOT_REPRODUCED),
        (-math.inf, 10, 9, REPRODUCED),
        (28, 52, 40, REPRODUCED),
        (28, 52, 51.9, NOT_REPRODUCED),
    ],
)
def test_the_whole_interval_must_be_beyond_a_bound(
    low: float, high: float, mean: float, verdict: str
) -> None:
    assert Bound("bound", low, high).judge(points([mean])).verdict == verdict


@pytest.mark.parametrize(("mean", "verdict"), [(28.1, REPRODUCED), (27.9, NOT_REPRODUCED), (52, REPRODUCED)])
def test_a_mean_is_about_a_printed_number(mean: float, verdict: str) -> None:
    assert About("about", 40, 0.3).judge(points([mean], half=5)).verdict == verdict


def test_similar_settings_differ_by_the_allowed_share_of_the_second() -> None:
    rule = Similar("similar", 0.25)
    assert rule.judge(value(125), value(100)).verdict == REPRODUCED
    assert rule.judge(value(100), value(79)).verdict == NOT_REPRODUCED


def test_a_change_is_weaker_only_if_the_difference_is_significant() -> None:
    rule = Weaker("weaker")
    assert rule.judge(value(10, 1), value(20, 1)).verdict == REPRODUCED
    assert rule.judge(value(20, 1), value(10, 1)).verdict == NOT_REPRODUCED
    # sqrt(3² + 4²) = 5.
    assert rule.judge(value(10, 3), value(14.9, 4)).verdict == NOT_REPRODUCED
    assert rule.judge(value(10, 3), value(15.1, 4)).verdict == REPRODUCED


def test_ranks_are_first_second_or_ahead_of_another() -> None:
    ranked = ["AVQRED", "AVQRED", "PI", "RED", "PI"]
    assert Rank("rank", 2).judge("AVQRED", ranked).verdict == REPRODUCED
    assert Rank("rank", 2).judge("PI", ranked).verdict == NOT_REPRODUCED
    assert Rank("rank", 2).judge("PI", ranked).reason == "places 3, 5 of 5"
    assert Ahead("ahead").judge("PI", "RED", ranked).verdict == REPRODUCED
    assert Ahead("ahead").judge("RED", "PI", ranked).verdict == NOT_REPRODUCED
    assert Ahead("ahead").judge("RED", "BLUE", ranked).verdict == NOT_REPRODUCED


PAPER = """
title = "Curves"
source = "nobody"

[quick]
runs = 2

[rule.up]
kind = "curve"
shape = "rises"

[rule.order]
kind = "order"

[rule.some]
kind = "order"
some = true

[rule.weaker]
kind = "weaker"

[rule.ahead]
kind = "ahead"

[rule.less]
kind = "change"
high = -10

[rule.near]
kind = "near"
within = 0.1

[experiment.flows]
title = "Flows"
scenario = "byun-generic"
runs = 2
cases = [{ label = "RED", setting = "RED 11/33" }, { label = "PI", setting = "PI 22" }]
axis = "Flows"
points = { law = "one value", values = [100, 200], keys = ["traffic.connections.flows"] }

[experiment.more]
like = "flows"
title = "More"
runs = 3

[[figure]]
id = "drawn"
title = "Queue"
caption = "The queue."
kind = "curves"
experiment = "flows"
measures = ["queue_mean", "queue_std"]
"""
CLAIM = """
[[claim]]
id = "{rule}"
where = "Section 1"
text = "A claim."
basis = "sentence"
rule = "{rule}"
checks = [{{ experiments = ["flows"], measure = "queue_mean", {keys} }}]
"""


def written(folder: Path, *claims: tuple[str, str]) -> Path:
    folder.mkdir()
    text = PAPER + "".join(CLAIM.format(rule=rule, keys=keys) for rule, keys in claims)
    (folder / "claims.toml").write_text(text, encoding="utf-8")
    heads = "id,source,section,place,kind,text,rows,verdict,reason"
    (folder / "claims.csv").write_text(f"{heads}\n", encoding="utf-8")
    return folder


@pytest.mark.parametrize(
    ("rule", "keys", "message"),
    [
        ("up", 'more = ["RED"], than = ["PI"]', "cases"),
        ("order", 'cases = ["RED"]', "allowed: more and than, or than_measure, or against"),
        ("up", 'cases = ["RED"], than_measure = "queue_std"', "neither against nor than_measure"),
        ("weaker", 'more = ["RED"], than = ["PI"]', "against another experiment"),
        ("order", 'cases = ["RED"], than_measure = "lentgh"', "than_measure"),
    ],
)
def test_comparisons_that_do_not_fit_the_rule_are_rejected(
    tmp_path: Path, rule: str, keys: str, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        load_paper(written(tmp_path / "wrong", (rule, keys)))


def test_a_comparison_names_both_experiments_and_measures(tmp_path: Path) -> None:
    paper = load_paper(
        written(
            tmp_path / "right",
            ("order", 'cases = ["RED"], than_measure = "queue_std"'),
            ("weaker", 'more = ["RED"], than = ["PI"], against = "more"'),
            ("some", 'more = ["RED"], than = ["PI"]'),
        )
    )
    across, weaker, some = paper.claims
    label = across.checks[0].measure.label
    assert across.checks[0].described.startswith(f"RED, {label} against RED, ")
    assert weaker.checks[0].described == "RED against PI, flows against more"
    assert isinstance(some.rule, Order)
    assert some.rule.some


def test_runs_are_paired_by_seed_where_experiments_differ_in_their_number(tmp_path: Path) -> None:
    """The first experiment has seeds 1 and 2, the other one 1 to 3; values grow with the seed."""
    across = 'cases = ["RED"], against = "more"'
    folder = written(tmp_path / "seeds", ("order", across), ("some", across))
    checks = f'[{{ experiments = ["flows"], measure = "queue_mean", {across} }}]'
    text = (folder / "claims.toml").read_text(encoding="utf-8")
    said = f'discussion = "{{ratio}}"\n{text}[said.ratio]\nkind = "times"\nchecks = {checks}\n'
    (folder / "claims.toml").write_text(said, encoding="utf-8")
    paper = load_paper(folder)
    cases = plan(paper, quick=False)
    assert {len(case.seeds) for case in cases.values()} == {2, 3}
    library = SimpleNamespace(
        measure=lambda *_: None,
        values=lambda case, _: [
            seed + (0.5 if case.experiment == "flows" else 0.001 * seed) for seed in case.seeds
        ],
    )
    found = Verdicts(paper, cases, cast("Library", library))
    reasons = {each.name: each.reason for each in found.items if each.kind == "claim"}
    assert reasons["order"] == "holds in 2 comparisons"
    assert reasons["some"].startswith("holds in 2 of 2 comparisons: ")
    # The mean of 1.5 / 1.001 and 2.5 / 2.002.
    assert found.numbers == {"ratio": "1.4"}


def kept(paper: Paper, rows: Sequence[tuple[str, str, str, float]]) -> dict[str, Any]:
    spots = [
        {"curve": curve, "point": point, "measure": measure, "unit": "packets", "mean": mean}
        | {"ci_low": mean - 0.2, "ci_high": mean + 0.2, "runs": 10}
        for curve, point, measure, mean in rows
    ]
    item = page._item("picture", "drawn", "ours", "Queue") | {"spots": spots, "variant": True}
    return {"paper": paper.name, "items": [item], "tuned": [], "numbers": {}, "parts": []}


def claims_of(paper: Paper, given: dict[str, Any]) -> dict[str, Any]:
    return {item["id"]: item for item in page.refresh(paper, given)["items"] if item["kind"] == "claim"}


def test_kept_values_judge_curves_and_orders_without_runs(tmp_path: Path) -> None:
    paper = load_paper(
        written(
            tmp_path / "kept",
            ("up", 'cases = ["RED"]'),
            ("order", 'cases = ["RED"], than_measure = "queue_std"'),
            ("weaker", 'more = ["RED"], than = ["PI"], against = "more"'),
        )
    )
    mean, std = (each.label for each in paper.pictures[0].measures)
    rows = [
        ("RED", "100", mean, 3.0),
        ("RED", "200", mean, 5.0),
        ("RED", "100", std, 1.0),
        ("RED", "200", std, 6.0),
    ]
    found = claims_of(paper, kept(paper, rows))
    assert found["up"]["verdict"] == REPRODUCED
    assert found["order"]["verdict"] == NOT_REPRODUCED
    assert "fails in 1 of 2" in found["order"]["reason"]
    assert found["order"]["reason"].endswith("differences of means, not paired")
    # It needs single runs.
    assert "weaker" not in found


def test_a_verdict_from_runs_is_not_replaced_by_one_from_means(tmp_path: Path) -> None:
    paper = load_paper(written(tmp_path / "runs", ("order", 'more = ["RED"], than = ["PI"]')))
    (mean, _) = (each.label for each in paper.pictures[0].measures)
    rows = [(case, point, mean, x) for case, x in (("RED", 5.0), ("PI", 3.0)) for point in ("100", "200")]
    given = kept(paper, rows)
    claim = page._item("claim", "order", "Section 1", "A claim.") | {"variant": False}
    reason = "fails in 1 of 2 comparisons: paired"
    given["items"].append(claim | {"verdict": NOT_REPRODUCED, "reason": reason})
    assert claims_of(paper, given)["order"]["reason"] == reason


def test_a_part_brings_its_ranking(tmp_path: Path) -> None:
    paper = load_paper(written(tmp_path / "ranked", ("ahead", 'more = ["RED"], than = ["PI"]')))

    def tuned(*aqms: str) -> dict[str, Any]:
        again = [
            {"aqm": aqm, "place": place, "sum": 2**place, "chosen": True, "parameters": ""}
            for place, aqm in enumerate(aqms, start=1)
        ]
        return {"tuned": [{"experiment": "flows", "again": again}]}

    old = kept(paper, []) | tuned("PI", "RED")
    part = kept(paper, []) | tuned("RED", "PI") | {"date": "2026-01-02"}
    merged = page.refresh(paper, page.merge(old, part))
    (claim,) = (item for item in merged["items"] if item["id"] == "ahead")
    assert claim["reason"] == "place 1, PI 2 of 2"
    assert claim["verdict"] == REPRODUCED
    assert merged["tuned"] == part["tuned"]


def judged(paper: Paper, claim: str) -> dict[str, Any]:
    """Verdicts of a paper, which rest on its present rules, with one of a claim that needs runs."""
    item = page._item("claim", claim, "Section 1", "A claim.") | {"variant": False}
    given = kept(paper, [])
    given["items"].append(item | {"verdict": REPRODUCED, "reason": "−20 %, claimed −10 % or less"})
    return page.refresh(paper, given)


@pytest.mark.parametrize(
    ("old", "new"), [("high = -10", "high = -30"), ('than = ["PI"]', 'than = ["PI"], points = ["100"]')]
)
def test_a_verdict_of_another_rule_or_comparison_is_refused(tmp_path: Path, old: str, new: str) -> None:
    folder = written(tmp_path / "small", ("less", 'more = ["RED"], than = ["PI"]'))
    given = judged(load_paper(folder), "less")
    assert page.refresh(load_paper(folder), given)["items"] == given["items"]
    text = (folder / "claims.toml").read_text(encoding="utf-8")
    assert old in text
    (folder / "claims.toml").write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(SystemExit, match=r"^small: less: rules, .* --only less`, then"):
        page.refresh(load_paper(folder), given)


def test_other_words_and_rule_names_keep_a_verdict(tmp_path: Path) -> None:
    folder = written(tmp_path / "small", ("less", 'more = ["RED"], than = ["PI"]'))
    given = judged(load_paper(folder), "less")
    text = (folder / "claims.toml").read_text(encoding="utf-8")
    text = text.replace("A claim.", "Other words.").replace("[rule.less]", "[rule.fewer]")
    (folder / "claims.toml").write_text(text.replace('rule = "less"', 'rule = "fewer"'), encoding="utf-8")
    (item,) = (each for each in page.refresh(load_paper(folder), given)["items"] if each["kind"] == "claim")
    assert (item["text"], item["verdict"]) == ("Other words.", REPRODUCED)


TABLE = """
[[table]]
id = "table-1"
where = "Table 1"
title = "Queues"
file = "queues.csv"
key = "case"
experiments = ["flows"]
columns = [{ column = "queue", unit = "packets", measure = "queue_mean", rule = "near" }]
"""


def test_a_changed_printed_value_is_refused_and_a_removed_row_is_left_out(tmp_path: Path) -> None:
    folder = written(tmp_path / "small")
    with (folder / "claims.toml").open("a", encoding="utf-8") as file:
        file.write(TABLE)
    (folder / "queues.csv").write_text("case,queue\nRED,10\nPI,20\n", encoding="utf-8")
    paper = load_paper(folder)
    cells = [
        page._item("table", "table-1", "Table 1", "Old label")
        | {"row": row, "column": "queue", "experiment": "flows", "variant": False}
        | {"verdict": REPRODUCED, "printed": printed, "mean": printed, "runs": 2}
        for row, printed in (("RED", 10.0), ("PI", 20.0))
    ]
    given = kept(paper, [])
    given["items"] += cells
    found = [item for item in page.refresh(paper, given)["items"] if item["kind"] == "table"]
    assert [item["text"] for item in found] == [paper.tables[0].columns[0].measure.label] * 2
    text = page.ledger(paper, given | {"version": "1", "date": "", "quick": False, "runs": 1} | SECONDS)
    (folder / "queues.csv").write_text("case,queue\nRED,10\n", encoding="utf-8")
    read = page.read_ledger(load_paper(folder), text)
    rows = page.refresh(load_paper(folder), read)["items"]
    assert [item["row"] for item in rows if item["kind"] == "table"] == ["RED"]
    (folder / "queues.csv").write_text("case,queue\nRED,11\n", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"^small: table-1: "):
        page.refresh(load_paper(folder), page.read_ledger(load_paper(folder), text))


SECONDS = {"simulated_seconds": 1.0}


def test_a_renamed_measure_counts_once_after_a_part() -> None:
    cell = page._item("table", "table-1", "Table 1", "Queue, mean")
    cell |= {"row": "RED", "column": "queue", "experiment": "flows", "variant": False}
    old = {"items": [cell], "tuned": [], "numbers": {}, "parts": []}
    part = {"items": [cell | {"text": "Mean queue", "mean": 7.0}], "numbers": {}, "date": "2026-01-02"}
    (merged,) = page.merge(old, part | {"core": "0123456789abcdef"})["items"]
    assert merged["mean"] == 7.0


def test_parts_name_the_build_that_ran() -> None:
    old = {"items": [], "tuned": [], "numbers": {}, "parts": ["2026-01-01"]}
    part = {"items": [], "numbers": {}, "date": "2026-01-02", "core": "0123456789abcdef"}
    assert page.merge(old, part)["parts"] == ["2026-01-01", "2026-01-02 (core 01234567)"]
