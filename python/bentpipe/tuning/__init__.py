"""Search for the parameters of an AQM."""
