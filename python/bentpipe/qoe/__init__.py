"""Quality of experience: published models of voice and video quality, and thresholds of good and bad.

Pure functions of numbers. They import no other part of the package but its exceptions. docs/qoe.md has the
sources and the ranges.
"""
