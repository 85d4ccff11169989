"""The error for an unusable trace, in a module of its own because the command line needs only this."""


class TraceError(ValueError):
    """A trace is unusable; the message gives the reason and a fix."""
