"""Planning, executing and storing simulation runs."""
