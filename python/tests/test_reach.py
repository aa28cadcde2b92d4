"""The main job's figures: RED 4, AVQ and AVQRED on the dissertation's gateway, three seeds of 20 minutes."""

import subprocess
import sys
from pathlib import Path

import pytest
from conftest import environment
from patience import PATIENCE

import bentpipe as bp
from bentpipe._core import Progress, simulate

SCENARIO = "byun2007-gateway"


@pytest.fixture(scope="module")
def means(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], float]:
    main_job = bp.compare(SCENARIO, out=tmp_path_factory.mktemp("main-job") / "result")
    assert main_job.settings == ["RED 4", "AVQ", "AVQRED"]
    assert len(main_job.seeds) == 3
    return {(row["setting"], row["metric"]): row["mean"] for row in main_job.rows()}


@pytest.mark.long
@pytest.mark.parametrize(
    ("setting", "metric", "low", "high"),
    [
        ("RED 4", "queue_mean", 50, 66),
        ("AVQRED", "queue_mean", 26, 40),
        ("AVQ", "queue_mean", 20, 34),
        ("RED 4", "throughput", 19.7, 20),
        ("AVQRED", "throughput", 19.4, 19.8),
        ("AVQ", "throughput", 19.4, 19.8),
        *[(setting, "offered_load", 23.5, 25.5) for setting in ("RED 4", "AVQ", "AVQRED")],
        *[(setting, "drop_rate", 16, 20) for setting in ("RED 4", "AVQ", "AVQRED")],
    ],
)
def test_figures_are_close_to_the_printed_ones(
    means: dict[tuple[str, str], float], setting: str, metric: str, low: float, high: float
) -> None:
    assert low <= means[setting, metric] <= high


@pytest.mark.long
def test_avqred_drops_in_the_shortest_runs_and_red_in_the_longest(
    means: dict[tuple[str, str], float],
) -> None:
    avqred, avq, red = (means[setting, "drop_run_mean"] for setting in ("AVQRED", "AVQ", "RED 4"))
    assert avqred < avq < red


def test_lossless_satellite_link_has_no_retransmissions() -> None:
    run = simulate(bp.load(SCENARIO, set={"run.duration": "1 min"}), 1, Progress())
    assert run.counters["space_packets"] > 100_000
    assert run.counters["space_retransmissions"] == 0


@pytest.mark.long
def test_twenty_minutes_take_less_than_200_megabytes(tmp_path: Path) -> None:
    # The process reports its own peak: the one that its parent sees begins with the parent's memory.
    code = """
import sys
from bentpipe.cli.app import _main
code = _main(sys.argv[1:])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(code)
"""
    command = [sys.executable, "-c", code, "run", SCENARIO, "--out", str(tmp_path / "result")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=PATIENCE, env=environment()
    )
    peak = next(line for line in done.stderr.splitlines() if line.startswith("VmHWM"))
    assert int(peak.split()[1]) * 1024 < 200e6, peak
