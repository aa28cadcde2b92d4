"""Advise on the scenarios of six markets, check the answers on other seeds, and renew docs/advise-results.md.

    python tools/advice_table.py DOCS RESULTS [SCENARIO …]

A second table shows how the answer depends on the seed of the search. Advice is kept in RESULTS, so that an
interrupted call continues; the processor time is only shown of an advice that began in an empty folder. The
exit code is 1 if an answer serves more classes badly than another candidate, on seeds that the advice did not
use. With names of scenarios, only their rows are printed.
"""

import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import bentpipe as bp
from bentpipe.format import number
from bentpipe.stats.metrics import named_metric
from bentpipe.stats.services import Served, served
from reference import with_generated

SCENARIOS = ("geo-operator", "ship", "aircraft", "village-wifi", "leo-handover", "cell-backhaul")
DURATION = "60 s"
TRIALS, SEARCH_RUNS, RUNS = 8, 1, 5
"""Budget of the advice: points of each AQM, seeds of a point, and fresh seeds of the decision."""
FIRST_SEED = 5_000_001
"""First seed of the check; searches begin with the scenario's, and their fresh seeds a million above."""

OTHER_SEEDS: tuple[tuple[str, str, tuple[int, ...], dict[str, str]], ...] = (
    ("small-gateway", "classes", (1, 11, 21), {}),
    ("red-dumbbell", "power", (1, 7), {}),
    ("byun2007-gateway", "power", (1, 7), {"run.duration": "5 min"}),
)
"""Scenario, judge, first seeds of the search, and changes of each row of the second table."""
SEED_TRIALS, SEED_SEARCH_RUNS, SEED_RUNS = 16, 1, 5


@dataclass(frozen=True)
class Checked:
    """A candidate on the seeds of the check."""

    setting: str
    row: list[Served]

    @property
    def bad(self) -> list[str]:
        """Classes that it serves badly."""
        return [each.service.traffic_class for each in self.row if each.grade == "bad"]


def checked(scenario: str, advice: bp.Advice) -> list[Checked]:
    """Run every candidate of an advice again on the seeds of the check."""
    table = advice.found["paste"]["table"]
    found = []
    for candidate in advice.found["candidates"]:
        parameters = {key: value for key, value in candidate["table"].items() if key != "algorithm"}
        changes = [f"{table}.aqm.{key}={value.strip(chr(34))}" for key, value in parameters.items()]
        result = bp.compare(
            scenario,
            [candidate["algorithm"] if parameters else candidate["setting"].removesuffix(" defaults")],
            set=[f"run.duration={DURATION}", *changes],
            runs=RUNS,
            seed=FIRST_SEED,
            progress=False,
        )
        found.append(Checked(candidate["setting"], served(result)[0]))
    return found


def timed(scenario: str, out: Path, **options: Any) -> tuple[bp.Advice, str]:  # noqa: ANN401
    """Return an advice and its processor time as text; a dash if `out` held runs of an earlier call."""
    new = not out.exists()
    begin = time.process_time()
    advice = bp.advise(scenario, out=out, progress=False, **options)
    return advice, f"{time.process_time() - begin:.0f} s" if new else "–"


def line(scenario: str, advice: bp.Advice, every: list[Checked], seconds: str) -> str:
    """Return the row of a scenario in the table."""
    by_name = {each.setting: each for each in every}
    answer, present = by_name[advice.answer], by_name[advice.found["present"]]
    changes = "; ".join(
        f"{after.service.traffic_class} {number(before.found.mean)} → {number(after.found.mean)}"
        f" {after.service.metric.unit}".rstrip()
        + (f" ({before.grade} → {after.grade})" if after.grade else "")
        for before, after in zip(present.row, answer.row, strict=True)
    )
    others = [each.setting for each in every if not each.bad and each.setting != answer.setting]
    return (
        f"| `{scenario}` | `{answer.setting}` | {changes} | {', '.join(answer.bad) or 'none'}"
        f" | {', '.join(f'`{name}`' for name in others) or 'none'} | {seconds} |"
    )


def by_seed(results: Path) -> list[str]:
    """Return the table of the answers that other seeds give."""
    lines = [
        "| scenario | judge | seed | answer | change | first in | not told apart | processor time |",
        "| --- | --- | --: | --- | --- | --: | --- | --: |",
    ]
    for scenario, judge, seeds, changes in OTHER_SEEDS:
        for seed in seeds:
            advice, seconds = timed(
                scenario,
                results / f"{scenario}-{seed}",
                judge=judge,
                set=changes,
                trials=SEED_TRIALS,
                search_runs=SEED_SEARCH_RUNS,
                runs=SEED_RUNS,
                seed=seed,
            )
            found = advice.found
            answer = next(each for each in found["candidates"] if each["setting"] == advice.answer)
            # The first in the order, and those that are not told apart from it, of which one is the answer.
            equal = [each["setting"] for each in found["candidates"] if each["alike"]]
            alike = [f"`{name}`" for name in dict.fromkeys([found["first"], *equal]) if name != advice.answer]
            change = "; ".join(
                f"{named_metric(each['metric']).label} {number(each['before'])} → {number(each['after'])}"
                f" {named_metric(each['metric']).unit}".rstrip()
                for each in found["changes"]
                if each["metric"] in {*found["services"], "throughput", "queue_delay_mean"}
            )
            lines.append(
                f"| `{scenario}` | {judge} | {seed} | `{advice.answer}` | {change} |"
                f" {100 * answer['first_in']:.0f} % | {', '.join(alike) or 'none'} | {seconds} |"
            )
            print(lines[-1], flush=True)
    return lines


def main(docs: Path, results: Path, *names: str) -> int:
    """Renew the table; return the exit code."""
    lines = [
        "| scenario | answer | each class under the current setting → the answer | bad under the answer"
        " | others without a bad class | processor time of the advice |",
        "| --- | --- | --- | --- | --- | --: |",
    ]
    failed = False
    for name in names or SCENARIOS:
        advice, seconds = timed(
            name,
            results / name,
            set={"run.duration": DURATION},
            trials=TRIALS,
            search_runs=SEARCH_RUNS,
            runs=RUNS,
        )
        every = checked(name, advice)
        answer = next(each for each in every if each.setting == advice.answer)
        failed |= len(answer.bad) > min(len(each.bad) for each in every)
        lines.append(line(name, advice, every, seconds))
        print(lines[-1], flush=True)
    if not names:
        page = docs / "advise-results.md"
        text = page.read_text(encoding="utf-8")
        lines += [
            "",
            "## Other seeds of the search",
            "",
            f"With `--trials {SEED_TRIALS} --search-runs {SEED_SEARCH_RUNS} --runs {SEED_RUNS}`, and runs of"
            " five minutes on `byun2007-gateway`.",
            "",
            *by_seed(results),
        ]
        page.write_text(with_generated(text, "\n".join(lines), page), encoding="utf-8")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
