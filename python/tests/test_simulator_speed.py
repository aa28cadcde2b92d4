"""The page of the simulator's speed, from what its benchmark prints."""

import pytest

import simulator_speed as tool

PRINTED = """\
scenario                              CPU s  sim s/CPU s  packets/CPU s   events/CPU s
byun2007-gateway RED 4                2.178          559         712345       12345678
red-dumbbell                          0.150         2000         912345       22345678

dumbbell                          ns/packet      of ns-2       ns-2 = 1
S1: 50 flows, 20 Mbit/s, 560 ms         323         1599            4.9
S4: 50000 flows, 20000 Mbit/s, 60 ms       2258            –              –
    54.4 CPU s for 10 s, memory up to 327 MB

beam                              ns/packet         10 = 1
10 terminals                           1422           1.00
10000 terminals                        2371           1.67
"""


def test_tables_have_what_the_benchmark_printed() -> None:
    speed, beam = (tool.blocks(PRINTED)[name] for name in ("speed", "beam"))
    assert "| S1: 50 flows, 20 Mbit/s, 560 ms | 323 | 1599 | 4.9 |\n" in speed
    assert "| S4: 50000 flows, 20000 Mbit/s, 60 ms | 2258 | – | – |\n" in speed
    assert "S4 takes 54.4 CPU s for 10 s, and 327 MB." in speed
    assert "| byun2007-gateway, RED 4 | 559 |" in speed
    assert beam.splitlines()[2:] == ["| 10 | 1422 | 1.00 |", "| 10,000 | 2371 | 1.67 |"]


def test_without_ns_2_there_are_no_tables() -> None:
    with pytest.raises(SystemExit, match="install ns2"):
        tool.blocks(PRINTED.replace("         1599            4.9", "            –              –"))
