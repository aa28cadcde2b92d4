"""Search of parameters, on functions with known optimum and on a small simulation."""

import json
import math
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Iterable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from click.testing import CliRunner
from optuna.study import StudyDirection
from patience import PATIENCE, wait_for

from bentpipe import TuneResult, _core, open_tune
from bentpipe.cli import app
from bentpipe.cli import tune as command
from bentpipe.cli.app import cli
from bentpipe.cli.exits import Failed
from bentpipe.errors import ScenarioError, UsageError
from bentpipe.report.comparison import picture
from bentpipe.report.tuning import figures as drawn
from bentpipe.runs.dataset import Run
from bentpipe.runs.workers import Outcome
from bentpipe.stats.metrics import METRICS
from bentpipe.stats.objectives import Judged, objectives_from
from bentpipe.tuning import tune as tuning
from bentpipe.tuning.holdout import figures
from bentpipe.tuning.result import difference
from bentpipe.tuning.search import FEWEST, Search, front
from bentpipe.tuning.space import Space
from bentpipe.tuning.study import COMPLETE, Ledger, Proposal, Trial, open_storage, without_password
from bentpipe.tuning.tune import Tuning, tune

TWO = "throughput:max,queue_delay_mean:min"
NAMES = ("throughput", "queue_delay_mean")
VARY = ("w_q=0.001:0.1:log", "max_p=0.1:1:linear")
FIX = ("min_th=10", "max_th=20", "gentle=false", "bytes=false")
Function = Callable[[float, float, int], tuple[float | None, float | None]]


def shares(point: Iterable[str]) -> tuple[float, float]:
    """Return the position of a point in the ranges of `VARY`, from 0 to 1."""
    w_q, max_p = map(float, point)
    return math.log(w_q / 0.001) / math.log(100), (max_p - 0.1) / 0.9


class FunctionWorkers:
    """Workers that evaluate a function of two shares and the seed instead of simulating."""

    jobs = 2

    def __init__(
        self, function: Function, die_after: int | None = None, names: tuple[str, str] = NAMES
    ) -> None:
        self.function, self.die_after, self.names = function, die_after, names
        self.runs: list[tuple[tuple[str, ...], str, int]] = []

    def results(self, runs: Iterable[Run]) -> Generator[tuple[Run, Outcome] | None]:
        # In reverse, since the order of results must not matter.
        for run in list(runs)[::-1]:
            if self.die_after is not None and len(self.runs) >= self.die_after:
                raise KeyboardInterrupt
            self.runs.append((run.point, run.setting, run.seed))
            x, y = shares(run.point)
            found: dict[str, float | None] = dict.fromkeys(metric.name for metric in METRICS)
            found |= dict(zip(self.names, self.function(x, y, run.seed), strict=True))
            yield run, found

    def close(self) -> None:
        """Release nothing."""


@pytest.fixture(autouse=True)
def _not_on_the_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not sync files: hundreds of small writes take longer than the search."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def noise(*key: object) -> float:
    """Return a normally distributed number determined by the key."""
    return random.Random(repr(key)).gauss(0, 1)  # noqa: S311


def bowls(x: float, y: float, seed: int) -> tuple[float, float]:
    """Return two quadratic functions around (0.3, 0.5) and (0.7, 0.5), whose front is the segment between."""
    common = 0.05 * noise(seed)
    return 1 + common - (x - 0.3) ** 2 - (y - 0.5) ** 2, 1 + common + (x - 0.7) ** 2 + (y - 0.5) ** 2


def tuned(
    folder: Path,
    function: Function = bowls,
    *,
    workers: FunctionWorkers | None = None,
    metrics: str = TWO,
    **options: Any,  # noqa: ANN401
) -> TuneResult:
    given: dict[str, Any] = {"trials": 30, "runs": 4, "fresh": 3, "vary": VARY, "fix": FIX} | options
    return tune(
        "small-gateway", "red", metrics, out=folder, workers=workers or FunctionWorkers(function), **given
    )


def test_space_of_red_matches_the_registry() -> None:
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
    # The middle of 2.2 to 88 on a log scale; the lower threshold is 1 % below; sqrt(0.0002 * 0.2).
    assert float(point["max_th"]) == pytest.approx(math.sqrt(2.2 * 88), rel=1e-4)
    assert float(point["min_th"]) == pytest.approx(0.99 * math.sqrt(2.2 * 88), rel=1e-4)
    assert point["w_q"] == "0.0063246"
    assert point["max_p"] == "1"


def test_search_starts_from_a_setting_of_the_scenario() -> None:
    space = Space.of("byun-generic", "ARED 11/33", vary=("w_q=0.01,0.1",))
    assert (space.prefix, space.algorithm) == ("link.gateway.queue.aqm", "ared")
    # The registry has no range for it, so it stays fixed; a grid searches only varied parameters.
    assert space.given == {"hysteresis": "4.0"}
    assert [(point["w_q"], point["min_th"], point["max_th"]) for point in space.grid()] == [
        ("0.01", "11", "33"),
        ("0.1", "11", "33"),
    ]
    preset = Space.of("byun2007-gateway", "RED 4", overrides=["gateway.aqm.max_p=0.3", "run.duration=2 min"])
    assert preset.names == ("min_th", "max_th", "w_q", "gentle", "bytes")
    assert preset.given == {"max_p": "0.3"}
    assert preset.overrides == ("run.duration=2 min",)


@pytest.mark.parametrize("aqm", [each["name"] for each in json.loads(_core.registry())["aqms"]])
def test_every_point_of_every_space_can_be_built(aqm: str) -> None:
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


def test_search_finds_the_known_front(tmp_path: Path) -> None:
    result = tuned(tmp_path / "a", trials=80)
    near = 0
    for row in result.front().iter_rows(named=True):
        x = math.log(float(row["w_q"]) / 0.001) / math.log(100)
        y = (float(row["max_p"]) - 0.1) / 0.9
        # On the front the distances to both centres add up to 0.4, their distance.
        total = math.hypot(x - 0.3, y - 0.5) + math.hypot(x - 0.7, y - 0.5)
        near += total < 0.43
    assert near >= 0.7 * len(result.front())
    assert len(result.front()) >= 8
    # Of random points 2 % come as near, the area of that ellipse.
    assert result.frame().filter("winner")["trial"].to_list() == [result.found["winner"]]


def test_one_objective_finds_its_optimum_and_prunes_worse_trials(tmp_path: Path) -> None:
    result = tuned(tmp_path / "a", metrics="throughput:max", trials=60, runs=6)
    winner = result.winner
    assert winner is not None
    assert math.log(float(winner["point"]["w_q"]) / 0.001) / math.log(100) == pytest.approx(0.3, abs=0.06)
    assert (float(winner["point"]["max_p"]) - 0.1) / 0.9 == pytest.approx(0.5, abs=0.06)
    # Wilcoxon's one-sided p-value of n differences of one sign is 1 / 2^n: below 0.1 from four on.
    stopped = [each for each in result.found["trials"] if each["outcome"] == "stopped"]
    assert stopped
    assert {len(each["runs"]) for each in stopped} == {4}
    assert result.found["runs"]["saved"] == 2 * len(stopped)


def test_resumption_and_jobs_do_not_change_the_result(tmp_path: Path) -> None:
    whole = tuned(tmp_path / "whole")
    for number, after in enumerate((17, 90)):
        folder = tmp_path / f"cut {number}"
        with pytest.raises(KeyboardInterrupt):
            tuned(folder, workers=FunctionWorkers(bowls, die_after=after))
        workers = FunctionWorkers(bowls)
        workers.jobs = 5
        again = tuned(folder, workers=workers)
        assert again.found["trials"] == whole.found["trials"]
        assert again.found["figures"] == whole.found["figures"]
        # Finished runs are not simulated again.
        assert len(workers.runs) + after == len({tuple(run) for run in workers.runs}) + after
    first = tuned(tmp_path / "shorter", trials=15)
    longer = tuned(tmp_path / "shorter")
    assert first.found["trials"] == whole.found["trials"][:15]
    assert longer.found["trials"] == whole.found["trials"]


def test_search_with_the_simulator_gives_a_valid_setting(tmp_path: Path) -> None:
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
    assert result.found["runs"] == {"wanted": 12, "done": 12, "saved": 0}
    table = pl.read_parquet(tmp_path / "a" / "trials.parquet")
    assert table.equals(open_tune(tmp_path / "a").frame())
    # The written setting gives the winner's values in a scenario.
    text = (_scenario("small-gateway") + (tmp_path / "a" / "best.toml").read_text()).encode()
    path = tmp_path / "pasted.toml"
    path.write_bytes(text)
    pasted = _core.Scenario.load(str(path), ["run.duration=5 s", "run.warmup=5 s"]).with_setting("red tuned")
    assert result.winner is not None
    from bentpipe.runs.workers import measure

    seed, *values = result.winner["runs"][0]
    found = measure(pasted, seed, _core.Progress())
    assert [found["throughput"], found["queue_delay_mean"]] == values


def _scenario(name: str) -> str:
    from bentpipe.runs.plan import scenario_path

    return scenario_path(name).read_text()


def test_help_does_not_import_optuna() -> None:
    code = "import sys; from bentpipe.cli import app; app._main(['tune', '--help'])"
    code += "; sys.exit('optuna' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=PATIENCE, check=False)
    assert done.returncode == 0


def trial(number: int, *runs: tuple[float, float]) -> Trial:
    """Return a complete trial with the values of its runs, of the seeds 1, 2, …."""
    tuned = dict(enumerate(runs, 1))
    return Trial(number, Proposal({}, {}, {}), COMPLETE, tuned, "", "", waiting=False, id=number)


def test_front_matches_a_worked_example() -> None:
    objectives = objectives_from(TWO)
    # More throughput and less delay are better: 1 is worse than 0 in both, 3 worse than 2 in one.
    trials = [trial(0, (3, 3)), trial(1, (2, 4)), trial(2, (1, 1)), trial(3, (1, 2)), trial(4, (3, 3))]
    assert [each.number for each in front(trials, objectives)] == [0, 2, 4]


def test_only_trials_significantly_worse_in_every_objective_are_stopped() -> None:
    search = Search(Space.of("small-gateway", "red", vary=VARY, fix=FIX), objectives_from(TWO))
    values = [(10.0, 20.0), (12.0, 22.0), (11.0, 21.0)]
    member = trial(0, *values)

    def verdict(worse: tuple[float, ...], slower: tuple[float, ...], prefixes: int = 1) -> str | None:
        pairs = zip(values, worse, slower, strict=True)
        runs = {seed: (a - x, b + y) for seed, ((a, b), x, y) in enumerate(pairs, 1)}
        return search.verdict(runs, [member], prefixes)

    # Differences 1, 2, 3: mean 2, standard error 1 / sqrt 3, t = 3.46 with 2 degrees of freedom, one-sided
    # p = 0.037; with 5, 6, 7 t = 10.4, p = 0.0046. The larger of the two decides.
    assert verdict((5, 6, 7), (1, 2, 3)) is not None
    assert verdict((5, 6, 7), (1, 2, 3), prefixes=2) is None
    assert verdict((5, 6, 7), (5, 6, 7), prefixes=2) is not None
    assert verdict((5, 6, 7), (-5, -6, -7)) is None
    assert verdict((5, 6, 7), (0, 0, 0)) is None
    # Two runs are too few, however little_noise apart.
    assert search.verdict({1: (0.0, 99.0), 2: (0.0, 99.0)}, [member], 1) is None


def test_trials_as_good_as_the_front_are_rarely_stopped() -> None:
    search = Search(Space.of("small-gateway", "red", vary=VARY, fix=FIX), objectives_from(TWO))
    stopped = 0
    for number in range(300):
        values = [
            tuple((noise(number, who, seed, 0), noise(number, who, seed, 1)) for seed in range(5))
            for who in range(3)
        ]
        before = [trial(place, *of) for place, of in enumerate(values[:2])]
        mine = dict(enumerate(values[2], 1))
        prefixes = [dict(list(mine.items())[:count]) for count in (3, 4)]
        stopped += any(search.verdict(runs, before, len(prefixes)) is not None for runs in prefixes)
    # 5 % is the bound; two objectives of independent noise make it little_noise less.
    assert stopped <= 0.05 * 300


@pytest.mark.parametrize(("alike", "least", "most"), [(0.0, 0, 3), (1.0, 7, 35)], ids=["apart", "together"])
def test_selection_on_the_same_seeds_biases_the_front(alike: float, least: int, most: int) -> None:
    """Number of stopped trials of 100 that are as good as thirty others; docs/tune.md gives the reasons."""
    search = Search(Space.of("small-gateway", "red", vary=VARY, fix=FIX), objectives_from(TWO))

    def values(*key: object) -> tuple[float, float]:
        first, second = noise(*key, 0), noise(*key, 1)
        return first, -alike * first + math.sqrt(1 - alike**2) * second

    stopped = 0
    for number in range(100):
        before = [trial(who, *(values(number, who, seed) for seed in range(5))) for who in range(30)]
        mine = {seed + 1: values(number, "mine", seed) for seed in range(5)}
        prefixes = [dict(list(mine.items())[:count]) for count in (3, 4)]
        stopped += any(search.verdict(runs, before, len(prefixes)) is not None for runs in prefixes)
    assert least <= stopped <= most


def little_noise(x: float, y: float, seed: int) -> tuple[float, float]:
    """Return `bowls` with little separate noise per trial, so that worse trials are detected soon."""
    a, b = bowls(x, y, seed)
    return a + 0.002 * noise(x, y, seed, "a"), b + 0.002 * noise(x, y, seed, "b")


def test_pruning_saves_runs_and_keeps_the_front(tmp_path: Path) -> None:
    workers = FunctionWorkers(little_noise)
    result = tuned(tmp_path / "a", workers=workers, trials=40, runs=8)
    stopped = {each["number"] for each in result.found["trials"] if each["outcome"] == "stopped"}
    saved = result.found["runs"]["saved"]
    assert saved > 20
    assert not stopped & set(result.found["front"])
    in_search = [run for run in workers.runs if run[1] == "red" and run[2] < 1000]
    assert len(in_search) == 40 * 8 - saved
    # If finished, each would have been worse than a member of the front in both objectives.
    members = [
        [result.summary(number, each.metric).mean or 0.0 for each in result.objectives]
        for number in result.found["front"]
    ]
    for number in stopped:
        runs = [
            little_noise(*shares(result.found["trials"][number]["point"].values()), seed)
            for seed in range(1, 9)
        ]
        more, delay = (sum(column) / 8 for column in zip(*runs, strict=True))
        assert any(member[0] > more and member[1] < delay for member in members)
    whole = tuned(tmp_path / "b", little_noise, trials=40, runs=8, pruning=False)
    assert whole.found["runs"]["saved"] == 0


def test_every_sampler_continues_deterministically(tmp_path: Path) -> None:
    for sampler in ("nsga2", "random", "grid"):
        options: dict[str, Any] = {"sampler": sampler, "trials": 25, "runs": 2, "generation": 6, "fresh": 2}
        whole = tuned(tmp_path / sampler, **options)
        with pytest.raises(KeyboardInterrupt):
            tuned(tmp_path / f"{sampler} cut", workers=FunctionWorkers(bowls, die_after=30), **options)
        assert tuned(tmp_path / f"{sampler} cut", **options).found["trials"] == whole.found["trials"]
        # A population of NSGA-II may have the same child twice.
        points = {json.dumps(each["point"]) for each in whole.found["trials"]}
        assert len(points) == 25 or sampler == "nsga2"


@pytest.mark.parametrize("sampler", ["tpe", "nsga2", "random"])
def test_part_of_a_generation_is_its_beginning(sampler: str) -> None:
    space = Space.of("small-gateway", "red", vary=VARY, fix=FIX)
    whole = Search(space, objectives_from(TWO), sampler, generation=8).ask(0, [])
    assert Search(space, objectives_from(TWO), sampler, generation=8).ask(0, [], most=3) == whole[:3]
    many = Search(space, objectives_from(TWO), sampler, generation=100_000_000)
    assert len(many.ask(0, [], most=3)) == 3


def test_sums_of_ranks_beyond_the_numbers_of_json_are_left_out() -> None:
    totals = [tuning._total(Judged("1", 1, total, {})) for total in (6, 2**20_000, math.inf)]
    assert json.loads(json.dumps(totals, allow_nan=False)) == [6, None, None]


def test_rank_rule_on_a_grid_repeats_the_best_trials(tmp_path: Path) -> None:
    workers = FunctionWorkers(bowls)
    vary = ("w_q=0.001,0.01,0.1", "max_p=0.1,0.55,1")
    result = tuned(tmp_path / "a", workers=workers, judge="rank", vary=vary, trials=None, runs=3)
    assert [each["point"] for each in result.found["trials"]][:2] == [
        {"w_q": "0.001", "max_p": "0.1"},
        {"w_q": "0.001", "max_p": "0.55"},
    ]
    assert len(result.found["trials"]) == 9
    # In the middle the shares are (0.5, 0.5), 0.2 from both centres.
    order = result.found["order"]
    assert order[0]["trial"] == 4
    assert order[0]["total"] == 2**1 + 2**1
    assert result.found["again"][0]["trial"] == result.found["winner"] == 4
    assert len(result.found["again"]) == 3
    seeds = [run[2] for run in workers.runs]
    again, fresh = set(result.found["seeds_again"]), set(result.found["seeds_fresh"])
    assert (len(again), len(fresh)) == (3, 3)
    assert not again & fresh
    assert not (again | fresh) & set(result.found["seeds"])
    assert set(seeds) == again | fresh | set(result.found["seeds"])


def test_winner_by_rank_outside_the_front_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def reversed_on_other_seeds(x: float, y: float, seed: int) -> tuple[float, float]:
        return (x if seed <= 3 else -x), y

    vary = ("w_q=0.001,0.01,0.1", "max_p=0.1")
    result = tuned(
        tmp_path / "a",
        reversed_on_other_seeds,
        metrics="throughput:max",
        judge="rank",
        vary=vary,
        trials=None,
        runs=3,
    )
    assert (result.found["front"], result.found["winner"]) == ([2], 0)
    command._show(result)
    printed = capsys.readouterr().out
    assert "The winner, trial 0, is not in the front." in printed
    assert "*" not in printed
    rule = "lowest sum of 2^rank over the metrics, among all complete trials"
    assert rule in (tmp_path / "a" / "report.html").read_text(encoding="utf-8")


def test_search_overestimates_its_winner_and_holdout_does_not(tmp_path: Path) -> None:
    def flat(x: float, y: float, seed: int) -> tuple[float, float]:
        return noise(x, y, seed), 0.0

    result = tuned(tmp_path / "a", flat, metrics="throughput:max", trials=40, runs=3, fresh=40)
    row = result.figures().row(0, named=True)
    # The best of forty means of three runs is about 2.2 / sqrt(3) above the true value 0.
    assert row["searched"] > 0.8
    assert abs(row["mean"]) < 3.5 / math.sqrt(40)
    assert row["p_holm"] > 0.01


SHARED: dict[str, Any] = {"trials": 12, "generation": 6, "runs": 2, "fresh": 2}


def test_trials_without_a_value_have_their_own_outcome(tmp_path: Path) -> None:
    def without_delay(x: float, y: float, seed: int) -> tuple[float | None, float | None]:
        return (1.0, None) if x > 0.5 else bowls(x, y, seed)

    result = tuned(tmp_path / "a", without_delay, trials=10, runs=2)
    empty = [each for each in result.found["trials"] if each["outcome"] == "valueless"]
    assert empty
    assert {each["note"] for each in empty} == {"no run has a value of queue_delay_mean"}
    assert not {each["number"] for each in empty} & set(result.found["front"])


def test_impossible_points_of_a_list_cost_no_run(tmp_path: Path) -> None:
    result = tune(
        "small-gateway",
        "red",
        TWO,
        out=tmp_path / "a",
        trials=16,
        seed=2,
        runs=1,
        fresh=2,
        sampler="random",
        vary=("min_th=5,15", "max_th=10,20"),
        fix=("w_q=0.1", "max_p=0.5", "gentle=false", "bytes=false"),
        set={"run.duration": "2 s", "run.warmup": "1 s"},
    )
    for each in result.found["trials"]:
        impossible = each["point"] == {"min_th": "15", "max_th": "10"}
        assert (each["outcome"] == "impossible") == impossible
        assert len(each["runs"]) == (0 if impossible else 1)
    assert any(each["outcome"] == "impossible" for each in result.found["trials"])


TWO_PROCESSES = """
import sys, time
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_tune import SHARED, FunctionWorkers, bowls, tuned
class Together(FunctionWorkers):
    jobs = 1
    def results(self, runs):
        # With its first trial it waits for the other process, if there is one.
        (own.parent / f"begun-{{own.name}}").touch()
        for _ in range(6000):
            if len(list(own.parent.glob("begun-*"))) >= int(sys.argv[3]):
                break
            time.sleep(0.02)
        for each in super().results(runs):
            time.sleep(0.004)
            yield each
own = Path(sys.argv[1])
result = tuned(own, workers=Together(bowls), storage=sys.argv[2], **SHARED)
print(len(result.found["trials"]))
"""


def start(folder: Path, storage: str, processes: int) -> "subprocess.Popen[str]":
    code = TWO_PROCESSES.format(tests=str(Path(__file__).parent))
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", code, str(folder), storage, str(processes)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The result of a search by one process."""
    return tuned(tmp_path_factory.mktemp("alone") / "alone", **SHARED).found


@pytest.mark.long
@pytest.mark.parametrize("kind", ["journal", "sqlite"])
def test_two_processes_share_a_study(tmp_path: Path, alone: dict[str, Any], kind: str) -> None:
    storage = str(tmp_path / "study") if kind == "journal" else f"sqlite:///{tmp_path / 'study.db'}"
    both = [start(tmp_path / name, storage, 2) for name in ("a", "b")]
    for each in both:
        out, err = each.communicate(timeout=PATIENCE)
        assert (out, err) == ("12\n", "")
    found = [open_tune(tmp_path / name).found for name in ("a", "b")]
    assert found[0]["trials"] == found[1]["trials"] == alone["trials"]
    assert found[0]["winner"] == found[1]["winner"] == alone["winner"]
    counts = []
    for name in ("a", "b"):
        table = pl.read_parquet(tmp_path / name / "data", hive_partitioning=True)
        counts.append(len(table.filter((pl.col("setting") == "red") & (pl.col("seed") < 1000))))
    # No run is simulated by both, and both simulate some.
    assert sum(counts) == 24
    assert min(counts) > 0


@pytest.mark.long
def test_unfinished_trials_of_a_killed_process_are_repeated(tmp_path: Path, alone: dict[str, Any]) -> None:
    storage = str(tmp_path / "study")
    killed = start(tmp_path / "a", storage, 1)
    wait_for(lambda: (tmp_path / "study").exists() and (tmp_path / "study").stat().st_size >= 6_000)
    killed.kill()
    killed.communicate()
    result = tuned(tmp_path / "b", storage=storage, **SHARED)
    assert result.found["trials"] == alone["trials"]


KILLED = """
import os, signal
from optuna.study import StudyDirection
from bentpipe.tuning.study import open_storage
storage = open_storage("out/study")
os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)
storage.create_new_study([StudyDirection.MINIMIZE], "killed")
"""


def test_process_that_is_killed_while_it_writes_to_a_journal_blocks_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "out").mkdir()
    done = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, timeout=PATIENCE, check=False)
    assert done.returncode == -signal.SIGKILL
    monkeypatch.chdir(tmp_path)
    storage = open_storage("out/study")
    storage.create_new_study([StudyDirection.MINIMIZE], "next")
    assert "next" in [each.study_name for each in storage.get_all_studies()]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["study"]


def test_storage_that_fails_during_a_search_says_how_to_continue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    take = Ledger.take

    def broken(ledger: Ledger, trial: Trial) -> bool:
        with (tmp_path / "study.db").open("r+b") as file:
            file.truncate(100)
        return take(ledger, trial)

    monkeypatch.setattr(Ledger, "take", broken)
    monkeypatch.chdir(tmp_path)
    words = ["tune", "small-gateway", "--aqm", "red", "--metrics", "throughput:max", "--duration", "1 s"]
    words += [
        "--trials",
        "2",
        "--runs",
        "1",
        "--fresh",
        "2",
        "--storage",
        "sqlite:///study.db",
        "--out",
        "out",
    ]
    with pytest.raises(SystemExit) as stop:
        app.main(words)
    assert stop.value.code == 1
    error = capsys.readouterr().err
    assert "error: --storage sqlite:///study.db: failed during the search: (sqlite3.DatabaseError)" in error
    assert "finished runs are kept. To continue:" in error


def test_password_of_a_storage_is_not_shown() -> None:
    with pytest.raises(UsageError, match=re.escape("--storage postgres9://me:***@host/x: cannot")) as refused:
        open_storage("postgres9://me:secret@host/x")
    assert "secret" not in str(refused.value)
    for shown in ("sqlite:///a:b@c/x.db", "postgresql://me@host:5432/x", "study.journal"):
        assert without_password(shown) == shown


def test_numbers_that_begin_or_end_with_their_point_are_written_as_toml() -> None:
    plan = Tuning.plan(
        "small-gateway", "red", "throughput:max", fix=["w_q=.5"], vary=["max_p=.1,1."], sampler="grid"
    )
    tables = [plan.space.table(point) for point in plan.grid]
    assert [(table["w_q"], table["max_p"]) for table in tables] == [("0.5", "0.1"), ("0.5", "1")]


def test_continuing_with_other_arguments_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tuned(tmp_path / "a", trials=2, runs=1, fresh=2)
    refused: list[tuple[dict[str, Any], str]] = [
        ({"runs": 2}, "was begun with other seeds: found 1, 2, allowed: 1, 1; or choose another"),
        (
            {"metrics": "throughput:max"},
            "other objectives: found throughput:max, allowed: throughput:max, queue_delay_mean:min",
        ),
        ({"generation": 5}, "other generation: found 5, allowed: 10"),
        ({"vary": ("w_q=0.001:0.05:log", "max_p=0.1:1")}, "other space: found"),
        ({"sampler": "random"}, "other sampler: found random, allowed: tpe"),
        ({"fix": (*FIX[:-1], "bytes=true")}, "other fixed: found"),
    ]
    for options, message in refused:
        with pytest.raises(UsageError, match=re.escape(message)):
            tuned(tmp_path / "a", **({"trials": 2, "runs": 1, "fresh": 2} | options))
    storage = str(tmp_path / "a" / "study.journal")
    with pytest.raises(UsageError, match="other scenario: found"):
        tuned(tmp_path / "b", trials=2, runs=1, fresh=2, storage=storage, set={"run.duration": "20 s"})
    monkeypatch.setattr(tuning, "build_digest", lambda: "another")
    with pytest.raises(UsageError, match=r"other core: found another, allowed: "):
        tuned(tmp_path / "a", trials=2, runs=1, fresh=2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--aqm", "droptail"], "droptail has no parameters to search"),
        (["--aqm", "fq_codel"], "fq_codel is a scheduler, whose parameters a setting cannot have"),
        (["--aqm", "read"], 'setting "read": no setting of that name'),
        (["--vary", "w_g=0.1:0.2"], "--vary w_g: is no parameter of red; did you mean w_q?"),
        (
            ["--vary", "w_q=0.2:0.1"],
            "found the ends 0.2 and 0.1; allowed: two above zero, the lower one first",
        ),
        (
            ["--aqm", "codel", "--vary", "target=5:20"],
            "target=5:20: found no unit; allowed: with a unit, as 5 ms",
        ),
        (["--vary", "w_q=0.1:0.2:8"], "found no range; allowed: a range as 0.01:0.2"),
        (["--vary", "w_q=0.1:1e400"], "found the ends 0.1 and 1e400; allowed: two above zero"),
        (["--fix", "w_q=0.1", "--fix", "w_q=0.2"], "--fix w_q: found twice"),
        (["--vary", "w_q"], "--vary w_q: found no KEY=VALUE"),
        (["--fix", "w_q=0.1", "--vary", "w_q=0.1:0.2"], "--vary w_q: found fixed as well"),
        (["--fix", "max_th=10", "--vary", "min_th=11:20"], "but must be below max_th, which is 10"),
        (["--trials", "0"], "--trials 0: allowed: from 1 to"),
        (["--runs", "0"], "--runs 0: allowed: from 1 to"),
        (["--generation", "0"], "--generation 0: at least 1 is needed"),
        (["--storage", "postgres9://x/y"], "cannot be opened"),
        (["--storage", "/nowhere/study"], "--storage /nowhere/study: cannot be opened: No such file"),
        (["--metrics", "utilisation:max"], "did you mean utilization"),
    ],
)
def test_mistake_gives_one_message(tmp_path: Path, options: list[str], message: str) -> None:
    given = ["tune", "small-gateway", "--out", str(tmp_path / "out"), "--jobs", "1"]
    for option, value in (
        ("--aqm", "red"),
        ("--metrics", "throughput:max"),
        ("--trials", "1"),
        ("--runs", "1"),
    ):
        given += [] if option in options else [option, value]
    with pytest.raises((UsageError, ScenarioError), match=re.escape(message)):
        CliRunner().invoke(cli, [*given, *options], catch_exceptions=False)


def test_command_prints_its_result(tmp_path: Path) -> None:
    given = ["tune", "small-gateway", "--duration", "5 s", "--aqm", "pi", "--metrics", TWO]
    given += ["--trials", "3", "--runs", "2", "--fresh", "2", "--no-pruning", "--out", str(tmp_path / "a")]
    done = CliRunner().invoke(cli, given, catch_exceptions=False)
    assert done.exit_code == 0
    assert "3 trials: 3 complete; 6 runs." in done.stdout
    again = CliRunner().invoke(cli, [*given, "--format", "json"], catch_exceptions=False)
    found = json.loads(again.stdout)
    assert found["counts"] == {"wanted": 6, "done": 6, "saved": 0, "trials": 3}
    assert {row["setting"] for row in found["figures"]} == {
        str(found["winner"]),
        "defaults",
        "scenario's own",
    }
    assert open_tune(tmp_path / "a").found["pruning"] is False
    text = (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    assert "Importance of the parameters" in text
    (tmp_path / "a" / "report.html").unlink()
    written = CliRunner().invoke(cli, ["report", str(tmp_path / "a")], catch_exceptions=False)
    assert written.exit_code == 0
    assert (tmp_path / "a" / "report.html").read_text(encoding="utf-8") == text


def test_search_without_a_winner_reports_the_reason(tmp_path: Path) -> None:
    given = ["tune", "small-gateway", "--duration", "1 s", "--aqm", "red", "--metrics", "throughput:max"]
    given += ["--vary", "w_q=2,3", "--trials", "2", "--runs", "1", "--out", str(tmp_path / "a")]
    with pytest.raises(Failed, match=r"no trial completed; the first is impossible: .*w_q: found"):
        CliRunner().invoke(cli, given, catch_exceptions=False)


def test_difference_is_written_by_its_method() -> None:
    samples = {"a": {"drops": [0.0] * 25 + [9.0]}, "defaults": {"drops": [seed / 26 for seed in range(26)]}}
    row = figures(samples, ["drops"], baseline="defaults")[0].row()
    assert row["difference_method"] == "bootstrap"
    low, high = f"{row['difference_low']:.1f}".replace("-", "−"), f"{row['difference_high']:.1f}"
    assert difference(row).endswith(f"[{low}, {high}]")


def test_grids_from_two_settings_are_two_studies() -> None:
    one, other = (
        Tuning.plan("byun2007-gateway", aqm, TWO, vary=["max_p=0.1,0.5"], judge="rank")
        for aqm in ("RED 1", "RED 4")
    )
    assert one.grid != other.grid
    assert one.determined_by() != other.determined_by()


def test_plan_is_checked_without_runs() -> None:
    plan = Tuning.plan("byun2007-gateway", "red", TWO, runs=5)
    assert (plan.trials, plan.looks, plan.seeds) == (100, 5 - FEWEST, [1, 2, 3, 4, 5])
    assert set(plan.references()) == {"defaults", "scenario's own"}
    # If the scenario has the defaults, they are simulated once.
    assert set(Tuning.plan("small-gateway", "red", TWO).references()) == {"defaults"}
    assert plan.references()["scenario's own"].point[:4] == ("60", "120", "0.1", "0.7")


@pytest.mark.parametrize("second", [",throughput:max", ""])
def test_objective_of_a_class_has_its_trials_in_the_figure(tmp_path: Path, second: str) -> None:
    workers = FunctionWorkers(bowls, names=("throughput", "web.fct_p95"))
    result = tuned(tmp_path / "tuned", workers=workers, metrics=f"web.fct_p95:min{second}", trials=12)
    svg = picture(next(each for each in drawn(result) if each.name == "front")).decode()
    # Trials without a place on the axes are left out.
    assert svg.count('aria-roledescription="point"') >= 12
    for each in drawn(result):
        assert each.caption.endswith("Outliers are cut off.")
