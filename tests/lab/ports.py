"""A port for a server that starts later."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

EPHEMERAL = 32_768
"""Linux and others give ports from here on to connections: one of those could be taken before the server starts."""


def free_port() -> int:
    """A free port of the loopback address, in the range of those that have to be asked for."""
    while True:
        port = random.randrange(10_000, EPHEMERAL)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
