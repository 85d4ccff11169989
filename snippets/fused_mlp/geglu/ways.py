"""The ways to do each kind of work on a GPU; tuning chooses one.

A way is called with the inputs and the tensor for the result, all contiguous.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch

from .portable_tiles import PORTABLE, PORTABLE_GATED
from .work import Sizes

FEW_ROWS = 128
"""Up to this many tokens cuBLAS's two products are tried on Hopper: it splits a
long sum among multiprocessors that would be idle."""

Way = Callable[..., object]


@functools.cache
def is_hopper(device: torch.device) -> bool:
    """Whether the kernels for Hopper run: they need compute capability 9.0, and
    a Triton that has Gluon."""
    if torch.cuda.get_device_capability(device) != (9, 0):
        return False
    try:
        from . import hopper  # noqa: F401
    except ImportError:
        return False
    return True


# --8<-- [start:ways]
def gate_up_ways(
    sizes: Sizes, activation: str, only_portable: bool = False
) -> dict[str, Way]:
    """activation(x @ gate.T) * (x @ up.T): ways to be called with (x, gate, up,
    out)."""
    found = few_ways(sizes, activation, True, False, only_portable)
    hopper = is_hopper(sizes.device) and not only_portable
    if hopper:
        from . import hopper as kernels

        found |= {
            f"ping-pong {tiles.name}": kernels.pingpong_launch(
                sizes, tiles, activation, gated=True
            )
            for tiles in kernels.PINGPONG_GATED
        }
    else:
        from . import portable

        found |= {
            f"portable {tiles.name}": portable.portable_gate_up_launch(
                sizes, tiles, activation
            )
            for tiles in portable.fitting(PORTABLE_GATED, sizes)
        }
    if not hopper or sizes.rows <= FEW_ROWS:
        from .portable import two_products

        found["two products"] = functools.partial(two_products, activation)
    return found


def gate_up_saved_ways(sizes: Sizes, activation: str) -> dict[str, Way]:
    """As `gate_up_ways`, with both pre-activations, the halves of one matrix:
    ways to be called with (x, gate, up, out, gate's, up's)."""
    from .portable import saved_products

    found: dict[str, Way] = {}
    if is_hopper(sizes.device):
        from . import hopper as kernels

        found |= {
            f"ping-pong {tiles.name}": kernels.pingpong_launch(
                sizes, tiles, activation, gated=True, save=True
            )
            for tiles in kernels.PINGPONG_GATED
        }
    found["two products"] = functools.partial(saved_products, activation)
    return found


def gradient_ways(
    sizes: Sizes, activation: str, has_hidden: bool
) -> dict[str, Way]:
    """The gradients of activation(g) * u for both from d_out @ down, and with
    `has_hidden` that product itself: ways to be called with (d_out, down, g, u,
    d_gate, d_up, hidden if requested). g and u are halves of one matrix, and so
    are their gradients."""
    from .portable import product_and_gradients

    found: dict[str, Way] = {}
    if is_hopper(sizes.device):
        from . import hopper as kernels

        found |= {
            f"ping-pong {tiles.name}": kernels.pingpong_backward_launch(
                sizes, tiles, activation, has_hidden
            )
            for tiles in kernels.PINGPONG_BACKWARD
        }
    found["product and pointwise"] = functools.partial(
        product_and_gradients, activation
    )
    return found


def linear_ways(
    sizes: Sizes,
    activation: str,
    has_bias: bool,
    only_portable: bool = False,
    before: Way | None = None,
) -> dict[str, Way]:
    """activation(x @ weight.T + bias): ways to be called with (x, weight, bias
    if there is one, out). Some ways start while `before` still runs."""
    found = few_ways(sizes, activation, False, has_bias, only_portable, before)
    if is_hopper(sizes.device) and not only_portable:
        from . import hopper as kernels

        found |= {
            f"ping-pong {tiles.name}": kernels.pingpong_launch(
                sizes, tiles, activation, has_bias=has_bias
            )
            for tiles in kernels.PINGPONG
        }
        if sizes.rows <= FEW_ROWS:
            found |= {
                f"small {tiles.name}": kernels.small_linear_launch(
                    sizes, tiles, activation, has_bias
                )
                for tiles in kernels.SMALL
            }
    else:
        from . import portable

        found |= {
            f"portable {tiles.name}": portable.portable_linear_launch(
                sizes, tiles, activation, has_bias
            )
            for tiles in portable.fitting(PORTABLE, sizes)
        }
    if activation == "none" and not has_bias:
        from .portable import product

        found["cuBLAS"] = product
    return found


# --8<-- [end:ways]


def few_ways(
    sizes: Sizes,
    activation: str,
    gated: bool,
    has_bias: bool,
    only_portable: bool,
    before: Way | None = None,
) -> dict[str, Way]:
    """Ways for 1 to 64 tokens, where reading the weights takes all the time, to
    be called with (x, the weight, the second weight if `gated`, bias if there
    is one, out)."""
    from . import few_tokens

    if not few_tokens.are_known(sizes):
        return {}
    found: dict[str, Way] = {}
    # the fastest expected way comes first: it is taken if nothing is timed
    if is_hopper(sizes.device) and not only_portable:
        from . import few_tokens_hopper

        first = few_tokens_hopper.waits_first(before)
        for tiles in few_tokens_hopper.hopper_tiles(
            sizes.rows, sizes.dim, gated, sizes.dtype.itemsize
        ):
            way = few_tokens_hopper.few_tokens_hopper_way(
                sizes, tiles, activation, gated, has_bias, first
            )
            name = f"few Hopper {tiles.name}"
            found[f"{name}, weights first" if first else name] = way
    for tiles in few_tokens.fitting(sizes, gated):
        found[f"few {tiles.name}"] = few_tokens.few_tokens_way(
            sizes, tiles, activation, gated, has_bias
        )
    return found
