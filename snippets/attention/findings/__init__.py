"""What the chapter attention shows and claims, in the order of its page.

measures.py      what more than one part needs
written_out.py   what naive attention launches, and in place
backends.py      what PyTorch's own backends launch
traffic.py       bytes moved, rooflines
compiler.py      the compiled form and FlexAttention
occupancy.py     how full the GPU is, by our arithmetic and by the profiler's
speed.py         times of the GPU and of the CPU
growing.py       longer sequences, wider heads
decoding.py      one query at a time
training.py      forward and backward, errors, the Hub's kernel
"""

from collections.abc import Callable, Mapping

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
from snippets.attention.findings.backends import all_masked, launches_table, purposes_table
from snippets.attention.findings.compiler import compiled_diff
from snippets.attention.findings.decoding import alignments, decode_table
from snippets.attention.findings.growing import climbing, lengths_table, longest_table, wide_heads
from snippets.attention.findings.occupancy import footprints
from snippets.attention.findings.speed import cpu_times, gpu_times
from snippets.attention.findings.traffic import bytes_moved, rooflines
from snippets.attention.findings.training import errors_table, hub, training_table, training_times, wide_errors
from snippets.attention.findings.written_out import three_forwards
from snippets.lab.finding.claim import Claim
from snippets.lab.finding.figure import Figure

PARTS = (written_out, backends, traffic, compiler, occupancy, speed, growing, decoding, training)
CLAIMS: tuple[Claim, ...] = tuple(claim for part in PARTS for claim in part.CLAIMS)
FIGURES: Mapping[str, Callable[[str], Figure]] = {name: of for part in PARTS for name, of in part.FIGURES.items()}

__all__ = [
    "CLAIMS",
    "FIGURES",
    "alignments",
    "all_masked",
    "bytes_moved",
    "climbing",
    "compiled_diff",
    "cpu_times",
    "decode_table",
    "errors_table",
    "footprints",
    "gpu_times",
    "hub",
    "launches_table",
    "lengths_table",
    "longest_table",
    "purposes_table",
    "rooflines",
    "three_forwards",
    "training_table",
    "training_times",
    "wide_errors",
    "wide_heads",
]
