"""Ranking of settings, and its display for many settings."""

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest
from conftest import Command

import bentpipe as bp
from bentpipe import _core
from bentpipe.report.charts import labels
from bentpipe.stats.ranking import CRITERIA, MANY, Ranked, ranking


def ranked(values: dict[str, dict[str, list[float | None]]]) -> list[Ranked]:
    """Rank settings by these values; in all other metrics they are equal."""
    full = {
        name: {
            metric.name: mine.get(metric.name, [1.0] * len(next(iter(mine.values())))) for metric in CRITERIA
        }
        for name, mine in values.items()
    }
    stub = SimpleNamespace(settings=list(values), values=lambda: full)
    return ranking(cast("bp.Result", cast("Any", stub)))


def test_only_significant_differences_count() -> None:
    """b - a is 1, 1, 1 (significant); c - a is 3, -1, 0: mean 2/3, half-width 5.2 (not significant)."""
    order = ranked(
        {
            "a": {"throughput": [10.0, 12.0, 11.0]},
            "b": {"throughput": [11.0, 13.0, 12.0]},
            "c": {"throughput": [13.0, 11.0, 11.0]},
        }
    )
    assert {each.setting: each.ranks["throughput"] for each in order} == {"a": 2, "b": 1, "c": 1}
    assert [(each.setting, each.place) for each in order] == [("b", 1), ("c", 1), ("a", 3)]
    assert order[2].mean == pytest.approx(1 + 1 / len(CRITERIA))


def test_lower_delay_is_better_and_missing_values_rank_last() -> None:
    order = ranked(
        {
            "slow": {"queue_delay_mean": [5.0, 5.0, 5.0]},
            "quick": {"queue_delay_mean": [4.0, 4.0, 4.0]},
            "silent": {"queue_delay_mean": [None, None, None]},
        }
    )
    assert {each.setting: each.ranks["queue_delay_mean"] for each in order} == {
        "slow": 2,
        "quick": 1,
        "silent": 3,
    }


def test_a_single_run_is_ranked_by_its_value() -> None:
    full = {name: {metric.name: [value] for metric in CRITERIA} for name, value in (("a", 1.0), ("b", 2.0))}
    stub = SimpleNamespace(settings=["a", "b"], values=lambda: full)
    ranks = {each.setting: each.ranks for each in ranking(cast("bp.Result", cast("Any", stub)))}
    assert (ranks["a"]["throughput"], ranks["a"]["loss_rate"]) == (2, 1)


@pytest.mark.parametrize("runs", [1, 3])
def test_rounding_errors_do_not_count(runs: int) -> None:
    """0.1 + 0.2 exceeds 0.3 by 6e-17."""
    order = ranked({"a": {"throughput": [0.1 + 0.2] * runs}, "b": {"throughput": [0.3] * runs}})
    assert [each.ranks["throughput"] for each in order] == [1, 1]


def test_settings_all_includes_every_algorithm(bentpipe: Command) -> None:
    """Every AQM and scheduler has a row; those that drop behind the PEP are marked."""
    done = bentpipe(
        "compare", "small-gateway", "--settings", "all", "--duration", "5 s", "--runs", "1", check=0
    )
    known = json.loads(_core.registry())
    names = [each["name"] for each in known["aqms"] + known["schedulers"]]
    rows = [line.split() for line in done.stdout.splitlines()]
    assert len(names) > MANY
    for name in names:
        assert any(row[1:2] == [name] for row in rows), name
    assert any(row[1:3] == ["codel", "*"] for row in rows)
    assert not any(row[1:3] == ["red", "*"] for row in rows)


def test_labels_do_not_cover_each_other() -> None:
    names = [f"setting {index}" for index in range(30)]
    points = [((index * 7) % 30 / 30, (index * 11) % 30 / 30) for index in range(30)]
    boxes = []
    for name, (x, y), place in zip(
        names, points, labels(names, points, (0, 1), (0, 1), (900, 440)), strict=True
    ):
        if place is not None:
            side, dx, dy = place
            wide = 7 * len(name)
            left = 900 * x + dx - {"left": 0, "center": wide / 2, "right": wide}[side]
            boxes.append((left, 440 * (1 - y) + dy))
    assert len(boxes) > 20
    for index, (left, y) in enumerate(boxes):
        for other, height in boxes[index + 1 :]:
            assert abs(left - other) >= 7 * 9 or abs(y - height) >= 14
