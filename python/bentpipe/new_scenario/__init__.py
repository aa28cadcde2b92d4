"""Writes new scenario files from a few answers: `bentpipe new`."""
