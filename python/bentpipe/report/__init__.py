"""Figures, pages and templates of every report. Imports data; only `cli` and `api` import it."""
