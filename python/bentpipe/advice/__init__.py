"""Advice on which AQM to use on a link."""
