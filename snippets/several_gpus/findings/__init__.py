"""The figures and claims of the chapter several_gpus."""

from snippets.several_gpus.findings import (
    beside,
    collective_rows,
    data_parallel,
    faults,
    link,
    pipeline,
    sharded,
    tensor_parallel,
)

PARTS = (link, data_parallel, beside, collective_rows, sharded, tensor_parallel, pipeline, faults)
