"""The command `doctor`: find what is wrong with a trace, or with this machine."""
