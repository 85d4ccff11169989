"""Bytes derived from shapes, against bytes counted by hand and the bytes that autograd keeps on this machine."""

from __future__ import annotations

from typing import Any

import pytest

from snippets.lab.capture.instruments import TorchInstruments
from snippets.training_memory.experiments.memory import VARIANTS, holds, measure_step
from snippets.training_memory.experiments.shapes import kept_by_block, kept_bytes

SMALL = {"batch": 2, "seq": 8, "dim": 16, "hidden": 32, "layers": 3}
TOKENS = 16


def test_a_block_by_hand() -> None:
    assert kept_by_block(tokens=16, dim=16, hidden=32, number=4) == {
        "norm: a mean and a deviation per token": 128,
        "gate and up: their input": 1024,
        "gelu: its input": 2048,
        "gelu times up: both factors": 4096,
        "down: its input": 2048,
        "three products: weights, cast": 0,
    }


def test_autocast_keeps_casts() -> None:
    block = kept_by_block(tokens=16, dim=16, hidden=32, number=2, autocast=True)
    assert block["gate and up: their input"] == 2 * 16 * 16 * 2
    assert block["three products: weights, cast"] == 3 * 16 * 32 * 2


def test_a_whole_forward_by_hand() -> None:
    kept = kept_bytes(**SMALL)
    assert kept["blocks: their inputs"] == 2 * 1024
    assert kept["loss: its input"] == 1024
    assert sum(kept.values()) == 2048 + 3 * (128 + 1024 + 8192) + 1024


@pytest.mark.parametrize(("every", "within"), [(0, 3), (1, 0), (2, 1), (3, 2)])
def test_recomputed_blocks_keep_their_input_only(every: int, within: int) -> None:
    kept = kept_bytes(**SMALL, recomputes=every)
    assert kept["gelu: its input"] == within * 2048
    assert kept["blocks: their inputs"] == 2048


def measured(**variant: Any) -> int:
    return sum(bytes_ for _, _, bytes_ in measure_step("cpu", SMALL, **variant)["kept"])


@pytest.mark.parametrize("name", ["fp32", "foreach", "autocast", "recomputed", "half recomputed"])
def test_autograd_keeps_what_shapes_say(name: str) -> None:
    options = {key: value for key, value in VARIANTS[name].items() if key != "fused"}
    assert measured(**VARIANTS[name]) == sum(kept_bytes(**SMALL, **options).values())


def test_a_cpu_keeps_means_in_bfloat16() -> None:
    """A GPU keeps a norm's mean and deviation in float32 always."""
    expected = sum(kept_bytes(**SMALL, dtype="bfloat16").values())
    assert measured(dtype="bfloat16") == expected - 3 * 2 * TOKENS * 2


def test_what_a_cpu_can_count(monkeypatch: pytest.MonkeyPatch) -> None:
    eager = {name: options for name, options in VARIANTS.items() if "compiles" not in options}
    monkeypatch.setattr("snippets.training_memory.experiments.memory.VARIANTS", eager)
    found = holds(TorchInstruments(), "cpu", **SMALL)["variants"]
    assert found.keys() == eager.keys()
    weights = 3 * (3 * 16 * 32 + 2 * 16) * 4
    assert found["fp32"]["parameters"] == weights
    assert found["fp32"]["gradients"] == weights
    assert found["bfloat16"]["gradients"] == weights // 2
    assert found["fp32"]["states"] == 2 * weights + 3 * 5 * 4  # and a count for each tensor
    assert "timeline" not in found["fp32"]
