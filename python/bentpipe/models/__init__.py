"""Fluid and Markov models, and their validation against the simulator."""
