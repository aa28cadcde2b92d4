"""The command `bentpipe`.

Exit codes: 0 for success; 2 for mistakes of the caller, with one message on stderr; 130 after Ctrl-C; 1 for
everything else.
"""

import errno
import gc
import io
import os
import sys
import traceback
from collections import UserDict
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import click

from bentpipe import _core
from bentpipe.cli.exits import Failed, Interrupted
from bentpipe.errors import AlgorithmError, BentpipeError, FolderExistsError, ScenarioError, UsageError

__all__ = ["cli", "main"]

_COMMANDS = {
    # Module of `bentpipe.cli` and line of `bentpipe --help`.
    "new": ("new", "Write a new scenario from a few answers."),
    "run": ("simulate", "Simulate a scenario unchanged."),
    "compare": ("simulate", "Simulate a scenario under several settings, or compare results."),
    "live": ("live", "Run a scenario on real connections, in real time."),
    "lab": ("lab", "Look at a gateway while it runs, in a browser."),
    "model": ("models", "Solve a scenario's fluid or Markov model."),
    "validate": ("models", "Compare a scenario's simulation with its model."),
    "sweep": ("sweep", "Simulate many points of a scenario."),
    "tune": ("tune", "Search the parameters of an AQM."),
    "evaluate": ("evaluate", "Evaluate AQMs and congestion controls as RFCs ask for."),
    "reproduce": ("papers", "Repeat a paper's experiments and judge its claims."),
    "advise": ("advise", "Recommend an AQM for a link."),
    "list": ("show", "List algorithms, metrics or shipped scenarios."),
    "show": ("show", "Show the effective parameters of a scenario, or the parameters of an algorithm."),
    "report": ("show", "Write a result's report again, or its figures as files."),
    "verify": ("show", "Compare the simulator with ns-2."),
    "schema": ("show", "Print the JSON Schema of a scenario file, or of a sweep file."),
    "completion": ("completion", "Print the script that completes commands in a shell."),
    "doctor": ("doctor", "Report what works on this machine, and what to do about the rest."),
}


class _Commands(UserDict[str, click.Command]):
    """The commands by name. The module of a command is imported when the command is used."""

    def __missing__(self, name: str) -> click.Command:
        module, text = _COMMANDS[name]
        code = vars(import_module(f"bentpipe.cli.{module}"))
        command: click.Command = code.get(f"{name}_") or code[name]
        command.short_help = text
        self.data[name] = command
        return command

    def __contains__(self, name: object) -> bool:
        return name in _COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(_COMMANDS)

    def __len__(self) -> int:
        return len(_COMMANDS)


class _Group(click.Group):
    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in sorted(_COMMANDS.items())])


_ALLOCATIONS = 50_000
"""Objects allocated between two searches for cycles; Python's default is 700 or 2000."""
_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(
    cls=_Group,
    commands=_Commands(),
    context_settings=_HELP,
    no_args_is_help=False,
    invoke_without_command=True,
)
@click.version_option(_core.__version__, prog_name="bentpipe", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context) -> None:
    """Congestion control for satellite gateways: simulate it, compare it, believe it.

    \b
    Examples:
      bentpipe compare byun2007-gateway
      bentpipe compare byun2007-gateway --settings "RED 4,AVQRED" --duration "2 min"
      bentpipe run my-scenario.toml --set gateway.aqm.max_p=0.5
      bentpipe list aqms
    """
    if context.invoked_subcommand is None:
        click.echo(context.get_help())


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    # Most objects live until the end: modules, and the rows of charts. Searches for cycles free little, and
    # at its exit Python does not search frozen objects.
    gc.set_threshold(_ALLOCATIONS)
    # A closed stream is None; a file opened later would get its descriptor.
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            # In an encoding without some letter, a question mark takes its place.
            stream.reconfigure(errors="replace")
    code = _main(arguments)
    gc.freeze()
    sys.exit(code)


def _with_options(text: str, arguments: list[str]) -> str:
    """Return a message with the options `--duration` and `--warmup` in place of the keys that they set."""
    for position, argument in enumerate(arguments):
        option, equals, value = argument.partition("=")
        if option in {"--duration", "--warmup"}:
            key, value = f"run.{option[2:]}", value if equals else arguments[position + 1]
            text = text.replace(f"--set {key}={value}: {key}: ", f"{option} {value}: ", 1)
    return text


def _check_encoding(arguments: list[str]) -> None:
    """Raise `UsageError` for bytes that are not UTF-8, which Python passes on as surrogates."""
    for argument in arguments:
        if any("\ud800" <= letter <= "\udfff" for letter in argument):
            raise UsageError(
                f"found the argument {argument!a}, which is not UTF-8; allowed: names and values in UTF-8"
            )


def _main(arguments: list[str] | None) -> int:
    try:
        _check_encoding(sys.argv[1:] if arguments is None else arguments)
        code = cli.main(arguments, prog_name="bentpipe", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        path = error.ctx.command_path
        return _print_error(f"error: {path}: an argument is missing; see {path} --help", 2)
    except click.ClickException as error:
        # Click breaks the list of choices into lines.
        return _print_error(f"error: {' '.join(error.format_message().split())}", 2)
    except FolderExistsError as error:
        text = f"{error.path}: exists already; choose another folder, or replace it with --force"
        return _print_error(f"error: {text}", 2)
    except (BentpipeError, ScenarioError) as error:
        return _print_error(f"error: {_with_options(str(error), arguments or sys.argv[1:])}", 2)
    except AlgorithmError as error:
        if error.__cause__ is not None:
            traceback.print_exception(error.__cause__)
        return _print_error(f"error: {error}", 2)
    except Interrupted as error:
        return _print_error(f"interrupted: {error}", 130)
    except Failed as error:
        return _print_error(f"error: {error}", 1)
    except (KeyboardInterrupt, click.Abort):
        return _print_error("interrupted", 130)
    except OSError as error:
        # The reader of the output is gone, or the disk is full: flushing the buffers must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 1
        where = f"{error.filename}: " if error.filename else "output: "
        # A name that is too long is one that the caller gave.
        code = 2 if error.errno == errno.ENAMETOOLONG else 1
        return _print_error(f"error: {where}{error.strerror or error}", code)
    except SystemExit:
        raise
    except BaseException as error:  # A panic of a library in Rust is no `Exception`.
        traceback.print_exc()
        return _print_error(
            f"internal error: {error}\nThis is a defect in Bentpipe; the traceback above shows where.", 1
        )
    return code if isinstance(code, int) else 0


def _print_error(message: str, code: int) -> int:
    print(message, file=sys.stderr)
    return code
