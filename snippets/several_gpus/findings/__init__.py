"""The figures and claims of the chapter several_gpus."""

from snippets.several_gpus.findings import (
    beside,
    collective_rows,
    data_parallel,
    ddp_options,
    decoding,
    fault_costs,
    faults,
    hiding,
    link,
    mesh,
    pipeline,
    sharded,
    symmetric,
    tensor_parallel,
)

PARTS = (
    link,
    symmetric,
    data_parallel,
    hiding,
    ddp_options,
    beside,
    collective_rows,
    sharded,
    tensor_parallel,
    decoding,
    mesh,
    pipeline,
    faults,
    fault_costs,
)
