"""The chapter mlp's model, experiments and local Liger layer, run on the CPU at small and odd sizes."""

from __future__ import annotations

import functools
import importlib.util
import logging
import sys
import types
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
from torch.nn import functional as F

from snippets.lab.capture.instruments import TorchInstruments
from snippets.mlp import model
from snippets.mlp.experiments import forwards, idling, logs, recompiling, tuning

ODD = {"batch": 3, "seq": 5, "dim": 7, "hidden": 11}
LAYERS = Path(forwards.__file__).parent / "liger_kernels" / "build" / "torch-cuda" / "layers.py"


def relative(result: torch.Tensor, expected: torch.Tensor) -> float:
    return float((result.double() - expected.double()).norm() / expected.double().norm())


@pytest.fixture
def quick_compile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Dynamo as it is, without a C++ compiler behind it."""
    monkeypatch.setattr(torch, "compile", functools.partial(torch.compile, backend="eager"))


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float64, 1e-14), (torch.float32, 1e-5), (torch.bfloat16, 1e-2)]
)
def test_the_block_agrees_with_its_reference(dtype: torch.dtype, tolerance: float) -> None:
    block = model.GeGLU(7, 11).to(dtype)
    x = torch.randn(3, 5, 7, dtype=dtype)
    weights = (block.gate_proj.weight, block.up_proj.weight, block.down_proj.weight)
    result, expected = block(x), model.geglu_reference(x, *weights)
    assert result.shape == x.shape
    assert (expected.dtype, block.down_proj.bias) == (torch.float64, None)
    assert relative(result.detach(), expected.detach()) < tolerance


def test_the_reference_by_hand() -> None:
    one = torch.ones(1, 1, 1)
    gate, up, down = (torch.full((1, 1), value) for value in (2.0, 3.0, 5.0))
    inner = torch.tensor(2.0, dtype=torch.float64)
    gelu = 0.5 * inner * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (inner + 0.044715 * inner**3)))
    assert model.geglu_reference(one, gate, up, down).item() == pytest.approx(15 * gelu.item(), rel=1e-14)


def test_the_gate_is_not_the_other_factor() -> None:
    block = model.GeGLU(7, 11)
    x = torch.randn(2, 7)
    weights = (block.up_proj.weight, block.gate_proj.weight, block.down_proj.weight)
    assert relative(block(x).detach(), model.geglu_reference(x, *weights).detach()) > 0.1


def test_the_eager_step_agrees_with_its_reference() -> None:
    subject = forwards.eager("cpu", **ODD)
    (x,) = subject.inputs()
    result = subject.step(x)
    assert (x.shape, x.dtype) == ((3, 5, 7), torch.bfloat16)
    assert (result.shape, result.requires_grad) == ((3, 5, 7), False)
    assert 0 < relative(result, subject.reference(x)) < subject.tolerance
    assert not torch.equal(x, subject.inputs()[0])


@pytest.mark.usefixtures("quick_compile")
def test_the_compiled_step_agrees_with_its_reference() -> None:
    torch._dynamo.reset()
    subject = forwards.compiled("cpu", **ODD)
    (x,) = subject.inputs()
    assert 0 < relative(subject.step(x), subject.reference(x)) < subject.tolerance


@pytest.mark.slow
@pytest.mark.usefixtures("quick_compile")
def test_new_batch_sizes_compile_each_time_or_once() -> None:
    result = recompiling.new_shapes(TorchInstruments(), "cpu", batch=8, seq=3, dim=7, hidden=11)
    assert result["batches"] == [8, 4, 2, 6]
    assert result["static"]["compiled"] == [1, 2, 3, 4]
    assert result["automatic"]["compiled"] == [1, 2, 2, 2]
    assert all(ms > 0 for mode in ("static", "automatic") for ms in result[mode]["first_call_ms"])
    assert "liger" not in result
    dynamo = result["dynamo"]
    assert dynamo["one"]["batches"] == [8, 4, 2, 6, 1]
    assert (dynamo["one"]["graphs"], dynamo["marked"]["graphs"]) == ([1, 2, 2, 2, 3], [1, 1, 1, 1])
    assert dynamo["static"]["graphs"] == dynamo["static"]["in_graphs"] == [*range(1, 9), 8, 8, 8, 8]
    assert [dynamo[name]["warnings"] for name in ("one", "marked", "static")] == [[0], [0], [1]]
    assert result["reshape"]["contiguous"]["ops"] == ["aten::reshape", "aten::view"]
    assert {"aten::clone", "aten::copy_"} < {*result["reshape"]["transposed"]["ops"]}


def test_a_logger_is_as_before_after_its_lines_were_kept() -> None:
    logger = logging.getLogger("tests.kept")
    before = logger.level, logger.propagate, logger.handlers
    with logs.logged("tests.kept", logging.DEBUG) as lines:
        logging.getLogger("tests.kept.below").debug("%d of %d", 2, 3)
    assert lines == ["2 of 3"]
    assert (logger.level, logger.propagate, logger.handlers) == before


def test_what_inductor_measured_is_read_from_its_log() -> None:
    config = "XBLOCK: {}, num_warps: {}, num_ctas: 1, num_stages: 1, maxnreg: None"
    lines = [
        "Benchmark all input configs for triton_poi_fused_0, get:",
        f"{config.format(1024, 4)}: 0.076512, nreg 32, nspill 0, #shared-mem 0",
        f"{config.format(512, 8)}: 0.937312, nreg 20, nspill 0, #shared-mem 0",
        f"Best config for triton_poi_fused_0: {config.format(1024, 4)}: 0.076512, nreg 32, nspill 0, #shared-mem 0",
        f"COORDESC: {config.format(2048, 4)}: 0.070000, nreg 40, nspill 0, #shared-mem 0",
    ]
    expected = {"1024 elements, 4 warps": 76.512, "512 elements, 8 warps": 937.312, "2048 elements, 4 warps": 70.0}
    assert tuning.benchmarked(lines) == expected


class Kernel(NamedTuple):
    name: str
    start_us: float
    duration_us: float


def replay(begin: float, cycles: int, up_us: float) -> list[Kernel]:
    """Two kernels before of 10 us each and 1 us apart, a spin of `cycles` us if any, then `up`, each 1 us later."""
    before = [Kernel("split", begin, 10), Kernel("reduce", begin + 11, 10)]
    spin = [Kernel("spin_kernel(long)", begin + 22, cycles)] if cycles else []
    return [*before, *spin, Kernel("gemm", begin + 22 + (cycles + 1 if cycles else 0), up_us)]


def test_times_after_idle_by_hand() -> None:
    kernels = [*replay(0, 0, 60), *replay(100, 0, 62), *replay(200, 7, 50), *replay(300, 7, 54), *replay(400, 0, 70)]
    replays, lengths = [("a", 0), ("a", 7), ("a", 0)], {"a": 2, "up": 1}
    assert idling.idle_times([*kernels, *replay(500, 0, 74)], replays, lengths, repeats=2) == {
        "a": [
            {"before_us": [21.0, 21.0], "gap_us": [1.0, 1.0], "up_us": [61.0, 72.0]},
            {"before_us": [21.0], "gap_us": [9.0], "up_us": [52.0]},
        ]
    }
    for wrong in (kernels, [*kernels[:6], *kernels[7:], *replay(500, 0, 74)], [*kernels, *replay(500, 3, 74)]):
        with pytest.raises(RuntimeError, match="kernels"):
            idling.idle_times(wrong, replays, lengths, repeats=2)


def test_work_by_hand() -> None:
    work = forwards.forward_work(batch=2, seq=3, dim=5, hidden=7)
    assert work.matmuls == ((6, 5, 7), (6, 5, 7), (6, 7, 5))
    assert work.flops == 3 * 2 * 6 * 5 * 7
    assert work.bytes == 2 * (6 * 5 + 5 * 7 + 5 * 7 + 7 * 5 + 6 * 5)


def test_the_local_layer_has_the_shape_that_kernels_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    """With Liger's function replaced by its definition, the layer is the block."""
    geglu = types.ModuleType("liger_kernel.ops.geglu")
    geglu.LigerGELUMulFunction = types.SimpleNamespace(apply=lambda gate, up: F.gelu(gate, approximate="tanh") * up)
    for name in ("liger_kernel", "liger_kernel.ops"):
        monkeypatch.setitem(sys.modules, name, types.ModuleType(name))
    monkeypatch.setitem(sys.modules, "liger_kernel.ops.geglu", geglu)
    spec = importlib.util.spec_from_file_location("liger_layers", LAYERS)
    assert spec is not None
    assert spec.loader is not None
    layers = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(layers)
    block, swapped = model.GeGLU(7, 11), layers.LigerGEGLUMLP()
    for name, layer in block.named_children():
        setattr(swapped, name, layer)
    x = torch.randn(3, 5, 7)
    assert "__init__" not in vars(layers.LigerGEGLUMLP), "kernels refuses a layer with an __init__ of its own"
    assert torch.equal(swapped(x), block(x))


@pytest.mark.parametrize("variable", ["HF_HUB_OFFLINE", "LOCAL_KERNELS"])
def test_the_hub_is_not_asked_when_told_not_to(variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "1")
    assert forwards.hub_reachable() is False
