"""Sweeps on a Dask cluster: real worker processes over TCP, and some of them killed."""

from pathlib import Path

import pytest

from bentpipe.errors import UsageError
from bentpipe.sweeping import sweep
from bentpipe.workers import workers_from

SHORT = ["run.duration=2 s", "run.warmup=1 s"]
VARY = {"gateway.pep.delay": "0 ms:40 ms:2", "gateway.aqm.w_q": "0.02,0.2"}


def content(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_a_cluster_does_not_show(tmp_path: Path) -> None:
    settings = ["red", "avqred"]
    for name, where in (("threads", {"jobs": 2}), ("cluster", {"cluster": "local:2"})):
        sweep("small-gateway", VARY, out=tmp_path / name, settings=settings, runs=3, set=SHORT, **where)
    assert content(tmp_path / "cluster") == content(tmp_path / "threads")
    assert list(tmp_path.iterdir()).__len__() == 2


@pytest.mark.parametrize(
    "where", ["local:0", "local:x", "local", "somewhere", "http://host:1", "tcp://host", ""]
)
def test_what_is_no_cluster_is_one_message(where: str) -> None:
    with pytest.raises(UsageError, match=rf"cluster {where}: allowed: local:N .* tcp://host:8786"):
        workers_from(None, where)


def test_threads_or_a_cluster() -> None:
    with pytest.raises(UsageError, match="give one of them"):
        workers_from(2, "local:2")
