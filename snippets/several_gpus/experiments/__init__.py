"""What the chapter several_gpus measures: the link, data parallel, compute beside a collective, sharded, tensor
parallel, pipeline, and faults."""

from __future__ import annotations

from snippets.several_gpus.experiments.beside import EXPERIMENTS as BESIDE
from snippets.several_gpus.experiments.data_parallel import (
    EXPERIMENTS as DATA_PARALLEL,
)
from snippets.several_gpus.experiments.decoding import EXPERIMENTS as DECODING
from snippets.several_gpus.experiments.faults import EXPERIMENTS as FAULTS
from snippets.several_gpus.experiments.link import EXPERIMENTS as LINK
from snippets.several_gpus.experiments.mesh import EXPERIMENTS as MESH
from snippets.several_gpus.experiments.pipeline import EXPERIMENTS as PIPELINE
from snippets.several_gpus.experiments.sharded import EXPERIMENTS as SHARDED
from snippets.several_gpus.experiments.tensor_parallel import (
    EXPERIMENTS as TENSOR_PARALLEL,
)

EXPERIMENTS = (
    *LINK,
    *DATA_PARALLEL,
    *BESIDE,
    *SHARDED,
    *TENSOR_PARALLEL,
    *DECODING,
    *MESH,
    *PIPELINE,
    *FAULTS,
)
