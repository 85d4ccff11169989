"""The command `doctor`: what is wrong in a trace, or in this machine."""
