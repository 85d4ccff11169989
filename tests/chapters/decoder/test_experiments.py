"""The loops and probes of the chapter decoder on the CPU, at a tiny size."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import pytest
import torch

from snippets.decoder import model
from snippets.decoder.experiments import (
    EXPERIMENTS,
    attending,
    clocks,
    first_tokens,
    growing,
    limits,
    token_loops,
    weights,
)
from snippets.decoder.experiments.hub_generate import generate_times
from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.capture.loops import check_loop
from snippets.lab.experiment import NeedsGpu, WrongAnswer

instruments = TorchInstruments()
TEXT = {"size": "tiny", "batch": 1, "prompt": 8, "answer": 5}
BY_NAME = {one.name: one for one in EXPERIMENTS}


@pytest.fixture(autouse=True)
def _one_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of one call: these tests are about what is called, not about times."""
    monkeypatch.setattr(clocks, "BLOCK_US", 1.0)


@pytest.mark.parametrize("name", ["eager", "static", "cat_before", "mask_before", "repeat_kv_before", "padded_before"])
def test_a_loop_agrees_with_float32(name: str) -> None:
    described = BY_NAME[name]
    assert described.loop is not None
    sizes: dict[str, Any] = {**TEXT, **({"layers": 2} if "layers" in described.parameters else {})}
    error, dtype, _ = check_loop(described.loop("cpu", **sizes), "cpu")
    assert (error < 1e-5, dtype) == (True, "float32")


def test_a_loop_of_other_weights_is_wrong() -> None:
    def start(model: Any, ids: Any) -> Any:
        from snippets.decoder.loops import static

        return static(model, ids.flip(1), 5)

    model = token_loops.model_of("tiny", "cpu")
    with pytest.raises(WrongAnswer):
        check_loop(token_loops.loop_of(start, model, token_loops.prompt_of(model, 1, 8)), "cpu")


@pytest.mark.parametrize("name", [name for name in BY_NAME if name in token_loops.ON_GPU])
def test_what_needs_a_gpu_says_what_runs_here(name: str) -> None:
    described = BY_NAME[name]
    assert described.loop is not None
    with pytest.raises(NeedsGpu, match=r"decoder/\w+ runs here") as raised:
        described.loop("cpu", **described.parameters)
    similar = str(raised.value).split("decoder/")[1].split()[0]
    assert similar in BY_NAME.keys() - token_loops.ON_GPU.keys()


def test_pairs_differ_in_their_loop_alone() -> None:
    for fault in token_loops.FAULTS:
        before, after = BY_NAME[f"{fault}_before"], BY_NAME[f"{fault}_after"]
        assert (before.group, before.parameters) == (after.group, after.parameters) == (fault, before.parameters)


def test_probes_of_limits() -> None:
    rates = limits.ceilings(instruments, "cpu", mebibytes=1, matmul=8)
    assert (rates["bytes"], rates["flops"]) == ({"sum": 1 << 20, "matvec": 1 << 20, "copy": 2 << 20}, 1024)
    assert {name: len(us) for name, us in rates["samples_us"].items()} == dict.fromkeys(
        ("sum", "matvec", "copy", "matmul"), clocks.ROUNDS
    )
    chain = limits.boundary(instruments, "cpu", kernels=3, sizes="1,8")
    assert {size: (len(one["us"]), one["kernel_us"]) for size, one in chain.items()} == {"1": (9, []), "8": (9, [])}
    prompts = limits.prefill_lengths(instruments, "cpu", "tiny", "2,4")
    assert prompts["4"]["flops"] == 4 * (2 * 90112 + 4 * 2 * 64 * 2) - 3 * 2 * 64 * 256
    with pytest.raises(NeedsGpu, match="decoder/eager runs here"):
        limits.whole_models(instruments, "cpu", variants="eager", **TEXT)


def test_a_model_without_room_is_left_out() -> None:
    assert limits.left_out("8b", 16 * 10**9) == "8b needs 24 GB of memory, 16 GB are free"
    assert limits.left_out("8b", 25 * 10**9) == limits.left_out("1.1b", 15 * 10**9) == ""


def test_probes_of_growth() -> None:
    ends = growing.contexts(instruments, "cpu", "tiny", "4,8")
    assert {end: one["cache_bytes"] for end, one in ends.items()} == {"4": 2 * 4 * 128, "8": 2 * 8 * 128}
    gaps = growing.second_request(instruments, "cpu", "tiny", 8, "4", 6)
    assert (len(gaps["4"]), min(gaps["4"]) > 0) == (6, True)
    points = attending.split_keys(instruments, "cpu", "2x16")["points"]
    assert [(one["kv_heads"], one["batch"], one["tokens"], one["variant"]) for one in points] == [
        (kv_heads, 2, 16, variant) for kv_heads in (4, 8) for variant in ("shared", "repeated", "masked")
    ]


def test_probes_that_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    steps = growing.batches(instruments, "cpu", "tiny", context=8, counts="1,3", large="tiny")
    assert {batch: (one["bytes"], one["flops"]) for batch, one in steps.items()} == {
        "1": (2 * (90112 + 8 * 128), 2 * 90112 + 4 * 2 * 64 * 8),
        "3": (2 * (90112 + 3 * 8 * 128), 3 * (2 * 90112 + 4 * 2 * 64 * 8)),
    }
    assert all(len(steps["3"][name]) == clocks.ROUNDS for name in ("us", "products_us", "large_products_us"))
    calls = first_tokens.lengths(instruments, "cpu", "tiny", 1, 4, 3)
    assert {name: len(one["call_s"]) for name, one in calls.items()} == dict.fromkeys(
        ("not compiled", "cat", "cat, static shapes", "static"), 3
    )
    assert len(calls["not compiled"]["again_s"]) == 3


def test_every_length_of_an_answer_is_read_before_a_loop_is_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loop whose attention meets new lengths starts behind a whole answer; no other loop runs before."""
    lengths: list[int] = []

    def attend(q: Any, keys: Any, *_: Any) -> Any:
        lengths.append(keys.shape[2])
        return q

    monkeypatch.setattr(model, "attend", attend)
    for name in ("eager", "cat_before", "static", "repeat_kv_after"):
        described = BY_NAME[name]
        assert described.loop is not None
        lengths.clear()
        loop = described.loop("cpu", **TEXT, **({"layers": 1} if "layers" in described.parameters else {}))
        assert set(lengths) == (set() if name == "static" else {8, *range(9, 14)}), name
        loop.losses.close()


def test_a_block_of_each_step_in_turns() -> None:
    called: list[str] = []
    steps = {name: lambda name=name: called.append(name) for name in "AB"}
    samples = clocks.times_us(steps, "cpu", rounds=2)
    assert {name: len(us) for name, us in samples.items()} == {"A": 2, "B": 2}
    assert "".join(key for key, _ in itertools.groupby(called)) == "ABABA"


@pytest.mark.slow
def test_products_of_each_kind_of_weights() -> None:
    found = weights.one_product(instruments, "cpu", "128x48", 1, 2, "bf16,int8,int4,fp8")["128 x 48"]
    assert {name: one.get("bytes") for name, one in found.items()} == {
        "bf16": 128 * 48 * 4,
        "int8": 128 * 48 + 4 * 48,
        "int4": None,
        "fp8": 128 * 48 + 4,
    }
    assert found["int4"]["stopped"].startswith("NotImplementedError: Could not run 'aten::_convert_weight_to_int4pack'")
    assert found["int8"]["error"] < 1e-5 < found["int8"]["rounding"] < found["fp8"]["rounding"] < 0.06


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_kind_that_this_device_lacks_is_named() -> None:
    found = weights.quantized_models(instruments, "cpu", "tiny", 1, 4, 8, "int4")
    assert found["int4"]["stopped"].startswith("RuntimeError: ")


def test_without_transformers_the_probe_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    found = generate_times(instruments, "cpu", "tiny", 1, 4, 2, 4, 1, "dynamic")
    assert found == {"missing": "needs transformers: pip install transformers==5.17.0"}


def test_a_failure_is_its_first_line() -> None:
    assert clocks.stopped(ValueError("no\nsuch")) == {"stopped": "ValueError: no"}
    assert clocks.numbers("1,8") == [1, 8]
    kernels = [{"name": "a", "us": 1.0}, {"name": "b", "us": 2.0}, {"name": "a", "us": 3.0}]
    assert clocks.by_name(kernels) == {"a": {"count": 2, "us": 4.0}, "b": {"count": 1, "us": 2.0}}


def test_no_test_needs_a_gpu_here() -> None:
    """A replay on a CPU is the step itself."""

    def step() -> torch.Tensor:
        return torch.ones(1)

    assert clocks.recorded(step, "cpu") is step
    assert clocks.kernels_of(instruments, step, "cpu") == []
