"""What the probes do around the kernels, without them: choose, compare, refuse and restore."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from snippets.decode_kernels import one_kernel, steps
from snippets.decode_kernels.experiments import answers, parts, peers, tiles_swept, variants
from snippets.decode_kernels.quantized import quantized
from snippets.decode_kernels.sizes import ONE_TOKEN, Tile, Tiles
from snippets.decoder import loops, model
from snippets.decoder.experiments.token_loops import exact_logits


@pytest.mark.parametrize(
    ("variant", "kind", "early", "int8"),
    [
        ("plain_kernels", steps.TokenStep, False, False),
        ("kernels", steps.TokenStep, None, False),
        ("one_kernel", one_kernel.OneKernelStep, None, False),
        ("int8_kernels", steps.TokenStep, None, True),
        ("int8_one_kernel", one_kernel.OneKernelStep, None, True),
    ],
)
def test_a_variant_is_a_kind_of_step(variant: str, kind: type, early: bool | None, int8: bool) -> None:
    start = variants.start_of(variant)
    assert isinstance(start, functools.partial)
    assert start.func is steps.tokens
    assert start.keywords["int8"] is int8
    given = start.keywords["kind"]
    assert (given.func if early is not None else given) is kind
    assert getattr(given, "keywords", {}) == ({} if early is None else {"early": early})


def test_other_variants_are_peers() -> None:
    assert variants.start_of("gpt_fast") is peers.gpt_fast
    assert variants.start_of("max_autotune") is loops.max_autotune
    with pytest.raises(AttributeError, match="int8_layers"):
        variants.start_of("int8_layers")


@torch.no_grad()
def test_gpt_fast_is_the_same_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only its attention and its compilation differ."""
    options: dict[str, Any] = {}
    backends: list[bool] = []

    def compiled(function: Any, **given: Any) -> Any:
        options.update(given)

        def call(*arguments: Any) -> Any:
            backends.append(torch.backends.cuda.flash_sdp_enabled())
            return function(*arguments)

        return call

    monkeypatch.setattr(torch, "compile", compiled)
    plain = model.build("tiny", "cpu", torch.float32, 64)
    ids = torch.arange(9).view(1, 9)
    ours, expected = (
        [token.item() for _, token in itertools.islice(loop(plain, ids, 6), 13)]
        for loop in (peers.gpt_fast, loops.static)
    )
    assert ours == expected
    assert options["fullgraph"] is True
    assert options["options"] == {"triton.cudagraphs": True, "coordinate_descent_tuning": True}
    assert backends == [False] * 12, "attention is written out"
    assert type(plain.layers[0].self_attn) is model.Attention, "the decoder itself stays as it was"


@torch.no_grad()
def test_a_quantized_decoder_is_its_own_reference() -> None:
    """In float32, with the weights that its codes mean."""
    plain = model.build("tiny", "cpu", torch.float32, 64)
    ids = torch.arange(9).view(1, 9)
    meant = model.build("tiny", "cpu", torch.float32, 64)
    for name, linear in quantized(plain).named_modules():
        if hasattr(linear, "codes"):
            meant.get_submodule(name).weight.copy_(linear.dequantized())
    expected = exact_logits(meant, ids)
    torch.testing.assert_close(exact_logits(variants.exact_of("int8_kernels", plain), ids), expected)
    assert answers.relative(exact_logits(variants.exact_of("kernels", plain), ids), expected) > 1e-4


def test_an_answer_is_kept_although_the_loop_overwrites_it() -> None:
    logit, token = torch.zeros(2, 1), torch.zeros(2, 1, dtype=torch.int64)

    def loop(*_: Any, answer: int) -> Iterator[tuple[Tensor, Tensor]]:
        for _index in range(answer + 5):
            yield logit, token
            logit.add_(0.5)
            token.add_(1)

    logits, found = answers.answer_of(loop, None, token, 4)
    assert logits.tolist() == [0.0, 0.5, 1.0, 1.5]
    assert found.tolist() == [[0, 1, 2, 3]]


@dataclass
class Kept:
    number: int


CHOSEN = tiles_swept.name_of(ONE_TOKEN.qkv, 1, int8=False)


class FakeStep:
    """Computes wrongly with a tile of 16 rows, and does not fit the GPU with one of 64."""

    def __init__(self) -> None:
        self.x = torch.zeros(1, 8)
        self.q, self.attended, self.hidden = self.x.clone(), self.x.clone(), self.x.clone()
        self.logit = torch.zeros(1, 1)
        self.token, self.position = torch.tensor([[3]]), torch.tensor([7])
        self.tiles: Tiles = ONE_TOKEN
        self.int8, self.batch = False, 1
        self.cache = [Kept(0), Kept(1), Kept(2)]
        self.model = SimpleNamespace(
            layers=["first", "second", "third"], config=model.Config(3, 4096, 14_336, 32, 8, 128_256)
        )
        self.calls: list[tuple[str, int]] = []
        self.stepped: list[tuple[Tile, int, int]] = []

    def __call__(self) -> None:
        self.stepped.append((self.tiles.qkv, int(self.token), int(self.position)))
        self.launch_head()
        self.token.add_(1)

    def restart(self, token: Tensor, position: Tensor) -> None:
        self.token.copy_(token)
        self.position.copy_(position)

    def launch_qkv(self, layer: str, kept: Kept) -> None:
        self.calls.append((layer, kept.number))
        if self.tiles.qkv.rows == 64:
            raise RuntimeError("out of resource: shared memory")
        self.q.copy_(self.x * (2.0 if self.tiles.qkv.rows == 16 else 1.0) * self.position)

    def launch_head(self) -> None:
        self.logit.copy_(self.x[:, :1])
        self.position.add_(1)


def test_a_part_runs_in_every_layer() -> None:
    step = FakeStep()
    parts.run_part(step, "qkv")
    parts.run_part(step, "qkv", layers=1)
    assert step.calls == [("first", 0), ("second", 1), ("third", 2), ("first", 0)]
    parts.run_part(step, "head")
    assert step.position.item() == 7, "the next replay is at the same position"


@pytest.fixture
def timed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the steps that were timed, each of which is called once."""
    names: list[str] = []

    def times_us(steps: Mapping[str, Callable[[], object]], device: str, rounds: int) -> dict[str, list[float]]:
        names.extend(steps)
        return {name: [1.0] * rounds for name in steps}

    monkeypatch.setattr(tiles_swept, "times_us", times_us)
    return names


def times_of_qkv(step: FakeStep, *candidates: Tile) -> dict[str, list[float]]:
    start = step.token.clone(), step.position.clone()
    return tiles_swept.times_of(step, start, "qkv", candidates, "cpu")


def test_each_step_has_one_other_tile_and_starts_at_the_same_token(timed: list[str]) -> None:
    step, tile = FakeStep(), Tile(1, 8, 2, 4)
    found = times_of_qkv(step, tile)
    assert found == {CHOSEN: [1.0] * 3, "1 x 4096, 2 warps, 4 held": [1.0] * 3}
    assert step.stepped == [(ONE_TOKEN.qkv, 3, 7), (tile, 3, 7)]
    assert step.position.item() == 7, "the next replay is at the same position"


def test_all_tiles_compute_at_the_position_of_the_start(timed: list[str]) -> None:
    """Compiling the candidates of the head counts the position down."""
    step = FakeStep()
    start = step.token.clone(), step.position.clone()
    step.position.sub_(3)
    tiles_swept.times_of(step, start, "qkv", [Tile(1, 2)], "cpu")
    assert timed == [CHOSEN, "1 x 2048, 4 warps, 4 held"]


def test_tiles_that_do_not_fit_are_left_out(timed: list[str]) -> None:
    step = FakeStep()
    times_of_qkv(step, Tile(1, held=1), Tile(64), step.tiles.qkv, Tile(4, 1, 8, 0))
    assert timed == [CHOSEN, "1 x 1024, 4 warps, 1 held", "4 x 2048, 8 warps, 0 held"]
    assert step.tiles == ONE_TOKEN
    assert step.q.equal(step.x * 7)


def test_a_tile_that_computes_something_else_is_not_timed(timed: list[str]) -> None:
    step = FakeStep()
    with pytest.raises(ArithmeticError, match=r"qkv, 16 x 2048, 4 warps, 4 held: 1\.0e\+00"):
        times_of_qkv(step, Tile(1, 2), Tile(16, 2))
    assert timed == []
    assert step.tiles == ONE_TOKEN


@pytest.mark.parametrize(
    ("part", "shapes", "cuts"),
    [
        ("out", "8x1x4", [(8, 1, 4, 4), (8, 1, 4, 2)]),  # all of 4096 columns, and half of them
        ("down", "8x1x8", [(8, 1, 8, 4), (8, 1, 8, 2)]),  # of 7 blocks, 4 fit into 128 registers
        ("gate_up", "2x2x2,8x2x4", [(2, 2, 2, 4), (2, 2, 2, 2), (8, 2, 4, 1)]),  # pairs
        ("qkv", "16x2x4", []),  # 256 registers a block
    ],
)
def test_candidates_hold_what_fits_and_half_of_it(part: str, shapes: str, cuts: list[tuple[int, ...]]) -> None:
    expected = [Tile(*cut) for cut in cuts]
    assert tiles_swept.tiles_of(FakeStep(), part, shapes, 128) == expected


def test_a_block_has_twice_as_many_weights_in_int8() -> None:
    step = FakeStep()
    step.int8 = True
    found = tiles_swept.tiles_of(step, "out", "8x1x4", 128)
    assert [tiles_swept.name_of(tile, 1, step.int8) for tile in found] == [
        f"8 x 2048, 4 warps, {held} held" for held in (2, 1)
    ]


def test_eight_texts_need_more_rows_and_have_shorter_blocks() -> None:
    step = FakeStep()
    step.batch = 8
    found = tiles_swept.tiles_of(step, "out", "2x1x4,4x1x4", 128)
    assert [tiles_swept.name_of(tile, 8, step.int8) for tile in found] == [
        f"4 x 256, 4 warps, {held} held" for held in (16, 8)
    ]


def test_the_sweep_has_a_few_tiles_of_each_part() -> None:
    (probe,) = tiles_swept.tile_probes()
    shapes, registers = str(probe.parameters["shapes"]), probe.parameters["registers"]
    assert isinstance(registers, int)
    step = FakeStep()
    for size in ("1.1b", "8b"):
        step.model.config = model.CONFIGS[size]
        for part in tiles_swept.WRITTEN:
            found = tiles_swept.tiles_of(step, part, shapes, registers)
            assert 12 <= len(found) <= 24
            assert len(set(found)) == len(found)
