import copy
import importlib
import json
import signal
import subprocess
import sys
import time
import traceback
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import polars as pl
import pytest
from conftest import ROOT, Command, command_line, digests, environment
from patience import PATIENCE, wait_for

import bentpipe as bp
from bentpipe import _core
from bentpipe.runs.plan import make_plan
from bentpipe.runs.python_aqm import PythonAqm, imported, is_path

PASS, MARK, DROP = bp.Verdict.PASS, bp.Verdict.MARK, bp.Verdict.DROP


@pytest.fixture(scope="module")
def avqred() -> ModuleType:
    sys.path.insert(0, str(ROOT / "examples"))
    try:
        return importlib.import_module("avqred")
    finally:
        sys.path.pop(0)


@pytest.fixture(scope="module")
def brief() -> bp.Scenario:
    """Five seconds of the small gateway, from the beginning."""
    return bp.load("small-gateway", set={"run.duration": "5 s", "run.warmup": "0 s"})


def own_parameters(scenario: bp.Scenario) -> dict[str, Any]:
    """Return the parameters of the AQM at the only gateway."""
    values = json.loads(scenario.canonical())["gateways"][0]["aqm"]["values"]
    assert isinstance(values, dict)
    return values


def tables(run: _core.Run) -> dict[str, pl.DataFrame]:
    return {name: pl.DataFrame(getattr(run, name)) for name in ("series", "drops", "flows", "drop_runs")}


def greatest(run: _core.Run, series: str) -> float:
    return float(max(pl.DataFrame(run.series)[series].to_list()))


def simulated(scenario: bp.Scenario, aqm: object, seed: int = 1) -> _core.Run:
    """Return a run of `scenario` under an AQM written in Python."""
    plan = make_plan(scenario, settings=[bp.Setting("mine", aqm)], runs=1, seed=seed)  # type: ignore[arg-type]
    (setting,) = plan.settings
    assert setting.scenario.python_aqm is not None
    return _core.simulate(setting.scenario, seed, _core.Progress())


# ----- agreement with the built-in AQMs ---------------------------------------------------------------------


@pytest.mark.parametrize("name", ["byun2007-gateway", "small-gateway"])
@pytest.mark.parametrize("seed", [1, 2])
def test_avqred_in_python_equals_the_built_in_one(name: str, seed: int, avqred: ModuleType) -> None:
    scenario = bp.load(name, set={"run.duration": "60 s"})
    built_in = scenario.with_setting("AVQRED" if name.startswith("byun") else "avqred")
    theirs = _core.simulate(built_in, seed, _core.Progress())
    ours = simulated(scenario, avqred.AvqRed(**own_parameters(built_in)), seed)
    assert ours.counters == theirs.counters
    for table, frame in tables(ours).items():
        assert frame.equals(tables(theirs)[table]), table
    if name == "byun2007-gateway":
        assert pl.DataFrame(ours.drops).height > 1000
        assert greatest(ours, "aqm.VQ") > 60


def test_avqred_in_python_writes_the_files_of_the_built_in_one(avqred: ModuleType, tmp_path: Path) -> None:
    scenario = bp.load("byun2007-gateway", set={"run.duration": "20 s"})
    settings: list[str | bp.Setting] = ["AVQRED", bp.Setting("mine", avqred.AvqRed)]
    bp.compare(scenario, settings, runs=1, out=tmp_path / "both")
    found = digests(tmp_path / "both")
    theirs = {name.split("/", 2)[2]: digest for name, digest in found.items() if "/avqred/" in name}
    ours = {name.split("/", 2)[2]: digest for name, digest in found.items() if "/mine/" in name}
    assert len(ours) == 5
    assert ours == theirs


def test_avqred_in_python_takes_at_most_twenty_times_as_long(avqred: ModuleType) -> None:
    ramp = {"traffic.web.ramp.sessions": 400, "traffic.web.ramp.over": "40 s", "run.warmup": "60 s"}
    scenario = bp.load("byun2007-gateway", set=ramp | {"run.duration": "30 s"})
    built_in = scenario.with_setting("AVQRED")

    def cpu(simulate: Any) -> float:  # noqa: ANN401
        start = time.thread_time()
        simulate()
        return time.thread_time() - start

    # Alternating, and the least of three: other load on the machine slows both down.
    both = [
        (
            cpu(lambda: _core.simulate(built_in, 1, _core.Progress())),
            cpu(lambda: simulated(scenario, avqred.AvqRed())),
        )
        for _ in range(3)
    ]
    theirs, ours = (min(times) for times in zip(*both, strict=True))
    print(f"AVQRED: built in {theirs:.3f} s, in Python {ours:.3f} s: {ours / theirs:.1f} times")
    assert ours <= 20 * theirs


class Pi:
    """PI that wakes at the times of the built-in one."""

    def __init__(self, q_ref: float, a: float, b: float, w: float) -> None:
        self.q_ref, self.a, self.b = q_ref, a, b
        self.every_ns = round(1e9 / w)
        self.next_ns = self.every_ns
        self.p = self.q_old = 0.0

    def arrive(self, pkt: bp.Packet, cx: bp.Context) -> bp.Verdict:
        return MARK if cx.rng.uniform() < self.p else PASS

    def wake_at(self) -> float:
        return self.next_ns / 1e9

    def wake(self, cx: bp.Context) -> None:
        assert cx.now_ns == self.next_ns
        q = cx.queue.packets
        change = self.a * (q - self.q_ref) - self.b * (self.q_old - self.q_ref)
        self.p = min(max(self.p + change, 0.0), 1.0)
        self.q_old = q
        self.next_ns += self.every_ns

    def probe(self) -> dict[str, float]:
        return {"p": self.p}


def test_pi_in_python_is_woken_like_the_built_in_one() -> None:
    overrides = {"run.duration": "60 s", "gateway.aqm.w": 170}
    scenario = bp.load("byun2007-gateway", set={"run.duration": "60 s"})
    built_in = bp.load("byun2007-gateway", set=overrides).with_setting("pi")
    values = own_parameters(built_in)
    theirs = _core.simulate(built_in, 1, _core.Progress())
    ours = simulated(scenario, Pi(**values))
    for table, frame in tables(ours).items():
        assert frame.equals(tables(theirs)[table]), table
    assert greatest(ours, "aqm.p") > 0


# ----- calls of the methods -------------------------------------------------------------------------------


class CountsCalls:
    """Counts the calls of each method, and checks their arguments."""

    calls: Counter[str] = Counter()  # noqa: RUF012

    def arrive(self, pkt: bp.Packet, cx: bp.Context) -> bp.Verdict:
        self.calls["arrive"] += 1
        assert pkt.number + 1 == self.calls["arrive"]
        assert cx.now * 1e9 == pytest.approx(cx.now_ns)
        queue = cx.queue
        assert (queue.packets == 0) == (queue.bytes == 0)
        assert queue.limit_packets is None or queue.packets <= queue.limit_packets
        assert (queue.idle_since is None) == (queue.idle_since_ns is None)
        assert 0 < pkt.len <= 1500
        assert (pkt.ecn, pkt.marked) == ("not-ect", False)
        assert (pkt.tcp_window is None) == (pkt.tcp_seq is None) == (pkt.tcp_syn is None)
        assert pkt.len == 40 or pkt.tcp_window is not None
        return PASS

    def admit(self, pkt: bp.Packet, cx: bp.Context) -> None:
        self.calls["admit"] += 1

    def enqueued(self, pkt: bp.Packet, cx: bp.Context) -> None:
        self.calls["enqueued"] += 1

    def depart(self, pkt: bp.Packet, cx: bp.Context) -> bp.Verdict:
        self.calls["depart"] += 1
        assert 0 <= pkt.arrival <= cx.now
        return PASS

    def overflowed(self, pkt: bp.Packet, cx: bp.Context) -> None:
        self.calls["overflowed"] += 1

    def flow(self, flow: int, event: str, cx: bp.Context) -> None:
        self.calls[event] += 1


def test_methods_are_called_once_per_event() -> None:
    scenario = bp.load(
        "red-dumbbell",
        set={"run.duration": "30 s", "run.warmup": "0 s", "link.bottleneck.queue.limit": "40 packets"},
    )
    CountsCalls.calls.clear()
    run = simulated(scenario, CountsCalls)
    calls, counters = CountsCalls.calls, run.counters
    drops = pl.DataFrame(run.drops)
    assert calls["arrive"] == calls["admit"] == calls["enqueued"]
    assert calls["enqueued"] - calls["depart"] - calls["overflowed"] in range(41)
    assert calls["overflowed"] == drops.filter(pl.col("reason") == "overflow").height > 0
    assert calls["depart"] == counters["sent_packets"]
    assert calls["opened"] == pl.DataFrame(run.flows).height


def test_undefined_methods_are_not_called(brief: bp.Scenario) -> None:
    class ArriveOnly(bp.Aqm):
        def arrive(self, pkt: bp.Packet, cx: bp.Context) -> bp.Verdict:
            return PASS

    assert set(PythonAqm("least", ArriveOnly).methods()) == {"arrive"}
    bare = simulated(brief, ArriveOnly)
    for table, frame in tables(_core.simulate(brief.with_setting("droptail"), 1, _core.Progress())).items():
        assert frame.equals(tables(bare)[table]), table


class EveryHundredth:
    """Returns one verdict for every hundredth packet, and PASS for the others."""

    def __init__(self, verdict: bp.Verdict) -> None:
        self.verdict = verdict

    def arrive(self, pkt: bp.Packet, cx: bp.Context) -> bp.Verdict:
        return self.verdict if pkt.number % 100 == 99 else PASS


def test_mark_and_drop_differ_under_ecn_marking() -> None:
    overrides = {"run.duration": "20 s", "link.bottleneck.queue.marking": "ecn"}
    dropped: dict[tuple[bool, str], int] = {}
    for ecn in (False, True):
        scenario = bp.load("red-dumbbell", set=overrides | {"transport.ns2.ecn": ecn})
        for name, verdict in (("mark", MARK), ("drop", DROP)):
            drops = pl.DataFrame(simulated(scenario, EveryHundredth(verdict)).drops)
            dropped[ecn, name] = drops.filter(pl.col("reason") == "aqm").height
    assert dropped[False, "mark"] == dropped[False, "drop"] > 0
    assert dropped[True, "drop"] > 0
    assert dropped[True, "mark"] == 0


class HoldsOnce:
    """Holds every packet once, for 10 ms."""

    def __init__(self) -> None:
        self.seen = -1

    def arrive(self, pkt: bp.Packet, cx: bp.Context) -> bp.Verdict:
        if pkt.number > self.seen:
            self.seen = pkt.number
            return bp.Verdict.hold(0.01)
        return PASS

    def probe(self) -> dict[str, float]:
        return {"seen": self.seen}


def test_held_packets_are_sent_later() -> None:
    scenario = bp.load("red-dumbbell", set={"run.duration": "20 s", "run.warmup": "0 s"})
    plain, held = simulated(scenario, EveryHundredth(PASS)), simulated(scenario, HoldsOnce)
    assert held.counters["sent_packets"] > 0
    # The round trip is 10 ms longer than 560 ms, so most packets are still sent.
    assert greatest(held, "aqm.seen") > 1000
    assert not tables(held)["series"].drop("aqm.seen").equals(tables(plain)["series"])


class DropsPairs:
    """Discards every hundredth packet together with one from the queue."""

    pairs = 0

    def arrive(self, pkt: bp.Packet, cx: bp.Context) -> bp.Verdict:
        if pkt.number % 100 != 99:
            return PASS
        found = cx.sample()
        if found is None:
            return PASS
        spot, other = found
        assert other.number < pkt.number
        type(self).pairs += 1
        return bp.Verdict.drop_both(spot)


def test_drop_both_discards_a_queued_packet_too() -> None:
    scenario = bp.load("red-dumbbell", set={"run.duration": "30 s", "run.warmup": "0 s"})
    DropsPairs.pairs = 0
    run = simulated(scenario, DropsPairs)
    drops = pl.DataFrame(run.drops)
    assert drops.filter(pl.col("reason") == "aqm").height == 2 * DropsPairs.pairs > 0


# ----- errors -------------------------------------------------------------------------------------------


class FailsAfterASecond:
    """Raises `what` in `method`, or returns it, from the first second on."""

    def __init__(self, what: object, method: str = "arrive") -> None:
        self.what = what
        self.method = method

    def _do(self, method: str, cx: bp.Context | None, otherwise: object) -> Any:  # noqa: ANN401
        if method != self.method or (cx is not None and cx.now < 1):
            return otherwise
        if isinstance(self.what, BaseException):
            raise self.what
        return self.what

    def arrive(self, pkt: bp.Packet, cx: bp.Context) -> bp.Verdict:
        found: bp.Verdict = self._do("arrive", cx, PASS)
        return found

    def depart(self, pkt: bp.Packet, cx: bp.Context) -> bp.Verdict:
        found: bp.Verdict = self._do("depart", cx, PASS)
        return found

    def probe(self) -> dict[str, float]:
        found: dict[str, float] = self._do("probe", None, {})
        return found

    def wake_at(self) -> float | None:
        found: float | None = self._do("wake_at", None, None)
        return found

    def wake(self, cx: bp.Context) -> None:
        self._do("wake", cx, None)


def test_exception_stops_the_run_and_names_time_setting_and_seed(brief: bp.Scenario, tmp_path: Path) -> None:
    setting = bp.Setting("mine", FailsAfterASecond(ZeroDivisionError("by zero")))
    with pytest.raises(bp.AlgorithmError) as caught:
        bp.compare(brief, [setting], runs=2, seed=5, jobs=2, out=tmp_path / "out")
    text = str(caught.value)
    assert "arrive raised ZeroDivisionError: by zero, at simulated time 1." in text
    assert ", in setting mine, seed " in text
    cause = caught.value.__cause__
    assert isinstance(cause, ZeroDivisionError)
    frames = traceback.extract_tb(cause.__traceback__)
    assert [(frame.filename, frame.name) for frame in frames] == [(__file__, "arrive"), (__file__, "_do")]
    assert not (tmp_path / "out").exists()


def test_runs_finished_before_an_exception_are_kept(brief: bp.Scenario, tmp_path: Path) -> None:
    settings: list[str | bp.Setting] = ["red", bp.Setting("mine", FailsAfterASecond(ValueError("no")))]
    with pytest.raises(bp.AlgorithmError):
        bp.compare(brief, settings, runs=1, jobs=1, out=tmp_path / "out")
    assert (tmp_path / "out" / "runs" / "red" / "1").is_dir()
    with pytest.raises(bp.ResultError, match="1 of 2 runs are complete"):
        bp.open(tmp_path / "out")


@pytest.mark.parametrize(
    ("method", "what", "expected"),
    [
        (
            "arrive",
            None,
            "arrive returned None; allowed: Verdict.PASS, Verdict.MARK, Verdict.DROP, Verdict.hold",
        ),
        ("arrive", "drop", "arrive returned 'drop'; allowed: Verdict.PASS"),
        ("arrive", True, "arrive returned True; allowed"),
        (
            "depart",
            bp.Verdict.hold(0.5),
            "depart returned Verdict.hold(0.5); allowed: Verdict.PASS, Verdict.MARK or",
        ),
        ("depart", None, "depart returned None; allowed"),
        ("wake_at", float("nan"), "wake_at returned nan; allowed: a time [s] or None"),
        ("wake_at", float("inf"), "wake_at returned inf; allowed"),
        ("wake_at", -1.0, "wake_at returned -1.0; allowed"),
        ("wake_at", "soon", "wake_at returned 'soon'; allowed"),
        ("wake_at", 0.75, "wake_at returned 0.75 after a wake at the same time; allowed: a later time"),
        ("wake_at", 0.0, "wake_at returned 0.0"),
        ("probe", {"p": float("nan")}, "probe returned NaN for p; allowed: a finite number"),
        ("probe", {"p": "x"}, "probe returned {'p': 'x'}; allowed: a dictionary of names and numbers"),
        ("probe", 3, "probe returned 3; allowed"),
        (
            "probe",
            {"a\0b": 1.0},
            r'probe returned the name "a\0b"; allowed: a name without control characters',
        ),
    ],
)
def test_wrong_return_value_is_reported_with_the_allowed_ones(
    brief: bp.Scenario, method: str, what: object, expected: str
) -> None:
    with pytest.raises(bp.AlgorithmError) as caught:
        simulated(brief, FailsAfterASecond(what, method))
    assert expected in str(caught.value)
    assert "at simulated time " in str(caught.value)
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("fault", [ValueError("no"), KeyboardInterrupt()], ids=["error", "interrupt"])
def test_advance_stops_at_an_exception_and_calls_the_aqm_no_more(
    brief: bp.Scenario, fault: BaseException
) -> None:
    calls: list[float] = []

    class FailsOnce:
        def arrive(self, pkt: bp.Packet, cx: bp.Context) -> bp.Verdict:
            calls.append(cx.now)
            if len(calls) == 20:
                raise fault
            return PASS

    (setting,) = make_plan(brief, settings=[bp.Setting("mine", FailsOnce)], runs=1, seed=1).settings
    simulation = _core.Simulation(setting.scenario, 1)
    with pytest.raises((bp.AlgorithmError, KeyboardInterrupt)):
        simulation.advance(simulation.end)
    stopped = simulation.now
    assert calls[-1] <= stopped < simulation.end
    again = f"arrive raised {type(fault).__name__}"
    with pytest.raises(bp.AlgorithmError, match=again):
        simulation.advance(simulation.end)
    with pytest.raises(bp.AlgorithmError, match=again):
        simulation.step()
    assert (simulation.now, len(calls)) == (stopped, 20)


def test_probe_with_changing_names_is_refused(brief: bp.Scenario) -> None:
    class ChangingNames(EveryHundredth):
        calls = 0

        def probe(self) -> dict[str, float]:
            self.calls += 1
            return {"a": 1.0} if self.calls < 20 else {"b": 1.0}

    with pytest.raises(bp.AlgorithmError, match="probe returned b, but a in the first call"):
        simulated(brief, ChangingNames(PASS))


def test_slot_of_an_earlier_call_is_refused() -> None:
    class KeepsSlot:
        slot: bp.QueueSlot | None = None

        def arrive(self, pkt: bp.Packet, cx: bp.Context) -> bp.Verdict:
            if self.slot is not None:
                return bp.Verdict.drop_both(self.slot)
            found = cx.sample()
            self.slot = found[0] if found else None
            return PASS

    with pytest.raises(bp.AlgorithmError, match="a slot from an earlier call"):
        simulated(bp.load("red-dumbbell", set={"run.duration": "5 s"}), KeepsSlot)


def test_context_is_unusable_after_the_call(brief: bp.Scenario) -> None:
    kept: list[bp.Context] = []

    class KeepsContext:
        def arrive(self, pkt: bp.Packet, cx: bp.Context) -> bp.Verdict:
            kept[:] = [cx]
            return PASS

    simulated(brief, KeepsContext)
    uses: list[Any] = [
        lambda cx: cx.now,
        lambda cx: cx.queue.packets,
        lambda cx: cx.rng.uniform(),
        lambda cx: cx.sample(),
    ]
    for use in uses:
        with pytest.raises(RuntimeError, match="only during the call"):
            use(kept[0])


def test_keyboard_interrupt_is_passed_on(brief: bp.Scenario) -> None:
    with pytest.raises(KeyboardInterrupt):
        simulated(brief, FailsAfterASecond(KeyboardInterrupt()))


def test_hold_time_below_a_nanosecond_is_refused() -> None:
    for seconds in (0.0, 1e-12, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValueError, match="allowed: a time of at least 1e-9 s"):
            bp.Verdict.hold(seconds)


class WithoutArrive:
    pass


class WakeOnly(EveryHundredth):
    def wake(self, cx: bp.Context) -> None:
        pass


class WrongPlacement(bp.Aqm):
    placement = "somewhere"  # type: ignore[assignment]

    def arrive(self, pkt: bp.Packet, cx: bp.Context) -> bp.Verdict:
        return PASS


class NotCopyable(EveryHundredth):
    def __init__(self) -> None:
        self.module = sys


@pytest.mark.parametrize(
    ("aqm", "expected"),
    [
        (WithoutArrive(), "is not an AQM: it has no method arrive(pkt, cx)"),
        (None, "builtins.NoneType is not an AQM"),
        (WakeOnly(PASS), "has only one of wake_at and wake; allowed: both or neither"),
        (WrongPlacement(), "placement is 'somewhere'; allowed: anywhere, watched queue"),
        (NotCopyable(), "cannot be copied, and each run needs a copy: TypeError"),
        (EveryHundredth, "EveryHundredth() failed: TypeError"),
        (bp.Aqm, "Aqm() failed: TypeError"),
    ],
)
def test_unsuitable_object_is_refused_before_any_run(
    scenario: bp.Scenario,
    aqm: Any,  # noqa: ANN401
    expected: str,
) -> None:
    with pytest.raises(bp.UsageError) as caught:
        bp.compare(scenario, ["red", bp.Setting("mine", aqm)])
    assert str(caught.value).startswith("setting mine: ")
    assert expected in str(caught.value)


def test_settings_other_than_names_and_settings_are_refused(scenario: bp.Scenario) -> None:
    with pytest.raises(bp.UsageError, match=r"allowed: names, and bentpipe.Setting\(name, aqm\)"):
        make_plan(scenario, settings=[EveryHundredth(PASS)])  # type: ignore[list-item]
    with pytest.raises(bp.UsageError, match="empty entry"):
        make_plan(scenario, settings=[bp.Setting(" ", EveryHundredth(PASS))])
    duplicates: list[str | bp.Setting] = [bp.Setting("red", EveryHundredth(PASS)), "red"]
    with pytest.raises(bp.UsageError, match="red: found twice"):
        make_plan(scenario, settings=duplicates)


def test_override_unknown_to_every_setting_is_refused(avqred: ModuleType) -> None:
    scenario = bp.load("small-gateway", set={"gateway.aqm.max_p": 0.3})
    mine = bp.Setting("mine", avqred.AvqRed)
    with pytest.raises(bp.ScenarioError, match="max_p: no parameter of mine; allowed: min_th, max_th"):
        make_plan(scenario, settings=[mine])
    plan = make_plan(scenario, settings=[mine, "red"])
    assert [setting.name for setting in plan.settings] == ["mine", "red"]
    assert "no effect under mine" in plan.settings[0].scenario.warnings[0]


def test_with_setting_replaces_the_python_aqm(brief: bp.Scenario, avqred: ModuleType) -> None:
    mine = brief.with_python_aqm(PythonAqm("mine", avqred.AvqRed))
    assert mine.python_aqm is not None
    assert mine.with_setting("red").python_aqm is None
    assert mine.canonical() != brief.canonical()


# ----- state of runs, and identity of results -----------------------------------------------------------


def test_runs_do_not_share_state(brief: bp.Scenario, avqred: ModuleType) -> None:
    mine = avqred.AvqRed(min_th=5, max_th=20, min_capacity=3e6, max_capacity=4e6)
    before = copy.deepcopy(vars(mine.dropper))
    one, two = (bp.compare(brief, [bp.Setting("mine", mine)], runs=3, jobs=jobs) for jobs in (1, 3))
    assert digests(one.folder) == digests(two.folder)
    assert one.drops().height > 0
    assert vars(mine.dropper) == before


def test_manifest_identifies_the_python_aqm(brief: bp.Scenario, avqred: ModuleType) -> None:
    result = bp.compare(brief, ["red", bp.Setting("mine", avqred.AvqRed)], runs=1)
    built_in, mine = result.manifest["settings"]
    assert built_in["python"] is None
    assert mine["python"]["class"] == "avqred.AvqRed"
    assert mine["python"]["state"]["dropper"]["min_th"] == 60
    assert len(mine["python"]["source_sha256"]) == 64
    effective = {row["key"]: row["value"] for row in mine["effective"]}
    assert effective["gateway.aqm.algorithm"] == "avqred.AvqRed"
    assert effective["gateway.aqm.source"] == mine["python"]["source_sha256"]
    assert effective["gateway.aqm.alpha"] == "0.05"
    assert result.report().exists()


def digest(scenario: bp.Scenario, aqm: Any) -> str:  # noqa: ANN401
    (setting,) = make_plan(scenario, settings=[bp.Setting("mine", aqm)], runs=1).settings
    return setting.digest


def test_digest_depends_on_state_and_source(
    scenario: bp.Scenario, avqred: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = digest(scenario, avqred.AvqRed())
    assert first == digest(scenario, avqred.AvqRed(min_th=60.0))
    assert digest(scenario, avqred.AvqRed) == digest(scenario, avqred.AvqRed) != first
    assert first != digest(scenario, avqred.AvqRed(min_th=61))
    assert first != make_plan(scenario, settings=["droptail"], runs=1).settings[0].digest
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "helper_of_mine.py").write_text("LIMIT = 3\n\ndef decide(pkt): return pkt.len > LIMIT\n")
    (tmp_path / "mine_with_helper.py").write_text(
        "import bentpipe as bp\nfrom helper_of_mine import decide\n"
        "class Mine:\n    def arrive(self, pkt, cx): return bp.Verdict.PASS\n"
    )
    mine = imported("mine_with_helper.Mine")
    before = digest(scenario, mine)
    assert before == digest(scenario, mine)
    (tmp_path / "helper_of_mine.py").write_text("LIMIT = 4\n\ndef decide(pkt): return pkt.len > LIMIT\n")
    assert before != digest(scenario, mine)


def test_aqm_with_unreadable_state_is_not_identified() -> None:
    class Holding(EveryHundredth):
        def __init__(self, held: object) -> None:
            self.held = held

    for held in ({1, 2}, bytearray(b"x"), print, Path(), object(), {1: 2}):
        assert not PythonAqm("mine", Holding(held)).identified, held
    for known in (None, 1, 2.5, "x", [1, (2,)], {"a": {"b": [float("nan")]}}, EveryHundredth(DROP), MARK):
        assert PythonAqm("mine", Holding(known)).identified, known
    namespace: dict[str, Any] = {}
    exec("class Typed:\n    def arrive(self, pkt, cx): return None\n", {"__name__": "nowhere"}, namespace)  # noqa: S102
    assert not PythonAqm("mine", namespace["Typed"]).identified


# ----- names on the command line -----------------------------------------------------------------------

QUICK = ["small-gateway", "--duration", "5 s", "--runs", "1"]

MINE = """
import bentpipe as bp

class Mine(bp.Aqm):
    def __init__(self):
        self.p = 0.01

    def arrive(self, pkt, cx):
        return bp.Verdict.MARK if cx.rng.uniform() < self.p else bp.Verdict.PASS

class Broken(Mine):
    def arrive(self, pkt, cx):
        return 1 / 0 if cx.now > 2 else bp.Verdict.PASS

class Holding(Mine):
    def __init__(self):
        super().__init__()
        self.seen = {1, 2}

tuned = Mine()
tuned.p = 0.02
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    package = tmp_path / "mypkg"
    package.mkdir()
    (package / "__init__.py").write_text("from mypkg.mine import Broken, Holding, Mine, tuned\n")
    (package / "mine.py").write_text(MINE)
    return package


@pytest.mark.usefixtures("mine")
def test_class_in_the_current_folder_is_found_by_name(bentpipe: Command, tmp_path: Path) -> None:
    settings = "RED 4,mypkg.Mine, mypkg.mine.tuned"
    bentpipe("compare", *QUICK, "--settings", settings, "--out", "out", check=0)
    result = bp.open(tmp_path / "out")
    assert result.settings == ["RED 4", "mypkg.Mine", "mypkg.mine.tuned"]
    assert (tmp_path / "out" / "runs" / "mypkg-mine-tuned").is_dir()
    shown = bentpipe("show", "small-gateway", "--setting", "mypkg.Mine", check=0).stdout
    assert "mypkg.mine.Mine" in shown
    assert "written in Python" in shown


def test_command_prints_traceback_time_setting_and_seed(
    bentpipe: Command, tmp_path: Path, mine: Path
) -> None:
    done = bentpipe(
        "compare", *QUICK, "--settings", "red,mypkg.Broken", "--jobs", "1", "--out", "out", check=2
    )
    assert done.stdout == ""
    assert "Traceback (most recent call last):" in done.stderr
    assert f'File "{mine}/mine.py", line 13, in arrive' in done.stderr
    assert "bentpipe/experiment.py" not in done.stderr
    last = done.stderr.splitlines()[-2:]
    assert last[0].startswith(
        "error: arrive raised ZeroDivisionError: division by zero, at simulated time 2."
    )
    assert last[0].endswith(" s, in setting mypkg.Broken, seed 1")
    assert last[1] == "1 of 2 runs are finished and kept in out"
    alone = bentpipe("compare", *QUICK, "--settings", "mypkg.Broken", "--out", "alone", check=2)
    assert alone.stderr.splitlines()[-1].startswith("error: arrive raised")
    assert not (tmp_path / "alone").exists()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("nopkg.Mine", ["no Python module is called nopkg", "bentpipe list aqms", "MODULE.CLASS"]),
        ("mypkg.Mime", ["module mypkg has no Mime", "allowed: Broken, Holding, Mine, tuned", "mypkg.Mine?"]),
        ("mypkg.other.Mine", ["no Python module is called mypkg.other"]),
        ("mypkg.mine", ["mypkg.mine", "is not an AQM"]),
        ("wrong.Mine", ["wrong cannot be imported: SyntaxError", "line 2"]),
        ("lacking.Mine", ["lacking cannot be imported: ModuleNotFoundError", "'nothing_of_the_kind'"]),
        ("failing.Mine", ["failing cannot be imported: KeyError: 'x'", "failing.py, line 1"]),
    ],
)
@pytest.mark.usefixtures("mine")
def test_name_that_cannot_be_imported_gives_one_message(
    bentpipe: Command, tmp_path: Path, name: str, expected: list[str]
) -> None:
    (tmp_path / "wrong.py").write_text("x = 1\ny = = 2\n")
    (tmp_path / "lacking.py").write_text("import nothing_of_the_kind\n")
    (tmp_path / "failing.py").write_text("{}['x']\n")
    done = bentpipe("compare", *QUICK, "--settings", f"red,{name}", check=2)
    assert done.stdout == ""
    (message,) = done.stderr.splitlines()
    assert message.startswith(f"error: setting {name}: ")
    assert all(word in message for word in expected), message


def test_changed_algorithm_cannot_be_resumed(bentpipe: Command, mine: Path) -> None:
    command = ["compare", *QUICK, "--settings", "mypkg.Mine", "--out", "out"]
    bentpipe(*command, check=0)
    bentpipe(*command, "--resume", check=0)
    (mine / "mine.py").write_text(MINE.replace("0.01", "0.03"))
    changed = bentpipe(*command, "--resume", check=2).stderr
    assert "cannot be resumed: it was started with gateway.aqm." in changed
    (mine / "mine.py").write_text(MINE + "# a comment\n")
    assert "gateway.aqm.source" in bentpipe(*command, "--resume", check=2).stderr
    holding = ["compare", *QUICK, "--settings", "mypkg.Holding", "--out", "holding"]
    bentpipe(*holding, check=0)
    refused = bentpipe(*holding, "--resume", check=2).stderr
    assert "its state does not show whether mypkg.mine.Holding is still the same" in refused


def test_scenario_file_cannot_name_python_code(bentpipe: Command, mine: Path) -> None:
    text = (ROOT / "scenarios" / "small-gateway.toml").read_text()
    (mine.parent / "own.toml").write_text(text.replace('"avqred"]', '"mypkg.Mine"]'))
    (mine / "__init__.py").write_text("raise SystemExit('imported')\n")
    message = bentpipe("compare", "own.toml", "--runs", "1", check=2).stderr
    assert "run.settings[3]" in message
    assert "imported" not in message


def test_system_exit_of_a_python_aqm_is_a_mistake(bentpipe: Command, mine: Path) -> None:
    code = "class Leaving(Mine):\n    def arrive(self, pkt, cx):\n        raise SystemExit(0)\n"
    (mine / "mine.py").write_text(MINE + code)
    (mine / "leaving.py").write_text("raise SystemExit(0)\n")
    for name in ("mine.Leaving", "leaving.Any"):
        message = bentpipe("compare", *QUICK, "--settings", f"mypkg.{name}", "--runs", "1", check=2).stderr
        assert "SystemExit" in message


def test_ctrl_c_stops_a_python_aqm(tmp_path: Path, mine: Path) -> None:
    code = "from pathlib import Path\nclass Touching(Mine):\n    def arrive(self, pkt, cx):\n"
    code += '        Path("begun").touch()\n        return super().arrive(pkt, cx)\n'
    (mine / "mine.py").write_text(MINE + code)
    command = [
        "compare",
        "byun2007-gateway",
        "--settings",
        "mypkg.mine.Touching",
        "--runs",
        "4",
        "--jobs",
        "2",
    ]
    running = subprocess.Popen(
        command_line(*command, "--duration", "200 h", "--out", "out"),
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    wait_for(lambda: (tmp_path / "begun").exists() or running.poll() is not None)
    assert running.poll() is None
    # Each run would take hours.
    running.send_signal(signal.SIGINT)
    _, stderr = running.communicate(timeout=PATIENCE)
    assert running.returncode == 130
    assert "0 of 4 runs are finished" in stderr
    assert "Traceback" not in stderr


def test_dotted_path_is_distinguished_from_a_setting_name() -> None:
    assert is_path("mypkg.MyAqm")
    assert is_path("a.b.C")
    for name in ("RED 4", "red", "a.", ".b", "1.5", "RED 0.5", "a..b", "a b.c"):
        assert not is_path(name), name


def test_example_gives_the_series_of_the_built_in_avqred(bentpipe: Command, tmp_path: Path) -> None:
    (tmp_path / "avqred.py").write_text((ROOT / "examples" / "avqred.py").read_text())
    command = ["compare", "byun2007-gateway", "--duration", "10 s", "--runs", "1", "--out", "out"]
    bentpipe(*command, "--settings", "AVQRED,avqred.AvqRed", check=0)
    found = digests(tmp_path / "out")
    assert found["runs/avqred/1/series.parquet"] == found["runs/avqred-avqred/1/series.parquet"]
