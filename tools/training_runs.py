"""Run what the simulator does most, and print the processor time of each run.

The profile of these runs is what `make wheel PROFILED=1` optimizes the wheel for. They need only the
package's compiled module.
"""

from collections.abc import Iterator
from pathlib import Path

from bentpipe._core import Progress, Scenario, simulate

SCENARIOS = Path(__file__).parents[1] / "scenarios"

RUNS: tuple[tuple[str, str, list[str]], ...] = (
    ("byun2007-gateway", "RED 4", ["run.duration=200 s"]),
    ("byun2007-gateway", "AVQRED", ["run.duration=200 s"]),
    ("red-dumbbell", "RED 60/120", []),
    ("red-dumbbell", "codel", ["link.bottleneck.delay=10 ms", "run.duration=50 s"]),
    ("beam", "", ["run.warmup=0 s", "run.duration=10 s"]),
)
"""Scenario, setting and overrides: long and short round trips, with a PEP and without, few users and many."""


def scenarios() -> Iterator[tuple[str, Scenario]]:
    """Read the scenario of each run; yield it after its name and setting."""
    for name, setting, overrides in RUNS:
        scenario = Scenario.load(str(SCENARIOS / f"{name}.toml"), overrides)
        yield f"{name} {setting}", scenario.with_setting(setting) if setting else scenario


def main() -> None:
    """Run everything once."""
    for label, scenario in scenarios():
        print(f"{label:30} {simulate(scenario, 1, Progress()).cpu_seconds:8.3f} CPU s")


if __name__ == "__main__":
    main()
