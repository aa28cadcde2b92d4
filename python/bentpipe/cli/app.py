"""The command `bentpipe`.

Exit codes: 0 for success; 2 for mistakes of the caller, with one message on stderr; 130 after Ctrl-C; 1 for
everything else.
"""

import os
import sys
import traceback

import click

from bentpipe import _core
from bentpipe.cli import (
    advise,
    completion,
    doctor,
    lab,
    live,
    models,
    new,
    papers,
    show,
    simulate,
    sweep,
    tune,
)
from bentpipe.cli.options import Failed, Interrupted
from bentpipe.errors import AlgorithmError, BentpipeError, ScenarioError

__all__ = ["cli", "main"]

_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


@click.group(context_settings=_HELP, no_args_is_help=False, invoke_without_command=True)
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


for _each in (
    new.new,
    simulate.run,
    simulate.compare,
    live.live,
    lab.lab,
    models.model_,
    models.validate,
    sweep.sweep,
    tune.tune,
    papers.reproduce,
    advise.advise,
    show.list_,
    show.show,
    show.report,
    show.verify,
    show.schema,
    completion.completion,
    doctor.doctor,
):
    cli.add_command(_each)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    sys.exit(_main(arguments))


def _main(arguments: list[str] | None) -> int:
    try:
        code = cli.main(arguments, prog_name="bentpipe", standalone_mode=False)
        sys.stdout.flush()
    except click.exceptions.Exit as leave:
        return leave.exit_code
    except click.ClickException as error:
        # Click breaks the list of choices into lines.
        return _print_error(f"error: {' '.join(error.format_message().split())}", 2)
    except (BentpipeError, ScenarioError) as error:
        return _print_error(f"error: {error}", 2)
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
        return _print_error(f"error: {where}{error.strerror or error}", 1)
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
