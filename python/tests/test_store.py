import concurrent.futures
import errno
import itertools
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import SETTINGS, digests

import bentpipe as bp
from bentpipe import files, qoe, stats
from bentpipe.runs import experiment, store
from bentpipe.runs.experiment import execute
from bentpipe.runs.plan import Plan, make_plan
from bentpipe.runs.store import Store, build_digest


@pytest.fixture
def plan(scenario: bp.Scenario) -> Plan:
    return make_plan(scenario, settings=SETTINGS, runs=2)


@pytest.fixture
def copy(result: bp.Result, tmp_path: Path) -> Path:
    """Copy of a result, to be damaged."""
    return Path(shutil.copytree(result.folder, tmp_path / "copy"))


def damage(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(files.sealed(json.loads(path.read_text()) | changes)))


def test_pipe_gets_the_content_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        files.write(pipe, b"content")
        assert os.read(reader, 100) == b"content"
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_discarded_folder_stays_with_the_files_of_the_user(plan: Plan, tmp_path: Path) -> None:
    store = Store.create(tmp_path / "out", plan)
    (tmp_path / "out" / "notes.txt").write_text("mine")
    store.discard()
    assert (tmp_path / "out" / "notes.txt").read_text() == "mine"
    (tmp_path / "out" / "notes.txt").unlink()
    store.discard()
    assert not (tmp_path / "out").exists()
    store.close()


def test_durations_are_written_together_if_writing_takes_long_and_all_at_the_end(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ticks = itertools.count()
    monkeypatch.setattr("time.monotonic", lambda: float(next(ticks)))
    written, into = tmp_path / "out" / "manifest.json", Store.create(tmp_path / "out", plan)

    def noted() -> int:
        return len(json.loads(written.read_text())["runs"])

    counts = []
    for setting, seed in store.pairs(plan):
        into.note(setting, seed, 1.0, 1.0)
        counts.append(noted())
    # The first writing takes a second of the clock, and the next may begin ten later.
    assert counts == [1] * len(counts)
    assert len(counts) > 1
    into.close()
    assert noted() == len(counts)


def test_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    files.write(path, b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_full_disk_during_a_run_leaves_no_partial_run(
    plan: Plan, result: bp.Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_new, written = files.write_new, 0

    def fills_up(path: Path, content: bytes) -> None:
        nonlocal written
        written += 1
        if written > 8:  # during the second run
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write_new(path, content)

    monkeypatch.setattr(files, "write_new", fills_up)
    store = Store.create(tmp_path / "out", plan)
    with pytest.raises(OSError, match="No space"):
        execute(store, jobs=1)
    store.close()
    assert len(list((tmp_path / "out" / "runs").glob("*/*"))) == 1
    with pytest.raises(bp.ResultError, match="1 of 4 runs"):
        bp.open(tmp_path / "out")
    monkeypatch.undo()
    store = Store.resume(tmp_path / "out", plan)
    resumed = execute(store, jobs=1)
    store.close()
    assert digests(resumed.folder) == digests(result.folder)


def test_runs_that_end_together_with_an_error_are_kept(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(_: Store, job: experiment._Job, *__: object) -> tuple[float, float] | None:
        if job is first[0]:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return None if job is first[1] else (1.0, 0.5)

    def all_together(pending: set[Any], **_: object) -> Any:  # noqa: ANN401
        return concurrent.futures.wait(pending)

    first: list[experiment._Job] = []

    class Job(experiment._Job):
        def __init__(self, *given: Any) -> None:  # noqa: ANN401
            super().__init__(*given)
            first.append(self)

    monkeypatch.setattr(experiment, "_Job", Job)
    monkeypatch.setattr(experiment, "_run", run)
    monkeypatch.setattr(experiment, "wait", all_together)
    store = Store.create(tmp_path / "out", plan)
    with pytest.raises(OSError, match="Input/output"):
        execute(store, jobs=1)
    store.close()
    manifest = json.loads((tmp_path / "out" / "manifest.json").read_text())
    # The first run failed, the second was cancelled.
    assert [(each["seed"], each["cpu_seconds"]) for each in manifest["runs"]] == [(2, 0.5), (2, 0.5)]


def test_resuming_simulates_only_what_is_missing(plan: Plan, result: bp.Result, copy: Path) -> None:
    damage(copy, status="incomplete")
    shutil.rmtree(copy / "runs" / "red" / "2")
    before = {path: path.stat().st_mtime_ns for path in (copy / "runs").glob("*/*")}
    store = Store.resume(copy, plan)
    resumed = execute(store)
    store.close()
    assert len(before) == 3
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    assert digests(resumed.folder) == digests(result.folder)


def test_unfinished_files_of_a_killed_process_are_removed(plan: Plan, copy: Path) -> None:
    damage(copy, status="incomplete")
    half = copy / "runs" / "red" / f"{files.PARTIAL}2-4711"
    shutil.move(copy / "runs" / "red" / "2", half)
    with pytest.raises(bp.ResultError, match="3 of 4 runs"):
        bp.open(copy)
    store = Store.resume(copy, plan)
    assert not half.exists()
    execute(store)
    store.close()
    assert bp.open(copy).seeds == [1, 2]


def test_result_with_a_missing_file_does_not_open(copy: Path) -> None:
    (copy / "runs" / "avqred" / "1" / "flows.parquet").unlink()
    with pytest.raises(bp.ResultError, match="avqred, seed 1"):
        bp.open(copy)


def test_result_without_summary_is_incomplete(copy: Path) -> None:
    damage(copy, status="incomplete")
    with pytest.raises(bp.ResultError, match="not finished"):
        bp.open(copy)


def test_damaged_table_is_named_in_the_error(copy: Path) -> None:
    path = copy / "runs" / "red" / "1" / "series.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(bp.ResultError, match=r"series\.parquet"):
        bp.open(copy).table()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "has no manifest"),
        ("{", "cannot be read"),
        ("[]", "has another format"),
        ('{"name": "a web app"}', "has another format"),
        ('{"format": "bentpipe-result", "format_version": 99}', "result format 99"),
    ],
)
def test_folder_without_a_result_is_refused(tmp_path: Path, content: str | None, words: str) -> None:
    if content is not None:
        (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(bp.ResultError, match=words):
        bp.open(tmp_path)


def while_described(monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[], object]) -> None:
    """Call `meanwhile` once, while the first result is described and its folder does not exist yet."""
    manifest, calls = store._manifest, iter([meanwhile])

    def described(*arguments: Any) -> dict[str, Any]:  # noqa: ANN401
        for call in calls:
            call()
        return manifest(*arguments)

    monkeypatch.setattr(store, "_manifest", described)


def test_folder_that_another_process_makes_meanwhile_is_not_replaced(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, others = tmp_path / "out", list[Store]()
    while_described(monkeypatch, lambda: others.append(Store.create(folder, plan)))
    with pytest.raises(bp.UsageError, match=r"out: exists already; choose another folder$"):
        Store.create(folder, plan)
    (other,) = others
    assert other._lock is not None
    assert folder.stat().st_ino == os.fstat(other._lock).st_ino
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    execute(other)
    other.close()
    assert bp.open(folder).seeds == [1, 2]


def test_empty_folder_that_another_process_makes_meanwhile_is_not_replaced(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_described(monkeypatch, (tmp_path / "out").mkdir)
    with pytest.raises(bp.UsageError, match="exists already"):
        Store.create(tmp_path / "out", plan)
    assert list((tmp_path / "out").iterdir()) == []


def test_two_results_of_the_same_second_get_two_folders(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    def made() -> Path:
        folder, into = store.made_folder(None, "a", lambda folder: Store.create(folder, plan))
        into.close()
        return folder

    others = list[Path]()
    while_described(monkeypatch, lambda: others.append(made()))
    folder = made()
    assert folder != others[0]
    assert sorted(Path("results").iterdir()) == sorted([folder, *others])


def test_existing_folder_is_not_replaced_without_force(plan: Plan, copy: Path) -> None:
    with pytest.raises(bp.UsageError, match="exists already"):
        Store.create(copy, plan)
    assert bp.open(copy)


def test_force_replaces_a_result_and_an_empty_folder(plan: Plan, copy: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    for folder in (copy, empty):
        Store.create(folder, plan, force=True).close()
        assert list((folder / "runs").iterdir()) == []


@pytest.mark.parametrize("where", ["notes.txt", "runs/notes.txt", "runs/red/1/notes.txt", "mine/data.csv"])
def test_force_deletes_only_files_of_a_result(plan: Plan, copy: Path, where: str) -> None:
    foreign = copy / where
    foreign.parent.mkdir(exist_ok=True)
    foreign.write_text("precious")
    with pytest.raises(bp.UsageError, match="not part of a Bentpipe result"):
        Store.create(copy, plan, force=True)
    assert foreign.read_text() == "precious"
    assert bp.open(copy)


def test_force_neither_follows_links_nor_replaces_other_folders(
    plan: Plan, copy: Path, tmp_path: Path
) -> None:
    link = tmp_path / "link"
    link.symlink_to(copy)
    with pytest.raises(bp.UsageError, match="is not a folder"):
        Store.create(link, plan, force=True)
    other = tmp_path / "home"
    other.mkdir()
    (other / "thesis.tex").write_text("precious")
    with pytest.raises(bp.UsageError, match="replaces only"):
        Store.create(other, plan, force=True)
    assert (other / "thesis.tex").exists()
    assert bp.open(copy)


def test_unwritable_folder_is_refused(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(bp.UsageError, match="cannot be written"):
        Store.create(tmp_path / "file" / "out", plan)


def test_two_processes_cannot_write_to_one_folder(plan: Plan, tmp_path: Path) -> None:
    first = Store.create(tmp_path / "out", plan)
    with pytest.raises(bp.UsageError, match="another Bentpipe"):
        Store.resume(tmp_path / "out", plan)
    with pytest.raises(bp.UsageError, match="another Bentpipe"):
        Store.create(tmp_path / "out", plan, force=True)
    first.close()
    Store.resume(tmp_path / "out", plan).close()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"settings": ["red", "avq"]}, "settings red, avqred, now with red, avq"),
        ({"runs": 3}, "seeds 1, 2, now with 1, 2, 3"),
        ({"seed": 2}, "seeds 1, 2, now with 2, 3"),
    ],
)
def test_resuming_another_experiment_is_refused(
    scenario: bp.Scenario, copy: Path, change: dict[str, object], words: str
) -> None:
    arguments: dict[str, object] = {"settings": SETTINGS, "runs": 2} | change
    with pytest.raises(bp.UsageError, match=words):
        Store.resume(copy, make_plan(scenario, **arguments))  # type: ignore[arg-type]


def test_resuming_with_another_duration_names_both(copy: Path) -> None:
    longer = bp.load("small-gateway", set={"run.duration": "21 s"})
    with pytest.raises(bp.UsageError, match=r"run\.duration 20 s, now with 21 s"):
        Store.resume(copy, make_plan(longer, settings=SETTINGS, runs=2))


def test_resuming_with_another_version_is_refused(plan: Plan, copy: Path) -> None:
    damage(copy, core={"version": "0.0.1", "sha256": "0"})
    with pytest.raises(bp.UsageError, match=r"Bentpipe 0\.0\.1"):
        Store.resume(copy, plan)


def test_resuming_a_missing_result_is_refused(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(bp.ResultError, match="no such folder"):
        Store.resume(tmp_path / "out", plan)


def test_build_digest_covers_core_and_metrics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = build_digest.__wrapped__()
    for package in (stats, qoe):
        copy = tmp_path / package.__name__
        shutil.copytree(package.__path__[0], copy)
        monkeypatch.setattr(package, "__path__", [str(copy)])
        assert build_digest.__wrapped__() == before
        for path in copy.glob("*.py"):
            content = path.read_bytes()
            path.write_bytes(content + b"#")
            assert build_digest.__wrapped__() != before, path
            path.write_bytes(content)
    monkeypatch.setattr(store, "core_digest", lambda: "another")
    assert build_digest.__wrapped__() != before
