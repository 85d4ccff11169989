"""What the chapter decode_kernels measures: a token by kernels of this book
beside a token by compiled layers, the parts of a step alone, steps with other
tiles, and weights in int8.

A group of loops, `tokens`, timed interleaved:
    reduce_overhead, gpt_fast, max_autotune      peers
    plain_kernels, kernels, one_kernel           rungs

Probes: `steady_<size>` of the same variants, `generate_static_<size>` of the
package transformers, `in_transformers` and `in_transformers_compiled` of its
`generate` with these kernels and without, `int8_<size>` of weights in int8
beside bf16, `errors_<size>`, `parts_<size>`, and `tiles`.
A suffix `_batch_8` follows where a probe has two batches.
"""

from __future__ import annotations

from snippets.decode_kernels.experiments.answers import answer_probes
from snippets.decode_kernels.experiments.in_transformers import (
    transformers_probes,
)
from snippets.decode_kernels.experiments.parts import part_probes
from snippets.decode_kernels.experiments.tiles_swept import tile_probes
from snippets.decode_kernels.experiments.variants import token_experiments

EXPERIMENTS = (
    *token_experiments(),
    *answer_probes(),
    *part_probes(),
    *tile_probes(),
    *transformers_probes(),
)
