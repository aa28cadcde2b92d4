"""How long tests wait for something to happen."""

PATIENCE = 600
"""Longest wait [s]. Only a test that hangs reaches it: a busy machine took 60 s for what needs one."""
