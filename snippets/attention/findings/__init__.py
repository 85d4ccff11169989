"""What the chapter attention shows and claims: a module for each question of its page, in their order."""

from snippets.attention.findings import (
    backends,
    compiler,
    decoding,
    growing,
    occupancy,
    speed,
    traffic,
    training,
    written_out,
)

PARTS = (written_out, backends, traffic, compiler, occupancy, speed, growing, decoding, training)
