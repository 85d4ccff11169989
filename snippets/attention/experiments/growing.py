"""Every variant as sequences grow, until it runs out of memory."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import itertools
import re
from typing import TYPE_CHECKING, Any

from snippets.attention.experiments.steps import (
    _exact,
    _random,
    _without_gradients,
    attention,
    picked,
)
from snippets.lab.experiment import (
    Instruments,
    NeedsGpu,
    Subject,
    matmul_subject,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from torch import Tensor

# Probes: growing sequences

SWEPT = (
    "naive",
    "in_place",
    "math",
    "efficient",
    "flash",
    "cudnn",
    "compiled",
    "flex",
)
SHORTEST = 128
LONGEST_IN_GRAPH = 2048
"""Above this many tokens a step is far longer on the GPU than on the CPU, and a
graph would keep its scores."""
SAMPLED_TOKENS = 40_960
"""Samples times tokens, at most: a sample of the longest takes all variants
together three seconds."""
FEWEST_SAMPLES = 3
PRODUCT = (8192, 8192, 8192)
"""M, K, N of the bare matmul that is timed in the same turns, as a ceiling."""


def lengths(
    instruments: Instruments,
    device: str,
    batch: int,
    heads: int,
    head_dim: int,
    longest: int,
) -> dict[str, Any]:
    """Every variant, forward and causal, from 128 tokens up by powers of two,
    until it runs out of memory.

    Returns {tokens: {"auto": the backend that PyTorch picks, "matmul":
    measured, "variants": {variant: measured}}}; `matmul` is a large bare
    product in the same turns, and measured is {"samples_us", "peak_bytes",
    "error"}, interleaved, or {"stopped": why}.
    """
    if device != "cuda":
        raise NeedsGpu(
            "its times are the GPU's own: attention/flash --tokens 128 runs "
            "here"
        )
    found: dict[str, Any] = {}
    out_of_memory: dict[str, str] = {}
    tokens = SHORTEST
    while tokens <= longest:
        found[str(tokens)] = _at_length(
            instruments, device, (batch, heads, tokens, head_dim), out_of_memory
        )
        tokens *= 2
    return found


def _at_length(
    instruments: Instruments,
    device: str,
    shape: tuple[int, int, int, int],
    out_of_memory: dict[str, str],
) -> dict[str, Any]:
    """One length of `lengths`. `out_of_memory` holds why variants stopped at
    shorter lengths; this function adds to it."""
    import torch

    # a function compiled at eight lengths would silently fall back to eager
    torch._dynamo.reset()
    _free_memory()
    tokens = shape[2]
    drawn = [_random(shape, device, 3)]
    expected = [_exact(device, *drawn[0])]

    def shared() -> Callable[[], tuple[Tensor, ...]]:
        """Return the same sets for each variant: eight times as many would
        leave no memory for the scores."""
        places = itertools.count()

        def inputs() -> tuple[Tensor, ...]:
            place = next(places)
            if place == len(drawn):
                drawn.append(_random(shape, device, 3))
            return drawn[place]

        return inputs

    found: dict[str, dict[str, Any]] = {
        name: {"stopped": why} for name, why in out_of_memory.items()
    }
    subjects: dict[str, Subject] = {}
    for variant in (one for one in SWEPT if one not in out_of_memory):
        with _noting(variant, found):
            step = _without_gradients(attention(variant, device, tokens))
            subject = Subject(
                step,
                shared(),
                lambda *_: expected[0],
                in_graph=tokens <= LONGEST_IN_GRAPH,
            )
            error, _, peak_bytes = instruments.relative_error(subject, device)
            found[variant] = {"peak_bytes": peak_bytes, "error": error}
            subjects[variant] = subject
        if variant not in subjects or tokens > LONGEST_IN_GRAPH:
            _free_memory()
    expected.clear()  # the scores need its room
    found["matmul"] = {}
    _time(
        instruments,
        {"matmul": matmul_subject(device, *PRODUCT), **subjects},
        found,
        tokens,
    )
    matmul = found.pop("matmul")
    for variant, one in found.items():
        if variant not in out_of_memory and one.get("stopped", "").startswith(
            OUT_OF_MEMORY
        ):
            one["stopped"] = out_of_memory[variant] = (
                f"{one['stopped']} at {tokens} tokens"
            )
    return {
        "auto": picked(drawn[0]),
        "matmul": matmul,
        "variants": {variant: found[variant] for variant in SWEPT},
    }


def _time(
    instruments: Instruments,
    subjects: Mapping[str, Subject],
    found: dict[str, dict[str, Any]],
    tokens: int,
) -> None:
    """Time all subjects interleaved, and store the samples in `found`."""
    variants = {}
    for name, subject in subjects.items():
        with _noting(name, found):
            variants[name] = instruments.prepare(
                subject if subject.in_graph else _forgetting(subject)
            )
        if name not in variants or not subject.in_graph:
            _free_memory()
    rounds = max(
        FEWEST_SAMPLES, min(instruments.rounds, SAMPLED_TOKENS // tokens)
    )
    timed = instruments.time_prepared(variants, rounds)
    for name, one in timed.items():
        found[name]["samples_us"] = list(one.samples_us)


def _forgetting(subject: Subject) -> Subject:
    """The same step without a result: kept results would take the memory that
    the scores need."""

    def step(*inputs: Tensor) -> Tensor:
        subject.step(*inputs)
        return inputs[0]

    return dataclasses.replace(subject, step=step)


OUT_OF_MEMORY = "out of memory"


@contextlib.contextmanager
def _noting(variant: str, found: dict[str, dict[str, Any]]) -> Iterator[None]:
    """Store why a variant stops, and continue with the others, unless the error
    leaves the GPU unusable."""
    import torch

    try:
        yield
    except torch.AcceleratorError:
        raise
    except torch.OutOfMemoryError as error:
        asked = re.search(r"Tried to allocate ([\d.]+ \w+)", str(error))
        found[variant] = {
            "stopped": f"{OUT_OF_MEMORY} for {asked[1]} more"
            if asked
            else OUT_OF_MEMORY
        }
    except (RuntimeError, ArithmeticError) as error:
        found[variant] = {
            "stopped": f"{type(error).__name__}: {str(error).splitlines()[0]}"
        }


def _free_memory() -> None:
    """Free unreferenced memory, so that the next variant starts with an empty
    GPU.

    This takes a quarter of a second with the compiler loaded, so short
    sequences skip it.
    """
    import torch

    gc.collect()
    torch.cuda.empty_cache()
