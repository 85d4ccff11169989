"""Profiling PyTorch: the code behind the book. README.md maps it, and each room of lab/ maps its files."""
