"""Run the tests of a crate on mutants of its code with cargo-mutants: `make mutants`.

    python tools/mutants.py CARGO_MUTANTS CRATE [--file FILE] [--shard K/N] [--again] [--in-place]
    python tools/mutants.py page

CARGO_MUTANTS is the program and CRATE a crate's name without `bentpipe-`. FILE, a path in the crate's src/,
limits the run to one file, `--shard` to every N-th mutant from the K-th on. `--again` tries only the mutants
that survived before. `--in-place` changes the files themselves instead of a copy and restores them, so that
no dependency is compiled again; nobody may edit them meanwhile. docs/mutants.md is renewed; `page` does only
that, after a change of docs/mutants-survivors.toml. The exit code is 1 if a mutant survives that is not
listed there.

A first pass has the unit tests without those in `SLOW`. All tests run on mutants that survive it.
"""

import argparse
import datetime
import fcntl
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scipy.stats import binomtest

from blocks import replaced

__all__ = ["Mutant", "Row", "build_folder", "interval", "latest", "page", "reasons", "row"]

ROOT = Path(__file__).resolve().parents[1]
RUNS = ROOT / "target" / "mutants"
DATA, REASONS = Path("docs/mutants.json"), Path("docs/mutants-survivors.toml")
PAGE = Path("docs/mutants.md")
BEGIN, END = "<!-- begin: {} made by tools/mutants.py -->", "<!-- end -->"

SLOW: dict[str, tuple[str, ...]] = {
    "link": ("links_of_a_region", "attenuation_has_the_distribution"),
}
"""Unit tests that take most of a crate's time, by a part of their names."""
WITHOUT_UNIT_TESTS = ("spacelink",)
"""Crates whose tests are mostly in tests/, so that a first pass saves nothing."""
_RESULTS = {
    "CaughtMutant": "caught",
    "Timeout": "timeout",
    "Unviable": "unviable",
    "MissedMutant": "survived",
}
"""cargo-mutants' names of the results, and ours."""
_NORMAL_CODES = (0, 2, 3)
"""Exit codes of cargo-mutants: all caught, some missed, some timed out."""


@dataclass(frozen=True, order=True, slots=True)
class Mutant:
    """A mutant, by its place in its function, so that changes above the function do not matter."""

    file: str
    text: str
    """Description without the position."""
    line: int
    """Line, counted from the beginning of the function, or of the file outside functions."""
    column: int

    @classmethod
    def read(cls, data: dict[str, Any]) -> "Mutant":
        """Return the mutant that cargo-mutants describes."""
        start = data["span"]["start"]
        function = data.get("function")
        above = function["span"]["start"]["line"] if function else 0
        text = re.sub(r"^[^:]+:\d+:\d+: ", "", data["name"])
        return cls(data["file"], text, start["line"] - above, start["column"])


@dataclass
class Row:
    """Results of a crate, of one of its files, or of a sample."""

    mutants: int
    """Mutants of the crate or file, tried or not."""
    caught: int
    timeout: int
    unviable: int
    survived: int
    date: str
    version: str
    """Version of cargo-mutants."""
    shard: str = ""
    survivors: list[tuple[str, str]] = field(default_factory=list)
    """File and description of each survivor."""

    @property
    def tried(self) -> int:
        """Mutants tried, including those that do not compile."""
        return self.caught + self.timeout + self.unviable + self.survived

    @property
    def scope(self) -> str:
        """The mutants that were tried."""
        if self.shard:
            return f"1 in {self.shard.partition('/')[2]}"
        return "all" if self.tried == self.mutants else "part"


def latest(outcomes: list[list[dict[str, Any]]]) -> dict[Mutant, str]:
    """Return the last result of each mutant in the outcomes of several runs."""
    results: dict[Mutant, str] = {}
    for run in outcomes:
        for outcome in run:
            if outcome["scenario"] != "Baseline" and outcome["summary"] in _RESULTS:
                results[Mutant.read(outcome["scenario"]["Mutant"])] = _RESULTS[outcome["summary"]]
    return results


def row(results: dict[Mutant, str], listed: set[Mutant], date: str, version: str, shard: str = "") -> Row:
    """Return the row of the results of the mutants that there are now (`listed`)."""
    present = {mutant: result for mutant, result in results.items() if mutant in listed}
    counts = Counter(present.values())
    survivors = [(m.file, m.text) for m, result in sorted(present.items()) if result == "survived"]
    caught, timeout, unviable, survived = (counts[name] for name in _RESULTS.values())
    return Row(len(listed), caught, timeout, unviable, survived, date, version, shard, survivors)


def interval(successes: int, trials: int) -> tuple[float, float]:
    """Return the 95 % interval of a probability (Wilson 1927)."""
    if trials == 0:
        return 0.0, 1.0
    found = binomtest(successes, trials).proportion_ci(0.95, "wilson")
    return found.low, found.high


def reasons(text: str) -> dict[tuple[str, str], str]:
    """Return the reason for each survivor that a file lists."""
    entries = tomllib.loads(text).get("survivor", [])
    return {(each["file"], mutant): each["reason"] for each in entries for mutant in each["mutants"]}


def page(text: str, rows: dict[str, Row], known: dict[tuple[str, str], str]) -> str:
    """Return the page with the tables of `rows`."""
    scores = [
        "| code | mutants | scope | tried | caught | timed out | unviable | survived | score | date |",
        "| --- | --: | --- | --: | --: | --: | --: | --: | --: | --- |",
        *(_scores(name, rows[name]) for name in sorted(rows)),
    ]
    text = _replaced(text, "scores", "\n".join(scores))
    versions = " and ".join(sorted({each.version for each in rows.values()}))
    text = _replaced(text, "version", f"Measured with {versions}.")
    found = Counter(survivor for each in rows.values() for survivor in set(each.survivors))
    lines: list[str] = []
    for file in sorted({file for file, _ in found}):
        lines += ["", f"`{file}`:", ""]
        by_reason: dict[str, list[str]] = {}
        for _, mutant in sorted(each for each in found if each[0] == file):
            by_reason.setdefault(known.get((file, mutant), "no test yet"), []).append(f"`{mutant}`")
        lines += [f"- {', '.join(mutants)}: {reason}" for reason, mutants in by_reason.items()]
    return _replaced(text, "survivors", "\n".join(lines[1:]) or "None.")


def _scores(name: str, results: Row) -> str:
    """Return the line of a table for `results`."""
    found, viable = results.caught + results.timeout, results.tried - results.unviable
    score = f"{found / viable:.1%}" if viable else "–"
    if results.shard:
        low, high = interval(found, viable)
        score += f" ({low:.1%} to {high:.1%})"
    numbers = (results.tried, results.caught, results.timeout, results.unviable, results.survived)
    cells = [f"{results.mutants:,}", results.scope, *(f"{number:,}" for number in numbers)]
    return f"| {' | '.join([name, *cells, score, results.date])} |"


def _replaced(text: str, name: str, generated: str) -> str:
    return replaced(text, BEGIN.format(name), END, generated, str(PAGE))


class Runner:
    """Calls of cargo-mutants for one crate, one of its files, or a sample."""

    def __init__(self, program: str, crate: str, file: str | None, *, in_place: bool = False) -> None:
        """`file` is a path in the crate's src/."""
        if not (ROOT / "crates" / crate / "Cargo.toml").exists():
            known = ", ".join(sorted(each.parent.name for each in ROOT.glob("crates/*/Cargo.toml")))
            raise SystemExit(f"mutants: found the crate {crate}; allowed: {known}")
        source = f"crates/{crate}/src/{file}" if file else ""
        if source and not (ROOT / source).exists():
            raise SystemExit(f"mutants: {source} does not exist")
        self.name = f"{crate}: `{file}`" if file else crate
        self.folder = RUNS / re.sub(r"\W+", "-", self.name).strip("-")
        # Absolute, since the program runs in the folder of the project.
        self.program = [str(Path(program).resolve()), "mutants"]
        self.mutants = ["--package", f"bentpipe-{crate}", *(["--file", source] if source else [])]
        self.place = ["--in-place"] if in_place else []
        self.slow = [word for test in SLOW.get(crate, ()) for word in ("--skip", test)]
        self.has_unit_tests = crate not in WITHOUT_UNIT_TESTS

    def version(self) -> str:
        """Return name and version of the program."""
        return self._output(["--version"]).strip()

    def listed(self) -> dict[Mutant, str]:
        """Return the mutants that there are now, with cargo-mutants' names."""
        data = json.loads(self._output([*self.mutants, "--list", "--json"]))
        return {Mutant.read(each): each["name"] for each in data}

    def first(self, shard: str | None) -> None:
        """Try all mutants, or a sample."""
        shutil.rmtree(self.folder, ignore_errors=True)
        sample = ["--sharding", "round-robin", "--shard", shard] if shard else []
        self.run([*self.mutants, *sample], quick=self.has_unit_tests)
        if self.has_unit_tests:
            self.again()

    def again(self) -> None:
        """Try the mutants that survived before, with all tests."""
        before, listed = self.results(), self.listed()
        names = [name for mutant, name in listed.items() if before.get(mutant) == "survived"]
        if names:
            chosen = [word for name in names for word in ("--re", f"^{re.escape(name)}$")]
            self.run([*self.mutants, *chosen], quick=False)

    def results(self) -> dict[Mutant, str]:
        """Return the last result of each mutant."""
        files = sorted(self.folder.glob("*/mutants.out/outcomes.json"))
        return latest([json.loads(file.read_text(encoding="utf-8"))["outcomes"] for file in files])

    def run(self, arguments: list[str], *, quick: bool) -> None:
        """Run the quick or all tests on mutants."""
        out = self.folder / f"{len(list(self.folder.glob('*'))):03}"
        out.mkdir(parents=True)
        tests = ["--cargo-arg=--lib", *([] if quick else ["--cargo-arg=--tests"])]
        skipped = ["--", "--", *self.slow] if quick and self.slow else []
        command = [*self.program, *arguments, *self.place, *tests, "--output", str(out), *skipped]
        with build_folder(RUNS) as build:
            environment = os.environ | {"CARGO_TARGET_DIR": str(build)}
            done = subprocess.run(command, cwd=ROOT, env=environment, check=False)  # noqa: S603
        if done.returncode not in _NORMAL_CODES:
            raise SystemExit(f"mutants: cargo-mutants failed with exit code {done.returncode}")

    def _output(self, arguments: list[str]) -> str:
        return subprocess.check_output([*self.program, *arguments], cwd=ROOT, text=True)  # noqa: S603


@contextmanager
def build_folder(runs: Path) -> Iterator[Path]:
    """Lend a folder for compiled code that no other run has.

    In a common one cargo would test a mutant of one run in the place of another's.
    """
    for number in itertools.count():
        folder = runs / (f"build-{number}" if number else "build")
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / ".lent").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            yield folder
            return


def _renew(measured: dict[str, Row]) -> dict[tuple[str, str], str]:
    """Add rows to those of the file, which another run may have changed; return the survivors' reasons."""
    rows, known = _read() | measured, reasons((ROOT / REASONS).read_text(encoding="utf-8"))
    data = {name: asdict(rows[name]) for name in sorted(rows)}
    (ROOT / DATA).write_text(json.dumps(data, indent=2) + "\n", encoding="utf-8")
    path = ROOT / PAGE
    path.write_text(page(path.read_text(encoding="utf-8"), rows, known), encoding="utf-8")
    return known


def _read() -> dict[str, Row]:
    if not (ROOT / DATA).exists():
        return {}
    rows = {name: Row(**data) for name, data in json.loads((ROOT / DATA).read_text("utf-8")).items()}
    for each in rows.values():
        each.survivors = [(file, mutant) for file, mutant in each.survivors]
    return rows


def main(arguments: list[str]) -> int:
    """Run cargo-mutants, or renew the page."""
    if arguments == ["page"]:
        _renew({})
        return 0
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("program")
    parser.add_argument("crate")
    parser.add_argument("--file")
    parser.add_argument("--shard")
    parser.add_argument("--again", action="store_true")
    parser.add_argument("--in-place", action="store_true")
    given = parser.parse_args(arguments)
    runner = Runner(given.program, given.crate, given.file, in_place=given.in_place)
    if given.again:
        runner.again()
        former = _read().get(runner.name)
        shard = former.shard if former else ""
    else:
        runner.first(given.shard)
        shard = given.shard or ""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    result = row(runner.results(), set(runner.listed()), today, runner.version(), shard)
    known = _renew({runner.name: result})
    unknown = [f"{file}: {mutant}" for file, mutant in result.survivors if (file, mutant) not in known]
    if unknown:
        advice = f"add a test, remove dead code, or give the reason in {REASONS}"
        print("\n".join(["Survivors:", *unknown, f"mutants: {advice}"]), file=sys.stderr)
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
