"""What is raised for a trace that cannot be used; a module of its own, since the command line needs no more."""


class TraceError(ValueError):
    """A trace is unusable; the message gives the reason and a fix."""
