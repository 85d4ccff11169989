"""What changed between two traces, or between two groups of runs; the command `diff`."""
