"""Experiments of a GPU say so on a machine without one, and which experiments run there."""

from __future__ import annotations

from functools import partial

import pytest

from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.experiment import NeedsGpu, find

SAYS = {
    "only a GPU has these rows": [f"trace_rows/{name}" for name in ("two_streams", "full_queue", "copies", "graph")],
    "attention/flash": [f"attention/{name}" for name in ("lengths_64", "lengths_128", "hub_flash")],
    "matmul_add/eager_64 runs here": ["devices/after_profiling", "devices/shared"],
    "CUPTI belongs to a GPU": ["capture_faults/second_subscriber"],
    "launch-free": ["fact_check/block"],
    "GPU": ["matmul_add/long_trace"],
    "only on a GPU": ["mlp/tuned", "mlp/after_idle"],
    "mlp/eager and mlp/compiled run here": ["mlp/liger"],
    "layer_eager": ["regimes/layer_fused"],
    "training_memory/holds runs": ["training_memory/recompute", "training_memory/allocators"],
    "training_step/healthy runs here": ["training_step/clocks", "training_step/memory"],
}


@pytest.mark.filterwarnings("ignore:CUDA is not available")
@pytest.mark.parametrize(("says", "name"), [(says, name) for says, names in SAYS.items() for name in names])
def test_what_is_measured_only_on_a_gpu(says: str, name: str) -> None:
    (experiment,) = find(name)
    measure = partial(experiment.probe, TorchInstruments()) if experiment.probe else experiment.make
    assert measure is not None
    with pytest.raises(NeedsGpu, match=says):
        measure("cpu", **experiment.points[0])
