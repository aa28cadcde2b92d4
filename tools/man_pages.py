"""Write the man pages from the help of the command line, as `make docs` does.

    python tools/man_pages.py [FOLDER]

FOLDER is that of the wheel's data unless given; pages of former commands in it are removed. `gateway_page`
makes the daemon's page from its own help.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from bentpipe import __version__
from bentpipe.cli.app import cli

__all__ = ["MAN", "gateway_page", "pages"]

MAN = Path(__file__).resolve().parents[1] / "deploy" / "wheel" / "data" / "share" / "man" / "man1"


def pages() -> dict[str, str]:
    """Return the text of the page of each command by the name of its file, such as `bentpipe-run.1`."""
    return {f"{_name(context).replace(' ', '-')}.1": _page(context) for context in _contexts()}


def gateway_page(usage: str, version: str) -> str:
    """Return the page of the daemon, from what `bentpipe-gateway --help` and `--version` print."""
    uses = re.findall(
        r"^(?:usage:)? +(bentpipe-gateway (\S+)[^\n]*?)(?: {2,}|\n {12,})(\S[^\n]*)$", usage, re.MULTILINE
    )
    lines = [
        _head("bentpipe-gateway", 8, version),
        ".SH NAME",
        "bentpipe\\-gateway \\- one end of a satellite gateway with a PEP and an AQM",
        ".SH SYNOPSIS",
        ".nf",
        *(_escaped(use) for use, _, _ in uses),
        ".fi",
        ".SH COMMANDS",
    ]
    for use, _, purpose in uses:
        lines += [".TP", f".B {_escaped(use.removeprefix('bentpipe-gateway '))}", _escaped(f"{purpose}.")]
    lines += [
        ".SH EXIT STATUS",
        "0 after success, 2 for wrong arguments or an invalid configuration, 1 for any other failure.",
        ".SH FILES",
        ".TP",
        ".I /etc/bentpipe/NAME.toml",
        "Configuration of the unit",
        ".BR bentpipe\\-gateway@NAME.service .",
        ".TP",
        ".I /etc/bentpipe/keys",
        "Keys of both ends.",
        ".SH SEE ALSO",
        ".BR bentpipe (1),",
        ".BR systemctl (1)",
    ]
    return "\n".join(lines) + "\n"


def _contexts(
    above: click.Context | None = None, name: str = "bentpipe", command: click.Command = cli
) -> Iterator[click.Context]:
    """Yield the context of a command and those of the commands below it."""
    context = click.Context(command, above, info_name=name, **command.context_settings)
    yield context
    if isinstance(command, click.Group):
        for each, inner in command.commands.items():
            yield from _contexts(context, each, inner)


def _name(context: click.Context) -> str:
    above = f"{_name(context.parent)} " if context.parent else ""
    return f"{above}{context.info_name}"


def _page(context: click.Context) -> str:
    name, command = _name(context), context.command
    title = name.replace(" ", "-")
    brief = command.get_short_help_str(200).rstrip(".")
    pieces = " ".join(command.collect_usage_pieces(context))
    lines = [
        _head(title, 1, __version__),
        ".SH NAME",
        f"{_escaped(title)} \\- {_escaped(brief)}",
        ".SH SYNOPSIS",
        f".B {_escaped(name)}",
        _escaped(pieces),
        ".SH DESCRIPTION",
        *_text(command.help or brief),
    ]
    records = [each.get_help_record(context) for each in command.get_params(context)]
    lines += _listed("OPTIONS", [each for each in records if each is not None])
    if isinstance(command, click.Group):
        inner = [(each, other.get_short_help_str(200)) for each, other in command.commands.items()]
        lines += _listed("COMMANDS", inner)
    related = [f"{title}-{each}" for each in command.commands] if isinstance(command, click.Group) else []
    if " " in name:
        related.insert(0, title.rpartition("-")[0])
    if related:
        lines += [".SH SEE ALSO", *(f".BR {_escaped(each)} (1)" for each in related)]
    return "\n".join(lines) + "\n"


def _head(title: str, section: int, version: str) -> str:
    return f'.TH {_escaped(title.upper())} {section} "" "Bentpipe {version}"'


def _listed(heading: str, records: Sequence[tuple[str, str]]) -> list[str]:
    lines = [f".SH {heading}"] if records else []
    for name, text in records:
        lines += [".TP", f".B {_escaped(name)}", _escaped(text) or "\\&"]
    return lines


def _text(text: str) -> list[str]:
    r"""Return the paragraphs of a help text; click keeps the lines of those that begin with \b."""
    lines: list[str] = []
    for paragraph in re.split(r"\n\s*\n", text.replace("\f", "\n\n").strip()):
        rows = paragraph.split("\n")
        if rows[0].strip() == "\b":
            lines += [".PP", ".nf", *map(_escaped, rows[1:]), ".fi"]
        else:
            lines += [".PP", _escaped(" ".join(row.strip() for row in rows))]
    return lines[1:] if lines and lines[0] == ".PP" and lines[1:2] != [".nf"] else lines


def _escaped(text: str) -> str:
    """Return text that roff shows as it is."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga")
    return "\\&" + text if text.startswith((".", "'")) else text


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else MAN
    folder.mkdir(parents=True, exist_ok=True)
    written = pages()
    for old in folder.glob("bentpipe*.1"):
        if old.name not in written:
            old.unlink()
    for name, text in written.items():
        (folder / name).write_text(text, encoding="utf-8")
