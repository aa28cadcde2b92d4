"""Reproduction of papers: hand-worked rules, the papers' data, and quick runs from end to end."""

import csv
import hashlib
import io
import json
import math
import re
import shutil
from collections import Counter
from pathlib import Path

import click
import pytest
from conftest import Command

from bentpipe.cli.app import cli
from bentpipe.cli.options import resume_command
from bentpipe.cli.papers import reproduce as reproduce_command
from bentpipe.cli.sweep import sweep as sweep_command
from bentpipe.cli.tune import tune as tune_command
from bentpipe.errors import ResultError, UsageError
from bentpipe.reproduction import load_paper, papers, reproduce
from bentpipe.reproduction.experiments import CLAIMS
from bentpipe.reproduction.figures import figure
from bentpipe.reproduction.measures import MEASURES
from bentpipe.reproduction.paper import FIELD, Paper
from bentpipe.reproduction.report import QUICK, SHADES, overview
from bentpipe.reproduction.rules import (
    CALIBRATED_AGREES,
    CALIBRATED_DIFFERS,
    DIRECTION_ONLY,
    MAGNITUDE_DIFFERS,
    NO_NUMBER,
    NOT_REPRODUCED,
    REPRODUCED,
    VERDICTS,
    Change,
    Near,
    Order,
    prediction,
)
from bentpipe.reproduction.runs import plan
from bentpipe.reproduction.verdicts import TABLE
from bentpipe.runs.plan import load
from bentpipe.stats.intervals import summarise
from reproduction_page import committed, inputs, ledger, main, page_of, parts, rebuilt, scoreboard, verdicts

FITTED = {CALIBRATED_AGREES, CALIBRATED_DIFFERS}
TWO = Near("two", 0.02)
TEN = Near("ten", 0.10)

# First half of the SHA-256 of each printed table as copied from the papers.
DIGESTS = {
    "byun2007/s4_4_model_drops.csv": "787cb6eb63e7a3866ce730f65afcc287",
    "byun2007/s6_3_2_drop_probability.csv": "69f0ad4b5a6fde37b37d9e2be1bf98b2",
    "byun2007/s6_5_model_cuts.csv": "64174429151fba1eb5aca46d85f64e37",
    "rahmani2011/s7_1_queue.csv": "4820271f9efe3f14e56f9e9d8e35a384",
    "byun2007/t4_1_link_utilization.csv": "f68b547fc4e2fd198994a78e8a14edb7",
    "byun2007/t4_2_queue_size.csv": "5baf148ef67ba7c0207bb4db421d5952",
    "byun2007/t4_3_packet_drops.csv": "af63009ec2c1577af8acca5b256abcc7",
    "byun2007/t5_1_packet_drops.csv": "3577a510a5c047eb35cb8a574b7ec300",
    "byun2007/t5_2_per_flow_throughput_std.csv": "7009faab56db69a7d20dde15d2487b77",
    "byun2007/t6_1_output_link_utilization.csv": "81f990d8fa6e392037e3a7047383e4f0",
    "byun2007/t6_2_input_link_utilization.csv": "58e7304e27c3971dc430ddff3b0588dc",
    "byun2007/t6_3_transmit_queue_size.csv": "51d7f9c08cee34f1f9da5f2b7cc1cb45",
    "jain2004/t1_one_session_loss_10pct.csv": "606e33d927abc5bf5c6c572bebc977c8",
    "jain2004/t2_one_session_loss_1pct.csv": "4dcf1029e4080d8848ab541ff2c2fbc6",
    "jain2004/t3_one_session_rtt_1s_others_0_5s.csv": "70c282f68a5cf4d8089cfb350a7abd21",
    "jain2004/t4_five_sessions_rtt_10ms_five_0_5s.csv": "efbf4bffa6db221f6e7bc03b76836edf",
}


def test_a_value_within_the_tolerance_is_reproduced() -> None:
    # The mean is 102, exactly two per cent above 100.
    assert TWO.judge(100.0, [101.0, 102.0, 103.0]).verdict == REPRODUCED
    # 102.1 is further, and three runs are too few for their prediction interval to count.
    assert TWO.judge(100.0, [101.1, 102.1, 103.1]).verdict == NOT_REPRODUCED


def test_a_printed_value_inside_the_prediction_interval_is_reproduced() -> None:
    # Mean 110, deviation sqrt(10) = 3.162; Student's t for 4 degrees of freedom is 2.776:
    # 2.776 * 3.162 * sqrt(1 + 1/5) = 9.617, so that 100.5 is inside and 100.3 is not.
    ours = [106.0, 108.0, 110.0, 112.0, 114.0]
    low, high = prediction(summarise(ours))
    assert low == pytest.approx(110 - 9.617, abs=1e-3)
    assert high == pytest.approx(110 + 9.617, abs=1e-3)
    assert TWO.judge(100.5, ours).verdict == REPRODUCED
    assert TWO.judge(100.3, ours).verdict == NOT_REPRODUCED
    # It does not count below five runs.
    assert TWO.judge(110.0 - 4, [107.0, 109.0, 111.0, 113.0]).verdict == NOT_REPRODUCED


def test_a_difference_of_the_printed_sign_is_direction_only() -> None:
    # Printed 20 above 10; ours 30 above 12, in every pair by 17 to 19.
    ours, base = [29.0, 30.0, 31.0], [12.0, 12.0, 12.0]
    found = TEN.judge(20.0, ours, base=("FIFO", 10.0, base))
    assert found.verdict == DIRECTION_ONLY
    assert "+50 %" in found.reason
    assert "above FIFO" in found.reason
    # Printed below: ours is on the opposite side.
    other = TEN.judge(20.0, ours, base=("FIFO", 25.0, base))
    assert other.verdict == NOT_REPRODUCED
    assert "on the opposite side" in other.reason
    # The pairs differ by −9, 0 and +12: not significant.
    vague = TEN.judge(20.0, [21.0, 30.0, 42.0], base=("FIFO", 10.0, [30.0, 30.0, 30.0]))
    assert vague.verdict == NOT_REPRODUCED
    assert "not significantly different" in vague.reason


def test_equal_printed_values_have_no_direction() -> None:
    found = TEN.judge(20.0, [29.0, 30.0, 31.0], base=("FIFO", 20.0, [1.0, 2.0, 3.0]))
    assert found.verdict == NOT_REPRODUCED


def test_runs_without_a_value_are_not_reproduced() -> None:
    assert TEN.judge(20.0, [None, None]).verdict == NOT_REPRODUCED
    # A run without a value is left out, not counted as zero.
    assert TEN.judge(20.0, [20.0, None, 21.0]).verdict == REPRODUCED


def test_a_negative_printed_value_has_its_tolerance_on_both_sides() -> None:
    assert TEN.judge(-20.0, [-21.0, -22.0, -23.0]).verdict == REPRODUCED
    assert TEN.judge(-20.0, [-17.0, -17.5, -18.0]).verdict == NOT_REPRODUCED


def test_an_order_holds_if_the_interval_excludes_zero() -> None:
    order = Order("order")
    # The differences are 1, 2 and 3: 2 ± 4.303 / sqrt(3) = [−0.48, 4.48], which includes zero.
    assert not order.holds([2.0, 4.0, 6.0], [1.0, 2.0, 3.0])[0]
    # 2, 2.5 and 3: 2.5 ± 4.303 * 0.5 / sqrt(3) = [1.26, 3.74].
    holds, found = order.holds([3.0, 4.5, 6.0], [1.0, 2.0, 3.0])
    assert holds
    assert found.low == pytest.approx(1.258, abs=1e-3)
    assert not order.holds([1.0, 2.0, 3.0], [3.0, 4.5, 6.0])[0]


def test_a_change_is_reproduced_inside_the_claimed_range() -> None:
    rule = Change("loss", -50.0, -28.0)
    base = [100.0, 200.0, 400.0]
    # −40, −42 and −38 %.
    assert rule.judge([60.0, 116.0, 248.0], base)[1].mean == pytest.approx(-40)
    assert rule.judge([60.0, 116.0, 248.0], base)[0].verdict == REPRODUCED
    # −10, −12 and −8 %: the claimed sign, but too little.
    assert rule.judge([90.0, 176.0, 368.0], base)[0].verdict == DIRECTION_ONLY
    # −20, +10 and +5 %: no direction.
    assert rule.judge([80.0, 220.0, 420.0], base)[0].verdict == NOT_REPRODUCED
    # The opposite sign.
    assert rule.judge([140.0, 290.0, 560.0], base)[0].verdict == NOT_REPRODUCED
    at_most = Change("cost", -math.inf, 5.0)
    assert at_most.judge([104.0, 206.0, 412.0], base)[0].verdict == REPRODUCED
    assert at_most.judge([120.0, 230.0, 480.0], base)[0].verdict == NOT_REPRODUCED


@pytest.fixture(scope="module", params=sorted(papers()))
def paper(request: pytest.FixtureRequest) -> Paper:
    return load_paper(str(request.param))


def test_every_experiment_of_a_paper_can_be_planned(paper: Paper) -> None:
    cells = plan(paper, quick=False)
    quick = plan(paper, quick=True)
    assert set(quick) <= set(cells)
    for key, cell in quick.items():
        assert len(cell.seeds) <= len(cells[key].seeds)
        assert cell.scenario.duration <= cells[key].scenario.duration
    # Every experiment is judged or drawn.
    used = {name for table in paper.tables for name in table.experiments}
    checks = [check for claim in paper.claims for check in claim.checks]
    used |= {name for check in checks for name in (check.experiment, check.against) if name}
    used |= {name for picture in paper.pictures for name in picture.experiments}
    assert used == set(paper.experiments)


def test_every_number_and_claim_has_its_location_and_its_rule(paper: Paper) -> None:
    assert paper.source
    for table in paper.tables:
        assert table.where
        for column in table.columns:
            assert column.rule is not None
            assert set(column.printed) == set(table.rows)
        assert table.baseline in table.rows
    for claim in paper.claims:
        assert claim.where
        assert claim.text.endswith(".")
        assert (claim.rule is None) == (not claim.checks)
    for chosen in paper.inputs.values():
        assert chosen.on
    used = {chosen.name for table in paper.tables for chosen, _ in table.calibrated}
    assert used == set(paper.inputs), "an input that is fitted to nothing"


def test_the_printed_tables_are_unchanged(paper: Paper) -> None:
    files = sorted(each for name in ("tables", "text") for each in (paper.folder / name).glob("*.csv"))
    assert files or not paper.tables
    for path in files:
        name = f"{paper.name}/{path.name}"
        assert hashlib.sha256(path.read_bytes()).hexdigest()[:32] == DIGESTS[name], name
    assert {table.file for table in paper.tables} == set(files)


def test_the_printed_totals_of_jain2004_are_the_sums_of_their_sessions() -> None:
    """One affected session and nine others, or five of each: this confirms the meaning of the columns."""
    for number, path in enumerate(sorted((papers()["jain2004"] / "tables").glob("*.csv")), start=1):
        affected = 5 if number == 4 else 1
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                total = affected * float(row["affected_goodput_bps"])
                total += (10 - affected) * float(row["other_avg_goodput_bps"])
                assert total == pytest.approx(float(row["total_goodput_bps"]), rel=0.002)


@pytest.mark.parametrize("name", ["files-kb", "files-mb", "files-size"])
def test_the_load_of_the_files_is_constant(name: str) -> None:
    paper = load_paper("jain2004")
    experiment = paper.experiments[name]
    for point in experiment.points:
        keys = {row["key"]: row["value"] for row in load(experiment.scenario, point.overrides).effective()}
        rates = {}
        for traffic in ("short", "long"):
            size = _bytes(keys[f"traffic.{traffic}.size"])
            interval = _seconds(keys[f"traffic.{traffic}.interval"].split('"')[1])
            rates[traffic] = 8 * size * int(keys[f"traffic.{traffic}.sources"]) / interval
        assert sum(rates.values()) == pytest.approx(0.8e6, rel=1e-6)
        share = 0.5 if name == "files-size" else point.x / 100
        assert rates["short"] / sum(rates.values()) == pytest.approx(share, rel=1e-6)


def _seconds(text: str) -> float:
    value, unit = text.split()
    return float(value) * {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}[unit]


def _bytes(text: str) -> float:
    value, unit = text.split()
    return float(value) * {"B": 1, "KB": 1e3, "MB": 1e6}[unit]


# From end to end.


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of jain2004 with short runs."""
    folder = tmp_path_factory.mktemp("papers") / "small"
    shutil.copytree(papers()["jain2004"], folder)
    path = folder / CLAIMS
    text = path.read_text()
    assert 'set = { "run.duration" = "500 s" }' in text
    text = text.replace('set = { "run.duration" = "500 s" }', 'set = { "run.duration" = "100 s" }')
    for long in ('"4000 s"', '"2000 s"', '"1000 s"'):
        text = text.replace(f'"run.duration" = {long}', '"run.duration" = "200 s"')
        text = text.replace(f'"run.warmup" = {long}', '"run.warmup" = "20 s"')
    path.write_text(text)
    return folder


@pytest.mark.long
def test_a_quick_reproduction_from_end_to_end(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    calls: list[tuple[int, int, int]] = []
    (made,) = reproduce([small], out=out, quick=True, on_progress=lambda *state: calls.append(state))
    done, total, _ = calls[-1]
    assert done == total == made.about["runs"] == made.about["new_runs"]
    rows = made.rows()
    assert all(row["quick"] for row in rows)
    assert {row["verdict"] for row in rows} <= set(VERDICTS)
    # Four tables of four rows and three columns, without the variants.
    numbers = [row for row in rows if row["kind"] == TABLE and not row["variant"]]
    assert len(numbers) == 4 * 4 * 3
    assert all(row["printed"] and row["mean"] and row["runs"] == 3 for row in numbers)
    # Exactly the cells that inputs were fitted to are calibrated.
    fitted = {(row["where"], row["row"]) for row in numbers if row["verdict"] in FITTED}
    every = [f"Table {number}" for number in ("I", "II", "III", "IV")]
    assert fitted == {(where, "DRR") for where in every} | {("Table I", "FIFO"), ("Table II", "FIFO")}
    (claim,) = (row for row in rows if row["id"] == "fifo-total")
    assert claim["in_print"].startswith("contradicted by Table II (FIFO 954.8, SSF 959.6")
    # Printed figures have the verdict of the claim about them; pictures have none.
    (sooner,) = (row for row in rows if row["id"] == "short-sooner")
    figures = {row["id"]: row["verdict"] for row in rows if row["kind"] == "figure"}
    assert figures == {"figure-1": sooner["verdict"], "figure-2": sooner["verdict"]}
    assert {row["verdict"] for row in rows if row["kind"] == "picture"} == {NO_NUMBER}
    # The report has every table, claim and figure, and is marked as quick.
    page = made.report.read_text(encoding="utf-8")
    for each in made.paper.ids:
        assert f'id="{each}' in page
    assert "Quick: fewer and shorter runs" in page
    kept = json.loads((made.folder / "verdicts.json").read_text())
    assert kept["quick"] is True
    assert len(kept["items"]) == len(rows)
    # No run is repeated; a deleted one is simulated again with the same result.
    (again,) = reproduce([small], out=out, quick=True)
    assert again.about["new_runs"] == 0
    run = next((out / "runs").glob("*/*/1"))
    shutil.rmtree(run)
    (third,) = reproduce([small], out=out, quick=True)
    assert third.about["new_runs"] == 1
    assert [row | {"quick": None} for row in third.rows()] == [row | {"quick": None} for row in rows]


def test_the_generated_page_and_data_have_every_number(small: Path, tmp_path: Path) -> None:
    (made,) = reproduce([small], out=tmp_path / "out", quick=True, only=["table-1", "fifo-total", "phase"])
    for name in papers():
        (tmp_path / name).mkdir()
        shutil.copy(made.folder / "verdicts.json", tmp_path / name)
    kept = verdicts(tmp_path)["jain2004"]
    paper = load_paper("jain2004")
    text = page_of(paper, kept)
    data = list(csv.DictReader(io.StringIO(ledger(paper, kept))))
    assert text.startswith("# jain2004: ")
    assert "| [jain2004](reproduction/jain2004.md) | claims |" in scoreboard(
        {"jain2004": text}, {"jain2004": kept}
    )
    for item in made.verdicts.items:
        # Pictures have no verdict.
        judged = [row for row in data if (row["verdict"], row["reason"]) == (item.verdict, item.reason)]
        assert judged or item.kind == "picture"
        if item.kind == TABLE:
            assert any(row["ours"] == f"{item.ours.mean:.6g}" and row["low"] for row in judged)
    assert "(953.099) " in text
    assert "contradicted by Table II" in text
    # One row per point, curve and measure of the picture.
    phase = [row for row in data if row["at"] and row["measure"] == "Goodput of another session"]
    assert len(phase) == len({(row["at"], row["row"]) for row in phase})
    assert len({row["at"] for row in phase}) == 6
    # Quick results are marked in the text and in the data.
    assert QUICK in text
    about = json.loads(re.findall("<!-- ({.*}) -->", text)[0])
    assert about == {each: made.about[each] for each in ("paper", "version", "date", "quick", "runs")}
    assert about["quick"] is True
    shutil.rmtree(tmp_path / "jain2004")
    with pytest.raises(ResultError, match="run `bentpipe reproduce jain2004`"):
        verdicts(tmp_path)


def test_a_folder_is_locked_against_a_second_reproduction(small: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"

    def again(*state: int) -> None:
        if state[0] == 0:
            with pytest.raises(UsageError, match="another Bentpipe is writing to this folder"):
                reproduce([small], out=out, quick=True, only=["table-1"])

    (made,) = reproduce([small], out=out, quick=True, only=["table-1"], on_progress=again)
    assert made.about["new_runs"] > 0


def _with_claim(small: Path, folder: Path, rule: str, claim: str) -> Path:
    """Return a copy of a paper with another rule and claim."""
    shutil.copytree(small, folder)
    path = folder / CLAIMS
    head, tables = path.read_text().split("[rule.order]")
    common = 'where = "Table I"\ntext = "So it is."\nbasis = "tables"'
    path.write_text(
        f'{head}[rule.mine]\n{rule}\n[rule.order]{tables}\n[[claim]]\nid = "mine"\n{common}\n{claim}'
    )
    return folder


@pytest.mark.parametrize(
    ("rule", "more", "verdict"),
    [
        # SWF and SSF more than double the affected goodput of a FIFO.
        ("low = 20", ["SWF", "SSF"], REPRODUCED),
        ("high = 1", ["SWF", "SSF"], NOT_REPRODUCED),
        ("low = 5000", ["SWF", "SSF"], DIRECTION_ONLY),
        ("low = 5000", ["SWF", "FIFO"], NOT_REPRODUCED),
    ],
)
def test_a_claimed_change_has_the_worst_verdict_of_its_comparisons(
    small: Path, tmp_path: Path, rule: str, more: list[str], verdict: str
) -> None:
    checks = f'[{{ experiments = ["loss-10"], measure = "affected", more = {more}, than = ["FIFO"] }}]'
    folder = _with_claim(
        small, tmp_path / "paper", f'kind = "change"\n{rule}', f'rule = "mine"\nchecks = {checks}'
    )
    path = folder / CLAIMS
    path.write_text(re.sub(r'\{ input = "fifo-buffer"[^}]*\},?', "", path.read_text()))
    (made,) = reproduce([folder], out=tmp_path / "out", quick=True, only=["mine"])
    (item,) = made.verdicts.items
    assert item.verdict == verdict, item.reason


@pytest.mark.parametrize(
    ("rule", "verdict"), [("low = 20", CALIBRATED_AGREES), ("high = 1", CALIBRATED_DIFFERS)]
)
def test_a_claim_about_a_fitted_side_is_calibrated(
    small: Path, tmp_path: Path, rule: str, verdict: str
) -> None:
    """FIFO's buffer was fitted to its row; SWF's was not."""
    checks = '[{ experiments = ["loss-10"], measure = "affected", more = ["SWF"], than = ["FIFO"] }]'
    folder = _with_claim(
        small, tmp_path / "paper", f'kind = "change"\n{rule}', f'rule = "mine"\nchecks = {checks}'
    )
    (made,) = reproduce([folder], out=tmp_path / "out", quick=True, only=["mine"])
    (item,) = made.verdicts.items
    assert item.verdict == verdict
    assert item.reason.endswith("; in each comparison an input was fitted to a side")


@pytest.mark.parametrize(
    ("printed", "verdict"),
    [
        (101.0, REPRODUCED),
        (50.0, NOT_REPRODUCED),
        (10.0, MAGNITUDE_DIFFERS),
        (1000.0, MAGNITUDE_DIFFERS),
        (999.0, NOT_REPRODUCED),
    ],
)
def test_a_factor_of_ten_is_another_order_of_magnitude(printed: float, verdict: str) -> None:
    assert TWO.judge(printed, [100.0, 100.0, 100.0]).verdict == verdict


def test_direction_only_gives_the_factor() -> None:
    found = TWO.judge(50.0, [100.0, 101.0, 99.0], base=("DRR", 20.0, [10.0, 11.0, 9.5]))
    assert found.verdict == DIRECTION_ONLY
    assert found.reason.startswith("factor 2; +100 %; above DRR, as printed")


def test_a_claim_without_simulated_runs_is_not_reproduced(small: Path, tmp_path: Path) -> None:
    # A quick reproduction has no point at 50 %.
    sides = 'more = ["FIFO"], than = ["SSF"], points = ["50 %"]'
    checks = f'[{{ experiments = ["files-mb"], measure = "short-time", {sides} }}]'
    folder = _with_claim(small, tmp_path / "paper", 'kind = "order"', f'rule = "mine"\nchecks = {checks}')
    (made,) = reproduce([folder], out=tmp_path / "out", quick=True, only=["mine"])
    (item,) = made.verdicts.items
    assert item.verdict == NOT_REPRODUCED
    assert "nothing was simulated" in item.reason


def test_an_interrupted_reproduction_continues(small: Path, tmp_path: Path) -> None:
    def interrupt(*state: int) -> None:
        if state[0] >= 3:
            raise KeyboardInterrupt

    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        reproduce([small], out=out, quick=True, only=["table-1"], on_progress=interrupt)
    kept = len(list((out / "runs").glob("*/*/[0-9]*/counters.json")))
    assert kept >= 3
    (made,) = reproduce([small], out=out, quick=True, only=["table-1"])
    assert made.about["new_runs"] == made.about["runs"] - kept


def test_only_the_selected_claims_and_pictures_are_reproduced(small: Path, tmp_path: Path) -> None:
    (made,) = reproduce([small], out=tmp_path / "out", quick=True, only=["fifo-total", "phase"])
    assert [item.name for item in made.verdicts.items] == ["fifo-total", "phase"]
    # Two measures of two curves at six points.
    spots = made.verdicts.items[1].spots
    assert len(spots) == 2 * 2 * 6
    assert made.verdicts.printed(made.paper.pictures[0], spots[0].measure) == pytest.approx(19.822)
    # The claim is compared with printed tables that are not selected.
    assert "Table II" in made.verdicts.items[0].in_print
    assert {cell[0] for cell in made.verdicts.cases} == {"loss-10", "loss-1", "rtt-1s", "rtt-10ms", "phase"}
    drawn = figure(made.verdicts, made.paper.pictures[0])
    assert len(drawn.panels) == 2
    assert made.folder.name == "small-part-quick"


def test_the_overview_of_a_table_shows_every_cell(small: Path, tmp_path: Path) -> None:
    (made,) = reproduce([small], out=tmp_path / "out", quick=True, only=["table-1"])
    (table,) = made.paper.tables
    shown = overview(made.verdicts, table, "loss-10")
    assert shown is not None
    spec = json.dumps(shown.panels[0].chart.to_dict())
    assert spec.count('"ratio"') >= 12
    assert {name for name, _ in shown.legend} <= set(SHADES)


def test_the_goodputs_of_sessions_add_up_to_the_total(small: Path, tmp_path: Path) -> None:
    (made,) = reproduce([small], out=tmp_path / "out", quick=True, only=["table-1"])
    items = {(item.row, item.column): item.ours.mean for item in made.verdicts.items if not item.variant}
    for row in ("SWF", "SSF", "DRR", "FIFO"):
        one, other = items[row, "affected_goodput_bps"], items[row, "other_avg_goodput_bps"]
        total = items[row, "total_goodput_bps"]
        assert one is not None
        assert other is not None
        assert total is not None
        assert one + 9 * other == pytest.approx(total, rel=1e-9)
        # The payload that the link can carry bounds it.
        assert total < 1000 * 1000 / 1040


# Bad input.

BAD: list[tuple[str, str, str]] = [
    ('baseline = "FIFO"', 'baseline = "LIFO"', "baseline: found 'LIFO'; allowed: SWF, SSF, DRR, FIFO"),
    ('rule = "affected" }', 'rule = "near it" }', "rule: found 'near it'; allowed: total, others, affected"),
    ('rule = "order"', 'rule = "total"', "rule: found 'total'; allowed: order"),
    ("within = 0.10", "within = 10", "rule.affected.within: found 10.0; allowed: above 0 and below 1"),
    ('kind = "near"', 'kind = "nearly"', "kind: found 'nearly'; allowed: near, agree, order, change"),
    ('of = "total"', 'of = "sum"', "measure.total.of: found 'sum'; allowed: total, mean"),
    ("runs = 20", "runs = 1", "runs: found 1; allowed: at least 2"),
    ("runs = 20", 'runs = "many"', "runs: found 'many'; allowed: a whole number"),
    ("runs = 20", "run = 20", "experiment.loss-10.runs: missing; needed: a whole number"),
    ('key = "scheduler"', 'key = "queue"', "key: found 'queue'; allowed: scheduler, total_goodput_bps"),
    ('file = "tables/t1', 'file = "tables/t9', "cannot be read: No such file"),
    (
        'scenario = "ten-sessions.toml"',
        'scenario = "ten.toml"',
        "scenario: found 'ten.toml'; allowed: a file",
    ),
    ('id = "table-2"', 'id = "table-1"', "found the id 'table-1' twice"),
    (
        'unit = "bit/s"',
        'unit = "packets"',
        "unit: found 'packets'; allowed: kbit/s, or a unit that converts to it",
    ),
    (
        'experiments = ["loss-10", "loss',
        'experiments = ["loss-11", "loss',
        "found 'loss-11'; allowed: loss-10",
    ),
    ("shares = [10,", "shares = [0,", "shares: found 0.0; allowed: above 0 and below 100 %"),
    ("load = 0.8", "load = 0", "load: found 0.0; allowed: a number above 0"),
    ("ratio = 10", "ratio = -10", "ratio: found -10.0; allowed: a number above 0"),
    ("share = 50", "share = 100", "share: found 100.0; allowed: above 0 and below 100 %"),
    ("sizes_kb = [5,", "sizes_kb = [0,", "sizes_kb: found 0.0; allowed: above 0 KB"),
    ("shares = [10, 30", "shares = [30, 30", "points: found '30 %'; allowed: each label once"),
    (
        "shares = [10, 30, 50, 70, 90]",
        "shares = []",
        "experiment.files-kb.points: found []; allowed: at least one",
    ),
    ('cases = "phase"', "cases = []", "experiment.phase.cases: found []; allowed: at least one"),
    ('label = "SSF", setting = "ssf"', 'label = "SWF", setting = "ssf"', "cases: found 'SWF'; allowed: each"),
    ('basis = "sentence"', 'basis = "hearsay"', "basis: found 'hearsay'; allowed: sentence, tables, figure"),
    ('title = "Serving', "title = Serving", "cannot be read: Invalid value"),
    ("choices = [", "choice = [", "found the key 'choice'"),
]


@pytest.mark.parametrize(("old", "new", "message"), BAD, ids=[new for _, new, _ in BAD])
def test_wrong_data_is_rejected_with_file_key_and_value(
    small: Path, tmp_path: Path, old: str, new: str, message: str
) -> None:
    folder = tmp_path / "wrong"
    shutil.copytree(small, folder)
    text = (folder / CLAIMS).read_text()
    assert old in text
    (folder / CLAIMS).write_text(text.replace(old, new, 1))
    with pytest.raises(UsageError) as caught:
        load_paper(folder)
    assert message in str(caught.value)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("SWF,1", "row 5: its number of cells differs from that of headings, 4"),
        ("SWF,1,2,3,4", "row 5: its number of cells differs from that of headings, 4"),
        ("SWF,1,2,3", "scheduler: found 'SWF' twice; allowed: each once"),
        ("RED,1,2,3", "scheduler: found 'RED'; allowed: a case of loss-10"),
    ],
)
def test_a_malformed_printed_table_is_rejected_with_file_and_row(
    small: Path, tmp_path: Path, line: str, message: str
) -> None:
    folder = tmp_path / "wrong"
    shutil.copytree(small, folder)
    (table,) = (folder / "tables").glob("t1_*.csv")
    text = table.read_text()
    table.write_text(text + line + "\n")
    with pytest.raises(UsageError) as caught:
        load_paper(folder)
    assert message in str(caught.value)
    assert str(table) in str(caught.value)
    # Not a number.
    table.write_text(text.replace("\nSWF,", "\nSWF,about "))
    with pytest.raises(UsageError, match=r"found 'about .*; allowed: a number"):
        load_paper(folder)


def test_two_papers_with_one_report_folder_are_rejected(
    small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(small / "tables")
    assert load_paper("..").name == "small"
    other, runs = tmp_path / "small", tmp_path / "runs"
    for folder in (other, runs):
        shutil.copytree(small, folder)
    for names in ([small, other], [runs]):
        with pytest.raises(UsageError, match=r"report's folder would be .*, which is taken"):
            reproduce(names, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_two_columns_may_have_the_same_measure(small: Path, tmp_path: Path) -> None:
    folder = tmp_path / "twice"
    shutil.copytree(small, folder)
    text = (folder / CLAIMS).read_text()
    old = 'unit = "bit/s", measure = "others", rule = "others"'
    assert old in text
    new = 'unit = "bit/s", measure = "affected", rule = "others"'
    (folder / CLAIMS).write_text(text.replace(old, new, 1))
    (made,) = reproduce([folder], out=tmp_path / "out", quick=True, only=["table-1"])
    mine = [item for item in made.verdicts.items if item.kind == TABLE and item.experiment == "loss-10"]
    measured = {(item.row, item.column): item.ours.mean for item in mine}
    for row in ("SWF", "SSF", "DRR", "FIFO"):
        assert measured[row, "affected_goodput_bps"] == measured[row, "other_avg_goodput_bps"]


def test_an_unknown_paper_is_rejected_with_a_suggestion() -> None:
    with pytest.raises(
        UsageError, match=r"paper jain2005: neither a shipped paper nor a folder.*did you mean jain2004"
    ):
        load_paper("jain2005")


def test_a_folder_that_is_no_reproduction_is_left_unchanged(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    with pytest.raises(UsageError, match="not the folder of a reproduction; choose another folder"):
        reproduce(["jain2004"], out=tmp_path, quick=True)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_unknown_id_is_rejected_with_the_allowed_ones(tmp_path: Path) -> None:
    message = "--only table-9: unknown id; allowed: figure-1, figure-2, table-1"
    with pytest.raises(UsageError, match=message):
        reproduce(["jain2004"], out=tmp_path / "out", only=["table-9"])
    assert not (tmp_path / "out").exists()


def test_the_command_prints_tables_json_and_errors(bentpipe: Command, small: Path, tmp_path: Path) -> None:
    given = ("reproduce", str(small), "--quick", "--only", "table-1", "--out", str(tmp_path / "out"))
    table = bentpipe(*given)
    assert table.returncode == 0, table.stderr
    assert "Quick: fewer and shorter runs" in table.stdout
    assert "926.216" in table.stdout
    found = bentpipe(*given, "--format", "json")
    rows = json.loads(found.stdout)
    assert {row["paper"] for row in rows} == {"small"}
    wrong = bentpipe("reproduce", "nobody1999")
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("error: paper nobody1999: neither a shipped paper nor a folder")
    assert wrong.stderr.endswith(f"allowed: {', '.join(papers())}, all\n")
    assert wrong.stderr.count("\n") == 1


DOCS = Path(__file__).parents[2] / "docs"


def test_the_committed_pages_match_the_papers_data() -> None:
    found = committed(DOCS)
    assert set(found) <= set(papers())
    assert found
    for name, page in found.items():
        one = load_paper(name)
        for claim in one.claims:
            assert f"| {claim.text} |" in page
        rows = list(csv.DictReader((DOCS / "reproduction" / f"{name}.csv").read_text("utf-8").splitlines()))
        sections = {row["section"] for row in rows}
        for table in one.tables:
            assert f"{table.where}: {table.title}" in sections
            assert table.variant or f"## {table.where}: {table.title}" in page
        drawn = [picture for picture in one.pictures if picture.listed]
        for picture in drawn:
            assert any(section.endswith(f": {picture.title}") for section in sections)
        # A person reads the page; the rest is data.
        assert len(re.findall(r"[^\W\d_][\w’'-]*", page)) <= 2500
        for paragraph in one.discussion:
            words = map(re.escape, re.split(FIELD, paragraph)[::2])
            assert re.search("[−0-9].{,20}".join(words), page), "run `make reproduction`"
        about = json.loads(re.findall("<!-- ({.*}) -->", page)[0])
        assert about["paper"] == name
        assert about["quick"] is False


def test_the_committed_scoreboard_counts_the_verdicts_of_the_pages() -> None:
    board = (DOCS / "reproduction.md").read_text(encoding="utf-8")
    found = committed(DOCS)
    assert board == scoreboard(found, rebuilt(DOCS)), "run `make papers-pages`"
    assert len(board.split()) <= 1500
    kinds = {"printed numbers", "ratios between rows", "claims", "figures"}
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in board.partition("\n## Verdicts\n")[2].splitlines()
        if line.startswith("| [")
    ]
    assert {row[0].partition("]")[0][1:] for row in rows} == set(found)
    for paper, kind, *cells in rows:
        name = paper.partition("]")[0][1:]
        assert kind in kinds
        # Independent of the list that the scoreboard reads: the rows of the page's tables.
        if kind == "claims":
            table = found[name].partition("\n## Claims\n")[2].partition("\n## ")[0]
            verdicts = Counter(line.split(" | ")[2] for line in table.splitlines()[3:] if line)
            assert [int(cell or 0) for cell in cells] == [verdicts[each] for each in VERDICTS], name


def test_rebuilding_the_pages_from_the_committed_numbers_changes_nothing(tmp_path: Path) -> None:
    names = [f"reproduction/{name}.{ext}" for name in papers() for ext in ("csv", "md")]
    names += ["reproduction/inputs.md", "reproduction.md"]
    names += [str(path.relative_to(DOCS)) for path in (DOCS / "figures" / "papers").glob("*.svg")]
    (tmp_path / "reproduction").mkdir()
    for name in names:
        # A page is written from the numbers alone.
        if name.endswith(".csv"):
            shutil.copy(DOCS / name, tmp_path / name)
    main([str(tmp_path)])
    for name in names:
        assert (tmp_path / name).read_text("utf-8") == (DOCS / name).read_text("utf-8"), name


def test_a_part_replaces_the_numbers_of_the_same_id_alone(tmp_path: Path) -> None:
    (tmp_path / "reproduction").mkdir()
    for name in papers():
        shutil.copy(DOCS / "reproduction" / f"{name}.csv", tmp_path / "reproduction")
    name, part, cell = next(
        (name, kept, item)
        for name, kept in rebuilt(DOCS).items()
        for item in kept["items"]
        if kept["parts"] and item["kind"] == TABLE and not item["variant"]
    )
    part |= {"items": [cell | {"mean": 123456.0}], "date": part["parts"][-1]}
    (tmp_path / f"{name}-part").mkdir()
    (tmp_path / f"{name}-part" / "verdicts.json").write_text(json.dumps(part), encoding="utf-8")
    main([str(tmp_path), str(tmp_path), "--part"])
    old, new = (
        (folder / "reproduction" / f"{name}.csv").read_text("utf-8").splitlines()
        for folder in (DOCS, tmp_path)
    )
    changed = [(before, after) for before, after in zip(old, new, strict=True) if before != after]
    assert [after.replace(",123456,", ",x,") for _, after in changed] == [
        before.replace(f",{cell['mean']:.6g},", ",x,") for before, _ in changed
    ]
    assert len(changed) == 1


@pytest.mark.parametrize(
    ("folder", "quick", "date", "used"),
    [
        ("jain2004-part", False, "2026-02-02", True),
        ("jain2004-part", False, "2026-02-01", False),
        ("jain2004", False, "2026-02-03", False),
        ("jain2004-part-quick", True, "2026-02-03", False),
        ("jain2004-quick", True, "2026-02-03", False),
    ],
)
def test_only_full_runs_of_parts_that_are_new_replace_numbers(
    tmp_path: Path, folder: str, quick: bool, date: str, used: bool
) -> None:
    (tmp_path / folder).mkdir()
    part = {"paper": "jain2004", "quick": quick, "date": date}
    (tmp_path / folder / "verdicts.json").write_text(json.dumps(part), encoding="utf-8")
    assert parts(tmp_path, {"jain2004": {"date": "2026-02-02"}}) == ([part] if used else [])


def test_a_quick_part_is_refused(tmp_path: Path) -> None:
    (tmp_path / "jain2004-part").mkdir()
    part = {"paper": "jain2004", "quick": True, "date": "2026-02-02"}
    (tmp_path / "jain2004-part" / "verdicts.json").write_text(json.dumps(part), encoding="utf-8")
    with pytest.raises(SystemExit, match="is of a quick reproduction"):
        parts(tmp_path, {"jain2004": {"date": "2026-02-02"}})


def test_the_page_of_inputs_is_that_of_the_papers_data() -> None:
    assert (DOCS / "reproduction" / "inputs.md").read_text("utf-8") == inputs(), "run `make reproduction`"


@pytest.mark.parametrize(
    ("command", "given"),
    [
        (reproduce_command, "jain2004 --quick --only phase"),
        (sweep_command, "red-dumbbell --vary link.bottleneck.delay=1ms,2ms --metric drops,queue_mean"),
        (tune_command, "red-dumbbell --aqm red --metrics throughput:max --no-pruning --quiet"),
    ],
)
def test_the_command_to_resume_has_the_same_flags(command: click.Command, given: str) -> None:
    # The same as the group's: click caches a command's help option, and other tests read it.
    help_names = cli.context_settings["help_option_names"]
    with command.make_context("bentpipe study", given.split(), help_option_names=help_names) as context:
        assert resume_command(context, Path("out")) == f"bentpipe study {given} --out out --resume"


def test_measures_and_verdicts_are_documented() -> None:
    data = (DOCS / "reproduce-data.md").read_text(encoding="utf-8")
    for name in MEASURES:
        assert f"`{name}`" in data
    page = (DOCS / "reproduce.md").read_text(encoding="utf-8")
    for verdict in VERDICTS:
        assert f"*{verdict}*" in page
