"""Check the wording of comments, docstrings, messages and docs: `python tools/check_words.py [PATH ...]`.

Only patterns that are nearly always wrong are listed here; docs/glossary.md has the terms to use. A line that
needs such a pattern ends with a comment that contains `words: ok`.
"""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

OPENERS = re.compile(
    r"(What|Whether|How|Where|Who|Whose|Why|That|When (to|it|they)|Of (these|those|them)|And|…)\b|…"
)
"""Words that a doc comment or docstring must not begin with: they leave a fragment instead of a sentence."""

PHRASES = {
    r"(?-i:is none)\b": "say `None`, `no ...` or name the default",
    r"there is not\b": "use an active verb",
    r"of (its|their|his|our|one's) own\b": "say `its own ...` or `separate`",
    r"(is|are|was|were|be) held against\b": "say `is compared with`",
    r"goes? on with\b": "say `continues`",
    r"it is not known\b": "say `unknown`",
    r"befalls?\b": "name the event",
    r"(heeds?|heeded)\b": "say `handles` or `reacts to`",
    r"bur(y|ies|ied)\b": "say `drops`",
    r"thirsty\b": "say `waiting for buffer`",
    r"starved of\b": "say `waiting for`",
    r"lottery\b": "say `uniform dropper`",
    r"tak(e|es|ing) leave\b": "say `draining`",
    r"spared\b": "say `bypassed`",
    r"all of it came\b": "say `completed`",
    r"in place of\b.*\bin place of\b": "one sentence, one comparison",
    r"where(of|in|by|upon|with)\b": "use present-day English",
    r"nought\b": "say `zero`",
    r"so long as\b": "say `while`",
    r"meanwhile\b.*\bmeanwhile\b": "say it once",
    r"nothing but\b": "say `only`",
    r"(says?|hears?|heard|tells?) of\b": "name the action: `reports`, `receives`",
    r"goes on(?! (the|a|its)\b)": "say `continues`",
    r"told from\b": "say `distinguished from`",
    r"(whoever|somebody|anybody)\b": "name the party",
    r"in turns\b": "say `alternately` or `round-robin`",
    r"(is|are) there( now| already|[.,;:]|$)": "say `exists`, `is present` or `has arrived`",
    r"all there is\b": "say `everything`, or name it",
    r"(of|in|for|after|open) so many\b": "name the number",
    r"to speak of\b": "give the bound",
}
"""Phrases that a reader stumbles over, from the beginning of a word, with what to say."""

NAMES = re.compile(
    r"\b(mind_limits|mind_flood|thirsty|starved|befall|bury|heed|Lottery|spared|next_care|told_full"
    r"|Teller|look_here|why_not)\b"
)
"""Identifiers that were replaced by standard terms."""

_COMPILED = {re.compile(rf"\b(?:{pattern})", re.I): advice for pattern, advice in PHRASES.items()}
_ANY = re.compile(rf"\b(?:{'|'.join(PHRASES)})")
"""Finds lines in small letters that may have a phrase: one search instead of one per phrase."""

Finding = tuple[int, str]


def rust(text: str) -> Iterator[Finding]:
    """Yield findings of a Rust file: its doc comments, comments and string literals."""
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        match = re.match(r"//[/!] ?", stripped)
        kind = match.group() if match else ""
        if kind and before.strip() != kind.strip():
            yield from _opener(number, stripped[len(kind) :])
        before = kind
        if "//" in line or '"' in line:
            yield from _phrases(number, line)
        yield from _names(number, line)


def python(text: str) -> Iterator[Finding]:
    """Yield findings of a Python file: its docstrings, comments and string literals."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        for statement in getattr(node, "body", []) if isinstance(getattr(node, "body", None), list) else []:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                value = statement.value.value
                if isinstance(value, str):
                    yield from _opener(statement.lineno, value.lstrip())
    for number, line in enumerate(text.splitlines(), 1):
        yield from _phrases(number, line)
        yield from _names(number, line)


def prose(text: str) -> Iterator[Finding]:
    """Yield findings of a Markdown, TOML or template file."""
    for number, line in enumerate(text.splitlines(), 1):
        yield from _phrases(number, line)


def _opener(number: int, text: str) -> Iterator[Finding]:
    if OPENERS.match(text):
        yield number, f"doc begins with {text.split()[0]!r}: name the thing, or write a sentence"


def _phrases(number: int, line: str) -> Iterator[Finding]:
    if "words: ok" in line or not _ANY.search(line.lower()):
        return
    for pattern, advice in _COMPILED.items():
        if found := pattern.search(line):
            yield number, f"{found.group()!r}: {advice}"


def _names(number: int, line: str) -> Iterator[Finding]:
    if "words: ok" not in line and (found := NAMES.search(line)):
        yield number, f"{found.group()!r} was replaced by a standard term"


READERS = {".rs": rust, ".py": python, ".pyi": python, ".md": prose, ".toml": prose, ".j2": prose}
LEFT_OUT = ("CHANGELOG.md", "tools/check_words.py", "tests/test_check_words.py")


def findings(path: Path) -> list[Finding]:
    """Return what is wrong with a file: line numbers and texts."""
    return sorted(READERS[path.suffix](path.read_text()))


def main(arguments: list[str]) -> int:
    """Print what is wrong with the given files, or with all of the project's; return 1 if anything is."""
    listed = subprocess.run(  # noqa: S603
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *(arguments or ["."])],  # noqa: S607
        cwd=ROOT if not arguments else None,
        capture_output=True,
        check=True,
        text=True,
    ).stdout
    base = ROOT if not arguments else Path.cwd()
    count = 0
    for name in filter(None, listed.split("\0")):
        path = base / name
        if path.suffix not in READERS or path.is_symlink() or name.endswith(LEFT_OUT) or not path.is_file():
            continue
        for number, text in findings(path):
            print(f"{name}:{number}: {text}")
            count += 1
    if count:
        print(f"{count} places; the terms to use are in docs/glossary.md", file=sys.stderr)
    return 1 if count else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
