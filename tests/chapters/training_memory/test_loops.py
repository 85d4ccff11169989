"""The loops and the probe of the first page, small on a CPU."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice

import pytest
import torch
from torch import nn

from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.capture.loops import check_loop, open_loop
from snippets.lab.experiment import WrongAnswer, find
from snippets.training_memory import model
from snippets.training_memory.experiments import precision

SMALL = {"batch": 4, "seq": 32, "dim": 64, "hidden": 256, "layers": 2}
EAGER = [name for name in precision.VARIANTS if not name.endswith("_compiled")]


def test_the_variants_are_those_of_the_model() -> None:
    assert tuple(model.VARIANTS) == precision.VARIANTS
    assert {name for variant in model.VARIANTS.values() for name in [variant.optimizer]} == set(model.OPTIMIZERS)


@pytest.mark.parametrize("name", EAGER)
def test_the_first_losses_are_those_of_float32(name: str) -> None:
    (experiment,) = find(f"training_memory/{name}")
    with open_loop(experiment.at(**SMALL), "cpu") as loop:
        error, dtype, _ = check_loop(loop, "cpu")
    assert dtype == "float32"
    assert (error == 0) == (name in ("fp32", "tf32"))


class Forgetful(torch.optim.AdamW):
    """An optimizer that updates nothing."""

    def step(self, closure: object = None) -> None:
        """Nothing."""


class Backwards(torch.optim.AdamW):
    """An optimizer that climbs."""

    def __init__(self, parameters: Iterator[nn.Parameter], lr: float, **options: bool) -> None:
        super().__init__(parameters, lr, maximize=True, **options)


@pytest.mark.parametrize("wrong", [Forgetful, Backwards])
def test_a_wrong_update_is_a_wrong_answer(monkeypatch: pytest.MonkeyPatch, wrong: type) -> None:
    (experiment,) = find("training_memory/fp32")
    with open_loop(experiment.at(**SMALL), "cpu") as loop:
        expected = loop.reference(3)
    monkeypatch.setattr(torch.optim, "AdamW", wrong)
    with open_loop(experiment.at(**SMALL), "cpu") as loop:
        compared = replace(loop, reference=lambda count: expected[:count])
        with pytest.raises(WrongAnswer, match="at most 5e-03"):
            check_loop(compared, "cpu")


def test_a_loop_keeps_its_precision_to_itself() -> None:
    outside = torch.get_float32_matmul_precision()
    seen: list[str] = []
    parts = nn.Identity(), None

    def batches() -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        seen.append(torch.get_float32_matmul_precision())
        yield torch.zeros(1), torch.zeros(1)

    with pytest.raises(RuntimeError, match="does not require grad"):
        next(model.train(model.VARIANTS["tf32"], parts, batches()))
    with model.matmul_precision("high"):
        seen.append(torch.get_float32_matmul_precision())
    assert seen == [outside, "high"]
    assert torch.get_float32_matmul_precision() == outside != "high"


def test_batches_repeat_after_four_and_their_targets_are_the_same_map() -> None:
    pairs = list(islice(model.make_batches("cpu", 2, 3, 4), 5))
    assert pairs[4][0] is pairs[0][0]
    assert not torch.equal(pairs[1][0], pairs[0][0])
    maps = []
    for seed in (1, 2):
        x, target = next(model.draw_batches("cpu", 8, 8, 4, torch.float32, seed))
        maps.append(torch.linalg.lstsq(x.flatten(0, 1), (target - x).flatten(0, 1)).solution)
    torch.testing.assert_close(*maps)


def test_work_is_three_matmuls_a_block_and_each_twice_again() -> None:
    work = precision.step_work(**SMALL)
    weights = 2 * 3 * 64 * 256
    assert work.flops == 3 * 2 * 128 * weights
    assert work.bytes == 32 * (weights + 2 * 2 * 64)


def test_bf16_loses_updates_that_float32_keeps() -> None:
    sizes = {"batch": 2, "seq": 16, "dim": 32, "hidden": 64, "layers": 2}
    found = precision.accuracy(TorchInstruments(), "cpu", rates="1e-3 1e-5", steps=4, every=2, **sizes)
    assert list(found) == ["1e-3", "1e-5"]
    for by_variant in found.values():
        assert {len(each["losses"]) for each in by_variant.values()} == {4}
        assert by_variant["fp32"]["at"] == [0, 2, 3]
        assert max(by_variant["fp32"]["matrices"]) < 0.01
        assert by_variant["bfloat16"]["norms"] == [1, 1, 1]
        assert (by_variant["fp32"]["norms_moved"], by_variant["bfloat16"]["norms_moved"]) == (1, 0)
        assert len(by_variant["bfloat16"]["evaluated"]) == 8
    assert found["1e-5"]["bfloat16"]["matrices"][0] > found["1e-3"]["bfloat16"]["matrices"][0]


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_the_model_compiles_to_one_graph() -> None:
    from torch._dynamo.testing import CompileCounter

    torch._dynamo.reset()
    graphs = CompileCounter()
    net = model.make_model("cpu", dim=8, hidden=16, layers=4)
    net.compile(backend=graphs)
    net(torch.zeros(1, 2, 8)).sum().backward()
    torch._dynamo.reset()
    assert graphs.frame_count == 1
