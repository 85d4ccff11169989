"""An experiment's requirements on the GPU before it measures."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from snippets.fused_mlp.experiments.forwards import forward, training
from snippets.fused_mlp.experiments.halves import gate_up, linear_activation
from snippets.fused_mlp.geglu.support import unsupported_device
from snippets.lab.experiment import NeedsGpu, Subject

SIZES = {"tokens": 16, "dim": 32, "hidden": 64}


@pytest.fixture
def turing(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A GPU on which no kernel runs."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *_: (7, 5))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda *_: "Tesla T4")
    monkeypatch.setattr(torch.nn.Module, "to", lambda module, *_, **__: module)
    rand = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *shape, device, dtype: rand(*shape, dtype=dtype))
    unsupported_device.cache_clear()
    yield
    unsupported_device.cache_clear()


@pytest.mark.usefixtures("turing")
@pytest.mark.parametrize(
    ("make", "variant"), [(forward, "fused"), (forward, "kernelized"), (gate_up, "fused"), (training, "fused")]
)
def test_a_fallback_is_not_recorded_as_our_kernels(make: object, variant: str) -> None:
    assert callable(make)
    expected = r"do not run here: they need compute capability 8\.0, and this is Tesla T4$"
    with pytest.raises(NeedsGpu, match=expected):
        make("cuda", variant, **SIZES)


@pytest.mark.usefixtures("turing")
def test_what_only_hopper_runs_is_not_recorded_elsewhere() -> None:
    with pytest.raises(NeedsGpu, match=r"written for Hopper \(compute capability 9.0\), and this is Tesla T4$"):
        gate_up("cuda", "stacked", **SIZES)


@pytest.mark.parametrize("variant", ["fused", "addmm"])
def test_our_kernels_need_a_gpu(variant: str) -> None:
    with pytest.raises(NeedsGpu, match="which have no CPU backend"):
        linear_activation("cpu", variant, tokens=16, dim=32, outputs=64)


def test_plain_pytorch_runs_anywhere() -> None:
    subject = forward("cpu", "eager", **SIZES)
    assert isinstance(subject, Subject)
    assert subject.step(*subject.inputs()).shape == (16, 32)
