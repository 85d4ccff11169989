"""The figures and claims of the chapter decoder: a token, its ladder, how a loop grows, and its faults."""

from snippets.decoder.findings import (
    batches,
    contexts,
    faults,
    generating,
    ladder,
    limits,
    lossy,
    products,
    prompts,
    reading,
    waiting,
)

PARTS = (reading, generating, ladder, limits, products, prompts, batches, contexts, lossy, waiting, faults)
