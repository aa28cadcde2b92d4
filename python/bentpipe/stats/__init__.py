"""Statistics of runs: intervals, paired differences, ranking, objectives."""
