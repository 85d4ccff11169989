"""Recordings that nobody made: for the tests here, and for `make serve SAMPLE=decoder`."""

from __future__ import annotations

from tests.lab.sample_recordings import Sample, sample_of

X, ROW, WEIGHT = [8192, 4096], [8192, 1], [4096]
EAGER = [
    ("aten::pow", [X, []], [("vectorized_elementwise_kernel", 40.0)]),
    ("aten::mean", [X], [("reduce_kernel", 30.0)]),
    ("aten::add", [ROW, []], [("vectorized_elementwise_kernel", 3.0)]),
    ("aten::rsqrt", [ROW], [("vectorized_elementwise_kernel", 3.0)]),
    ("aten::mul", [X, ROW], [("elementwise_kernel", 45.0)]),
    ("aten::mul", [X, WEIGHT], [("elementwise_kernel", 45.0)]),
]
"""An operator, the shapes of its inputs, and its kernels with their microseconds."""


def recordings(fused_kernels: int = 1) -> list[Sample]:
    """One for each experiment."""
    fused = [("fused_rms_norm", [X, WEIGHT], [("rms_norm_kernel", 38.0)] * fused_kernels)]
    return [
        sample_of("decoder/eager", 166.0, EAGER),
        sample_of("decoder/fused", 38.0 * fused_kernels, fused),
    ]
