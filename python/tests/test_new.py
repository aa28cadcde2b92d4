"""`bentpipe new`: every answer gives a scenario that runs, and a wrong one a message that helps."""

import itertools
import os
import pty
import subprocess
import tomllib
from pathlib import Path

import pytest
from conftest import Command, command_line, environment
from hypothesis import given
from hypothesis import strategies as st
from patience import PATIENCE

import bentpipe as bp
from bentpipe import _core
from bentpipe.new_scenario.answers import (
    MIX,
    Answers,
    check_aqm,
    check_orbit,
    check_plan,
    check_subscribers,
    default_aqm,
    mix_of,
    rate_of,
)
from bentpipe.new_scenario.tables import ORBITS, PROFILES, USES
from bentpipe.new_scenario.writer import command, write

AQMS = ["droptail", "red", "codel", "avqred", "fifo", "drr", "fq_codel", "cake"]


def answers(
    orbit: str = "geo",
    *,
    mix: str = MIX,
    subscribers: int = 100,
    down: float = 100e6,
    plan: float | None = None,
    pep: bool = True,
    rain: bool = False,
    handover: bool = False,
    aqm: str | None = None,
) -> Answers:
    return Answers(
        orbit=ORBITS[orbit],
        down=down,
        up=down / 10,
        subscribers=subscribers,
        plan=plan,
        mix=mix_of(mix, subscribers),
        pep=pep,
        rain=rain,
        handover=handover,
        aqm=default_aqm(pep=pep) if aqm is None else aqm,
    )


def effective(text: str) -> dict[str, str]:
    return {row["key"]: row["value"] for row in _core.Scenario.parse(text, "new", []).effective()}


@pytest.mark.parametrize("orbit", ORBITS)
@pytest.mark.parametrize("aqm", AQMS)
def test_every_combination_of_options_loads_with_all_its_settings(orbit: str, aqm: str) -> None:
    for pep, rain, plan in itertools.product((True, False), (True, False), (None, 5e6)):
        found = answers(orbit, pep=pep, rain=rain, handover=orbit == "leo", plan=plan, aqm=aqm)
        scenario = _core.Scenario.parse(write(found).text, "new", [])
        assert len(scenario.with_settings(scenario.settings)) >= 3
        drops_behind_pep = pep and aqm in {"codel", "fq_codel", "cake"}
        assert bool(scenario.warnings) == drops_behind_pep


@given(
    st.sampled_from(sorted(ORBITS)),
    st.integers(1, 10_000),
    st.floats(1e5, 1e10),
    st.one_of(st.none(), st.floats(1e4, 1e5)),
    st.dictionaries(st.sampled_from(sorted(USES)), st.integers(1, 100_000), min_size=1),
    st.booleans(),
    st.booleans(),
)
def test_any_rates_and_counts_load(
    orbit: str, subscribers: int, down: float, plan: float | None, mix: dict[str, int], pep: bool, rain: bool
) -> None:
    text = ",".join(f"{name}={count}" for name, count in mix.items())
    found = answers(orbit, mix=text, subscribers=subscribers, down=down, plan=plan, pep=pep, rain=rain)
    values = effective(write(found).text)
    assert values["host.subscriber.count"] == str(subscribers)
    assert {key.split(".")[1] for key in values if key.startswith("traffic.")} == set(mix)


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--orbit", "leo", "--no-pep", "--plan", "2 Mbps"],
        ["--orbit", "meo", "--aqm", "avqred", "--rain"],
        ["--no-pep", "--aqm", "cake", "--mix", "voice=3"],
    ],
)
def test_written_scenarios_run(bentpipe: Command, tmp_path: Path, options: list[str]) -> None:
    bentpipe("new", "x.toml", "--down", "10 Mbps", "--subscribers", "10", "--yes", *options, check=0)
    scenario = bp.load(tmp_path / "x.toml", set={"run.duration": "2 s", "run.warmup": "3 s"})
    result = bp.run(scenario, out=tmp_path / "result")
    throughput = next(row for row in result.rows() if row["metric"] == "throughput")
    assert throughput["mean"] > 0


def test_iot_messages_are_those_of_tr_45_820() -> None:
    """From Annex E: 40 devices; 20 % get commands of 85 B, 40 % acknowledgements of 65 B."""
    per_device = 0.4 / 86_400 + 0.4 / 7_200 + 0.15 / 3_600 + 0.05 / 1_800
    household = 40 * per_device * 8 * (0.2 * 85 + 0.8 * 0.5 * 65)
    values = effective(write(answers(mix="iot=1000")).text)
    assert values["traffic.iot.flows"] == "100"
    assert float(values["traffic.iot.rate"].split()[0]) == pytest.approx(10 * household, abs=0.5)
    assert household == pytest.approx(1.7837, rel=1e-3)
    assert "85 B" in values["traffic.iot.packet"]
    assert "0.5, 1" in values["traffic.iot.packet"]


@pytest.mark.parametrize("name", PROFILES)
def test_profile_is_the_load_of_every_class_from_midnight(
    bentpipe: Command, tmp_path: Path, name: str
) -> None:
    mix = ",".join(f"{each}=100" for each in USES)
    bentpipe("new", "x.toml", "--mix", mix, "--profile", name, "--yes", check=0)
    tables = tomllib.loads((tmp_path / "x.toml").read_text())
    assert tables["run"]["duration"] == "24 min"
    # Devices do not sleep.
    assert "profile" not in tables["traffic"].pop("iot")
    for traffic in tables["traffic"].values():
        assert traffic["profile"]["points"] == [
            [f"{hour} h", share] for hour, share in enumerate(PROFILES[name].shares)
        ]
        # An hour lasts a minute, and so does the warm-up before midnight.
        assert (traffic["profile"]["day"], traffic["profile"]["start"]) == ("24 min", "23 h")
        assert tables["run"]["warmup"] == "60 s"
    assert bp.load(tmp_path / "x.toml").warnings == []


def test_profiles_have_a_night_and_an_evening() -> None:
    """Least between 5 and 7 h, most between 21 and 23 h, as both papers print."""
    for profile in PROFILES.values():
        assert len(profile.shares) == 24
        assert 5 <= profile.shares.index(min(profile.shares)) <= 7
        assert 21 <= profile.shares.index(max(profile.shares)) <= 23
        assert 0.98 < max(profile.shares) <= 1


def test_iot_messages_are_judged_by_loss_and_lateness(bentpipe: Command, tmp_path: Path) -> None:
    bentpipe("new", "x.toml", "--down", "1 Mbps", "--mix", "iot=20000,downloads=3", "--yes", check=0)
    scenario = bp.load(tmp_path / "x.toml", set={"run.duration": "20 s", "run.warmup": "3 s"})
    assert ("iot", "iot", "iot") in scenario.traffic
    result = bp.run(scenario, out=tmp_path / "result")
    values = {row["metric"]: row["mean"] for row in result.rows()}
    assert values["iot.lost_or_late"] < 1
    assert values["iot.delay_p99"] > 260


def test_default_answers_give_a_scenario_without_warnings(bentpipe: Command, tmp_path: Path) -> None:
    done = bentpipe("new", check=0)
    assert done.stderr == ""
    assert bp.load(tmp_path / "scenario.toml").warnings == []
    assert "bentpipe run scenario.toml" in done.stdout
    assert "bentpipe show scenario.toml --picture" in done.stdout


def test_existing_file_is_replaced_with_force_only(bentpipe: Command, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("precious")
    done = bentpipe("new", "mine.toml", check=2)
    assert done.stderr == (
        "error: mine.toml: exists already; choose another FILE, or replace it with --force\n"
    )
    assert file.read_text() == "precious"
    bentpipe("new", "mine.toml", "--force", check=0)
    assert bp.load(file).aqm == "droptail"


def test_missing_folder_is_reported(bentpipe: Command) -> None:
    done = bentpipe("new", "none/x.toml", check=2)
    assert done.stderr == "error: none/x.toml: cannot be written: No such file or directory\n"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--orbit", "heo"], '--orbit: found "heo"; allowed: geo, meo, leo'),
        (["--down", "100"], '--down: found "100"; allowed: a rate with its unit, such as "20 Mbps"'),
        (["--up", "9 Tbps"], '--up: found "9 Tbps"; allowed: a rate'),
        (["--down", "1 bps"], '--down: found "1 bps"; allowed: 1 kbps to 100 Gbps'),
        (["--subscribers", "0"], '--subscribers: found "0"; allowed: a whole number, 1 to 10000'),
        (["--plan", "200 Mbps"], '--plan: found "200 Mbps"; allowed: at most the rate of the carrier'),
        (["--profile", "home"], '--profile: found "home"; allowed: fixed, cellular, or none'),
        (["--mix", "vidoe=3"], '--mix: found "vidoe"; allowed: web, video, voice, downloads, iot'),
        (["--mix", "vidoe=3"], "did you mean video?"),
        (["--mix", "web=2,web=3"], '--mix: found "web" twice'),
        (["--mix", "web"], '--mix: web: found ""; allowed: a count such as 20, or a share'),
        (["--mix", "web=1.5"], '--mix: web: found "1.5"; allowed: a count'),
        (["--mix", "web=nan%"], '--mix: web: found "nan%"; allowed: a count'),
        (["--mix", "web=200000"], "up to 100000 of each"),
        (["--mix", "web=0"], '--mix: found "web=0", which has no traffic'),
        (["--mix", "uploads=3"], '--mix: found "uploads": a new scenario has downloads only'),
        (["--handover"], "--handover: found --orbit geo, whose satellites do not change"),
        (["--aqm", "fqcodel"], "did you mean fq_codel?"),
    ],
)
def test_wrong_option_gives_one_message_and_writes_nothing(
    bentpipe: Command, tmp_path: Path, options: list[str], message: str
) -> None:
    done = bentpipe("new", *options, check=2)
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_command_in_the_file_writes_the_same_file() -> None:
    found = answers("leo", plan=20e6, handover=True, mix="web=30%,voice=5", aqm="cake")
    words = command(found).split()
    options = {word: value for word, value in itertools.pairwise(words) if word.startswith("--")}
    down = rate_of(options["--down"], "")
    again = Answers(
        orbit=check_orbit(options["--orbit"]),
        down=down,
        up=rate_of(options["--up"], ""),
        subscribers=check_subscribers(options["--subscribers"]),
        plan=check_plan(options["--plan"], down),
        mix=mix_of(options["--mix"], 100),
        pep="--pep" in words,
        rain="--rain" in words,
        handover="--handover" in words,
        aqm=check_aqm(options["--aqm"]),
    )
    assert write(again).text == write(found).text


def test_shares_are_rounded_and_never_vanish() -> None:
    assert mix_of("voice=0.1%, web=50%", 30) == {"web": 15, "voice": 1}
    assert mix_of("downloads=0,web=7", 30) == {"web": 7}


# A round trip of 520 ms, 50 ms for acknowledgements, 100 ms of backlog: 670 ms at 100 Mbit/s are 8.375 MB.
def test_spacelink_window_is_the_bandwidth_delay_product_and_a_backlog() -> None:
    values = effective(write(answers()).text)
    assert values["gateway.spacelink.window"] == "8400 KB"
    # 900 ms, above the window's 670.
    assert values["gateway.transmit_queue.limit"] == "12 MB"
    assert effective(write(answers(down=10e6)).text)["gateway.spacelink.window"] == "840 KB"


def test_aqm_capacity_follows_a_fading_link() -> None:
    text = write(answers(rain=True, aqm="avqred")).text
    values = effective(text)
    notes = {row["key"]: row["note"] for row in _core.Scenario.parse(text, "new", []).effective()}
    assert notes["gateway.aqm.min_capacity"] == "the link's capacity, which it follows"
    assert values["gateway.regulator.rate"] == "link"


def test_codel_interval_is_the_longest_round_trip_without_a_pep() -> None:
    values = effective(write(answers(pep=False)).text)
    # 2 (260 + 40 + 1) ms.
    assert values["gateway.transmit_queue.scheduler.interval"] == "600 ms"
    assert values["gateway.transmit_queue.scheduler.target"] == "30 ms"


def test_classes_are_judged_as_what_they_are() -> None:
    traffic = tomllib.loads(write(answers()).text)["traffic"]
    kinds = {name: table["kind"] for name, table in traffic.items()}
    assert kinds == {"web": "pages", "video": "dash", "voice": "voip", "downloads": "bulk"}
    assert traffic["web"]["http"] == "2"


def test_doubtful_answers_are_written_with_a_warning() -> None:
    assert write(answers()).notes == []
    (overload,) = write(answers(mix="web=500")).notes
    assert overload.startswith("the mix offers 280 % of the carrier")
    slow = Answers(
        ORBITS["geo"],
        100e6,
        1e6,
        10,
        None,
        mix_of("web=1", 10),
        pep=False,
        rain=False,
        handover=False,
        aqm="red",
    )
    (acks,) = write(slow).notes
    assert "TCP acknowledges 100 Mbit/s with about 2 Mbit/s" in acks


def on_terminal(folder: Path, typed: str, *options: str) -> tuple[int, str]:
    """Run `bentpipe new` on a terminal, type `typed`, and return the exit code and the screen."""
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            command_line("new", *options),
            cwd=folder,
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment(),
        )
        os.write(ours, typed.encode())
        screen, _ = process.communicate(timeout=PATIENCE)
    finally:
        os.close(ours)
        os.close(theirs)
    return process.returncode, screen


def test_terminal_is_asked_and_enter_takes_the_default(tmp_path: Path) -> None:
    code, screen = on_terminal(tmp_path, "leo\n50 Mbps\n" + "\n" * 10, "mine.toml", "--subscribers", "10")
    assert code == 0, screen
    assert "Orbit (geo, meo, leo) [geo]:" in screen
    assert "Subscribers [" not in screen
    values = effective((tmp_path / "mine.toml").read_text())
    assert values["gateway.regulator.rate"] == "50 Mbps"
    assert values["host.subscriber.count"] == "10"
    assert "link.satellite.handover.interval" in values


def test_terminal_is_asked_again_after_a_wrong_answer(tmp_path: Path) -> None:
    code, screen = on_terminal(tmp_path, "moon\ngeo\n" + "\n" * 9)
    assert code == 0, screen
    assert 'found "moon"; allowed: geo, meo, leo' in screen
    assert screen.count("Orbit (geo, meo, leo)") >= 2


def test_yes_asks_nothing_on_a_terminal(tmp_path: Path) -> None:
    code, screen = on_terminal(tmp_path, "", "--yes")
    assert code == 0, screen
    assert "[geo]" not in screen


def test_interrupted_questions_write_nothing(tmp_path: Path) -> None:
    code, screen = on_terminal(tmp_path, "\x04")
    assert code == 130, screen
    assert list(tmp_path.iterdir()) == []
