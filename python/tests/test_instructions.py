"""Comparison of instruction counts, and the page made from them."""

from pathlib import Path

import pytest
from conftest import ROOT

import algorithm_pages
import instructions as tool


def counts(**sections: float) -> tool.Counts:
    return tool.Counts(
        "rustc 1", "glibc 2", "x86_64", {name: tool.Section("packet", x) for name, x in sections.items()}
    )


@pytest.mark.parametrize(("found", "code"), [(1029.0, 0), (1031.0, 2), (950.0, 0)])
def test_only_a_count_more_than_three_percent_above_fails(found: float, code: int) -> None:
    assert tool.check(counts(red=1000.0, pi=50.0), counts(red=found, pi=50.0))[0] == code


def test_message_names_each_section_that_costs_more_in_one_line() -> None:
    _, message = tool.check(counts(red=1000.0, pi=50.0, avq=7.0), counts(red=1100.0, pi=60.0, avq=7.0))
    assert "red 1,000 → 1,100 per packet (+10.0%)" in message
    assert "pi 50 → 60 per packet (+20.0%)" in message
    assert "avq" not in message
    assert "make instructions" in message
    assert "\n" not in message


def test_message_counts_sections_after_the_first_five() -> None:
    names = [f"s{n}" for n in range(8)]
    _, message = tool.check(counts(**dict.fromkeys(names, 100.0)), counts(**dict.fromkeys(names, 110.0)))
    assert "s4 100 → 110" in message
    assert "s5" not in message
    assert "; 3 more: " in message


def test_a_count_far_below_asks_for_renewal_and_passes() -> None:
    code, message = tool.check(counts(red=1000.0), counts(red=850.0))
    assert code == 0
    assert "run `make instructions`" in message


def test_new_and_missing_sections_fail() -> None:
    code, message = tool.check(counts(red=1000.0), counts(pi=50.0))
    assert code == 2
    assert "pi has no committed count" in message
    assert "red was not counted" in message


def test_dumps_are_read_in_numeric_order_without_setup(tmp_path: Path) -> None:
    """Of eleven dumps the ones after a section count: the second, the fourth, and so on."""
    for number in range(1, 12):
        text = f"version: 1\ndesc: Trigger: --dump-after=section_boundary\nsummary: 1\n\ntotals: {number}\n"
        (tmp_path / f"callgrind.{number}").write_text(text)
    (tmp_path / "callgrind.12").write_text("desc: Trigger: Program termination\ntotals: 99\n")
    assert [tool.total(dump) for dump in tool.read_dumps(tmp_path)] == [2, 4, 6, 8, 10]


def test_page_has_the_committed_counts() -> None:
    committed = tool.read((ROOT / tool.DATA).read_text(encoding="utf-8"))
    text = (ROOT / tool.PAGE).read_text(encoding="utf-8")
    assert tool.page(text, committed) == text, "docs/performance.md: run `make instructions`"


def test_every_algorithm_of_the_registry_has_a_count() -> None:
    committed = tool.read((ROOT / tool.DATA).read_text(encoding="utf-8"))
    counted = {
        name.removeprefix("algorithm: ") for name in committed.sections if name.startswith("algorithm")
    }
    assert counted == {each.name for each in algorithm_pages.pages()}


def test_lines_of_the_standard_library_belong_to_the_part_that_uses_them() -> None:
    """Of 100 instructions, TCP has 40; a queue 5, and 15 of a deque; the agenda 30; the allocator 10.

    A call's second line has the instructions of the called function, which that function counts itself.
    """
    dump = """\
fl=(1) /x/crates/transport/src/tcp/output.rs
fn=(1) bentpipe_transport::tcp::output::send
12 40
cfi=(2) /x/crates/queue/src/queue/mod.rs
cfn=(2) bentpipe_queue::queue::Queue::dequeue
calls=1 7
+3 20

fl=(2)
fn=(2)
7 5
fi=(3) /rustc/1/library/alloc/src/collections/vec_deque/mod.rs
* 15
fl=(4) /x/crates/sim/src/clock/agenda.rs
fn=(3) bentpipe_sim::clock::agenda::Agenda::insert
-2 30
fl=(5) ./malloc.c
fn=(4) malloc
8 10
"""
    found = tool.parts(dump.splitlines())
    assert {part: share for part, share in found.items() if share} == {
        "TCP, and the hosts that use it": 40.0,
        "queue and AQM": 20.0,
        "agenda": 30.0,
        "rest": 10.0,
    }
