"""What an experiment asks of the GPU before it measures."""

from __future__ import annotations

import pytest
import torch

from snippets.fused_mlp.experiments import forward, gate_up, linear_activation, training
from snippets.lab.experiment import NeedsGpu, Subject

SIZES = {"tokens": 16, "dim": 32, "hidden": 64}


@pytest.mark.parametrize(
    ("make", "variant"),
    [(forward, "fused"), (forward, "kernelized"), (gate_up, "fused"), (gate_up, "tuned"), (training, "fused")],
)
def test_a_fallback_is_not_recorded_as_our_kernels(make: object, variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: (8, 0))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA A100-SXM4-80GB")
    monkeypatch.setattr(torch.nn.Module, "to", lambda module, *_, **__: module)
    assert callable(make)
    rand = torch.randn
    monkeypatch.setattr(torch, "randn", lambda *shape, device, dtype: rand(*shape, dtype=dtype))
    with pytest.raises(NeedsGpu, match=r"written for Hopper \(compute capability 9.0\), and this is NVIDIA A100-SXM4"):
        make("cuda", variant, **SIZES)


@pytest.mark.parametrize("variant", ["fused", "addmm"])
def test_our_kernels_need_a_gpu(variant: str) -> None:
    with pytest.raises(NeedsGpu, match="which have no CPU backend"):
        linear_activation("cpu", variant, tokens=16, dim=32, outputs=64)


def test_plain_pytorch_runs_anywhere() -> None:
    subject = forward("cpu", "eager", **SIZES)
    assert isinstance(subject, Subject)
    assert subject.step(*subject.inputs()).shape == (16, 32)
