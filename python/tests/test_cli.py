import csv
import json
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, Command, command_line, digests, environment
from patience import PATIENCE
from preloaded import server

import bentpipe as bp
from bentpipe.cli import app, console
from bentpipe.stats.metrics import metrics_of

QUICK = ["small-gateway", "--duration", "5 s"]
PAIR = ["--settings", "red,avqred", "--runs", "2"]


def test_compare_writes_a_result_and_prints_the_table(bentpipe: Command, tmp_path: Path) -> None:
    done = bentpipe("compare", *QUICK, *PAIR, check=0)
    assert "throughput" in done.stdout
    assert "red" in done.stdout
    assert "avqred" in done.stdout
    (folder,) = (tmp_path / "results").iterdir()
    assert folder.name.startswith("small-gateway-")
    assert f"results/{folder.name}/report.html" in done.stdout
    assert (folder / "report.html").stat().st_size > 500_000
    assert bp.open(folder).settings == ["red", "avqred"]
    assert "Run 4 of 4 is finished" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


@pytest.mark.parametrize(("closed", "code"), [(">&-", 0), ("2>&-", 2)])
def test_closed_stream_is_no_defect(tmp_path: Path, closed: str, code: int) -> None:
    arguments = ["list", "sweeps"] if code == 0 else ["run", "no-such-scenario"]
    words = ["sh", "-c", f'exec "$@" {closed}', "sh", *command_line(*arguments)]
    done = subprocess.run(words, cwd=tmp_path, env=environment(), capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", "")


@pytest.mark.parametrize("command", [command_line("list", "aqms"), [sys.executable, "-m", "bentpipe"]])
def test_ctrl_c_while_modules_are_imported_prints_no_traceback(tmp_path: Path, command: list[str]) -> None:
    (tmp_path / "click.py").write_text("raise KeyboardInterrupt")
    path = os.pathsep.join([str(tmp_path), *sys.path])
    done = subprocess.run(command, env=environment() | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_letters_that_the_output_cannot_encode_are_question_marks(tmp_path: Path) -> None:
    words = command_line("list", "aqms")
    plain, ascii_only = (
        subprocess.run(
            words, cwd=tmp_path, env=environment() | encoding, capture_output=True, check=True
        ).stdout.decode()
        for encoding in ({"PYTHONIOENCODING": "utf-8"}, {"PYTHONIOENCODING": "ascii"})
    )
    assert not plain.isascii()
    assert ascii_only.isascii()
    assert "?" in ascii_only


def test_tables_are_whole_on_a_narrow_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["goodput_total", "[Mbit/s]", "12.34", "0.0030", "−0.5310,", "0.07000"]
    table = console.grid(
        ["metric", "mean", "p", "A − B"],
        [["goodput_total [Mbit/s]", *words[2:4], "−0.5310, 0.07000"]],
        right=1,
    )
    out = console.stdout()
    out.width = 20
    out.print(table)
    printed = capsys.readouterr().out
    assert all(word in printed for word in words)


def test_control_characters_of_a_title_do_not_reach_the_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = "Red \\u001b[31mtitle\\u009b32m\\u0007"
    scenario = bp.load("small-gateway").text.replace("A small gateway, for a first try", text)
    (tmp_path / "odd.toml").write_text(f'description = "{text}"\n{scenario}')
    with pytest.raises(SystemExit):
        app.main(["show", str(tmp_path / "odd.toml")])
    shown, cell = "Red [31mtitle32m", json.loads(f'"{text}"')
    console.stdout().print(console.grid(["name"], [[cell]]))
    console.warn([cell])
    printed = capsys.readouterr()
    assert printed.out.count(shown) == 3
    assert printed.err == f"warning: {shown}\n"
    assert all(letter == "\n" or letter.isprintable() for letter in printed.out)


def test_message_names_the_option_that_was_given(bentpipe: Command) -> None:
    for given, named in (
        (["--duration", "1"], "--duration 1"),
        (["--warmup=1 km"], "--warmup 1 km"),
        (["--set", "run.duration=1"], "--set run.duration=1: run.duration"),
    ):
        refused = bentpipe("run", "red-dumbbell", *given)
        assert (refused.returncode, refused.stderr.split(": found")[0]) == (2, f"error: {named}")


def test_run_simulates_the_scenario_unchanged(bentpipe: Command, tmp_path: Path) -> None:
    bentpipe("run", *QUICK, "--seed", "9", "--out", "here", check=0)
    result = bp.open(tmp_path / "here")
    assert result.settings == ["red"]
    assert result.seeds == [9]
    assert (tmp_path / "here" / "report.html").exists()


def test_json_format_prints_nothing_else_on_stdout(bentpipe: Command, tmp_path: Path) -> None:
    done = bentpipe("compare", *QUICK, *PAIR, "--format", "json", "--out", "here", check=0)
    rows = json.loads(done.stdout)
    assert len(rows) == 2 * len(metrics_of([("web", "web", "pages")]))
    keys = {"setting", "metric", "unit", "mean", "std", "ci95", "runs", "ci_low", "ci_high", "method", "note"}
    assert all(set(row) == keys for row in rows)
    assert rows == bp.open(tmp_path / "here").rows()


def test_json_without_finished_flows_has_null_and_no_nan(bentpipe: Command) -> None:
    done = bentpipe(
        "run", "red-dumbbell", "--duration", "1 s", "--set", "run.warmup=1 s", "--format", "json", check=0
    )
    assert "NaN" not in done.stdout
    rows = {row["metric"]: row for row in json.loads(done.stdout)}
    assert rows["fct_mean"] == {
        "setting": rows["fct_mean"]["setting"],
        "metric": "fct_mean",
        "unit": "s",
        "mean": None,
        "std": None,
        "ci95": None,
        "runs": 0,
        "ci_low": None,
        "ci_high": None,
        "method": None,
        "note": None,
    }


def test_overrides_reach_the_simulation(bentpipe: Command) -> None:
    slow = bentpipe("run", *QUICK, "--set", "gateway.regulator.rate=100 kbps", "--format", "json", check=0)
    fast = bentpipe("run", *QUICK, "--format", "json", check=0)
    rates = [
        next(row["mean"] for row in json.loads(done.stdout) if row["metric"] == "throughput")
        for done in (slow, fast)
    ]
    assert rates[0] <= 0.105
    assert rates[1] > 0.2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["compare", *QUICK, "--runs", "0"], ["--runs 0", "at least 1"]),
        (["run", *QUICK, "--jobs", "0"], ["--jobs 0", "at least 1"]),
        (["run", *QUICK, "--jobs", "many"], ["many", "integer"]),
        (["compare", *QUICK, "--settings", "red,avqerd"], ["avqerd", "avqred"]),
        (["compare", *QUICK, "--settings", "red,avq,red"], ["red", "twice"]),
        (["compare", *QUICK, "--settings", "red,,avq"], ["empty entry"]),
        (["compare", *QUICK, "--settings", ""], ["empty entry"]),
        (["run", *QUICK, "--seed", "-3"], ["-3"]),
        (["run", *QUICK, "--set", "gatway.aqm=red"], ["gatway", "gateway"]),
        (["run", *QUICK, "--set", "run.duration"], ["run.duration"]),
        (["run", "small-gateway", "--duration", "soon"], ["--duration", "soon"]),
        (["run", "missing.toml"], ["missing.toml"]),
        (["run", "."], ["."]),
        (["run", ""], ['scenario ""', "no such file"]),
        (
            ["run", "small-gateway", "--duration", "1000 h"],
            ["run: found 36000000 samples", "3600000 s", "100 ms"],
        ),
        (
            ["sweep", *QUICK, "--vary", "traffic.web.sessionz=1,2"],
            ["--vary traffic.web.sessionz=1", "sessions"],
        ),
        (["sweep", *QUICK, "--vary", "traffic.web.sessions=1..4"], ["--vary", "a range is LOW:HIGH:N"]),
        (["show", "red", "--setting", "AVQ"], ["--setting", "red", "algorithm"]),
        (["completion", "csh"], ["csh", "bash"]),
        (["completion"], ["Choose from: bash, zsh, fish"]),
        (["run", *QUICK, "--resume"], ["--resume", "--out"]),
        (["run", *QUICK, "--resume", "--force", "--out", "x"], ["--force", "--resume"]),
        (["run", *QUICK, "--resume", "--out", "nowhere"], ["nowhere", "no such folder"]),
        (["run", *QUICK, "--out", "/proc/nowhere/out"], ["/proc/nowhere/out", "cannot be written"]),
        (["run", *QUICK, "--colour"], ["--colour"]),
        (["show", "small-gateway", "--setting", "avqerd"], ["avqerd", "avqred"]),
        (["report", "."], ["is not a Bentpipe result"]),
        (["report", "nowhere"], ["nowhere", "no such folder"]),
        (["report", ".", "--as", "gif"], ["gif", "svg, png, pdf"]),
        (["report", ".", "--as", "png"], ["--as", "--figures"]),
        (["report", ".", "--force"], ["--force: found without --figures DIR"]),
        (["list", "queues"], ["queues", "aqms"]),
        (["simulate"], ["simulate"]),
        (["model"], ["bentpipe model: an argument is missing; see bentpipe model --help"]),
        (["evaluate"], ["bentpipe evaluate: an argument is missing"]),
        (
            ["model", "stability", "red-dumbbell", "--vary", "connections=1:1e9:3"],
            ["5e+08 connections", "at most 1,000,000"],
        ),
    ],
)
def test_bad_input_is_one_message_and_exit_code_2(
    bentpipe: Command, tmp_path: Path, arguments: list[str], words: list[str]
) -> None:
    done = bentpipe(*arguments, check=2)
    assert done.stdout == ""
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("error:") == 1
    assert "Traceback" not in done.stderr
    assert len(done.stderr.splitlines()) <= 8, done.stderr
    for word in words:
        assert word in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_binary_scenario_file_is_refused(bentpipe: Command, tmp_path: Path) -> None:
    (tmp_path / "noise.toml").write_bytes(bytes(range(128, 256)))
    done = bentpipe("run", "noise.toml", check=2)
    assert "noise.toml" in done.stderr
    assert "Traceback" not in done.stderr


def test_arguments_that_are_not_utf_8_are_refused(bentpipe: Command) -> None:
    for arguments in (["show", "\udcff.toml"], ["show", "small-gateway", "--set", "title=\udcff"]):
        refused = bentpipe(*arguments)
        assert refused.returncode == 2
        shown = ascii(arguments[-1])
        assert refused.stderr == (
            f"error: found the argument {shown}, which is not UTF-8; allowed: names and values in UTF-8\n"
        )


@pytest.mark.parametrize("command", ["run", "show", "report"])
def test_name_longer_than_a_file_name_is_a_mistake_of_the_caller(bentpipe: Command, command: str) -> None:
    refused = bentpipe(command, 300 * "x", check=2)
    assert "File name too long" in refused.stderr
    assert len(refused.stderr.splitlines()) == 1


def test_an_existing_folder_needs_force(bentpipe: Command, tmp_path: Path) -> None:
    bentpipe("run", *QUICK, "--out", "here", check=0)
    before = digests(tmp_path / "here")
    done = bentpipe("run", *QUICK, "--seed", "5", "--out", "here", check=2)
    assert done.stderr == "error: here: exists already; choose another folder, or replace it with --force\n"
    assert digests(tmp_path / "here") == before
    bentpipe("run", *QUICK, "--seed", "5", "--out", "here", "--force", check=0)
    assert bp.open(tmp_path / "here").seeds == [5]


def test_force_keeps_a_folder_that_is_not_a_result(bentpipe: Command, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "thesis.tex").write_text("precious")
    done = bentpipe("run", *QUICK, "--out", "home", "--force", check=2)
    assert "replaces only a Bentpipe result" in done.stderr
    assert (tmp_path / "home" / "thesis.tex").read_text() == "precious"


def test_settings_may_be_named_in_one_option_or_in_several(bentpipe: Command, tmp_path: Path) -> None:
    named = ["--setting", "red", "--settings", "droptail,avqred"]
    bentpipe("compare", *QUICK, *named, "--runs", "1", "--out", str(tmp_path / "three"))
    assert bp.open(tmp_path / "three").settings == ["red", "droptail", "avqred"]


LONG = ["compare", "byun2007-gateway", "--duration", "2 min", "--settings", "RED 4,AVQRED", "--runs", "2"]


def interrupt_after_first_run(folder: Path, how: signal.Signals) -> tuple[int, str]:
    """Start a long comparison and send it a signal after its first run; return exit code and stderr."""
    with subprocess.Popen(
        command_line(*LONG, "--jobs", "1", "--out", "long"),
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    ) as process:
        assert process.stderr is not None
        stderr = ""
        for line in process.stderr:
            stderr += line
            if line.startswith("Run 1 of 4"):
                process.send_signal(how)
        code = process.wait(timeout=PATIENCE)
    return code, stderr


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("whole")
    done = server().run(*LONG, "--out", "long", folder=folder, environment=environment())
    assert done.returncode == 0, done.stderr
    return digests(folder / "long")


@pytest.mark.long
def test_ctrl_c_keeps_finished_runs_and_prints_how_to_continue(
    bentpipe: Command, tmp_path: Path, uninterrupted: dict[str, str]
) -> None:
    code, stderr = interrupt_after_first_run(tmp_path, signal.SIGINT)
    assert code == 130
    assert "Traceback" not in stderr
    assert "1 of 4 runs are finished" in stderr
    words = next(line.strip() for line in stderr.splitlines() if line.strip().startswith("bentpipe compare"))
    assert bentpipe("report", "long", check=2).stderr.count("1 of 4 runs") == 1
    (first,) = (tmp_path / "long" / "runs").glob("*/*")
    before = first.stat().st_mtime_ns
    script = f'bentpipe() {{ "{command_line()[0]}" -c "{command_line()[2]}" "$@"; }}; {words}'
    subprocess.run(
        ["/bin/bash", "-c", script], cwd=tmp_path, check=True, capture_output=True, timeout=PATIENCE
    )
    assert first.stat().st_mtime_ns == before
    assert digests(tmp_path / "long") == uninterrupted


def test_a_killed_comparison_is_not_complete_and_can_be_resumed(
    bentpipe: Command, tmp_path: Path, uninterrupted: dict[str, str]
) -> None:
    code, _ = interrupt_after_first_run(tmp_path, signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert "not finished" in bentpipe("report", "long", check=2).stderr
    bentpipe(*LONG, "--out", "long", "--resume", check=0)
    assert digests(tmp_path / "long") == uninterrupted


def test_full_disk_is_one_message(bentpipe: Command, tmp_path: Path) -> None:
    done = subprocess.run(
        command_line("compare", *QUICK, *PAIR, "--jobs", "1", "--out", "here"),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        env=environment(),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (6_000, 6_000)),
    )
    assert done.returncode in (1, 2)
    assert "Traceback" not in done.stderr
    assert "File too large" in done.stderr
    assert not list(tmp_path.rglob(".partial*"))
    assert bentpipe("report", "here").returncode == 2


def test_resuming_a_complete_result_prints_it_again(bentpipe: Command) -> None:
    first = bentpipe("compare", *QUICK, *PAIR, "--out", "here", check=0)
    again = bentpipe("compare", *QUICK, *PAIR, "--out", "here", "--resume", check=0)
    assert again.stdout == first.stdout
    assert "4 of them already finished" in again.stderr


def test_report_writes_figures_without_overwriting(bentpipe: Command, tmp_path: Path) -> None:
    bentpipe("compare", *QUICK, *PAIR, "--out", "here", check=0)
    (tmp_path / "here" / "report.html").unlink()
    bentpipe("report", "here", "--figures", "paper", "--as", "svg,pdf", check=0)
    assert (tmp_path / "here" / "report.html").exists()
    names = {path.name for path in (tmp_path / "paper").iterdir()}
    assert {"queue.svg", "queue.pdf", "drop-runs.svg", "operating-points.pdf"} <= names
    assert len([name for name in names if name.endswith(".svg")]) == len(names) / 2
    done = bentpipe("report", "here", "--figures", "paper", "--as", "svg", check=2)
    assert "exists already" in done.stderr
    bentpipe("report", "here", "--figures", "paper", "--as", "svg", "--force", check=0)


def test_list_and_show_print_scenarios_and_algorithms(bentpipe: Command) -> None:
    aqms = bentpipe("list", "aqms", "--parameters", check=0).stdout
    assert "Schedulers with AQMs inside: fq_codel, cake, cake_users, fq_pie, dualpi2" in aqms
    for word in ("avqred", "min_capacity", "RED 4", "max_th = 120"):
        assert word in aqms
    schedulers = " ".join(bentpipe("list", "schedulers", "--parameters", check=0).stdout.split())
    for word in ("fifo", "alpha (α)", "1024; RFC 8290 section 5.2.5", "true; RFC 9332"):
        assert word in schedulers
    assert "byun2007-gateway" in bentpipe("list", "scenarios", check=0).stdout
    shown = bentpipe("show", "byun2007-gateway", "--setting", "AVQRED", "--duration", "5 min", check=0).stdout
    assert "run.duration" in shown
    assert "avqred" in shown
    rows = json.loads(bentpipe("show", "byun2007-gateway", "--format", "json", check=0).stdout)
    assert all(set(row) == {"key", "value", "origin", "note"} for row in rows)
    names = [row["name"] for row in json.loads(bentpipe("list", "aqms", "--format", "json", check=0).stdout)]
    assert {"droptail", "red", "avq", "avqred"} <= set(names)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("red", ["min_th", "packets", "RED 4", "0.02"]),
        ("DRR", ["drr (scheduler)", "quantum"]),
        ("cubic", ['algorithm = "cubic"']),
        ("pages", ["traffic", 'kind = "pages"']),
    ],
)
def test_show_prints_the_parameters_of_an_algorithm(bentpipe: Command, name: str, words: list[str]) -> None:
    shown = bentpipe("show", name, "--quiet", check=0).stdout
    for word in words:
        assert word in shown


@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["compare", "byun2007"], "byun2007-gateway"),
        (["compare", "byun2007-gateway", "--settings", "AVQRED,avq"], "AVQRED,AVQ"),
        (["show", "byun2007-gateway", "--setting", "cod"], "codel"),
        (["sweep", "geo-operator", "--metric", "voice.m"], "voice.mos"),
        (["sweep", "byun2007-pep"], "byun2007-pep-delay"),
        (["show", "fq_c"], "fq_codel"),
        (["tune", "small-gateway", "--aqm", "pi"], "pie"),
        (["advise", "small-gateway", "--aqms", "red,cod"], "red,codel"),
        (["reproduce", "jain"], "jain2004"),
    ],
)
def test_the_shell_completes_scenarios_settings_and_metrics(
    bentpipe: Command, words: list[str], found: str
) -> None:
    asked = {
        "_BENTPIPE_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["bentpipe", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = bentpipe(check=0, **asked)
    assert found in [line.partition(",")[2] for line in done.stdout.splitlines()]


def test_csv_has_the_rows_of_json(bentpipe: Command) -> None:
    def both(*arguments: str) -> tuple[list[dict[str, object]], list[dict[str, str]]]:
        rows = json.loads(bentpipe(*arguments, "--format", "json").stdout)
        lines = bentpipe(*arguments, "--format", "csv").stdout.splitlines()
        return rows, list(csv.DictReader(lines))

    rows, read = both("list", "metrics")
    assert [row["name"] for row in rows] == [row["name"] for row in read]
    rows, read = both("list", "aqms")
    red = next(row for row in read if row["name"] == "red")
    assert red["presets"].startswith("RED 1; RED 2; ")
    assert red["params"].split("; ")[:2] == ["min_th", "max_th"]
    bentpipe("run", *QUICK, "--runs", "2", "--out", "one")
    rows, read = both("compare", *QUICK, "--settings", "red,avq", "--out", "two", "--force")
    for row, other in zip(rows, read, strict=True):
        assert row["metric"] == other["metric"]
        assert row["mean"] == (float(other["mean"]) if other["mean"] else None)
    rows = json.loads(bentpipe("compare", "two", "--format", "json").stdout)["comparisons"]
    assert len(rows) == len(bentpipe("compare", "two", "--format", "csv").stdout.splitlines()) - 1


def test_quiet_shows_warnings_but_no_progress(bentpipe: Command) -> None:
    command = ["run", *QUICK, "--format", "json", "--force", "--out", "one"]
    loud, quiet = (bentpipe(*command, *more, check=0).stderr for more in ([], ["-q"]))
    assert "Simulating" in loud
    assert "Simulating" not in quiet
    assert "One run per setting" in quiet


def test_no_color_leaves_out_colors(bentpipe: Command) -> None:
    command = ["run", *QUICK, "--force", "--out", "one"]
    colors = re.compile(r"\x1b\[(?:\d+;)*[34]\d")
    assert colors.search(bentpipe(*command, check=0, FORCE_COLOR="1").stdout)
    assert not colors.search(bentpipe(*command, check=0, FORCE_COLOR="1", NO_COLOR="1").stdout)


def test_doctor_names_what_is_missing_and_the_command_that_fixes_it(tmp_path: Path) -> None:
    def doctor(path: str) -> tuple[dict[str, dict[str, object]], str]:
        command = [sys.executable, "-m", "bentpipe", "doctor"]
        done = [
            subprocess.run(
                [*command, *form],
                env=os.environ | {"PATH": path},
                capture_output=True,
                text=True,
                check=True,
            ).stdout
            for form in (["--format", "json"], [])
        ]
        return {each["part"]: each for each in json.loads(done[0])}, done[1]

    parts, text = doctor(str(tmp_path))
    assert parts["simulations and models"]["works"] is True
    programs = parts["live runs: programs"]
    assert programs["works"] is False
    assert "nsenter" in str(programs["found"])
    assert "apt-get install" in str(programs["remedy"])
    assert str(programs["remedy"]) in text


def test_live_check_names_missing_programs(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bentpipe", "live", "live-smoke", "--check"],
        env=os.environ | {"PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "live-smoke can be live" in done.stdout
    assert "missing on this machine" in done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_completion_script_is_valid_bash(bentpipe: Command) -> None:
    script = bentpipe("completion", "bash").stdout
    assert "_BENTPIPE_COMPLETE=bash_complete" in script
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)  # noqa: S607


def test_list_has_every_transport_and_kind_of_traffic(bentpipe: Command) -> None:
    transports = bentpipe("list", "transports", "--parameters", check=0).stdout
    for word in ('preset = "linux"', "RFC 9438", "sctp", "rtp", "(UDP)", "min_rto", "900 ms", "0 to 14"):
        assert word in transports
    rows = json.loads(bentpipe("list", "transports", "--format", "json", check=0).stdout)
    names = {key: {row["name"] for row in rows if row["key"] == key} for key in ("protocol", "preset")}
    assert names == {
        "protocol": {"tcp", "sctp", "rtp", "quic"},
        "preset": {"reno-2003", "byun2007", "ns2", "linux"},
    }
    for row in rows:
        # The scenario reader accepts each name at the listed key.
        more = ["--set", "transport.linux.ecn=accurate"] if row["name"] in {"dctcp", "prague"} else []
        chosen = f"transport.linux.{row['key']}={row['name']}"
        bentpipe("show", "small-gateway", "--set", chosen, *more, check=0)
    kinds = bentpipe("list", "traffic", "--format", "json", check=0).stdout
    documented = (ROOT / "docs" / "traffic.md").read_text(encoding="utf-8")
    assert all(f"| `{row['name']}` |" in documented for row in json.loads(kinds))
    assert 'kind = "mmpp"' in bentpipe("list", "traffic", check=0).stdout


def test_schema_and_version(bentpipe: Command) -> None:
    schema = json.loads(bentpipe("schema", check=0).stdout)
    assert "$schema" in schema
    assert bentpipe("--version", check=0).stdout == f"bentpipe {bp.__version__}\n"


@pytest.mark.parametrize("command", ["run", "compare", "list", "show", "report", "schema", "doctor"])
def test_every_command_has_help_with_an_example(bentpipe: Command, command: str) -> None:
    text = bentpipe(command, "--help", check=0).stdout
    assert f"\n    bentpipe {command}" in text


def test_closed_stdout_prints_no_error(tmp_path: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "w") as pipe:
        done = subprocess.run(
            command_line("schema"),
            cwd=tmp_path,
            stdout=pipe,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=PATIENCE,
        )
    assert "Traceback" not in done.stderr


def test_scenario_in_the_readme_is_shipped() -> None:
    assert (ROOT / "scenarios" / "byun2007-gateway.toml").exists()
