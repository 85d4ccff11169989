"""What the chapter several_gpus measures: the link, data parallel, compute beside a collective, sharded, tensor
parallel, pipeline, and faults."""

from __future__ import annotations

from snippets.several_gpus.experiments import (
    beside,
    data_parallel,
    faults,
    link,
    pipeline,
    sharded,
    tensor_parallel,
)

EXPERIMENTS = (
    *link.EXPERIMENTS,
    *data_parallel.EXPERIMENTS,
    *beside.EXPERIMENTS,
    *sharded.EXPERIMENTS,
    *tensor_parallel.EXPERIMENTS,
    *pipeline.EXPERIMENTS,
    *faults.EXPERIMENTS,
)
