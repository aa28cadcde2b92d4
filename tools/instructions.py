"""Count the instructions of the engines with Callgrind, and compare them with docs/instructions.json.

    python tools/instructions.py check         as `make test` does
    python tools/instructions.py renew         `make instructions`: also renews the tables in docs/

`check` fails if a count is more than 3 % above the committed one. Counts of another compiler, C library or
processor architecture are not compared.
"""

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from blocks import replaced, table

__all__ = [
    "LIMIT",
    "Counts",
    "Section",
    "differences",
    "measure",
    "page",
    "parts",
    "parts_page",
    "read_dumps",
]

ROOT = Path(__file__).resolve().parents[1]
DATA, PAGE = Path("docs/instructions.json"), Path("docs/performance.md")
PARTS_PAGE = Path("docs/performance-simulator.md")
BEGIN, END = "<!-- begin: {} made by tools/instructions.py -->", "<!-- end -->"
LIMIT = 0.03
"""Greatest increase of a count as a share of the committed one."""
OUTDATED = 0.1
"""Decrease from which on the committed counts hide later increases."""
_LISTED = 5
"""Sections that a message names."""

_PACKAGE, _BENCH = "bentpipe-testbed", "instructions"
_BUILD = ("cargo", "bench", "--locked", "--quiet", "--no-run", "--message-format=json", "-p", _PACKAGE)
# glibc chooses its string functions by processor; these are the ones of every x86-64.
_TUNABLES = "glibc.cpu.hwcaps=-AVX,-AVX2,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM"
_KINDS = {
    "simulator": "scenario, setting",
    "algorithm": "AQM or scheduler",
    "spacelink": "traffic",
}
"""Kinds of sections, and the heading of their table."""
_PARTS = {
    "TCP, and the hosts that use it": ("transport", "sim/endpoints", "sim/apps"),
    "events: links, paths, delivery": ("sim/engine", "sim/network", "sim/simulation", "link", "units"),
    "agenda": ("sim/clock",),
    "gateway and PEP link": ("gateway", "sim/gateways", "transport/pep_link"),
    "queue and AQM": ("queue",),
    "records": ("sim/record",),
}
"""Parts of the simulator, and their crates and modules, the longest name first that fits."""
_REST = "rest"


@dataclass
class Section:
    """Instructions of one section of the benchmark."""

    unit: str
    instructions: float
    """Instructions per unit."""
    parts: dict[str, float] = field(default_factory=dict)
    """Share of each part of the program [%], of a section of the simulator."""


@dataclass
class Counts:
    """Counts of all sections, and what they depend on."""

    compiler: str
    libc: str
    architecture: str
    sections: dict[str, Section]

    def environment(self) -> str:
        """Return what counts depend on beside the code."""
        return f"{self.compiler}, {self.libc}, {self.architecture}"


def read_dumps(folder: Path) -> list[str]:
    """Return Callgrind's files of the sections, in their order."""
    files = sorted(folder.glob("callgrind.*"), key=lambda path: int(path.suffix[1:]))
    texts = [path.read_text(errors="replace") for path in files]
    # Each section has a boundary before it and one after it.
    return [text for text in texts if "\ndesc: Trigger: --dump-after=" in text][1::2]


def total(dump: str) -> int:
    """Return the instructions of a file of Callgrind."""
    return int(re.findall(r"^totals: (\d+)", dump, flags=re.MULTILINE)[-1])


def part_of(file: str, function: str) -> str:
    """Return the part of the simulator that has a line: by its file or its function."""
    own = re.search(r"crates/(\w+)/src/(\w+)", file) or re.search(r"bentpipe_(\w+)::(\w+)", function)
    if own is None:
        return _REST
    names = ("/".join(own.groups()), own.group(1))
    return next((part for name in names for part, of in _PARTS.items() if name in of), _REST)


def parts(lines: Iterable[str]) -> dict[str, float]:
    """Return the share of each part of the simulator [%] from a file of Callgrind."""
    names: dict[tuple[str, str], str] = {}

    def name(kind: str, value: str) -> str:
        number, _, text = value.partition(" ")
        return names.setdefault((kind, number), text)

    found: Counter[str] = Counter()
    file = function = ""
    is_call = False
    for line in lines:
        key, _, value = line.partition("=")
        if key in ("fl", "fi", "fe"):
            file = name("file", value)
        elif key == "fn":
            function = name("function", value)
        elif key in ("cfi", "cfl"):
            name("file", value)
        elif key == "cfn":
            name("function", value)
        elif key == "calls":
            # The next line has what the called function took.
            is_call = True
        elif re.match(r"[\d+*-]", line):
            if not is_call:
                found[part_of(file, function)] += int(line.split()[-1])
            is_call = False
    return {part: round(100 * found[part] / found.total(), 1) for part in (*_PARTS, _REST)}


def measure() -> Counts:
    """Build the benchmark and count its instructions."""
    if shutil.which("valgrind") is None:
        raise SystemExit("instructions: valgrind was not found; install the Debian package valgrind")
    program = _built()
    with tempfile.TemporaryDirectory() as temporary:
        command = [
            "valgrind",
            "--tool=callgrind",
            "--dump-after=*section_boundary*",
            f"--callgrind-out-file={temporary}/callgrind",
            str(program),
        ]
        # The environment lies on the stack and so shifts addresses: it is the same everywhere.
        done = subprocess.run(  # noqa: S603
            command,
            cwd=ROOT / "crates" / "testbed",
            env={"PATH": os.defpath, "GLIBC_TUNABLES": _TUNABLES},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"instructions: the benchmark failed under valgrind: {done.stderr[-2000:]}")
        dumps = read_dumps(Path(temporary))
    lines = [line.split("\t") for line in done.stdout.splitlines()]
    if len(lines) != len(dumps):
        raise SystemExit(f"instructions: {len(lines)} sections ran, but valgrind counted {len(dumps)}")
    sections = {
        name: Section(
            unit,
            round(total(dump) / int(units), 1),
            parts(dump.splitlines()) if name.startswith("simulator: ") else {},
        )
        for (name, unit, units), dump in zip(lines, dumps, strict=True)
    }
    return Counts(_compiler(), " ".join(platform.libc_ver()), platform.machine(), sections)


def differences(committed: Counts, found: Counts) -> tuple[list[str], list[str]]:
    """Return what fails the check, and what makes the committed counts outdated."""
    above: list[str] = []
    below: list[str] = []
    for name, section in found.sections.items():
        former = committed.sections.get(name)
        if former is None:
            above.append(f"{name} has no committed count")
            continue
        change = section.instructions / former.instructions - 1
        counts = f"{former.instructions:,.0f} → {section.instructions:,.0f}"
        text = f"{name} {counts} per {former.unit} ({change:+.1%})"
        if change > LIMIT:
            above.append(text)
        elif change < -OUTDATED:
            below.append(text)
    above.extend(f"{name} was not counted" for name in committed.sections if name not in found.sections)
    return above, below


def check(committed: Counts, found: Counts) -> tuple[int, str]:
    """Return the exit code and the message of a check."""
    above, below = differences(committed, found)
    if above:
        advice = "make it cheaper, or run `make instructions` and say in the commit why it costs more"
        return 2, f"instructions: more than {LIMIT:.0%} above {DATA}: {_listed(above)}: {advice}"
    if below:
        advice = "run `make instructions`, so that later increases are found"
        return 0, f"instructions: far below {DATA}: {_listed(below)}: {advice}"
    return 0, ""


def _listed(texts: list[str]) -> str:
    """Return the first texts, and the number of the others."""
    more = [f"{len(texts) - _LISTED} more"] if len(texts) > _LISTED else []
    return "; ".join([*texts[:_LISTED], *more])


def page(text: str, counts: Counts) -> str:
    """Return the page with the tables of `counts`."""
    for kind, heading in _KINDS.items():
        rows = [
            [name.partition(": ")[2], f"{section.instructions:,.0f}"]
            for name, section in counts.sections.items()
            if name.startswith(f"{kind}: ")
        ]
        units = {each.unit for name, each in counts.sections.items() if name.startswith(f"{kind}: ")}
        heads = [heading, f"instructions per {' or '.join(sorted(units))}"]
        text = _replaced(text, kind, table(heads, rows))
    return _replaced(text, "environment", f"Counted with {counts.environment()}.")


def parts_page(text: str, counts: Counts) -> str:
    """Return the page of the simulator with the shares of its parts."""
    found = {name.partition(": ")[2]: each.parts for name, each in counts.sections.items() if each.parts}
    rows = [[part, *(f"{shares[part]:.1f}" for shares in found.values())] for part in (*_PARTS, _REST)]
    shares = table(["part [%]", *found], rows)
    return replaced(text, BEGIN.format("parts"), END, shares, str(PARTS_PAGE))


def read(text: str) -> Counts:
    """Return the counts of a file."""
    data = json.loads(text)
    data["sections"] = {name: Section(**section) for name, section in data["sections"].items()}
    return Counts(**data)


def written(counts: Counts) -> str:
    """Return the text of a file with `counts`."""
    return json.dumps(asdict(counts), indent=2) + "\n"


def _replaced(text: str, name: str, generated: str) -> str:
    return replaced(text, BEGIN.format(name), END, generated, str(PAGE))


def _compiler() -> str:
    """Return version and commit of the compiler."""
    return subprocess.check_output(("rustc", "--version"), text=True).strip()  # noqa: S607


def _built() -> Path:
    """Build the benchmark, and return its path."""
    done = subprocess.run(  # noqa: S603
        [*_BUILD, "--bench", _BENCH], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
    )
    # Cargo builds the programs of the crate too, and reports in any order.
    built = (each for each in map(json.loads, done.stdout.splitlines()) if each.get("executable"))
    return Path(next(each["executable"] for each in built if each["target"]["name"] == _BENCH))


def _reason_to_skip(committed: Counts) -> str:
    """Return why counts of this machine are not comparable; empty if they are."""
    here = Counts(_compiler(), " ".join(platform.libc_ver()), platform.machine(), {})
    if here.environment() == committed.environment():
        return ""
    return f"instructions: skipped: counted with {committed.environment()}, but found {here.environment()}"


def main(arguments: list[str]) -> int:
    """Check or renew the counts."""
    if arguments not in (["check"], ["renew"]):
        print(__doc__, file=sys.stderr)
        return 2
    if arguments == ["renew"]:
        counts = measure()
        (ROOT / DATA).write_text(written(counts), encoding="utf-8")
        for name, renewed in ((PAGE, page), (PARTS_PAGE, parts_page)):
            path = ROOT / name
            path.write_text(renewed(path.read_text(encoding="utf-8"), counts), encoding="utf-8")
        return 0
    committed = read((ROOT / DATA).read_text(encoding="utf-8"))
    if reason := _reason_to_skip(committed):
        print(reason)
        return 0
    code, message = check(committed, measure())
    if message:
        print(message, file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
