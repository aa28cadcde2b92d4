"""The command line: `bentpipe` and its commands."""

from bentpipe.cli.app import main

__all__ = ["main"]
