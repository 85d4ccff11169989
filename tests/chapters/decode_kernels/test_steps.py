"""A decode step by kernels on the CPU, through Triton's interpreter, against the plain decoder in float32.

One process with TRITON_INTERPRET=1 runs all the cases and leaves what they computed. The kernel of a whole step runs as
one program there, which meets no other program at a barrier.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch

from snippets.decode_kernels import one_kernel, products, sizes, steps
from snippets.decode_kernels.experiments import EXPERIMENTS
from snippets.decode_kernels.experiments.parts import part_bytes
from snippets.decode_kernels.experiments.tiles_swept import WRITTEN, name_of
from snippets.decode_kernels.llama_decode import operators
from snippets.decode_kernels.quantized import ZERO, Int8Linear, bytes_saved, quantize, quantized
from snippets.decode_kernels.sizes import Tile, Tiles
from snippets.decoder import model
from snippets.decoder.compiling import join_projections
from snippets.decoder.model import Config
from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.experiment import Experiment, NeedsGpu

SMALL = Config(1, 64, 80, 2, 1, 40)
SMALLER = Config(1, 32, 48, 2, 1, 24)
FEWER = 8
FEWER_COLUMNS = Config(1, 2048 // FEWER, 5632 // FEWER, 2, 1, 33)
"""The smaller model of the sweep, with fewer columns."""


@dataclass(frozen=True)
class Case:
    """Sizes of a model, and of what it reads and writes."""

    config: Config
    batch: int
    prompt: int
    answer: int
    room: int = 3
    """Positions of the cache behind the last token."""
    int8: bool = False
    tile: Tile | None = None
    """For all parts, in place of a small one."""
    answers: int = 1
    """How often the answer is written. After a first answer, nothing may be left over."""

    def __str__(self) -> str:
        heads = f"{self.config.heads}/{self.config.kv_heads} heads of {self.config.head_dim}"
        tile = f", {name_of(self.tile, self.batch, self.int8)}" if self.tile else ""
        return f"{heads}, hidden {self.config.hidden}, {self.batch} after {self.prompt}{', int8' * self.int8}{tile}"

    @property
    def tiles(self) -> Tiles:
        tile = self.tile or Tile(8, 1, 2, 1)
        return Tiles(*[tile] * len(WRITTEN), block_keys=16, splits=3)


CASES = [
    Case(Config(2, 64, 72, 4, 2, 41), 1, 15, 1, answers=2),
    Case(Config(1, 96, 40, 6, 2, 33), 1, 30, 2, room=0),
    Case(Config(1, 256, 16, 1, 1, 17), 1, 40, 1, tile=Tile(16, 1, 2, 1)),  # one block of all columns
    Case(Config(1, 64, 72, 4, 1, 40), 3, 5, 2, answers=2),
    Case(Config(1, 64, 80, 4, 2, 41), 1, 7, 2, int8=True),
    Case(Config(1, 96, 48, 6, 2, 33), 3, 5, 2, room=0, int8=True),
    Case(SMALLER, 1, 3, 1, int8=True, tile=Tile(1, 1, 1, 2)),
    Case(FEWER_COLUMNS, 1, 3, 1, int8=True, tile=Tile(16, 1, 1, 1)),  # each part holds some blocks
    Case(FEWER_COLUMNS, 1, 3, 1, tile=Tile(16, 1, 1, 3)),  # all parts hold all blocks
    Case(FEWER_COLUMNS, 1, 3, 1, tile=Tile(32, 2, 1, 1)),
    Case(SMALLER, 1, 3, 1, tile=Tile(2, 2, 8, 1)),
    Case(SMALL, 2, 3, 1, tile=Tile(4, 1, 1, 0)),
    Case(SMALL, 4, 3, 1, tile=Tile(4, 1, 2, 1)),
    Case(SMALL, 8, 3, 1, tile=Tile(4, 1, 1, 1)),
    Case(SMALL, 9, 3, 1, tile=Tile(8, 1, 2, 3)),  # more tokens than slices can take the place of
    Case(SMALL, 5, 3, 1, int8=True, tile=Tile(8, 1, 2, 0)),
    Case(SMALL, 16, 3, 1, int8=True, tile=Tile(64, 2, 2, 0)),
]


def decoder(case: Case) -> Any:
    """The same weights in each process, in float32 or int8; its cache is in float32."""
    model.CONFIGS["case"] = case.config
    try:
        plain = model.build("case", "cpu", torch.float32, 64)
    finally:
        del model.CONFIGS["case"]
    return quantized(plain) if case.int8 else plain


def prompt(case: Case) -> torch.Tensor:
    draw = torch.Generator().manual_seed(3)
    return torch.randint(case.config.vocab, (case.batch, case.prompt), generator=draw)


def cache_of(case: Case) -> list[model.StaticCache]:
    length = case.prompt + case.answer + case.room
    where = (case.batch, length, torch.device("cpu"), torch.float32)
    return [model.StaticCache(case.config, *where) for _ in range(case.config.layers)]


def joined(case: Case) -> Any:
    """The decoder with joined projections, which are quantized by rows as separate ones are."""
    other = join_projections(decoder(replace(case, int8=False)))
    return quantized(other) if case.int8 else other


@torch.no_grad()
def computed(case: Case, kind: type[steps.TokenStep]) -> dict[str, Any]:
    """Tokens and logits, the cache, and the counters, after answers written into a cache of NaN."""
    plain = decoder(case)
    cache = cache_of(case)
    for kept in cache:
        kept.keys.fill_(float("nan"))
        kept.values.fill_(float("nan"))
    _, first = model.prefill(plain, prompt(case), cache)
    step = kind(joined(case), cache, case.batch, case.tiles)
    tokens, logits = [], []
    for _ in range(case.answers):
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
    with pytest.raises(ValueError, match="2 programs cannot run at once here: at most 1 can"):
        one_kernel.OneKernelStep(joined(CASES[0]), cache_of(CASES[0]), 1, CASES[0].tiles, programs=2)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(one_kernel, "programs_at_once", lambda *_: 0)
        with pytest.raises(ValueError, match="1 programs cannot run at once here: at most 0 can"):
            one_kernel.OneKernelStep(joined(CASES[0]), cache_of(CASES[0]), 1, CASES[0].tiles)
    caches = cache_of(CASES[0])
    caches[1].keys = torch.zeros(caches[1].keys.numel() + 1)[1:].view_as(caches[1].keys)
    with pytest.raises(ValueError, match="a tensor at an address that 16 does not divide"):
        one_kernel.OneKernelStep(joined(CASES[0]), caches, 1, CASES[0].tiles)
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
    cache = cache_of(case)
    _, token = model.prefill(plain, prompt(case), cache)
    tokens, logits = [], []
    for place in range(case.answer):
        logit, token = model.decode_one(plain, token, torch.tensor([case.prompt + place]), cache)
        tokens.append(token)
        logits.append(logit)
    ours = found[f"{case} {kind}"]
    assert torch.equal(ours["tokens"], torch.cat(tokens * case.answers, 1))
    torch.testing.assert_close(ours["logits"], torch.cat(logits * case.answers, 1), rtol=1e-5, atol=1e-5)
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


def test_what_int8_saves_is_what_a_quantized_decoder_stores() -> None:
    plain = model.build("tiny", "cpu", max_length=8)
    for decoder_ in (plain, join_projections(plain)):
        linears = [one for one in quantized(decoder_).modules() if isinstance(one, Int8Linear)]
        stored = sum(one.codes.nbytes + one.scale.nbytes for one in linears)
        assert stored == model.bytes_per_token(plain.config, 0, 0) - bytes_saved(plain.config)


def test_weights_are_rounded_by_row() -> None:
    weight = torch.randn(9, 33) * torch.logspace(-9, 9, 9)[:, None]
    weight[4] = 0.0
    codes, scale = quantize(weight)
    assert codes.dtype == torch.uint8
    codes = codes.to(torch.int16) - ZERO
    assert codes.shape == weight.shape
    assert scale.dtype == torch.float32
    assert bool(((codes * scale[:, None] - weight).abs() <= 0.5001 * scale[:, None]).all())
    largest = codes.abs().amax(1)
    assert largest.tolist() == [127] * 4 + [0] + [127] * 4
    for wrong in (float("inf"), float("nan")):
        weight[2, 3] = wrong
        with pytest.raises(ValueError, match="cannot quantize infinite weights or NaN"):
            quantize(weight)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_scale_multiplies_the_sum(dtype: torch.dtype) -> None:
    weight, x = torch.randn(5, 48), torch.randn(2, 3, 48).to(dtype)
    linear = Int8Linear(weight)
    expected = (x.double() @ linear.dequantized().double().t()).to(dtype)
    torch.testing.assert_close(linear(x), expected, rtol=1e-5 if dtype == torch.float32 else 2e-2, atol=1e-2)
    assert linear(x).dtype == dtype


@pytest.mark.parametrize(
    ("device", "capability", "found"),
    [("cpu", None, "device 'cpu'"), ("cuda", (7, 5), "a GPU of compute capability 7.5")],
)
def test_a_device_without_these_kernels_is_refused(
    device: str, capability: tuple[int, int] | None, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    with pytest.raises(ValueError, match=f"{found}: these kernels need a CUDA GPU of compute capability 8.0 or later"):
        sizes.require_device(torch.device(device), interpreted=False)


def test_a_device_with_these_kernels_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    for capability in ((8, 0), (8, 9), (12, 0)):
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, found=capability: found)
        sizes.require_device(torch.device("cuda"), interpreted=False)
    sizes.require_device(torch.device("cpu"), interpreted=True)


def test_a_step_without_a_gpu_says_so() -> None:
    plain = model.build("tiny", "cpu", torch.float32, 8)
    with pytest.raises(ValueError, match="a loop of the decoder runs here"):
        steps.TokenStep(join_projections(plain), model.static_cache(plain, 1, 8), 1)


def test_no_kernel_loads_weights_before_what_ran_before_the_step_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """All kernels start early, but for the first one: it may follow a kernel that writes weights."""
    launched: list[tuple[str, bool]] = []
    for name, value in (("require_device", lambda *_: None), ("launches_dependents", lambda _: True)):
        monkeypatch.setattr(steps, name, value)
    monkeypatch.setattr(
        steps.TokenStep,
        "run",
        lambda _, kernel, programs, *given, **options: launched.append((kernel.__name__, options["launch_pdl"])),
    )
    plain = join_projections(model.build("tiny", "cpu", torch.float32, 8))
    steps.TokenStep(plain, model.static_cache(plain, 1, 8), 1)()
    assert launched[0] == ("decode_qkv_kernel", False)
    assert len(launched) == 5 * plain.config.layers + 1
    assert all(early for _, early in launched[1:])


class Launches:
    """In place of a kernel: how it was launched."""

    def __init__(self) -> None:
        self.options: dict[str, Any] = {}

    def __getitem__(self, grid: tuple[int, ...]) -> Callable[..., None]:
        return lambda *given, **options: self.options.update(options)


@pytest.mark.parametrize("misplaced", [0, 1])
def test_attention_waits_for_copies_of_weights(misplaced: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package copies a weight at an address that 16 does not divide. The kernels behind attention hold weights at
    once, and start after attention."""
    monkeypatch.setattr(operators, "launches_dependents", lambda _: True)
    kernels = {name: Launches() for name in ("decode_attend_kernel", "decode_residual_kernel", "decode_gate_up_kernel")}
    for name, kernel in kernels.items():
        monkeypatch.setattr(operators, name, kernel)
    x, gain, cache = torch.zeros(1, 64), torch.ones(64), torch.zeros(1, 2, 4, 16)
    weight = torch.zeros(128, 64)
    gate = torch.zeros(128 * 64 + 4)[misplaced : misplaced + 128 * 64].view(128, 64)
    arrived = torch.zeros(2, dtype=torch.int32)
    others = (weight[:64], gain, gate, weight, torch.zeros(64, 128))
    operators.complete(x, x, cache, cache, None, None, arrived, *others, 0.25, 1e-5)
    assert kernels["decode_attend_kernel"].options["launch_pdl"] is not bool(misplaced)
    assert kernels["decode_residual_kernel"].options["launch_pdl"]
    assert kernels["decode_gate_up_kernel"].options["launch_pdl"]


def test_a_step_has_room_for_all_tiles_of_the_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head writes one maximum for each of its programs."""
    launched: list[tuple[str, int]] = []
    monkeypatch.setattr(steps, "require_device", lambda *_: None)
    monkeypatch.setattr(
        steps.TokenStep,
        "run",
        lambda _, kernel, programs, *given, **options: launched.append((kernel.__name__, programs)),
    )
    plain = join_projections(model.build("tiny", "cpu", torch.float32, 8))
    for batch in (1, 2):
        step = steps.TokenStep(plain, model.static_cache(plain, batch, 8), batch)
        default = step.tiles
        for rows in (1, 2, 4):
            tile = Tile(rows)
            step.tiles = replace(default, head=tile)
            step.launch_head()
            programs = min(
                default.head_programs * 4, -(-plain.config.vocab // tile.rows)
            )  # four multiprocessors, as interpreted
            assert launched.pop() == ("decode_head_kernel", programs)
            assert step.best.shape[0] >= programs
            assert step.best.shape == step.best_row.shape == (step.best.shape[0], step.tokens)


def test_the_numbers_in_the_instructions_of_int8_are_those_of_its_format() -> None:
    """`prmt` puts a byte into the number 1024; tokens are multiplied by 0x3b80 in bf16."""
    raised = torch.tensor(0x6400 + ZERO, dtype=torch.int16).view(torch.float16).item()
    smaller = torch.tensor(0x3B80, dtype=torch.int16).view(torch.bfloat16).item()
    assert (products.ZERO.value, products.RAISED.value) == (ZERO, raised)
    assert products.SMALLER.value == smaller


def test_rows_of_int8_have_16_elements() -> None:
    config = Config(1, 64, 72, 4, 2, 32)
    sizes.require(config, 1)
    with pytest.raises(ValueError, match="hidden 72: no multiple of 16"):
        sizes.require(config, 1, int8=True)
