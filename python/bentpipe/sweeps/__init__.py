"""Sweeps: many points of a scenario in one dataset."""
