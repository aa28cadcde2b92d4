"""The search of parameters, on functions whose optimum is known and on a small simulation."""

import json
import math
import random
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from bentpipe import TuneResult, _core, open_tune
from bentpipe.dataset import Run
from bentpipe.errors import UsageError
from bentpipe.metrics import METRICS
from bentpipe.space import Space
from bentpipe.tuning import tune
from bentpipe.workers import Outcome

TWO = "utilization:max,queue_delay_mean:min"
VARY = ("w_q=0.001:0.1:log", "max_p=0.1:1:linear")
FIX = ("min_th=10", "max_th=20", "gentle=false", "bytes=false")
Function = Callable[[float, float, int], tuple[float | None, float | None]]


class Known:
    """Workers that know a function of two shares and the seed, in place of the simulator."""

    jobs = 2

    def __init__(self, function: Function, die_after: int | None = None) -> None:
        self.function, self.die_after = function, die_after
        self.runs: list[tuple[tuple[str, ...], str, int]] = []

    def results(self, runs: Iterable[Run]) -> Generator[tuple[Run, Outcome] | None]:
        # Backwards, for the order in which runs come is not to matter.
        for run in list(runs)[::-1]:
            if self.die_after is not None and len(self.runs) >= self.die_after:
                raise KeyboardInterrupt
            self.runs.append((run.point, run.setting, run.seed))
            w_q, max_p = map(float, run.point)
            x, y = math.log(w_q / 0.001) / math.log(100), (max_p - 0.1) / 0.9
            found: dict[str, float | None] = dict.fromkeys(metric.name for metric in METRICS)
            found["utilization"], found["queue_delay_mean"] = self.function(x, y, run.seed)
            yield run, found

    def close(self) -> None:
        """Hold nothing."""


def noise(*key: object) -> float:
    """Return a number of the normal law that follows from the key."""
    return random.Random(repr(key)).gauss(0, 1)  # noqa: S311


def bowls(x: float, y: float, seed: int) -> tuple[float, float]:
    """Two bowls around (0.3, 0.5) and (0.7, 0.5): the front is the segment between them."""
    common = 0.05 * noise(seed)
    return 1 + common - (x - 0.3) ** 2 - (y - 0.5) ** 2, 1 + common + (x - 0.7) ** 2 + (y - 0.5) ** 2


def known(
    folder: Path,
    function: Function = bowls,
    *,
    workers: Known | None = None,
    metrics: str = TWO,
    **options: Any,  # noqa: ANN401
) -> TuneResult:
    given: dict[str, Any] = {"trials": 30, "runs": 4, "fresh": 3, "vary": VARY, "fix": FIX} | options
    return tune("small-gateway", "red", metrics, out=folder, workers=workers or Known(function), **given)


def test_the_space_of_red_is_the_registrys_by_hand() -> None:
    space = Space.of("small-gateway", "red")
    rows = {each.name: each for each in space.parameters}
    # 33 and 66 ms of 4 Mbit/s are 11 and 22 packets of 1500 B; from a tenth to four times as many.
    assert (rows["min_th"].low, rows["min_th"].high, rows["min_th"].log) == pytest.approx((1.1, 44, True))
    assert rows["max_th"].low == pytest.approx(2.2)
    assert rows["max_th"].high == pytest.approx(88)
    assert (rows["w_q"].low, rows["w_q"].high, rows["w_q"].log) == (0.0002, 0.2, True)
    assert rows["gentle"].values == ("false", "true")
    assert list(rows) == ["min_th", "max_th", "w_q", "max_p", "gentle", "bytes"]
    shares: dict[str, float | str] = {
        "min_th": 1.0,
        "max_th": 0.5,
        "w_q": 0.5,
        "max_p": 1.0,
        "gentle": "true",
        "bytes": "false",
    }
    point = space.point(shares)
    # Half way from 2.2 to 88 on a log scale; the lower threshold ends 1 % below; sqrt(0.0002 * 0.2).
    assert float(point["max_th"]) == pytest.approx(math.sqrt(2.2 * 88), rel=1e-4)
    assert float(point["min_th"]) == pytest.approx(0.99 * math.sqrt(2.2 * 88), rel=1e-4)
    assert point["w_q"] == "0.0063246"
    assert point["max_p"] == "1"


@pytest.mark.parametrize("aqm", [each["name"] for each in json.loads(_core.registry())["aqms"]])
def test_every_point_of_every_space_is_possible(aqm: str) -> None:
    if aqm == "droptail":
        with pytest.raises(UsageError, match="droptail has no parameters to search; those that have: red,"):
            Space.of("small-gateway", aqm)
        return
    space = Space.of("small-gateway", aqm)
    draw = random.Random(aqm)  # noqa: S311
    for corner in (0.0, 1.0, *(None,) * 20):
        shares: dict[str, float | str] = {
            each.name: draw.choice(each.values)
            if each.low is None
            else draw.random()
            if corner is None
            else corner
            for each in space.parameters
        }
        assert space.problem(space.point(shares)) is None
    assert 2 <= len(space.grid()) <= 27


def test_the_front_found_is_the_known_one(tmp_path: Path) -> None:
    result = known(tmp_path / "a", trials=80)
    near = 0
    for row in result.front().iter_rows(named=True):
        x = math.log(float(row["w_q"]) / 0.001) / math.log(100)
        y = (float(row["max_p"]) - 0.1) / 0.9
        # On the front the roots of both distances sum up to 0.4, that between the bowls' centres.
        total = math.hypot(x - 0.3, y - 0.5) + math.hypot(x - 0.7, y - 0.5)
        near += total < 0.43
    assert near >= 0.7 * len(result.front())
    assert len(result.front()) >= 8
    # Chance alone comes as near with 2 % of its points: the area of that ellipse.


def test_one_objective_finds_its_optimum_and_the_pruner_stops_what_is_worse(tmp_path: Path) -> None:
    result = known(tmp_path / "a", metrics="utilization:max", trials=60, runs=6)
    winner = result.winner
    assert winner is not None
    assert math.log(float(winner["point"]["w_q"]) / 0.001) / math.log(100) == pytest.approx(0.3, abs=0.06)
    assert (float(winner["point"]["max_p"]) - 0.1) / 0.9 == pytest.approx(0.5, abs=0.06)
    # Wilcoxon's one-sided p-value of n differences of one sign is 1 / 2^n: below 0.1 from four on.
    stopped = [each for each in result.found["trials"] if each["outcome"] == "stopped"]
    assert stopped
    assert {len(each["runs"]) for each in stopped} == {4}
    assert result.found["runs"]["spared"] == 2 * len(stopped)


def test_resumed_is_uninterrupted_and_jobs_do_not_matter(tmp_path: Path) -> None:
    whole = known(tmp_path / "whole")
    for number, after in enumerate((17, 90)):
        folder = tmp_path / f"cut {number}"
        with pytest.raises(KeyboardInterrupt):
            known(folder, workers=Known(bowls, die_after=after))
        workers = Known(bowls)
        workers.jobs = 5
        again = known(folder, workers=workers)
        assert again.found["trials"] == whole.found["trials"]
        assert again.found["figures"] == whole.found["figures"]
        # What was finished is not simulated again.
        assert len(workers.runs) + after == len({tuple(run) for run in workers.runs}) + after
    first = known(tmp_path / "shorter", trials=15)
    longer = known(tmp_path / "shorter")
    assert first.found["trials"] == whole.found["trials"][:15]
    assert longer.found["trials"] == whole.found["trials"]


def test_a_small_search_of_the_simulator(tmp_path: Path) -> None:
    result = tune(
        "small-gateway",
        "red",
        TWO,
        out=tmp_path / "a",
        trials=6,
        runs=2,
        fresh=2,
        set={"run.duration": "5 s", "run.warmup": "5 s"},
    )
    assert result.found["runs"] == {"wanted": 12, "done": 12, "spared": 0}
    table = pl.read_parquet(tmp_path / "a" / "trials.parquet")
    assert table.equals(open_tune(tmp_path / "a").frame())
    # The setting that is written stands in a scenario, and gives the winner's figures there.
    text = (_scenario("small-gateway") + (tmp_path / "a" / "best.toml").read_text()).encode()
    path = tmp_path / "pasted.toml"
    path.write_bytes(text)
    pasted = _core.Scenario.load(str(path), ["run.duration=5 s", "run.warmup=5 s"]).with_setting("red tuned")
    assert result.winner is not None
    from bentpipe.workers import measure

    seed, *values = result.winner["runs"][0]
    found = measure(pasted, seed, _core.Progress())
    assert [found["utilization"], found["queue_delay_mean"]] == values


def _scenario(name: str) -> str:
    from bentpipe.plan import scenario_path

    return scenario_path(name).read_text()


def test_help_does_not_import_optuna() -> None:
    code = (
        "import sys, bentpipe.cli; bentpipe.cli._main(['tune', '--help']); sys.exit('optuna' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0
