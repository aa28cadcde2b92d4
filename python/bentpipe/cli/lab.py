"""The command that opens the lab."""

import webbrowser
from pathlib import Path

import click

from bentpipe.cli.options import scenario_names, settings_option

__all__ = ["lab"]


@click.command
@click.argument("what", metavar="[SCENARIO|RESULT]", required=False, shell_complete=scenario_names)
@settings_option("Settings side by side, at most 4; default: the first two that the scenario compares.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port on 127.0.0.1; default: any free one.",
)
@click.option("--no-browser", is_flag=True, help="Only print the address.")
def lab(what: str | None, *, settings: list[str] | None, port: int, no_browser: bool) -> None:
    """Open a page in the browser that runs SCENARIO or shows RESULT.

    Settings run side by side under the same traffic, at any speed; sliders change rates, delays, load and
    AQM parameters in the middle of a run. The page can read and write files of the current folder only.
    Ctrl-C ends the lab and everything that runs in it.

    \b
    Examples:
      bentpipe lab
      bentpipe lab byun2007-gateway --settings "RED 1,AVQRED"
      bentpipe lab results/byun2007-gateway-20260102-150405
    """
    from bentpipe.lab.server import Lab, serve

    opened = Lab(Path.cwd(), what, settings)

    def ready(address: str) -> None:
        click.echo(f"Lab: {address}\nThe address works once. Ctrl-C ends the lab.")
        if not no_browser:
            webbrowser.open(address)

    serve(opened, port, ready)
