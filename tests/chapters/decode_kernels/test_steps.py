"""A decode step by kernels on the CPU, through Triton's interpreter, against the plain decoder in float32.

One process with TRITON_INTERPRET=1 runs all the cases and leaves what they computed. The kernel of a whole step runs as
one program there, which meets no other program at a barrier.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from snippets.decode_kernels import one_kernel, sizes, steps
from snippets.decode_kernels.experiments import EXPERIMENTS
from snippets.decode_kernels.experiments.parts import part_bytes
from snippets.decode_kernels.sizes import Tile, Tiles
from snippets.decoder import model
from snippets.decoder.compiling import join_projections
from snippets.decoder.model import Config
from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.experiment import Experiment, NeedsGpu

ONE = Tiles(*[Tile(4, 64)] * 5, block_keys=16, splits=3)
FEW = Tiles(*[Tile(16, 64)] * 5, block_keys=16, splits=2)


@dataclass(frozen=True)
class Case:
    """Sizes of a model, and of what it reads and writes."""

    config: Config
    batch: int
    prompt: int
    answer: int
    room: int = 3
    """Positions of the cache behind the last token."""

    def __str__(self) -> str:
        heads = f"{self.config.heads}/{self.config.kv_heads} heads of {self.config.head_dim}"
        return f"{heads}, hidden {self.config.hidden}, {self.batch} after {self.prompt}"


CASES = [
    Case(Config(2, 64, 72, 4, 2, 41), 1, 15, 2),
    Case(Config(1, 96, 40, 6, 2, 33), 1, 30, 2, room=0),
    Case(Config(1, 32, 24, 1, 1, 17), 1, 2, 2),
    Case(Config(1, 64, 72, 4, 1, 40), 3, 5, 2),
]


def decoder(case: Case) -> Any:
    """The same weights in each process."""
    model.CONFIGS["case"] = case.config
    try:
        return model.build("case", "cpu", torch.float32, 64)
    finally:
        del model.CONFIGS["case"]


def prompt(case: Case) -> torch.Tensor:
    draw = torch.Generator().manual_seed(3)
    return torch.randint(case.config.vocab, (case.batch, case.prompt), generator=draw)


def cache_of(case: Case, plain: Any) -> Any:
    return model.static_cache(plain, case.batch, case.prompt + case.answer + case.room)


@torch.no_grad()
def computed(case: Case, kind: type[steps.TokenStep]) -> dict[str, Any]:
    """Tokens and logits, the cache, and the counters, after an answer written into a cache of NaN."""
    plain = decoder(case)
    cache = cache_of(case, plain)
    for kept in cache:
        kept.keys.fill_(float("nan"))
        kept.values.fill_(float("nan"))
    _, first = model.prefill(plain, prompt(case), cache)
    options = {"programs": 1} if kind is one_kernel.OneKernelStep else {}
    step = kind(join_projections(plain), cache, case.batch, ONE if case.batch == 1 else FEW, **options)
    tokens, logits = [], []
    for _ in range(2):  # a second answer after the first one: nothing is left over
        step.restart(first, torch.tensor([case.prompt]))
        for _ in range(case.answer):
            step()
            tokens.append(step.token.clone())
            logits.append(step.logit.clone())
    return {
        "tokens": torch.cat(tokens, 1),
        "logits": torch.cat(logits, 1),
        "keys": torch.stack([kept.keys for kept in cache]),
        "values": torch.stack([kept.values for kept in cache]),
        "arrived": step.arrived,
        "position": step.position,
    }


def run_all(path: str) -> None:
    """In the process that interprets: all the cases, each by several kernels and by one."""
    kinds = {"kernels": steps.TokenStep, "one_kernel": one_kernel.OneKernelStep}
    found = {f"{case} {name}": computed(case, kind) for case in CASES for name, kind in kinds.items()}
    torch.save(found, path)


@pytest.fixture(scope="module")
def found(interpreted: Callable[[str], Any]) -> Any:
    return interpreted("tests.chapters.decode_kernels.test_steps")


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["kernels", "one_kernel"])
@pytest.mark.parametrize("case", CASES, ids=str)
@torch.no_grad()
def test_a_step_is_the_plain_decoders(found: Any, case: Case, kind: str) -> None:
    plain = decoder(case)
    cache = cache_of(case, plain)
    _, token = model.prefill(plain, prompt(case), cache)
    tokens, logits = [], []
    for place in range(case.answer):
        logit, token = model.decode_one(plain, token, torch.tensor([case.prompt + place]), cache)
        tokens.append(token)
        logits.append(logit)
    ours = found[f"{case} {kind}"]
    assert torch.equal(ours["tokens"], torch.cat(tokens * 2, 1))
    torch.testing.assert_close(ours["logits"], torch.cat(logits * 2, 1), rtol=1e-5, atol=1e-5)
    end = case.prompt + case.answer
    for name in ("keys", "values"):
        kept = torch.stack([getattr(one, name) for one in cache])
        torch.testing.assert_close(ours[name][..., :end, :], kept[..., :end, :], rtol=1e-5, atol=1e-5)
        assert ours[name][..., end:, :].isnan().all(), "written behind the last token"
    assert not ours["arrived"].any()
    assert ours["position"].item() == end


@pytest.mark.parametrize(
    ("config", "batch", "message"),
    [
        (Config(1, 64, 64, 4, 2, 32), 17, "a batch of 17 is not 1 to 16"),
        (Config(1, 64, 64, 4, 2, 32), 0, "a batch of 0 is not 1 to 16"),
        (Config(1, 96, 64, 4, 2, 32), 1, "heads of 24: these kernels need 16, 32, 64, 128 or 256"),
        (Config(1, 64, 68, 4, 2, 32), 1, "hidden 68: no multiple of 8"),
        (Config(1, 48, 64, 3, 2, 32), 1, "3 heads are not a multiple of 2"),
    ],
)
def test_sizes_that_would_be_wrong_are_refused(config: Config, batch: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sizes.require(config, batch)


@pytest.mark.parametrize("described", EXPERIMENTS, ids=lambda described: described.name)
def test_an_experiment_says_what_runs_without_a_gpu(described: Experiment) -> None:
    start = described.loop or functools.partial(described.probe or pytest.fail, TorchInstruments())
    with pytest.raises(NeedsGpu, match="decoder/static runs here"):
        start("cpu", **described.parameters)


def test_what_parts_read_is_what_a_token_reads() -> None:
    for name in ("1.1b", "8b"):
        config = model.CONFIGS[name]
        assert sum(part_bytes(config, 8, 528).values()) == model.bytes_per_token(config, 8, 528)
