"""On a Hopper GPU: as exact as plain PyTorch or more, at any shape and in any layout.

What a wait that never ends would stop is stopped by a thread, since a signal cannot interrupt the driver.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from snippets.fused_mlp.experiments import activations
from snippets.fused_mlp.geglu import model, support
from snippets.fused_mlp.geglu.hopper import (
    PINGPONG,
    PINGPONG_GATED,
    SMALL,
    STACKED,
    pingpong,
    small_linear,
    stacked_gate_up,
)
from snippets.fused_mlp.geglu.work import Tiles
from snippets.mlp.model import GeGLU
from tests.chapters.fused_mlp.checks import (
    ACTIVATIONS,
    BF16,
    F16,
    F32,
    ODD,
    SERIES,
    check,
    check_errors,
    fused,
    gated,
    inputs,
    linear,
)
from tests.chapters.guarded import check_written

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(60, method="thread")]

SHAPES = [
    (*SERIES, BF16),
    (*SERIES, F16),
    (1, 64, 8, BF16),
    (77, 136, 200, BF16),
    (*ODD, BF16),
    (*ODD, F16),
    (8200, 768, 3080, BF16),
    (1000, 4096, 14336, BF16),
]


@pytest.mark.parametrize(("rows", "dim", "hidden", "dtype"), SHAPES)
def test_any_shape(rows: int, dim: int, hidden: int, dtype: torch.dtype) -> None:
    """Gate and up, a linear with a bias, and the module."""
    x, gate, up, bias = inputs(rows, dim, hidden, dtype)
    check(model.gate_up(x, gate, up, "gelu_tanh"), gated, x, gate, up)
    check(model.linear(x, gate, bias, "gelu_tanh"), linear, x, gate, bias)
    block = GeGLU(dim, hidden).to("cuda", dtype).requires_grad_(False)
    module = fused(dim, hidden, dtype)
    module.load_state_dict(block.state_dict())
    check_errors(module(x), block(x), copy.deepcopy(block).double()(x.double()))
    assert not support.SAID


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations(activation: str, dtype: torch.dtype) -> None:
    x, gate, up, _ = inputs(*ODD, dtype)
    check(model.gate_up(x, gate, up, activation), gated, x, gate, up, activation)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("has_bias", [True, False])
def test_activations_of_the_linear(activation: str, has_bias: bool) -> None:
    x, weight, up, _ = inputs(*ODD, BF16)
    bias = up[:, 0].contiguous() if has_bias else None
    found = model.linear(x, weight, bias, activation)
    # One rounding in both when nothing follows the product: then only the order of the sums differs.
    check(found, linear, x, weight, bias, activation, times_eager=1.01 if activation == "none" else 1.0)


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("dtype", [BF16, F16, F32])
def test_the_pointwise_kernel(dtype: torch.dtype, activation: str) -> None:
    """In float32 what an exponent of 87 loses by its rounding decides; of erf, what 1 does that is added."""
    gate, up = (3 * torch.randn(101, 77, device="cuda", dtype=dtype) for _ in range(2))
    found = model.gated_activation(gate, up.t().contiguous().t(), activation)
    if dtype == F32:
        exact = activations.exactly(gate.double(), activation) * up.double()
        allowed = 1e-6 * (gate * up).double().abs() if activation == "gelu" else 3e-5 * exact.abs() + 1e-36
        assert bool(((found.double() - exact).abs() <= allowed).all())
    else:
        check(found, lambda gate, up: support.act(gate, activation) * up, gate, up)


def gated_pingpong(x: Tensor, gate: Tensor, up: Tensor, tiles: Tiles = PINGPONG_GATED[0]) -> Tensor:
    (found,) = pingpong(x, gate, up, None, "gelu_tanh", tiles)
    return found


def gelu(x: Tensor, weight: Tensor, _: Tensor) -> Tensor:
    return linear(x, weight, None, "gelu")


KERNELS: list[tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[Tiles, ...]]] = [
    (gated_pingpong, gated, PINGPONG_GATED),
    (lambda x, gate, up, tiles: stacked_gate_up(x, torch.stack([gate, up]), "gelu_tanh", tiles), gated, STACKED),
    (lambda x, weight, _, tiles: pingpong(x, weight, None, None, "gelu", tiles)[0], gelu, PINGPONG),
    (lambda x, weight, _, tiles: small_linear(x, weight, None, "gelu", tiles), gelu, SMALL),
]


@pytest.mark.parametrize(("run", "plain", "tiles"), [(*each, one) for *each, tilings in KERNELS for one in tilings])
def test_every_tiling(
    run: Callable[..., Tensor], plain: Callable[..., Tensor], tiles: Tiles, guarded: list[Tensor]
) -> None:
    """Every element is written and nothing beside the result."""
    x, gate, up, _ = inputs(*ODD, BF16)
    found = run(x, gate, up, tiles)
    check_written(guarded, results=1)
    check(found, plain, x, gate, up)


@pytest.mark.parametrize("tiles", PINGPONG_GATED)
def test_pre_activations_that_are_saved(tiles: Tiles, guarded: list[Tensor]) -> None:
    x, gate, up, _ = inputs(*ODD, BF16)
    found, *saved = pingpong(x, gate, up, None, "gelu_tanh", tiles, save=True)
    check_written(guarded, results=3)
    check(found, gated, x, gate, up)
    for one, weight in zip(saved, (gate, up), strict=True):
        check(one, F.linear, x, weight, times_eager=1.01)


@pytest.mark.parametrize("changed", [{"lead": 1}, {"lead": 4}, {"group": 1}, {"dependent": False}])
def test_the_order_of_the_work_is_not_in_the_answer(changed: dict[str, int]) -> None:
    x, gate, up, _ = inputs(1030, 136, 1032, BF16)
    changed_tiles = PINGPONG_GATED[0]._replace(**changed)
    assert torch.equal(gated_pingpong(x, gate, up, changed_tiles), gated_pingpong(x, gate, up))


@pytest.mark.parametrize(
    ("rows", "dim", "hidden"),
    [
        *((rows, 136, 200) for rows in (1, 63, 64, 65, 127, 128, 129, 8191)),
        # one block or two, full or not: the consumers hand over two blocks before the end
        *((1030, dim, 1032) for dim in (8, 56, 64, 72, 128, 136, 776)),
    ],
)
def test_sizes_around_a_tile(rows: int, dim: int, hidden: int, guarded: list[Tensor]) -> None:
    x, gate, up, _ = inputs(rows, dim, hidden, BF16)
    found = gated_pingpong(x, gate, up)
    check_written(guarded, results=1)
    check(found, gated, x, gate, up)


VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "three dimensions": lambda x: x.view(4, 25, -1),
    "transposed": lambda x: x.view(4, 25, -1).transpose(0, 1),
    "every second column": lambda x: x.repeat_interleave(2, dim=1)[:, ::2],
    "part of wider rows": lambda x: torch.cat([x, x], dim=1)[:, : x.shape[1]],
    "columns first": lambda x: x.t().contiguous().t(),
    "misaligned": lambda x: torch.cat([x[0, :1], x.flatten()])[1:].view(x.shape),
    "one row many times": lambda x: x[:1].expand(x.shape),
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS.keys())
def test_any_layout_gives_the_same_bits(view: Callable[[Tensor], Tensor]) -> None:
    x, gate, up, _ = inputs(100, 136, 200, BF16)
    viewed = view(x)
    copied = viewed.contiguous().clone()
    found, expected = model.gate_up(viewed, gate, up, "gelu_tanh"), model.gate_up(copied, gate, up, "gelu_tanh")
    assert found.shape == (*viewed.shape[:-1], 200)
    assert found.is_contiguous()
    assert torch.equal(found, expected)
    assert torch.equal(model.linear(viewed, gate, None, "none"), model.linear(copied, gate, None, "none"))


@pytest.mark.parametrize("name", ["part of wider rows", "columns first", "misaligned"])
def test_any_layout_of_the_weights_gives_the_same_bits(name: str) -> None:
    x, gate, up, _ = inputs(100, 136, 200, BF16)
    view = VIEWS[name]
    assert torch.equal(model.gate_up(x, view(gate), view(up), "gelu_tanh"), model.gate_up(x, gate, up, "gelu_tanh"))
    bias = gate[:, 0].contiguous()
    misaligned = torch.cat([bias[:1], bias])[1:]
    found = model.linear(x, view(gate), misaligned, "gelu_tanh")
    assert torch.equal(found, model.linear(x, gate, bias, "gelu_tanh"))


@pytest.mark.parametrize("shape", [(0, 64), (3, 0, 64)])
@pytest.mark.parametrize("recompute", [True, "hidden", False])
def test_an_empty_batch(shape: tuple[int, ...], recompute: bool | str) -> None:
    module = fused(64, 72, BF16, recompute=recompute)
    x = torch.empty(shape, device="cuda", dtype=BF16)
    assert model.gate_up(x, module.gate_proj.weight, module.up_proj.weight, "gelu_tanh").shape == (*shape[:-1], 72)
    assert (module(x).shape, module(x).dtype) == (shape, BF16)
    module.requires_grad_()
    module(x).sum().backward()
    assert all(torch.equal(one.grad, torch.zeros_like(one)) for one in module.parameters())


@pytest.mark.parametrize(("dtype", "scale"), [(BF16, 1e4), (BF16, 1e15), (F16, 30.0)])
def test_values_that_overflow_tanh(dtype: torch.dtype, scale: float) -> None:
    x, gate, up, _ = inputs(*ODD, dtype)
    x = x * scale
    found = gated_pingpong(x, gate, up)
    assert bool(found.isfinite().all())
    check(found, gated, x, gate, up)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_nan_and_infinity_are_passed_on(activation: str) -> None:
    """A NaN spoils its row or column, and an infinity becomes what eager makes of it, down to the sign."""
    x, gate, up, _ = inputs(*ODD, BF16)
    x[3, 5], x[7, 2], x[70, 2] = math.nan, math.inf, -math.inf
    gate[10, 4] = math.nan
    for found, eager in (
        (model.gate_up(x, gate, up, activation), gated(x, gate, up, activation)),
        (model.linear(x, gate, None, activation), linear(x, gate, None, activation)),
    ):
        assert 136 + 128 <= int(eager.isnan().sum()) < eager.numel() // 10
        assert 50 < int(eager.isinf().sum()) < 3 * 136
        assert torch.equal(found.isnan(), eager.isnan())
        assert torch.equal(found[eager.isinf()], eager[eager.isinf()])
        assert torch.equal(found.isinf(), eager.isinf())
        assert bool((found - eager)[eager.isfinite()].abs().max() < 0.2)


@pytest.mark.parametrize(
    ("hidden", "dtype", "reason"), [(75, BF16, "no multiple of 8 elements"), (72, F32, r"not torch\.float32")]
)
def test_what_the_kernels_cannot_do(hidden: int, dtype: torch.dtype, reason: str) -> None:
    block = GeGLU(64, hidden).to("cuda", dtype).requires_grad_(False)
    module = fused(64, hidden, dtype)
    module.load_state_dict(block.state_dict())
    x = torch.randn(77, 64, device="cuda", dtype=dtype)
    with pytest.warns(UserWarning, match=reason):
        found = module(x)
    assert torch.equal(found, block(x))
    assert torch.equal(module(x), found)  # and silent: a warning is an error here
