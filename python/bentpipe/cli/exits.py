"""Errors of commands that end with another exit code than 2."""

__all__ = ["Failed", "Interrupted"]


class Interrupted(Exception):  # noqa: N818
    """Ctrl-C during a simulation; the message says how to continue."""


class Failed(Exception):  # noqa: N818
    """A failure outside Bentpipe during a simulation, for example a full disk."""
