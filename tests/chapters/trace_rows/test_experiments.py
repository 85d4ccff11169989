"""The steps of the page on a CPU, small: each agrees with its reference; those of a GPU say so."""

from __future__ import annotations

import pytest
import torch

from snippets.lab.capture.checking import relative_error
from snippets.lab.capture.instruments import TorchInstruments
from snippets.trace_rows import experiments, model
from snippets.trace_rows.experiments import steps

SIZES = {"rows": 6, "width": 4}


@pytest.mark.parametrize("name", ["train", "item"])
def test_a_step_agrees_with_its_reference(name: str) -> None:
    subject = steps.train("cpu", **SIZES, compiled=0) if name == "train" else steps.item("cpu", 33)
    error, _, _ = relative_error(subject, "cpu")
    assert 0 <= error < subject.tolerance


def test_a_step_of_rate_0_leaves_the_weights() -> None:
    subject = steps.train("cpu", **SIZES, compiled=0)
    (x,) = subject.inputs()
    assert subject.step(x).item() == subject.step(x).item()


def test_a_step_trains() -> None:
    layer = torch.nn.Linear(4, 4)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    x = torch.randn(8, 4)
    losses = [model.train(layer, optimizer, x).item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert not model.train(layer, optimizer, x).requires_grad


def test_a_negative_sum_is_turned() -> None:
    assert model.item(torch.tensor([-2.0, -3.0])).item() == 5.0


def test_a_full_queue_adds_one_for_each_launch() -> None:
    assert torch.equal(model.full_queue(torch.eye(3), torch.zeros(5), 7), torch.full((5,), 7.0))


def test_five_copies_add_up() -> None:
    x = torch.arange(9, dtype=torch.float16).reshape(3, 3)
    ones = torch.ones(3, 3, dtype=torch.float16)
    found = model.copies(ones, ones, x)
    assert found.dtype == torch.float32
    assert torch.equal(found, 2 + 2 * x.float() + x.t().float())


def test_the_work_of_the_steps() -> None:
    assert steps.train_work(6, 4, 0).flops == 3 * 2 * 2 * 6 * 4 * 16
    assert steps.graph_work(6, 4).flops == 2 * 2 * 6 * 4 * 16
    assert steps.full_queue_work(8, 3).flops == 2 * 2 * 8**3
    assert steps.two_streams_work(2, 8).bytes == 2 * 4 * 16
    assert steps.item_work(33).flops == 33
    assert steps.copies_work(8).bytes == 2 * 64 * 16


def test_rows_with_memory() -> None:
    rows = {row["name"]: row for row in experiments.memory(TorchInstruments(), "cpu", **SIZES)["rows"]}
    assert rows["aten::addmm"]["calls"] == 6
    assert rows["aten::addmm"]["self_bytes"] > 0
    assert min(row["self_bytes"] for row in rows.values()) < 0
    assert all(row["self_cpu_us"] <= row["cpu_us"] for row in rows.values())
