"""The figures and claims of the chapter several_gpus."""

from snippets.several_gpus.findings import (
    beside,
    collective_rows,
    data_parallel,
    ddp_options,
    decoding,
    faults,
    gathering,
    hiding,
    link,
    mesh,
    overlap,
    pipeline,
    published,
    sharded,
    symmetric,
    tensor_parallel,
)

PARTS = (
    link,
    symmetric,
    published,
    data_parallel,
    hiding,
    overlap,
    ddp_options,
    beside,
    collective_rows,
    sharded,
    gathering,
    tensor_parallel,
    decoding,
    mesh,
    pipeline,
    faults,
)
