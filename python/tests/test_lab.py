"""The lab's playback, documents and server, without a browser."""

import asyncio
import http.client
import json
import multiprocessing
import os
import re
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from lab_process import lab
from patience import PATIENCE

import bentpipe as bp
from bentpipe._core import Progress, Simulation, simulate
from bentpipe.errors import ScenarioError, UsageError
from bentpipe.lab import documents, limits, recorded, server, worker
from bentpipe.lab.playback import Change, Playback, opened
from bentpipe.runs.plan import scenario_path, shipped

GATEWAY = scenario_path("small-gateway")
TEXT = GATEWAY.read_text()


def playback(*settings: str, changes: tuple[Change, ...] = ()) -> Playback:
    return Playback(TEXT, str(GATEWAY), settings or ["red"], 1, changes)


def series(of: Playback, side: int = 0) -> pl.DataFrame:
    return pl.DataFrame(of.sides[side].simulation.series(0))


# ----- playback ---------------------------------------------------------------------------------------------


def test_playback_is_the_run_of_the_command_line() -> None:
    of = playback("avqred")
    of.advance(13.37)
    of.advance(of.end)
    whole = simulate(opened(TEXT, str(GATEWAY)).with_setting("avqred"), 1, Progress())
    columns = pl.DataFrame(whole.series).columns
    assert series(of).select(columns).equals(pl.DataFrame(whole.series))


def test_going_back_and_on_repeats_everything() -> None:
    of = playback("red", "avqred")
    of.advance(10)
    of.change("gateway.regulator.rate", "1.5 Mbps")
    of.advance(20)
    before = [series(of, side) for side in (0, 1)]
    of.seek(5)
    assert of.now == 5
    of.seek(20)
    assert [series(of, side).equals(before[side]) for side in (0, 1)] == [True, True]


def test_change_takes_effect_when_it_is_made_and_forgets_later_ones() -> None:
    of = playback("red", changes=(Change(25, "gateway.regulator.rate", "1 Mbps"),))
    of.advance(10)
    of.change("gateway.regulator.rate", "2 Mbps")
    of.advance(40)
    rate = series(of).filter(pl.col("time") > 26)["throughput"].mean()
    assert isinstance(rate, float)
    assert 1.05e6 < rate < 2.05e6
    assert [change.value for change in of.changes] == ["2 Mbps"]


def test_next_packet_makes_the_changes_on_the_way() -> None:
    changes = tuple(
        Change(at, "gateway.regulator.rate", rate) for at, rate in [(0.3, "2 Mbps"), (9, "0.2 Mbps")]
    )
    of, other = playback("red", "avqred", changes=changes), playback("red", "avqred", changes=changes)
    of.step()
    # The first packet comes after the first change.
    assert of.now > 0.3
    other.advance(of.now)
    of.advance(8.9999)
    of.tables(of.sides[0], packets=False)
    while of.now < 12:
        of.step()
    of.advance(20)
    other.advance(20)
    for side in (0, 1):
        # A step may end between two samples of a class's goodput.
        assert series(of, side).drop("web.goodput").equals(series(other, side).drop("web.goodput"))
    sent = pl.read_ipc_stream(of.tables(of.sides[0], packets=False)["series"])["time"]
    assert sent[0] == pytest.approx(9)


def test_wrong_change_leaves_all_runs_as_they_were() -> None:
    of, other = playback("red", "avqred"), playback("red", "avqred")
    of.advance(10)
    of.tables(of.sides[0], packets=False)
    with pytest.raises(ScenarioError, match=r"^host\.client\.count cannot change during a run"):
        of.change("host.client.count", "30")
    with pytest.raises(ScenarioError, match=r'found "fast"; allowed: a rate'):
        of.change("gateway.regulator.rate", "fast")
    # Nothing is sent twice.
    assert pl.read_ipc_stream(of.tables(of.sides[0], packets=False)["series"]).is_empty()
    for each in (of, other):
        each.advance(20)
    assert [series(of, side).equals(series(other, side)) for side in (0, 1)] == [True, True]


def test_limits_are_named_when_they_are_reached() -> None:
    with pytest.raises(UsageError, match=r"found 5; allowed side by side: at most 4"):
        playback("red", "avq", "avqred", "codel", "pie")
    long = TEXT.replace('duration = "60 s"', 'duration = "3 h"')
    assert long != TEXT
    with pytest.raises(
        UsageError, match=r"takes 1\d+ s with its warm-up; allowed in the lab: at most 7200 s"
    ):
        opened(long, str(GATEWAY))
    error = documents.checked("#" * (limits.TEXT + 1), "a.toml", Path())["error"]
    assert error == f"a.toml: found {limits.TEXT + 1} bytes; allowed in the lab: at most {limits.TEXT}"


def test_goodput_of_classes_adds_up_to_what_flows_received() -> None:
    of = playback("red")
    of.advance(of.end)
    goodput = float(series(of)["web.goodput"].sum()) * of.sides[0].scenario.sample_interval
    flows = pl.DataFrame(of.sides[0].simulation.run().flows)
    assert goodput == pytest.approx(flows["bytes"].sum() * 8, rel=1e-9)


# ----- documents --------------------------------------------------------------------------------------------


def test_edit_changes_one_value_and_keeps_the_rest() -> None:
    text = documents.edited(TEXT, "gateway.regulator.rate", "9 Mbps")
    changed = [
        (old, new) for old, new in zip(TEXT.splitlines(), text.splitlines(), strict=True) if old != new
    ]
    assert len(changed) == 1
    assert '"9 Mbps"' in changed[0][1]
    assert documents.edited(text, "gateway.regulator.rate", "3 Mbps") != text


def test_edit_adds_tables_and_removes_keys() -> None:
    text = documents.edited(TEXT, "link.access.queue.aqm.algorithm", "codel")
    assert documents.read(text, str(GATEWAY), Path()) is not None
    assert documents.edited(text, "link.access.queue.aqm.algorithm", None).count("codel") == 0
    with pytest.raises(UsageError, match=r"^title: found .*, not a table; edit the text$"):
        documents.edited(TEXT, "title.x", "1")
    with pytest.raises(UsageError, match=r"^the text is no TOML"):
        documents.edited("[", "title", "x")


def test_keys_with_points_are_quoted() -> None:
    assert documents.steps('link."a.b".rate') == ["link", "a.b", "rate"]
    text = documents.edited("", 'host."a.b".count', "3")
    assert text.strip() == '[host."a.b"]\ncount = 3'


def test_forms_have_every_key_of_a_part_with_its_help() -> None:
    scenario = documents.read(TEXT, str(GATEWAY), Path())
    for part in ("link.satellite", "gateway", "gateway.aqm", "traffic.web", "host.client"):
        rows = documents.form(scenario, part)
        assert rows, part
        helped = [row for row in rows if row["help"]]
        # Keys of a table that has several forms have the help of the whole.
        assert len(helped) >= 0.6 * len(rows), (part, [row["key"] for row in rows if not row["help"]])


def test_choices_of_a_form_have_the_value_and_can_be_chosen() -> None:
    file = str(scenario_path("lte-cell"))
    text = Path(file).read_text()
    scenario = documents.read(text, file, Path(file).parent)
    rows = [row for part in ("traffic", "transport") for row in documents.form(scenario, part)]
    chosen = {row["key"]: row for row in rows if "choices" in row}
    assert all(row["value"] in row["choices"] for row in chosen.values())
    # HTTP/3 needs another transport.
    assert len(chosen["traffic.web.http"]["choices"]) == 3
    for choice in chosen["traffic.web.http"]["choices"][:2]:
        edited = documents.edited(text, "traffic.web.http", choice)
        assert "error" not in documents.checked(edited, file, Path(file).parent)


def test_every_shipped_scenario_opens_in_the_lab() -> None:
    for name, path in shipped().items():
        found = documents.checked(path.read_text(), str(path), Path.cwd())
        assert "error" not in found, (name, found)
        assert found["picture"].count("data-part") >= 3, name


def test_scenario_may_not_name_files_outside_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret.down").write_text("1\n2\n3\n")
    text = scenario_path("lte-cell").read_text()
    outside = re.sub(r'trace = "[^"]*"', 'trace = "../secret.down"', text)
    assert outside != text
    found = documents.checked(outside, str(tmp_path / "inside" / "a.toml"), tmp_path / "inside")
    assert "allowed in the lab: files in" in found["error"]


def test_change_may_not_name_files_outside_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "inside").mkdir()
    (tmp_path / "secret.down").write_text("1\n2\n3\n")
    path = scenario_path("lte-cell")
    value = f'{{ trace = "{tmp_path / "secret.down"}" }}'
    outside = Change(0.0, "link.radio.capacity", value)
    run: tuple[str, str, list[str], int] = (path.read_text(), str(path), [], 1)
    with pytest.raises(UsageError, match="allowed in the lab: files in"):
        Playback(*run, [outside], tmp_path / "inside")
    of = Playback(*run, folder=tmp_path / "inside")
    of.advance(1)
    with pytest.raises(UsageError, match="allowed in the lab: files in"):
        of.change(outside.key, outside.value)
    assert of.changes == []
    of.advance(2)


def test_sliders_are_keys_that_can_change() -> None:
    of = playback("red", "avqred")
    rows = documents.sliders(side.scenario for side in of.sides)
    keys = {row["key"] for row in rows}
    assert {"gateway.regulator.rate", "gateway.aqm.max_p", "traffic.web.sessions"} <= keys
    assert "link.satellite.delay" in keys
    of.advance(1)
    for row in rows:
        middle = (row["low"] * row["high"]) ** 0.5 if row["log"] else (row["low"] + row["high"]) / 2
        value = round(middle) if row.get("whole") else float(f"{middle:.3g}")
        of.change(row["key"], f"{value} {row['unit']}".strip())
    of.advance(5)


# ----- server -----------------------------------------------------------------------------------------------


def ask(
    port: int, method: str, path: str, body: object = None, **headers: str
) -> tuple[int, bytes, dict[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    text = None if body is None else json.dumps(body)
    connection.request(method, path, text, {name.replace("_", "-"): value for name, value in headers.items()})
    answer = connection.getresponse()
    found = answer.status, answer.read(), {name.lower(): value for name, value in answer.getheaders()}
    connection.close()
    return found


def entered(port: int, token: str) -> str:
    """Exchange the token for the cookie."""
    status, _, headers = ask(port, "GET", f"/?token={token}")
    assert status == 302
    assert "HttpOnly" in headers["set-cookie"]
    assert "SameSite=Strict" in headers["set-cookie"]
    return headers["set-cookie"].split(";")[0]


def test_token_opens_the_page_once_and_nothing_else_does(tmp_path: Path) -> None:
    with lab(tmp_path) as (port, token):
        assert ask(port, "GET", "/")[0] == 403
        assert ask(port, "GET", "/?token=guessed")[0] == 403
        assert ask(port, "GET", "/api/start")[0] == 403
        assert ask(port, "GET", "/page/lab.js")[0] == 403
        cookie = entered(port, token)
        assert ask(port, "GET", f"/?token={token}")[0] == 403
        status, page, headers = ask(port, "GET", "/", Cookie=cookie)
        assert status == 200
        assert b"<title>Bentpipe lab</title>" in page
        assert "script-src 'self'" in headers["content-security-policy"]
        # Another name of this machine, as a page of an attacker's domain would use it.
        assert ask(port, "GET", "/", Cookie=cookie, Host=f"evil.example:{port}")[0] == 421


def test_second_lab_leaves_the_cookie_of_the_first_one(tmp_path: Path) -> None:
    with lab(tmp_path) as (first, token), lab(tmp_path) as (second, other):
        cookies = [entered(first, token), entered(second, other)]
        # A browser keeps one cookie of each name for all ports of a host.
        kept = dict(each.split("=", 1) for each in cookies)
        sent = "; ".join(f"{name}={value}" for name, value in kept.items())
        assert [ask(port, "GET", "/", Cookie=sent)[0] for port in (first, second)] == [200, 200]


def test_other_origins_may_not_change_anything(tmp_path: Path) -> None:
    with lab(tmp_path) as (port, token):
        cookie = entered(port, token)
        body = {"path": "a.toml", "text": TEXT}
        for origin in ({}, {"Origin": "http://evil.example"}, {"Origin": "null"}):
            assert ask(port, "POST", "/api/save", body, Cookie=cookie, **origin)[0] == 403
        assert not (tmp_path / "a.toml").exists()
        upgrade = {
            "Connection": "Upgrade",
            "Upgrade": "websocket",
            "Sec_WebSocket_Version": "13",
            "Sec_WebSocket_Key": "x3JJHMbDL1EzLkh9GBhXDw==",
        }
        assert ask(port, "GET", "/ws", Cookie=cookie, Origin="http://evil.example", **upgrade)[0] == 403
        assert ask(port, "GET", "/ws", Origin=f"http://127.0.0.1:{port}", **upgrade)[0] == 403


def test_files_outside_of_the_folder_cannot_be_reached(tmp_path: Path) -> None:
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "other.toml").write_text(TEXT)
    (inside / "link.toml").symlink_to(tmp_path / "other.toml")
    with lab(inside) as (port, token):
        cookie, origin = entered(port, token), f"http://127.0.0.1:{port}"

        def told(method: str, path: str, body: object = None) -> dict[str, Any]:
            status, answer, _ = ask(port, method, path, body, Cookie=cookie, Origin=origin)
            assert status == 200, answer
            found: dict[str, Any] = json.loads(answer)
            return found

        for name in ("../other.toml", str(tmp_path / "other.toml"), "link.toml"):
            assert "is outside of" in told("GET", f"/api/scenario?file={name}")["error"]
            body = {"path": name, "text": TEXT, "replace": True}
            assert "is outside of" in told("POST", "/api/save", body)["error"]
        assert "is outside of" in told("GET", "/api/result?path=..")["error"]
        assert ask(port, "GET", "/page/../server.py", Cookie=cookie)[0] in {403, 404}
        assert ask(port, "GET", "/page/%2e%2e/server.py", Cookie=cookie)[0] in {403, 404}
        assert told("POST", "/api/save", {"path": "mine.toml", "text": TEXT})["path"] == "mine.toml"
        assert "exists already" in told("POST", "/api/save", {"path": "mine.toml", "text": TEXT})["error"]
        other = told("POST", "/api/save", {"path": "a.txt", "text": TEXT})["error"]
        assert other == 'a.txt: found ".txt"; allowed: a name that ends in .toml'
        assert (inside / "mine.toml").read_text() == TEXT
        assert told("GET", "/api/start")["files"] == ["link.toml", "mine.toml"]


@pytest.mark.parametrize("what", ["report", "result"])
def test_page_is_answered_while_a_report_or_result_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    answered = threading.Event()

    def report_of(_: Path) -> str:
        assert answered.wait(PATIENCE)
        return "<p>report</p>"

    def described(*_: Path) -> dict[str, str]:
        return {"kind": report_of(tmp_path)}

    monkeypatch.setattr(recorded, "report_of", report_of)
    monkeypatch.setattr(recorded, "described", described)
    path, content = {
        "report": ("/report/x", b"<p>report</p>"),
        "result": ("/api/result?path=x", b'{"kind": "<p>report</p>"}'),
    }[what]

    async def both() -> None:
        running = server.Lab(tmp_path)
        running.listen()
        cookie = f"{running.cookie_name}={running.cookie}"
        slow = asyncio.create_task(asyncio.to_thread(ask, running.port, "GET", path, Cookie=cookie))
        await asyncio.sleep(0.2)
        status, _, _ = await asyncio.to_thread(ask, running.port, "GET", "/", Cookie=cookie)
        assert status == 200
        answered.set()
        assert (await slow)[1] == content
        running.close()

    asyncio.run(asyncio.wait_for(both(), PATIENCE))


@pytest.mark.parametrize("what", ["nothing-of-that-name", "missing.toml", "/"])
def test_wrong_argument_gets_one_message(tmp_path: Path, what: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from bentpipe.cli import main; main()", "lab", what, "--no-browser"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert len(done.stderr.splitlines()) == 1


def test_simulation_refuses_a_time_that_is_none() -> None:
    simulation = Simulation(opened(TEXT, str(GATEWAY)), 1)
    with pytest.raises(ValueError, match="allowed: a time of at least 0 s"):
        simulation.advance(float("nan"))


def test_parts_are_added_and_removed_as_text() -> None:
    text = documents.added(TEXT, "traffic", "more")
    assert [each[0] for each in documents.read(text, str(GATEWAY), Path()).traffic] == ["web", "more"]
    text = documents.added(text, "hosts", "office")
    assert documents.form(documents.read(text, str(GATEWAY), Path()), "link.office")
    for part in ("traffic.more", "link.office", "host.office"):
        text = documents.removed(text, part)
    plain, again = (documents.read(each, str(GATEWAY), Path()) for each in (TEXT, text))
    assert again.canonical() == plain.canonical()
    with pytest.raises(UsageError, match=r"^traffic\.web: there is one of that name"):
        documents.added(TEXT, "traffic", "web")
    with pytest.raises(UsageError, match=r'^name: found "a b"; allowed: letters'):
        documents.added(TEXT, "traffic", "a b")
    with pytest.raises(UsageError, match=r"^traffic\.none: cannot be removed"):
        documents.removed(TEXT, "traffic.none")


def test_network_is_drawn_node_by_node() -> None:
    text = documents.removed(documents.NEW, "link.bottleneck")
    assert documents.nodes(text) == ["server", "client"]
    text = documents.added(text, "router", "edge", ["server"])
    text = documents.added(text, "gateway", "hub", ["edge", "client"])
    scenario = documents.read(text, str(GATEWAY), Path())
    assert documents.nodes(text) == ["hub", "hub-terminal", "edge", "server", "client"]
    assert {row["key"] for row in documents.form(scenario, "link.hub-satellite")} >= {
        "link.hub-satellite.delay"
    }
    run = Simulation(scenario, 1)
    run.advance(10.0)
    assert any(pl.DataFrame(run.run().flows)["bytes"] > 100_000), "nothing passes the gateway"
    # A node goes with its links.
    text = documents.removed(text, "gateway")
    assert documents.nodes(text) == ["edge", "server", "client"]
    text = documents.added(text, "link", "direct", ["edge", "client"])
    assert documents.read(text, str(GATEWAY), Path()).traffic


@pytest.mark.parametrize(
    "line",
    [
        "gateway = 1",
        'gateway = "x"',
        'gateway = ["x"]',
        "gateway = { name = 1, terminals = 2 }",
        "terminal = 1",
        "host = 3",
        'host = "ab"',
        "[[router]]",
    ],
)
def test_text_of_another_form_is_refused_with_a_message(line: str) -> None:
    text = documents.NEW.replace("[host.server]", "").replace("[host.client]", "")
    before, after = text.split("[run]", 1)
    found = documents.checked(f"{before}{line}\n[run]{after}", "a.toml", Path())
    assert found["error"]
    assert found["nodes"] == []


@pytest.mark.parametrize(
    ("kind", "ends", "message"),
    [
        ("link", ["server", "moon"], "x: there is no node moon; allowed: gateway, terminal, server, client"),
        ("link", ["server", "server"], r"link x: found 1 node\(s\); allowed: 2 different ones"),
        ("router", [], r"router x: found 0 node\(s\); allowed: 1 different ones"),
        ("gateway", ["server", "client"], "gateway: the scenario has one; write more as text"),
        ("moon", [], "part: found 'moon'; allowed: traffic, hosts, router, link, gateway"),
    ],
)
def test_wrong_part_is_refused(kind: str, ends: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=f"^{message}"):
        documents.added(TEXT, kind, "x", ends)


def test_slowest_page_is_the_maximum_of_page_times() -> None:
    playback = Playback(TEXT, str(GATEWAY), ["red", "droptail"], 1)
    assert playback.slowest_page() is None
    playback.advance(40.0)
    begin, end = playback.slowest_page() or (0, 0)
    counters = [side.simulation.run().counters for side in playback.sides]
    assert end - begin >= max(each["web.page_time_p95"] or 0 for each in counters)
    assert 0 < begin < end <= 40


class Page:
    """The page's end of a connection to a worker."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def tell(self, kind: str, **rest: object) -> None:
        self.connection.send_bytes(json.dumps({"type": kind, **rest}).encode())

    def told(self) -> dict[str, Any]:
        assert self.connection.poll(60)
        frame = self.connection.recv_bytes()
        (length,) = struct.unpack_from("<I", frame)
        found: dict[str, Any] = json.loads(frame[4 : 4 + length])
        return found


@contextmanager
def page_of_worker(settings: list[str]) -> Iterator[Page]:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(
        target=worker.main, args=(there, Path.cwd()), daemon=True
    )
    process.start()
    there.close()
    page = Page(here)
    try:
        page.tell("open", text=TEXT, file=str(GATEWAY), settings=settings, seed=1)
        assert page.told()["type"] == "opened"
        yield page
    finally:
        here.close()
        process.join(60)
    assert process.exitcode == 0


def test_slow_page_slows_its_view_and_not_the_run() -> None:
    with page_of_worker(["red"]) as page:
        page.tell("ready")
        assert page.told()["time"] == 0
        page.tell("play", speed=0)
        # The page does not ask for another frame: none comes, and the run ends all the same.
        page.tell("jump", what="end")
        assert not page.connection.poll(3)
        page.tell("ready")
        frame = page.told()
        assert frame["time"] > 0
        while not frame["ended"]:
            # A busy machine needs longer.
            page.tell("ready")
            frame = page.told()
        assert [name for name, _ in frame["tables"]] == ["0.series", "0.drops", "0.packets"]


def test_wrong_message_is_told_and_the_worker_goes_on() -> None:
    with page_of_worker(["red"]) as page:
        for seed in (-1, 1.5, 2**64):
            page.tell("open", text=TEXT, file=str(GATEWAY), settings=["red"], seed=seed)
            expected = f"seed: found {seed}; allowed: a whole number from 0 to 2^64 - 1"
            assert page.told()["message"] == expected
        page.tell("open", text=TEXT, file=str(GATEWAY), settings=["red"])
        assert page.told()["type"] == "opened"
        for wrong in ({"speed": "fast"}, {}):
            page.tell("play", **wrong)
            assert page.told()["type"] == "error"
        page.tell("ready")
        assert page.told()["type"] == "frame"


def test_large_seed_keeps_its_digits_on_the_page() -> None:
    with page_of_worker(["red"]) as page:
        for given, told in (
            (2**53 - 1, 2**53 - 1),
            (str(2**64 - 1), str(2**64 - 1)),
            (2**53 + 1, str(2**53 + 1)),
        ):
            page.tell("open", text=TEXT, file=str(GATEWAY), settings=["red"], seed=given)
            assert page.told()["seed"] == told
        page.tell("open", text=TEXT, file=str(GATEWAY), settings=["red"], seed=str(2**64))
        assert page.told()["message"].startswith("seed: found 18446744073709551616; allowed")
    seeded = TEXT.replace("[run]\n", f"[run]\nseed = {2**63 - 1}\n")
    assert documents.checked(re.sub(r"(?m)^seed = \d{1,9}\n", "", seeded), str(GATEWAY), Path())[
        "seed"
    ] == str(2**63 - 1)


def test_packets_of_another_run_are_sent_without_a_pause() -> None:
    with page_of_worker(["red", "droptail"]) as page:
        page.tell("play", speed=1e-3)
        page.tell("ready")
        frame = page.told()
        assert frame["running"]
        assert [name for name, _ in frame["tables"] if "packets" in name] == ["0.packets"]
        page.tell("show", side=1)
        page.tell("ready")
        frame = page.told()
        assert frame["running"]
        assert [name for name, _ in frame["tables"] if "packets" in name] == ["1.packets"]


def test_aqm_written_in_python_runs_in_the_lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "lab_aqm.py").write_text(
        "import bentpipe as bp\n\n\nclass Every:\n    def arrive(self, packet, cx):\n"
        "        return bp.Verdict.DROP if packet.number % 10 == 0 else bp.Verdict.PASS\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    of = playback("lab_aqm.Every")
    of.advance(10)
    counters = of.sides[0].simulation.run().counters
    assert counters["dropped_packets"] == pytest.approx(counters["offered_packets"] / 10, abs=1)


def test_points_of_a_sweep_are_placed_by_numbers_in_one_unit(tmp_path: Path) -> None:
    factors = {"link.satellite.delay": "500 us,2 ms,0.25 s", "gateway.mark": "receive,transmit"}
    short = {"run.warmup": "0 s", "run.duration": "1 s"}
    bp.sweep("small-gateway", factors, settings=["red"], set=short, runs=1, out=tmp_path / "sweep")
    axes = recorded.described(tmp_path / "sweep", tmp_path)["axes"]
    delay = axes["link.satellite.delay"]
    assert list(delay["values"]) == ["500 us", "2 ms", "0.25 s"]
    sizes = [each / delay["numbers"][0] for each in delay["numbers"]]
    assert sizes == pytest.approx([1, 4, 500])
    assert delay["title"] in {f"link.satellite.delay [{unit}]" for unit in ("us", "ms", "s")}
    assert axes["gateway.mark"]["numbers"] is None


def test_command_of_a_result_names_the_file_of_its_scenario(tmp_path: Path) -> None:
    short = {"run.warmup": "0 s", "run.duration": "1 s"}
    own = tmp_path / "scenarios" / "small-gateway.toml"
    own.parent.mkdir()
    own.write_text(TEXT.replace('rate = "3 Mbps"', 'rate = "2 Mbps"') + "# mine\n")
    bp.run(own, out=tmp_path / "own", set=short)
    bp.run("small-gateway", out=tmp_path / "shipped", set=short)

    def command(name: str) -> str | None:
        found: str | None = recorded.described(tmp_path / name, tmp_path)["command"]
        return found

    assert str(command("own")).startswith("bentpipe compare scenarios/small-gateway.toml --settings ")
    assert str(command("shipped")).startswith("bentpipe compare small-gateway --settings ")
    own.write_text(TEXT)
    assert command("own") is None


def _ends(connection: Connection) -> None:
    """End as a process with an exception does: the connection first."""
    connection.close()
    time.sleep(0.3)
    sys.exit(3)


def test_exit_code_of_a_crashed_run_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=_ends, args=(there,))
    process.start()
    there.close()
    assert here.poll(PATIENCE)
    told: list[str] = []
    page = server._Socket.__new__(server._Socket)
    page.process, page.connection = process, None  # type: ignore[assignment]
    page.lab = server.Lab(tmp_path)
    monkeypatch.setattr(page, "_tell", lambda _, message: told.append(message))
    monkeypatch.setattr(
        page, "_start", lambda: told.append("started; a process that ends at once would so again")
    )
    page._on_crash()
    assert [text.split(";")[0] for text in told] == ["the process of the run ended with code 3"]


def test_long_message_and_long_frame_pass_each_other(tmp_path: Path) -> None:
    size = 4 * 2**20
    frame, message = b"f" * size, json.dumps({"type": "show", "rest": "m" * size})
    here, there = multiprocessing.Pipe()
    got: list[bytes] = []

    def worker_process() -> None:
        # As a worker does, it reads nothing until its frame is sent.
        there.send_bytes(frame)
        got.append(there.recv_bytes())

    async def pass_each_other() -> None:
        page = server._Socket.__new__(server._Socket)
        page.initialize(server.Lab(tmp_path))
        page.connection = here
        frames: list[bytes] = []
        asyncio.get_running_loop().add_reader(here.fileno(), lambda: frames.append(here.recv_bytes()))
        thread = threading.Thread(target=worker_process, daemon=True)
        thread.start()
        await asyncio.wait_for(page.on_message(message), PATIENCE)
        while not (frames and got):
            await asyncio.sleep(0.01)
        assert frames == [frame]
        asyncio.get_running_loop().remove_reader(here.fileno())

    asyncio.run(asyncio.wait_for(pass_each_other(), PATIENCE))
    assert got == [message.encode()]
    here.close()
    there.close()


def test_newest_results_are_listed_and_older_ones_counted(tmp_path: Path) -> None:
    for number in range(305):
        folder = tmp_path / f"{number:03d}"
        folder.mkdir()
        (folder / "manifest.json").write_text('{"format": "bentpipe-result"}')
        os.utime(folder, (number, number))
    found, older = recorded.results(tmp_path)
    assert [row["path"] for row in found] == [f"{number:03d}" for number in range(304, 4, -1)]
    assert older == 5


def test_requests_for_what_is_not_there_get_a_message(tmp_path: Path) -> None:
    short = {"run.warmup": "0 s", "run.duration": "1 s"}
    bp.run("small-gateway", out=tmp_path / "one", set=short)
    setting = bp.open(tmp_path / "one").settings[0]
    with lab(tmp_path) as (port, token):
        cookie = entered(port, token)
        about = f"path=one&setting={setting}&seed=1"
        status, text, _ = ask(port, "GET", f"/api/table?{about}&name=flows&terminal=x", Cookie=cookie)
        assert status == 200
        assert "the table flows has no terminals" in json.loads(text)["error"]
        assert ask(port, "GET", "/report/%00", Cookie=cookie)[0] == 404
        status, text, _ = ask(port, "GET", "/report/%E2%80%A6", Cookie=cookie)
        assert status == 404
        assert "…: has no report" in text.decode()
        body = {"path": "x" * 300 + ".toml", "text": TEXT}
        origin = f"http://127.0.0.1:{port}"
        status, text, _ = ask(port, "POST", "/api/save", body, Cookie=cookie, Origin=origin)
        assert status == 200
        assert json.loads(text)["error"].endswith(".toml: cannot be written: File name too long")


def test_limit_of_processor_time_names_the_runs_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "CPU_SECONDS", 0.0)
    here, there = multiprocessing.Pipe()
    with pytest.raises(bp.BentpipeError, match=r"^the runs of this page have taken .* Load the page again"):
        worker._Worker(there, Path.cwd())._check_limits()
    stepping = worker._Worker(there, Path.cwd())
    stepping.playback = playback()
    with pytest.raises(bp.BentpipeError, match="processor time"):
        stepping.obey({"type": "step"})
    assert stepping.playback.now == 0
    here.close()
    there.close()
