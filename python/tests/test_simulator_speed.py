"""The page of the simulator's speed, and what it is made from."""

import shutil

import pytest

import simulator_speed as tool

ROWS: list[tuple[str, tool.Row]] = [
    ("scenarios", ("byun2007-gateway, RED 4", "559")),
    ("dumbbells", ("S1: 50 flows, 20 Mbit/s, 560 ms", "323", "1599", "4.9")),
    ("dumbbells", ("S4: 50000 flows, 20000 Mbit/s, 60 ms", "2258", "–", "–")),
    ("large", ("54.4", "327")),
    ("beam", ("10", "1422", "1.00")),
    ("beam", ("10,000", "2371", "1.67")),
]


def test_tables_have_what_was_measured() -> None:
    speed, beam = (tool.blocks(ROWS)[name] for name in ("speed", "beam"))
    assert "| S1: 50 flows, 20 Mbit/s, 560 ms | 323 | 1599 | 4.9 |\n" in speed
    assert "| S4: 50000 flows, 20000 Mbit/s, 60 ms | 2258 | – | – |\n" in speed
    assert "S4 takes 54.4 CPU s for 10 s, and 327 MB." in speed
    assert "| byun2007-gateway, RED 4 | 559 |" in speed
    assert beam.splitlines()[2:] == ["| 10 | 1422 | 1.00 |", "| 10,000 | 2371 | 1.67 |"]


def test_without_ns_2_there_are_no_tables() -> None:
    rows = [(name, (*row[:-2], "–", "–") if name == "dumbbells" else row) for name, row in ROWS]
    with pytest.raises(SystemExit, match="install ns2"):
        tool.blocks(rows)


def test_a_run_counts_the_packets_of_its_warm_up() -> None:
    """20 Mbit/s pass up to 2,404 packets of 1040 bytes in each of 45 seconds, of which 30 are measured."""
    run = tool._simulate("red-dumbbell", "run.warmup=15 s", "run.duration=30 s")
    assert run.simulated == pytest.approx(45)
    assert 0.75 * 45 * 2404 < run.packets < 45 * 2404
    assert 0 < run.seconds < 30


@pytest.mark.skipif(shutil.which("ns") is None, reason="ns-2 is not installed")
def test_the_time_of_ns_2_is_that_between_the_two_ends() -> None:
    """To set 200 flows up takes ns-2 seconds, and 3 s with up to 2,404 packets each a tenth of one."""
    assert 0 < tool.Dumbbell("", 200, 20, 60, (1, 4)).run_on_ns2() < 100_000
