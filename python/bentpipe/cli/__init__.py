"""The command line: `bentpipe` and its commands."""

import sys

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    try:
        # Takes a fifth of a second, in which Ctrl-C may come.
        from bentpipe.cli import app
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        sys.exit(130)
    app.main(arguments)
