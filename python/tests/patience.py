"""The limit of tests that wait for something."""

PATIENCE = 600
"""Longest wait [s]. Only a test that hangs reaches it: a busy machine took 60 s for what needs one."""
