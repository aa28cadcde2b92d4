"""Damage to results on disk: noticed, named, and mended by the command that made them."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SETTINGS, Command, digests

import bentpipe as bp
from bentpipe import files
from bentpipe.runs.capture import Capture, Captures
from bentpipe.runs.dataset import failures_of
from bentpipe.runs.experiment import execute
from bentpipe.runs.plan import Plan, make_plan
from bentpipe.runs.store import Store
from bentpipe.tuning.study import open_storage

FLIPS = 40


@pytest.fixture(scope="module")
def small() -> bp.Scenario:
    return bp.load("small-gateway", set={"run.duration": "4 s", "run.warmup": "1 s"})


@pytest.fixture
def plan(small: bp.Scenario) -> Plan:
    return make_plan(small, settings=SETTINGS, runs=2)


@pytest.fixture(scope="module")
def stored(small: bp.Scenario, tmp_path_factory: pytest.TempPathFactory) -> bp.Result:
    return bp.compare(small, SETTINGS, runs=2, out=tmp_path_factory.mktemp("stored") / "result")


@pytest.fixture(scope="module")
def swept(small: bp.Scenario, tmp_path_factory: pytest.TempPathFactory) -> bp.SweepResult:
    out = tmp_path_factory.mktemp("swept") / "sweep"
    return bp.sweep(small, {"gateway.pep.delay": ["0 ms", "20 ms"]}, runs=1, out=out)


@pytest.mark.parametrize("name", ["manifest.json", "tune.json"])
def test_json_nested_without_end_is_refused_with_a_message(
    bentpipe: Command, tmp_path: Path, name: str
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / name).write_text(100_000 * "[" + 100_000 * "]")
    refused = bentpipe("report", "deep", check=2)
    assert len(refused.stderr.splitlines()) == 1
    assert "its arrays and objects are nested too deeply" in refused.stderr


@pytest.fixture
def copy(stored: bp.Result, tmp_path: Path) -> Path:
    return Path(shutil.copytree(stored.folder, tmp_path / "copy"))


def numbers_of(seed: int) -> random.Random:
    return random.Random(seed)  # noqa: S311


def flip(path: Path, numbers: random.Random) -> None:
    """Invert one bit of a file."""
    content = bytearray(path.read_bytes())
    content[numbers.randrange(len(content))] ^= 1 << numbers.randrange(8)
    path.write_bytes(content)


def unnoticed(folder: Path, tmp_path: Path, values: Callable[[Path], object]) -> list[str]:
    """Return the files in which one flipped bit changed `values` without an error."""
    numbers, expected, found = numbers_of(1), values(folder), []
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    for number in range(FLIPS):
        again = Path(shutil.copytree(folder, tmp_path / str(number)))
        path = again / numbers.choice(paths).relative_to(folder)
        flip(path, numbers)
        try:
            same = values(again) == expected
        except (bp.ResultError, bp.UsageError):
            continue
        if not same:
            found.append(str(path.relative_to(again)))
    return found


def test_a_flipped_bit_never_changes_the_values_of_a_comparison(stored: bp.Result, tmp_path: Path) -> None:
    def values(folder: Path) -> object:
        opened = bp.open(folder)
        return opened.values(), opened.drops().rows(), opened.settings, opened.manifest["scenario"]

    assert unnoticed(stored.folder, tmp_path, values) == []


def test_a_flipped_bit_never_changes_the_values_of_a_sweep(swept: bp.SweepResult, tmp_path: Path) -> None:
    def values(folder: Path) -> object:
        opened = bp.open_sweep(folder)
        return opened.frame().rows(), opened.settings, opened.factors, opened.failures

    assert unnoticed(swept.folder, tmp_path, values) == []


def test_a_flipped_bit_in_the_result_of_a_search_is_noticed(tmp_path: Path) -> None:
    path = tmp_path / "tune.json"
    document = {"format": "bentpipe-tune", "format_version": 2, "trials": [{"number": 1.25}]}
    numbers = numbers_of(2)
    for _ in range(FLIPS):
        files.write_json(path, files.sealed(document))
        flip(path, numbers)
        with pytest.raises(bp.ResultError):
            bp.open_tune(tmp_path)


def test_sha256sum_accepts_the_files_of_a_run_and_of_a_result(stored: bp.Result) -> None:
    for listed in stored.folder.rglob(files.SUMS):
        command = ["sha256sum", "--check", "--strict", "--quiet", files.SUMS]
        subprocess.run(command, cwd=listed.parent, check=True)
        expected = {path.name for path in listed.parent.iterdir() if path.is_file()}
        if listed.parent != stored.folder:
            named = {line.split("  ")[1] for line in listed.read_text().splitlines()}
            assert named == expected - {files.SUMS}


@pytest.mark.parametrize("name", ["series.parquet", "counters.json", "drops.parquet"])
@pytest.mark.parametrize("damage", ["removed", "cut", "flipped"])
def test_resuming_repeats_a_damaged_run(
    stored: bp.Result, copy: Path, plan: Plan, name: str, damage: str
) -> None:
    path = copy / "runs" / "red" / "2" / name
    if damage == "removed":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-10])
    else:
        flip(path, numbers_of(3))
    with pytest.raises(bp.ResultError, match=r"with --resume"):
        bp.open(copy).table()
    store = Store.resume(copy, plan)
    assert execute(store).table().equals(stored.table())
    store.close()
    assert digests(copy) == digests(stored.folder)


def test_resuming_restores_the_missing_duration_of_a_run(copy: Path, plan: Plan) -> None:
    path = copy / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["runs"].pop(1)
    path.write_text(json.dumps(files.sealed(manifest | {"status": "incomplete"})))
    store = Store.resume(copy, plan)
    resumed = execute(store)
    store.close()
    noted = [(run["setting"], run["seed"]) for run in resumed.manifest["runs"]]
    assert noted == [(setting, seed) for seed in (1, 2) for setting in SETTINGS]


@pytest.mark.parametrize("stage", ["mkdir", "write_json", "rename"])
def test_a_failure_at_the_start_leaves_no_folder(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stage: str
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(files if stage == "write_json" else Path, stage, fail)
    with pytest.raises(bp.UsageError, match="No space left"):
        Store.create(tmp_path / "out", plan)
    monkeypatch.undo()
    assert list(tmp_path.iterdir()) == []
    Store.create(tmp_path / "out", plan).close()


def test_a_folder_gets_its_name_back_after_a_kill_while_it_was_replaced(tmp_path: Path) -> None:
    folder = tmp_path / "result [1]"
    with files.new_folder(folder) as partial:
        (partial / "content").write_text("before")
    killed = f"""
import os
from pathlib import Path
from bentpipe import files
rename = Path.rename
def once(*names):
    rename(*names)
    os._exit(9)
Path.rename = once
with files.new_folder(Path({str(folder)!r}), replace=True) as partial:
    (partial / "content").write_text("after")
"""
    done = subprocess.run([sys.executable, "-c", killed], check=False)
    assert done.returncode == 9
    assert not folder.exists()
    files.restore(folder)
    assert (folder / "content").read_text() == "before"
    with files.new_folder(folder, replace=True) as partial:
        (partial / "content").write_text("at last")
    assert {path.name for path in tmp_path.iterdir()} == {folder.name}
    assert (folder / "content").read_text() == "at last"


def test_a_result_whose_replacement_was_killed_opens(small: bp.Scenario, tmp_path: Path) -> None:
    folder = tmp_path / "out"
    table = bp.run(small, out=folder, runs=1).table()
    # Killed between the two renames; the former folder names a process that is gone.
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    folder.rename(tmp_path / f"{files.PARTIAL}{folder.name}-{gone.pid}-x-former")
    assert bp.open(folder).table().equals(table)
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_resuming_repeats_a_run_whose_capture_is_missing(small: bp.Scenario, tmp_path: Path) -> None:
    plan, capture = make_plan(small, settings=None, runs=1), Capture(tmp_path / "pcap")
    result = bp.run(small, out=tmp_path / "out", pcap=tmp_path / "pcap", runs=1)
    (written,) = (tmp_path / "pcap").iterdir()
    content = written.read_bytes()
    # Killed between the two renames; the unfinished file names a process that is gone.
    gone = subprocess.Popen(["/bin/true"])
    gone.wait()
    written.rename(written.with_name(f"{files.PARTIAL}{gone.pid}-{written.name}"))
    store, captures = Store.resume(tmp_path / "out", plan), Captures(capture, plan)
    with captures.prepared(missing=()):
        execute(store, captures=captures)
    store.close()
    assert [path.read_bytes() for path in (tmp_path / "pcap").iterdir()] == [content]
    assert captures.written == [written]
    assert bp.open(tmp_path / "out").table().equals(result.table())


def test_a_search_goes_on_after_half_a_line_in_its_journal(tmp_path: Path) -> None:
    path = tmp_path / "study.journal"
    first = open_storage(path)
    study = first.create_new_study(directions=[], study_name="one")
    whole = path.read_bytes()
    first.set_study_user_attr(study, "key", "value")
    path.write_bytes(path.read_bytes()[:-7])
    again = open_storage(path)
    assert path.read_bytes() == whole
    again.set_study_user_attr(again.get_study_id_from_name("one"), "key", "value")
    assert open_storage(path).get_study_user_attrs(study) == {"key": "value"}


@pytest.mark.parametrize("length", [0, 1, 65_535, 65_536, 200_000])
def test_half_a_line_of_any_length_is_removed_from_a_journal(tmp_path: Path, length: int) -> None:
    path = tmp_path / "study.journal"
    open_storage(path).create_new_study(directions=[], study_name="one")
    whole = path.read_bytes()
    path.write_bytes(whole + b"x" * length)
    open_storage(path)
    assert path.read_bytes() == whole
    path.write_bytes((whole[:11] + b"x" * length)[:length])
    open_storage(path)
    assert path.read_bytes() == b""


@pytest.mark.parametrize("content", [b"x", b"a\nb", b'{"a": 1}', b"[]\n"])
def test_file_that_is_no_journal_is_refused_and_stays_as_it_is(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(bp.UsageError, match=r"notes\.txt: is not Optuna's journal; allowed: such a file, or"):
        open_storage(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("manifest.json", '{"format": "bentpipe-result", "format_version": 2}', "status is missing"),
        ("runs/red/1/counters.json", "[1, 2]", "found [1, 2]"),
        ("runs/red/1/counters.json", '{"drops": "many"}', 'drops: found "many"'),
    ],
)
def test_json_of_another_shape_is_one_message(copy: Path, name: str, content: str, words: str) -> None:
    (copy / name).write_text(content)
    (copy / name).with_name(files.SUMS).unlink()
    with pytest.raises(bp.ResultError) as error:
        bp.open(copy).table()
    assert words in str(error.value)
    assert name in str(error.value)


def test_failures_of_another_shape_are_one_message(tmp_path: Path) -> None:
    (tmp_path / "failures.json").write_text('[{"setting": "red", "point": 3}]')
    with pytest.raises(bp.ResultError, match=r"failures\.json: is damaged.*point: found 3"):
        failures_of(tmp_path)


def test_sweep_of_a_later_version_is_refused_and_stays_as_it_is(
    swept: bp.SweepResult, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(swept.folder, tmp_path / "sweep"))
    path = folder / "manifest.json"
    path.write_text(json.dumps(files.sealed(json.loads(path.read_text()) | {"format_version": 3})))
    before = path.read_bytes()
    with pytest.raises(bp.ResultError, match="has the format_version 3; this Bentpipe reads 1 and 2"):
        bp.open_sweep(folder)
    with pytest.raises(bp.ResultError, match="has the format_version 3"):
        bp.sweep("small-gateway", {"gateway.pep.delay": ["0 ms", "20 ms"]}, runs=1, out=folder)
    assert path.read_bytes() == before


def test_a_sweep_goes_on_when_a_duration_is_written_without_its_space(tmp_path: Path) -> None:
    def again(duration: str) -> bp.SweepResult:
        changes = {"run.duration": duration, "run.warmup": "1 s"}
        return bp.sweep("small-gateway", {}, runs=1, out=tmp_path / "s", set=changes)

    assert again("2 s").frame().equals(again("2s").frame())
    with pytest.raises(bp.UsageError, match="the same scenario and overrides"):
        again("3 s")


@pytest.mark.parametrize("command", ["sweep", "run", "tune"])
def test_a_device_without_end_is_refused(bentpipe: Command, command: str) -> None:
    arguments = {"sweep": ["--vary", "a=1"], "tune": ["--aqm", "red", "--metrics", "queue_mean:min"]}.get(
        command, []
    )
    done = bentpipe(command, "/dev/zero", *arguments, "--out", "out", check=2)
    assert "more than 4 MiB" in done.stderr
