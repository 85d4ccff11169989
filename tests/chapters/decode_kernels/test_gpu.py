"""A decode step on whatever GPU is there: as exact as the plain decoder, the same bits each time, and nothing read or
written that is not its own."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
import triton
from torch import Tensor

from snippets.decode_kernels import one_kernel, steps
from snippets.decode_kernels.quantized import quantized
from snippets.decoder import model
from snippets.decoder.compiling import join_projections
from snippets.decoder.model import Config

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240, method="thread")]

DEVICE, DTYPE = torch.device("cuda", 0), torch.bfloat16
GUARD = 1024
"""Elements before and after each cache."""
WORSE = 1.5
"""A step's error is at most so many times the plain decoder's in the same type: both round at the same places, but for
the order of their sums."""
KINDS: dict[str, Callable[..., steps.TokenStep]] = {
    "plain_kernels": functools.partial(steps.TokenStep, early=False),
    "kernels": steps.TokenStep,
    "one_kernel": one_kernel.OneKernelStep,
}


@dataclass(frozen=True)
class Case:
    """Sizes of a model, and of what it reads and writes."""

    heads: int
    kv_heads: int
    head_dim: int
    batch: int
    prompt: int
    answer: int
    room: int = 5
    """Positions of the cache behind the last token."""
    int8: bool = False

    @property
    def config(self) -> Config:
        """No width is a multiple of a block; an odd number of words."""
        return Config(2, self.heads * self.head_dim, 1392, self.heads, self.kv_heads, 1003)

    def __str__(self) -> str:
        heads = f"{self.heads} of {self.kv_heads} x {self.head_dim}"
        return f"{heads}, {self.batch} after {self.prompt}{', int8' * self.int8}"


CASES = [
    Case(8, 8, 64, 1, 37, 48),
    Case(6, 2, 64, 3, 100, 24, room=0),
    Case(8, 1, 64, 16, 511, 8),
    Case(8, 2, 128, 8, 65, 12),
    Case(4, 2, 128, 1, 1025, 48, room=0),
    Case(8, 4, 64, 2, 3, 24),
]
BOTH = [*CASES, *(replace(case, int8=True) for case in CASES)]
FIRST, FEW = CASES[0], CASES[3]


@functools.lru_cache
def plain_decoder(config: Config) -> Any:
    model.CONFIGS["case"] = config
    try:
        return model.build("case", str(DEVICE), DTYPE, 2048)
    finally:
        del model.CONFIGS["case"]


def weights(case: Case) -> Any:
    other = join_projections(plain_decoder(case.config))
    return quantized(other) if case.int8 else other


def prompt(case: Case) -> Tensor:
    draw = torch.Generator(DEVICE).manual_seed(3)
    return torch.randint(case.config.vocab, (case.batch, case.prompt), generator=draw, device=DEVICE)


def guarded(length: int, case: Case) -> list[model.StaticCache]:
    """Caches of NaN between guards of NaN."""
    caches = []
    for _ in range(case.config.layers):
        kept = model.StaticCache(case.config, case.batch, length, DEVICE, DTYPE)
        for name in ("keys", "values"):
            shape = getattr(kept, name).shape
            buffer = torch.full((shape.numel() + 2 * GUARD,), float("nan"), device=DEVICE, dtype=DTYPE)
            setattr(kept, name, buffer[GUARD:-GUARD].view(shape))
            setattr(kept, f"{name}_buffer", buffer)
        caches.append(kept)
    return caches


def check_rest(caches: list[Any], end: int) -> None:
    """All positions before `end` are written, and nothing else."""
    for kept in caches:
        for name in ("keys", "values"):
            written, buffer = getattr(kept, name), getattr(kept, f"{name}_buffer")
            assert bool(written[:, :, :end].isfinite().all())
            assert bool(written[:, :, end:].isnan().all())
            assert bool(torch.cat((buffer[:GUARD], buffer[-GUARD:])).isnan().all())


def started(case: Case, kind: str, **options: Any) -> tuple[steps.TokenStep, Tensor]:
    """A step behind a prompt, and the token that followed the prompt."""
    other, caches = weights(case), guarded(case.prompt + case.answer + case.room, case)
    _, first = model.prefill(other, prompt(case), caches)
    return KINDS[kind](other, caches, case.batch, **options), first


def place(position: int) -> Tensor:
    return torch.tensor([position], device=DEVICE)


def drive(step: steps.TokenStep, call: Callable[[], object], count: int) -> tuple[Tensor, Tensor]:
    """Tokens and logits (batch, count)."""
    tokens, logits = [], []
    for _ in range(count):
        call()
        tokens.append(step.token.clone())
        logits.append(step.logit.clone())
    return torch.cat(tokens, 1), torch.cat(logits, 1)


def answered(case: Case, kind: str, **options: Any) -> tuple[Tensor, Tensor, Tensor]:
    """First token (batch, 1), tokens and logits (batch, answer)."""
    step, first = started(case, kind, **options)
    step.restart(first, place(case.prompt))
    tokens, logits = drive(step, step, case.answer)
    check_rest(step.cache, case.prompt + case.answer)
    assert step.position.item() == case.prompt + case.answer
    assert not step.arrived.any()
    return first, tokens, logits


def exact_logits(case: Case, text: Tensor) -> Tensor:
    """(batch, length, vocab): of the same weights, in float32."""
    exact = copy.deepcopy(weights(case)).float()
    where = (case.batch, text.shape[1], DEVICE, torch.float32)
    caches = [model.StaticCache(case.config, *where) for _ in range(case.config.layers)]
    hidden = exact(text, torch.arange(text.shape[1], device=DEVICE), caches)
    return exact.lm_head(hidden)  # type: ignore[no-any-return]


def plain_logits(case: Case, first: Tensor, tokens: Tensor | None, count: int) -> tuple[Tensor, Tensor]:
    """Tokens and all logits (batch, count, vocab) of the plain decoder: behind these tokens, or its own."""
    other, caches = weights(case), guarded(case.prompt + count, case)
    for kept in caches:  # which is masked, but not skipped
        kept.keys.zero_()
        kept.values.zero_()
    model.prefill(other, prompt(case), caches)
    token, found, chosen = first, [], []
    for index in range(count):
        hidden = other(token, place(case.prompt + index), caches)
        found.append(other.lm_head(hidden[:, -1]))
        token = found[-1].argmax(1, keepdim=True) if tokens is None else tokens[:, index, None]
        chosen.append(token)
    return torch.cat(chosen, 1), torch.stack(found, 1)


def error(found: Tensor, expected: Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> None:
    """All kernels of the cases, compiled in parallel."""

    def compile_only(kernel: Any, programs: int, *given: Any, **options: Any) -> None:
        kernel.warmup(*given, grid=(programs,), **options)

    with (
        pytest.MonkeyPatch.context() as patched,
        ThreadPoolExecutor() as pool,
        triton.AsyncCompileMode(pool),
        torch.no_grad(),
    ):
        patched.setattr(one_kernel, "programs_at_once", lambda *_: 1)
        patched.setattr(steps.TokenStep, "run", staticmethod(compile_only))
        for case in BOTH:
            for kind in KINDS:
                if kind != "one_kernel" or in_one_kernel(case):
                    started(case, kind)[0]()


def in_one_kernel(case: Case) -> bool:
    """The compilation of the whole step takes many seconds: some cases in int8."""
    return not case.int8 or case.batch in (1, 8)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", BOTH, ids=str)
@torch.no_grad()
def test_logits_are_as_exact_as_the_plain_decoders(case: Case, kind: str) -> None:
    if kind == "one_kernel" and not in_one_kernel(case):
        pytest.skip("compiled for some cases in int8")
    first, tokens, logits = answered(case, kind)
    text = torch.cat((prompt(case), first, tokens[:, :-1]), 1)
    exact = exact_logits(case, text)[:, case.prompt :].gather(2, tokens[:, :, None])[:, :, 0]
    _, plain = plain_logits(case, first, tokens, case.answer)
    own = error(plain.gather(2, tokens[:, :, None])[:, :, 0], exact)
    assert 0 < own < 3e-2
    assert error(logits, exact) <= WORSE * own


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_256_greedy_tokens(kind: str) -> None:
    """As the plain decoder chooses them, up to a near tie: two tokens whose logits in float32 differ by no more than
    rounding moves two logits."""
    case = replace(FIRST, answer=256)
    first, tokens, _ = answered(case, kind)
    expected, plain = plain_logits(case, first, None, case.answer)
    differ = (tokens != expected)[0].nonzero()
    if not len(differ):
        return
    place_ = int(differ[0])
    text = torch.cat((prompt(case), first, tokens[:, :place_]), 1)
    exact = exact_logits(case, text)[0, -1]
    rounding = (plain[0, place_].float() - exact).abs().max()
    gap = (exact[tokens[0, place_]] - exact[expected[0, place_]]).abs()
    assert gap <= (1 + WORSE) * rounding, f"token {place_}"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", [FIRST, replace(FIRST, int8=True), FEW], ids=str)
@torch.no_grad()
def test_replays_have_the_same_bits(case: Case, kind: str) -> None:
    """A CUDA graph, replayed from the prompt twice, and from the middle of the answer."""
    step, first = started(case, kind)
    step.restart(first, place(case.prompt))
    expected = drive(step, step, case.answer)
    replay = steps.recorded(step, first, place(case.prompt))
    for _ in range(2):
        step.restart(first, place(case.prompt))
        found = drive(step, replay, case.answer)
        assert [torch.equal(*pair) for pair in zip(found, expected, strict=True)] == [True, True]
    half = case.answer // 2
    step.restart(expected[0][:, half - 1, None], place(case.prompt + half))
    found = drive(step, replay, case.answer - half)
    assert [torch.equal(one, other[:, half:]) for one, other in zip(found, expected, strict=True)] == [True, True]


@pytest.mark.parametrize("case", [FIRST, FEW], ids=str)
@torch.no_grad()
def test_an_early_start_changes_nothing(case: Case) -> None:
    """Kernels that start before the kernel before them has ended read what it wrote: many times, in a graph."""
    _, *expected = answered(case, "plain_kernels")
    step, first = started(case, "kernels")
    replay = steps.recorded(step, first, place(case.prompt))
    for _ in range(20):
        step.restart(first, place(case.prompt))
        found = drive(step, replay, case.answer)
        assert [torch.equal(*pair) for pair in zip(found, expected, strict=True)] == [True, True]


@pytest.mark.parametrize("case", [FIRST, FEW], ids=str)
@torch.no_grad()
def test_any_number_of_programs_computes_the_same(case: Case) -> None:
    _, *expected = answered(case, "one_kernel")
    for programs in (1, 7, torch.cuda.get_device_properties(DEVICE).multi_processor_count):
        _, *found = answered(case, "one_kernel", programs=programs)
        assert [torch.equal(*pair) for pair in zip(found, expected, strict=True)] == [True, True], programs


@torch.no_grad()
def test_programs_that_cannot_run_at_once_are_refused() -> None:
    with pytest.raises(ValueError, match="100000 programs cannot run at once here: at most"):
        started(FIRST, "one_kernel", programs=100_000)


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_two_steps_at_the_same_time(kind: str) -> None:
    """On two streams, with a cache and a scratch of their own."""
    cases = [FIRST, replace(FIRST, prompt=61)]
    expected = [answered(case, kind)[1:] for case in cases]
    ready = [started(case, kind) for case in cases]
    streams = [torch.cuda.Stream() for _ in cases]
    torch.cuda.synchronize()
    found: list[list[tuple[Tensor, Tensor]]] = [[], []]
    for (step, first), case, stream in zip(ready, cases, streams, strict=True):
        with torch.cuda.stream(stream):
            step.restart(first, place(case.prompt))
    for _ in range(FIRST.answer):
        for index, (step, _) in enumerate(ready):
            with torch.cuda.stream(streams[index]):
                found[index].append(drive(step, step, 1))
    torch.cuda.synchronize()
    for both, one in zip(found, expected, strict=True):
        assert [torch.equal(torch.cat(part, 1), one[index]) for index, part in enumerate(zip(*both, strict=True))] == [
            True,
            True,
        ]


@pytest.mark.parametrize("int8", [False, True])
@torch.no_grad()
def test_a_loop_of_tokens_begins_again(int8: bool) -> None:
    """From the prompt after each answer."""
    case = replace(FIRST, answer=6, int8=int8)
    loop = steps.tokens(plain_decoder(case.config), prompt(case), case.answer, int8=int8)
    next(loop)
    answers = [torch.cat([next(loop)[1].clone() for _ in range(case.answer)], 1) for _ in range(3)]
    _, expected, _ = answered(replace(case, room=0), "kernels")
    assert [torch.equal(answer, expected) for answer in answers] == [True] * 3
