"""The commands of `bentpipe`, by what they are for."""
