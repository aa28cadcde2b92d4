import json
import math
import signal
import subprocess
from pathlib import Path

import polars as pl
import pytest
from conftest import Command, command_line, environment
from patience import PATIENCE

import bentpipe as bp
from bentpipe.errors import ModelError, ResultError, UsageError
from bentpipe.models.engines import Account, Moments, Quantity, compared, moments
from bentpipe.models.fluid import ModelResult
from bentpipe.models.validation import Validation, open_validation, plan_and_solve, validate
from bentpipe.report.decimate import as_float

QUICK = ["red-dumbbell", "--duration", "4 s", "--set", "run.warmup=1 s"]
PAIR = ["--settings", "RED 60/120,droptail", "--runs", "2"]
KEYS = {"mean", "ci95", "std", "runs"}


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Validation:
    scenario = bp.load("red-dumbbell", set={"run.duration": "6 s", "run.warmup": "4 s"})
    folder = tmp_path_factory.mktemp("validate") / "both"
    return validate(scenario, ["RED 60/120", "droptail"], runs=2, out=folder)


def account(engine: str, **given: list[tuple[float | None, float | None]]) -> Account:
    found = {name: [Moments(*pair) for pair in pairs] for name, pairs in given.items()}
    return Account(engine, engine, {"A": found}, {})


def test_rows_match_a_worked_example() -> None:
    # Two runs of 10 and 14 packets: mean 12, deviation √8 between them, and with Student's 12.706 for one
    # degree of freedom a half-width of 12.7062 √8 / √2 = 25.4124.
    ours = account("simulator", queue=[(10.0, 3.0), (14.0, 5.0)], offered_load=[(20.0, 1.0)] * 2)
    model = account("model", queue=[(6.0, 0.5)], throughput=[(19.0, 1.0)])
    printed = [
        {"setting": "A", "metric": "queue_mean", "value": 11.0, "unit": "packets", "std": None,
         "source": "Table 1", "calibrated": False},
        {"setting": "A", "metric": "queue_std", "value": 4.5, "unit": "packets", "std": None,
         "source": "Table 1", "calibrated": True},
        {"setting": "B", "metric": "queue_mean", "value": 1.0, "unit": "packets", "std": None,
         "source": "Table 1", "calibrated": True},
    ]  # fmt: skip
    (row,) = compared([ours, model], ["A"], printed)
    assert (row["setting"], row["quantity"], row["unit"]) == ("A", "queue", "packets")
    assert row["printed"] == {"mean": 11.0, "std": 4.5, "source": "Table 1", "calibrated": True}
    assert row["simulator"]["mean"] == 12.0
    assert row["simulator"]["std"] == 4.0
    assert row["simulator"]["ci95"] == pytest.approx(25.4124, abs=1e-3)
    assert row["simulator"]["runs"] == 2
    assert row["model"] == {
        "mean": 6.0,
        "ci95": None,
        "std": 0.5,
        "runs": 1,
        "difference": -50.0,
        "difference_ci95": pytest.approx(100 * 6 / 12 * 25.4124 / 12, abs=1e-3),
    }


def test_class_losses_add_up_and_are_compared_with_the_model() -> None:
    found = validate(bp.load("mmpp-queue", {"run.duration": "60 s"}), ["threshold 25 %"], runs=2)
    rows = {row["quantity"]: row for row in found.rows()}
    classes = ["video", "multimedia", "web", "ftp"]
    assert [name for name in rows if name.startswith("loss_rate.")] == [
        f"loss_rate.{name}" for name in classes
    ]
    for engine in ("simulator", "model"):
        lost = {name: rows[f"loss_rate.{name}"][engine]["mean"] for name in classes}
        assert lost["ftp"] == max(lost.values())
    assert rows["loss_rate.ftp"]["label"] == "Loss rate, ftp"
    # Each class's loss is weighted by the mean packet rate of its sources.
    share = {"video": 600, "multimedia": 120, "web": 125, "ftp": 250}
    whole = sum(share[name] * rows[f"loss_rate.{name}"]["model"]["mean"] for name in classes) / 1095
    assert whole == pytest.approx(rows["loss_rate"]["model"]["mean"], rel=1e-6)
    flows, drops = (found.simulation.one(name, "threshold 25 %", 1) for name in ("flows", "drops"))
    video = flows.filter(pl.col("traffic").cast(pl.String) == "video")
    gone = len(drops.filter(pl.col("flow").is_in(video["flow"].implode())))
    # Delivered and lost payload in packets of 972 bytes on average.
    counted = 100 * gone / (gone + video["bytes"].sum() / 972)
    first = found.accounts[0].moments["threshold 25 %"]["loss_rate.video"][0].mean
    assert first == pytest.approx(counted, rel=0.05)


def test_third_engine_adds_an_account() -> None:
    accounts = [account(name, queue=[(mean, 1.0)]) for name, mean in (("x", 4.0), ("y", 5.0), ("z", 6.0))]
    (row,) = compared(accounts, ["A"])
    assert [row[name].get("difference") for name in "xyz"] == [None, 25.0, 50.0]


def test_difference_is_null_for_a_zero_mean() -> None:
    (row,) = compared([account("x", queue=[(0.0, 0.0)]), account("y", queue=[(5.0, 1.0)])], ["A"])
    assert row["y"]["difference"] is None


def test_moments_ignore_unknown_samples_and_weight_shares() -> None:
    table = pl.DataFrame({"p": [0.1, None, math.nan, 0.3], "load": [1.0, 5.0, 7.0, 3.0]})
    mean, std = moments(table, Quantity("p", "p", "p", "%", 100.0))
    assert mean == pytest.approx(20.0)
    assert std == pytest.approx(math.sqrt(200.0))
    # Lost share of all offered packets: (1 · 10 % + 3 · 30 %) / 4.
    mean, std = moments(table, Quantity("p", "p", "p", "%", 100.0, "load"))
    assert mean == pytest.approx(25.0)
    assert std == pytest.approx(math.sqrt(200.0))
    assert moments(table, Quantity("q", "q", "q", "", 1.0)) == (None, None)


def test_both_engines_use_the_same_estimators(both: Validation) -> None:
    row = next(row for row in both.rows() if row["quantity"] == "queue" and row["setting"] == "RED 60/120")
    runs = [both.simulation.one("series", "RED 60/120", seed)["transmit_queue"] for seed in (1, 2)]
    assert row["simulator"]["mean"] == pytest.approx(sum(as_float(run.mean()) for run in runs) / 2)
    assert row["simulator"]["std"] == pytest.approx(sum(as_float(run.std()) for run in runs) / 2)
    assert isinstance(both.model, ModelResult)
    table = both.model.tables["RED 60/120"]["transmit_queue"]
    assert row["model"]["mean"] == pytest.approx(table.mean())
    assert row["model"]["std"] == pytest.approx(table.std())
    assert len(table) == len(runs[0])


def test_all_rows_are_complete(both: Validation) -> None:
    rows = both.rows()
    assert json.loads(json.dumps(rows, allow_nan=False)) == rows
    assert {row["setting"] for row in rows} == {"RED 60/120", "droptail"}
    names = {"throughput", "offered_load", "queue", "queue_delay", "mark_probability", "loss_rate"}
    assert {row["quantity"] for row in rows if row["setting"] == "droptail"} == names
    assert {row["quantity"] for row in rows if row["setting"] == "RED 60/120"} == names | {"aqm.avg"}
    for row in rows:
        assert set(row["simulator"]) == KEYS
        assert set(row["model"]) == KEYS | {"difference", "difference_ci95"}
        assert row["simulator"]["runs"] == 2
    assert both.table().height == 2 * len(rows)
    assert both.rows() == open_validation(both.folder).rows()
    assert json.loads((both.folder / "comparison.json").read_text()) == rows


def test_nothing_is_simulated_without_a_fluid_model(tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        validate("red-dumbbell", ["codel", "RED 60/120", "sred"], out=tmp_path / "out")
    text = str(caught.value)
    assert "setting codel" in text
    assert "setting sred" in text
    assert "RED 60/120" not in text
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("capacity", "solutions"),
    [
        ('{ uniform = ["10 Mbps", "20 Mbps"], every = "100 s" }', 3),
        ('{ steps = [["0 s", "10 Mbps"], ["2 s", "20 Mbps"]] }', 1),
    ],
)
def test_model_is_solved_for_each_seed_of_a_random_capacity(
    capacity: str, solutions: int, tmp_path: Path
) -> None:
    """Also of one that is drawn once in the run."""
    text = bp.load("red-dumbbell").text.replace('rate = "20 Mbps"', f"capacity = {capacity}")
    (tmp_path / "mine.toml").write_text(text)
    scenario = bp.load(tmp_path / "mine.toml", set={"run.duration": "2 s", "run.warmup": "1 s"})
    _, model = plan_and_solve(scenario, ["avq"], 3, None)
    assert isinstance(model, ModelResult)
    assert len({table["capacity"][0] for table in model.runs["avq"]}) == solutions
    assert len(model.runs["avq"]) == solutions


def test_all_selects_settings_with_a_fluid_model(tmp_path: Path) -> None:
    scenario = bp.load("red-dumbbell", set={"run.duration": "1 s", "run.warmup": "1 s"})
    found = validate(scenario, ["RED slow", "all"], runs=1, out=tmp_path / "out")
    assert {"RED slow", "RED 60/120", "droptail", "avqred"} <= set(found.settings)
    assert "sfb" not in found.settings


def test_all_selects_settings_with_a_markov_model() -> None:
    plan, model = plan_and_solve(bp.load("mmpp-queue"), ["all"], 1, None)
    names = [each.name for each in plan.settings]
    assert model.settings == names
    assert {"drop tail", "threshold 25 %", "droptail"} <= set(names)
    assert "red" not in names
    assert any(reason.startswith("mmpp-queue, setting red: ") for reason in plan.left_out)
    with pytest.raises(UsageError, match="setting red"):
        plan_and_solve(bp.load("mmpp-queue"), ["drop tail", "red"], 1, None)


def test_command_writes_what_it_prints(bentpipe: Command, tmp_path: Path) -> None:
    done = bentpipe("validate", *QUICK, *PAIR, "--out", "here", check=0)
    assert "simulator" in done.stdout
    assert "difference" in done.stdout
    assert "Result: here" in done.stdout
    done = bentpipe("validate", *QUICK, *PAIR, "--out", "there", "--format", "json", check=0)
    rows = json.loads(done.stdout)
    assert rows == json.loads((tmp_path / "here" / "comparison.json").read_text())
    again = bentpipe("validate", *QUICK, *PAIR, "--out", "there", "--format", "json", "--resume", check=0)
    assert again.stdout == done.stdout
    assert "4 of them already finished" in again.stderr
    assert bp.open(tmp_path / "here" / "simulation").settings == ["RED 60/120", "droptail"]


def test_invalid_input_gives_one_message(bentpipe: Command, tmp_path: Path) -> None:
    for arguments, words in (
        ([*QUICK, "--settings", "codel"], ["setting codel", "allowed in a fluid model"]),
        ([*QUICK, "--runs", "0"], ["--runs 0"]),
        ([*QUICK, "--settings", "avqerd"], ["avqerd", "avqred"]),
        ([*QUICK, "--resume"], ["--resume", "--out"]),
        ([*QUICK, "--resume", "--out", "nowhere"], ["nowhere", "no such folder"]),
        (["mmpp.toml"], ["mmpp.toml"]),
    ):
        done = bentpipe("validate", *arguments, check=2)
        assert done.stdout == ""
        assert done.stderr.startswith("error: ")
        assert "Traceback" not in done.stderr
        for word in words:
            assert word in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_existing_folder_needs_force_and_keeps_foreign_files(bentpipe: Command, tmp_path: Path) -> None:
    quick = [*QUICK, "--settings", "RED 60/120", "--runs", "1", "--out", "here"]
    bentpipe("validate", *quick, check=0)
    assert "--force" in bentpipe("validate", *quick, check=2).stderr
    (tmp_path / "here" / "thesis.tex").write_text("precious")
    assert "thesis.tex" in bentpipe("validate", *quick, "--force", check=2).stderr
    (tmp_path / "here" / "thesis.tex").unlink()
    bentpipe("validate", *quick, "--force", "--seed", "5", check=0)
    assert open_validation(tmp_path / "here").simulation.seeds == [5]
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("precious")
    done = bentpipe("validate", *quick[:-1], "home", "--force", check=2)
    assert "replaces only a validation" in done.stderr


def test_folder_without_validation_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="no such folder"):
        open_validation(tmp_path / "nowhere")
    with pytest.raises(ResultError, match="is not a validation"):
        open_validation(tmp_path)
    with pytest.raises(UsageError, match="exists already"):
        validate("red-dumbbell", out=tmp_path)


def test_ctrl_c_keeps_finished_runs_and_tells_how_to_continue(bentpipe: Command, tmp_path: Path) -> None:
    long = ["red-dumbbell", "--duration", "8 min", "--settings", "RED 60/120,avq", "--runs", "1"]
    command = command_line("validate", *long, "--jobs", "1", "--out", "long")
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stderr is not None
        stderr = ""
        for line in process.stderr:
            stderr += line
            if line.startswith("Run 1 of 2"):
                process.send_signal(signal.SIGINT)
        assert process.wait(timeout=PATIENCE) == 130
    assert "Traceback" not in stderr
    assert "1 of 2 runs are finished" in stderr
    words = next(line for line in stderr.splitlines() if line.strip().startswith("bentpipe validate"))
    assert words.endswith("--out long --resume")
    with pytest.raises(ResultError, match="1 of 2 runs"):
        open_validation(tmp_path / "long")
    done = bentpipe("validate", *long, "--out", "long", "--resume", check=0)
    assert "1 of them already finished" in done.stderr
