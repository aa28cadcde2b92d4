"""Reads the recipes of CONTRIBUTING.md and follows them on a copy of the tree.

A recipe is a section of the third level. Its code blocks are followed in order:

- `rust file=PATH`, or another language: a new file.
- `diff file=PATH`: changes of a file, without line numbers. Lines that begin with a space or `-` must occur
  exactly once, one after the other; `@@` begins another place.
- `sh`: commands to run, one per line.
- `text`: lines that the output of those commands contains, in this order; `...` stands for any text.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Block", "Recipe", "RecipeError", "Workshop", "apply", "missing", "read"]

_FENCE = re.compile(r"```(?P<kind>\w+)(?: file=(?P<file>\S+))?")
CORE = Path("python/bentpipe/_core.abi3.so")
_PROFILES = """\
# Quick to compile; the crates that simulate are optimized, since the commands simulate for longer.
[profile.dev]
opt-level = 0
debug = false

[profile.dev.package]
bentpipe-queue.opt-level = 1
bentpipe-sim.opt-level = 1
bentpipe-transport.opt-level = 1

[profile.test]
opt-level = 0
debug = false
"""
_KEPT = {"__pycache__", CORE.name}
"""Files that the copy keeps although the tree has none of them."""


class RecipeError(Exception):
    """A recipe cannot be followed; the message names its line in CONTRIBUTING.md."""


@dataclass(frozen=True)
class Block:
    """One code block of a recipe."""

    kind: str
    file: str | None
    body: str
    line: int
    """Line of CONTRIBUTING.md on which it begins."""

    def error(self, problem: str) -> RecipeError:
        """Return an error that names the block."""
        return RecipeError(f"CONTRIBUTING.md:{self.line}: {problem}")


@dataclass(frozen=True)
class Recipe:
    """One section of CONTRIBUTING.md."""

    title: str
    blocks: list[Block]

    def files(self) -> list[str]:
        """Return the files that it creates or changes, each once."""
        return list(dict.fromkeys(block.file for block in self.blocks if block.file))


def read(text: str) -> list[Recipe]:
    """Return the recipes of CONTRIBUTING.md: its sections of the third level."""
    found: list[Recipe] = []
    begin: tuple[str, str | None, int] | None = None
    body: list[str] = []
    section = False
    for number, line in enumerate(text.splitlines(), 1):
        if begin is not None and line != "```":
            body.append(f"{line}\n")
        elif begin is not None:
            if section:
                found[-1].blocks.append(Block(begin[0], begin[1], "".join(body), begin[2]))
            begin, body = None, []
        elif line.startswith("```"):
            opening = _FENCE.fullmatch(line)
            if opening is None:
                raise RecipeError(f'CONTRIBUTING.md:{number}: "{line}" names neither a kind nor a file')
            begin = (opening["kind"], opening["file"], number)
        elif line.startswith("#"):
            section = line.startswith("### ")
            if section:
                found.append(Recipe(line.removeprefix("### "), []))
    if begin is not None:
        raise RecipeError(f"CONTRIBUTING.md:{begin[2]}: the code block has no end")
    return found


def apply(block: Block, before: str | None) -> str:
    """Return a file's text after `block`; `before` is None if the file does not exist yet."""
    if block.kind != "diff":
        if before is not None:
            raise block.error(f"{block.file} exists already")
        return block.body
    if before is None:
        raise block.error(f"{block.file} does not exist")
    lines = before.splitlines()
    for hunk in _hunks(block):
        old = [line[1:] for line in hunk if not line.startswith("+")]
        new = [line[1:] for line in hunk if not line.startswith("-")]
        places = [i for i in range(len(lines) - len(old) + 1) if lines[i : i + len(old)] == old]
        if len(places) != 1 or not old:
            shown = "\n".join(f"    {line}" for line in old)
            raise block.error(f"{block.file} has these lines {len(places)} times instead of once:\n{shown}")
        lines[places[0] : places[0] + len(old)] = new
    return "\n".join(lines) + "\n"


def _hunks(block: Block) -> Iterator[list[str]]:
    hunk: list[str] = []
    for line in block.body.splitlines():
        if line.startswith("@@"):
            yield hunk
            hunk = []
        elif line[:1] in {"", " ", "+", "-"}:
            hunk.append(line or " ")
        else:
            raise block.error(f'"{line}" begins with neither a space, + nor -')
    yield hunk


def missing(expected: str, output: str) -> str | None:
    """Return the first line of `expected` that `output` lacks after those before; None if it has all."""
    found = iter(" ".join(line.split()) for line in output.splitlines())
    for line in expected.splitlines():
        pattern = re.compile(".*".join(map(re.escape, " ".join(line.split()).split("..."))))
        if not any(pattern.fullmatch(each) for each in found):
            return line
    return None


@dataclass
class Workshop:
    """A copy of the tree in which recipes are followed."""

    root: Path
    """The tree to copy."""
    folder: Path
    """Folder of the copy and of what is built from it. It keeps both, so that a repeated build is quick."""
    environment: dict[str, str] = field(init=False)
    made: set[str] = field(default_factory=lambda: {"setup"})
    """Targets of the Makefile that are up to date."""

    def __post_init__(self) -> None:
        """Set up the environment of the commands: the copy's package, the tools of this interpreter."""
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(self.tree / "python"),
            "PYO3_PYTHON": os.environ.get("PYO3_PYTHON", sys.executable),
            "PYO3_BUILD_EXTENSION_MODULE": "1",
            "CARGO_TARGET_DIR": str(self.folder / "build"),
            "CARGO_TERM_COLOR": "never",
            "COLUMNS": "200",
        }

    @property
    def tree(self) -> Path:
        """Return the copy."""
        return self.folder / "tree"

    def planned(self, recipes: Iterable[Recipe]) -> dict[str, bytes]:
        """Return the files of the tree with every recipe: path and contents, or the target of a link."""
        files = dict(self._tracked())
        for block in (block for recipe in recipes for block in recipe.blocks if block.file):
            file = str(block.file)
            before = files[file].decode() if file in files else None
            files[file] = apply(block, before).encode()
        return files

    def copy(self, recipes: Iterable[Recipe]) -> None:
        """Make the copy equal to the tree with every recipe. Equal files stay untouched, for cargo."""
        wanted = self.planned(recipes)
        for path in sorted(self.tree.rglob("*"), reverse=True):
            if _KEPT.isdisjoint(path.parts) and str(path.relative_to(self.tree)) not in wanted:
                if path.is_dir() and not path.is_symlink():
                    _remove_if_empty(path)
                else:
                    path.unlink()
        for file, content in wanted.items():
            self._write(file, content)

    def _tracked(self) -> Iterator[tuple[str, bytes]]:
        listed = subprocess.run(
            ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],  # noqa: S607
            cwd=self.root,
            capture_output=True,
            check=True,
        )
        for name in filter(None, listed.stdout.decode().split("\0")):
            path = self.root / name
            if path.is_symlink():
                yield name, os.fsencode(path.readlink())
            elif path.is_file():
                yield name, path.read_bytes()

    def _write(self, file: str, content: bytes) -> None:
        path, origin = self.tree / file, self.root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        if origin.is_symlink():
            if not path.is_symlink() or os.fsencode(path.readlink()) != content:
                path.unlink(missing_ok=True)
                path.symlink_to(os.fsdecode(content))
        elif path.is_symlink() or not path.is_file() or path.read_bytes() != content:
            path.unlink(missing_ok=True)
            path.write_bytes(content)
            if origin.is_file():
                shutil.copymode(origin, path)

    def build(self) -> None:
        """Build the copy's core, as `make setup` does, but hardly optimized: that would take minutes."""
        settings = self.folder / ".cargo/config.toml"
        if not settings.is_file() or settings.read_text(encoding="utf-8") != _PROFILES:
            settings.parent.mkdir(exist_ok=True)
            settings.write_text(_PROFILES, encoding="utf-8")
        self.run("cargo build --locked --quiet -p bentpipe-python")
        built, core = self.folder / "build/debug/lib_core.so", self.tree / CORE
        if not core.is_file() or built.read_bytes() != core.read_bytes():
            shutil.copyfile(built, core.with_suffix(".new"))
            core.with_suffix(".new").replace(core)

    def _make(self, target: str) -> str:
        """Do what a target of the Makefile does, once, without what it depends on: `setup` has been done."""
        if target in self.made:
            return ""
        self.made.add(target)
        makefile = (self.tree / "Makefile").read_text(encoding="utf-8")
        lines = re.search(rf"^{re.escape(target)}:.*\n((?:\t.*\n)+)", makefile, flags=re.MULTILINE)
        if lines is None:
            raise RecipeError(f"the Makefile has no target {target}")
        return "".join(self.run(line.strip().replace("$(BIN)/", "")) for line in lines[1].splitlines())

    def run(self, command: str) -> str:
        """Run one command of a recipe in the copy and return what it prints."""
        if command.startswith("make "):
            return "".join(self._make(target) for target in command.split()[1:])
        done = subprocess.run(
            ["bash", "-c", command],  # noqa: S607
            cwd=self.tree,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            raise RecipeError(f"$ {command}\n{done.stdout}\nexit code {done.returncode}")
        return done.stdout

    def follow(self, recipe: Recipe) -> None:
        """Run the commands of a recipe and compare what they print."""
        output = ""
        for block in recipe.blocks:
            if block.kind == "sh":
                commands = block.body.replace("\\\n", " ").splitlines()
                output = "".join(self.run(line.split("  #")[0].strip()) for line in commands)
            elif block.kind == "text" and (line := missing(block.body, output)) is not None:
                raise block.error(f'the commands do not print "{line}", but\n{output}')


def _remove_if_empty(folder: Path) -> None:
    if not any(folder.iterdir()):
        folder.rmdir()
