"""The command line, run for real."""
