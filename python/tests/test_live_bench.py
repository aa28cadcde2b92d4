"""Evaluation of the live gateway's benchmark: times, indexes, verdicts and tables."""

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).parent / "live"


def module(name: str) -> ModuleType:
    """Load a module of the benchmark from its file; the folder is not a package."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


rig, bench = module("rig"), module("bench")


def test_rate_is_over_the_previous_half_second() -> None:
    # 1000 bytes per 0.1 s from 1 s on: 80 kbit/s once half a second has passed, 64 kbit/s at 0.4 s.
    samples = [rig.Sample(0.1 * n, max(0, n - 10) * 1000, 0, {}) for n in range(31)]
    observed = rig.Observed(1.0, 2.0, samples, None)
    assert rig.first_at(observed.rates(), 64_000 - 1) == pytest.approx(1.4)
    assert rig.first_at(observed.rates(), 80_000 - 1) == pytest.approx(1.5)
    assert rig.first_at(observed.rates(), 80_001) is None


def test_cores_and_the_wire_count_from_the_warm_up_on() -> None:
    # From 1 to 3 s: 0.5 s of processor time, and 250 kB.
    samples = [
        rig.Sample(0.0, 0, 0, {"a": 9.0, "b": 0.0}),
        rig.Sample(1.0, 0, 50_000, {"a": 10.0, "b": 1.0}),
        rig.Sample(2.0, 0, 60_000, {"a": 10.1, "b": 1.0}),
        rig.Sample(3.0, 0, 300_000, {"a": 10.3, "b": 1.2}),
    ]
    observed = rig.Observed(1.0, 2.0, samples, None)
    assert observed.cores("a") == pytest.approx(0.15)
    assert observed.cores("a", "b") == pytest.approx(0.25)
    assert observed.wire == pytest.approx(1e6)


def test_jains_index_matches_worked_examples() -> None:
    assert rig.jain([3.0, 3.0, 3.0]) == pytest.approx(1)
    assert rig.jain([1.0, 0.0, 0.0, 0.0]) == pytest.approx(0.25)
    assert rig.jain([0.0]) == 0


@pytest.mark.parametrize(
    ("sign", "value", "inside", "outside"),
    [("≥", 95, 95.0, 94.9), ("≤", 4, 4.0, 4.1), ("=", 0, 0.0, 1.0), ("±", 3, -3.0, -3.1)],
)
def test_verdict_uses_the_median(sign: str, value: float, inside: float, outside: float) -> None:
    target = bench.Target(sign, value)
    assert bench.Row("c", "q", "", [outside, inside, inside], target).verdict == bench.IN
    assert bench.Row("c", "q", "", [outside, inside, outside], target).verdict == bench.OUT
    assert bench.Row("c", "q", "", [outside]).verdict == ""


def test_missing_measurement_is_infinite_and_misses_the_target() -> None:
    target = bench.Target("≤", 4)
    row = bench.Row("c", "time", "s", [None, 3.0, 2.0], target)
    assert (row.middle, row.verdict) == (3.0, bench.IN)
    assert bench.Row("c", "time", "s", [None, 3.0, None], target).verdict == bench.OUT


def test_table_is_made_from_stored_results_and_reports_missed_targets() -> None:
    rows = [
        bench.Row("20 Mbit/s", "share of the ceiling", "%", [98.3, 97.1, 99.0], bench.Target("≥", 95)),
        bench.Row("20 Mbit/s", "time to 90 % of the ceiling", "s", [5.25, None, 4.5], bench.Target("≤", 4)),
        bench.Row("20 Mbit/s", "goodput", "Mbit/s", [19.0, 19.04, 18.0]),
    ]
    system = dict.fromkeys(("kernel", "cpus", "processor", "bentpipe", "nginx", "iptables"), "x")
    kept = json.loads(json.dumps({"split": bench.stored(rows, quick=False, versions=system)}))
    assert bench.restored(kept["split"]) == rows
    assert [each["verdict"] for each in kept["split"]["rows"]] == [bench.IN, bench.OUT, ""]
    text = bench.markdown(kept)
    assert text.startswith("1 of 2 targets are met:")
    assert "| 20 Mbit/s | share of the ceiling | 98.3 % | 97.1 – 99 | ≥ 95 | met |" in text
    assert text.count("|  | time to 90 % of the ceiling | 5.25 s | 4.50 – never | ≤ 4 | **missed** |") == 1
    assert "|  | goodput | 19 Mbit/s | 18 – 19.0 |  |  |" in text


def test_cases_with_the_same_quantities_become_columns() -> None:
    target = bench.Target("≤", 4)
    rows = [
        bench.Row("CUBIC", "goodput", "Mbit/s", [19.0, 19.0, 19.0]),
        bench.Row("CUBIC", "time", "s", [5.25, None, 4.5], target),
        bench.Row("BBR", "goodput", "Mbit/s", [18.0, 17.0, 18.5]),
        bench.Row("BBR", "time", "s", [3.0, 3.0, 3.0], target),
    ]
    assert bench.comparison(rows).splitlines() == [
        "| | CUBIC | BBR |",
        "| --- | --- | --- |",
        "| goodput [Mbit/s] | 19 | 18 (17 – 18.5) |",
        "| time [s] | 5.25 (4.50 – never; ≤ 4 **missed**) | 3 (≤ 4 met) |",
    ]
    assert bench.comparison(rows[:3]) == bench.table(rows[:3])


def test_links_scenario_differs_only_in_the_queue_of_the_modem() -> None:
    made = bench.Bench(None, quick=False, keep=None)
    ours, links = (json.loads(each.canonical()) for each in made.bulk(20_000_000, 100))
    satellite = next(link for link in links["links"] if link["name"] == "satellite")
    # 100 ms at 20 Mbit/s.
    assert satellite["forward"]["rate"] == 20_000_000
    assert satellite["forward"]["queue"]["limit"]["bytes"] == 250_000
    assert [link["name"] for link in links["links"]] == [link["name"] for link in ours["links"]]
    assert links["traffic"] == ours["traffic"]
    # Four times the product of 20 Mbit/s and 600 ms, divided by a hundred connections.
    assert ours["gateways"][0]["pep"]["buffer"] == 60_000


def test_rates_from_test_output_become_rows() -> None:
    output = (
        "\nrunning 1 test\n"
        "10.1.0.1:80: W 60000 B, RTT 100.1 ms, 599000 B/s, -0.1 % of W/RTT\n"
        "10.1.0.1:80: W 20000 B, RTT 100.1 ms, 199000 B/s, -0.4 % of W/RTT\n"
        "cut by marks: W 45187 B, RTT 600.5 ms, 70000 B/s, -7.0 % of W/RTT\n"
        "cut by marks: W 45190 B, RTT 600.5 ms, 72783 B/s, -3.3 % of W/RTT\n.\n"
    )
    # The last line of a repeated measurement counts.
    assert bench.followed(output) == {
        "IPv4, W from 60000 to 20000 B, deviation 0.9 to 1.4 s later": -0.4,
        "W cut by marks, deviation from W/RTT": -3.3,
    }


def test_page_shows_the_measurements() -> None:
    generated = bench.PAGE.read_text().split(bench.BEGIN)[1].split(bench.END)[0]
    data = json.loads(bench.DATA.read_text())
    assert set(data) == set(bench.PARTS)
    assert generated.strip() == bench.markdown(data).strip()
