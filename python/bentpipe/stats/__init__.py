"""Statistics of runs: metrics, intervals, paired differences, ranking, objectives. Imports no other room."""
