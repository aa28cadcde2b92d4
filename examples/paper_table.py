"""A table and a figure for a paper: means with 95 % intervals, as CSV, and the chart as SVG.

`python paper_table.py FOLDER` writes FOLDER/table.csv and FOLDER/delay.svg.
"""

import sys
from pathlib import Path

import polars as pl

import bentpipe as bp

METRICS = ["throughput", "queue_delay_mean", "loss_rate"]
COLUMNS = ["setting", "metric", "unit", "mean", "ci_low", "ci_high", "runs"]


def main(folder: Path) -> None:
    """Compare three AQMs over five seeds."""
    result = bp.compare(
        "small-gateway", "red,avq,avqred", runs=5, set={"run.duration": "30 s"}, progress=False
    )
    table = result.table().filter(pl.col("metric").is_in(METRICS))
    table.select("setting", "metric", "unit", "mean", "ci_low", "ci_high", "runs").write_csv(
        folder / "table.csv"
    )
    result.plot("queue_delay_mean").save(folder / "delay.svg")
    print(f"{len(table)} rows, {result.differences('red').height} differences from RED")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "."))
