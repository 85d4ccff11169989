"""The work that recomputing repeats: on this machine, and on made-up recordings whose kernels are counted by hand."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from snippets.lab.finding import Device
from snippets.lab.finding.book import judge
from snippets.training_memory.experiments.phases import recomputing
from snippets.training_memory.findings import keeping, steps
from snippets.training_memory.model import make_model
from tests.chapters.training_memory.samples import recordings
from tests.chapters.training_memory.steps import F32, NARROW, NORM, SUM, Op, Phases, matmul, pointwise, trace
from tests.lab.sample_recordings import save_samples

LAYERS = 2
NORM_OP: Op = (NORM, [NARROW], [F32], 10.0)
SUM_OP: Op = (SUM, [NARROW, NARROW], [F32, F32], 40.0)
BLOCK = [NORM_OP, matmul("bf16", 100.0), matmul("bf16", 200.0), pointwise(20.0), matmul("bf16", 300.0), SUM_OP]
"""670 us. Recomputed: 330 us, without the last product and the sum."""
STEP: Phases = {
    "forward": BLOCK * LAYERS,
    "loss": [pointwise(40.0)],
    "backward": [matmul("bf16", 2530.0)],
    "optimizer": [pointwise(90.0)],
}
"""4,000 us."""


def device(root: Path, adds: float = 0.165, launching: float = 1.0) -> Device:
    """The samples with this step under autocast, and a larger batch at which recomputing adds a share of the step.

    There launching the step that recomputes takes `launching` times as long as in the samples.
    """
    found = []
    for recording, traced in recordings():
        data: Any = msgspec.json.decode(msgspec.json.encode(recording.data))
        if recording.experiment == "recompute":
            for kind in ("interleaved", "from_python"):
                kept = data["128"]["autocast"]["times"][kind]
                data["128"]["recomputed"]["times"][kind] = [(1 + adds) * us for us in kept]
            launches = data["128"]["recomputed"]["times"]
            launches["enqueue"] = [launching * us for us in launches["enqueue"]]
        is_step = recording.experiment == "autocast"
        found.append((msgspec.structs.replace(recording, data=data), trace(STEP) if is_step else traced))
    return save_samples(root, found)


def test_the_kernels_that_run_again_by_hand(tmp_path: Path) -> None:
    samples = device(tmp_path)
    assert keeping.FIGURES["forward_time_share"](samples).number == pytest.approx(100 * 2 * 670 / 4000)
    assert keeping.recomputed_time_share(samples).number == pytest.approx(100 * 2 * 330 / 4000)
    again = keeping.recomputed_work(steps.run_of(samples, "autocast").step)
    assert [activity.duration_us for activity in again] == [10.0, 100.0, 200.0, 20.0] * LAYERS
    assert keeping.recomputing_adds(samples).number == pytest.approx(16.5)
    assert keeping.FIGURES["recomputing_from_python"](samples).number == pytest.approx(1.165)
    assert keeping.added_as_recomputed(samples).number == pytest.approx(1.0)


@pytest.mark.parametrize(("adds", "expected"), [(0.165, "holds"), (0.335, "differs"), (0.14, "differs")])
def test_a_whole_second_forward_would_add_more(tmp_path: Path, adds: float, expected: str) -> None:
    verdict = judge(keeping.added_as_recomputed, "training_memory", device(tmp_path, adds))
    assert (verdict.status, verdict.reason) == (expected, "")


def test_launches_that_take_longer_than_the_kernels_tell_nothing_about_them(tmp_path: Path) -> None:
    samples = device(tmp_path)
    kernels = keeping.kernels_with_recomputing(samples)
    assert kernels.number == pytest.approx(1.165 * 16_004)
    assert keeping.launching_again(samples).number < kernels.number
    slow = device(tmp_path / "slow", adds=0.335, launching=4.0)
    verdict = judge(keeping.added_as_recomputed, "training_memory", slow)
    assert (verdict.status, "so the GPU waits" in verdict.reason) == ("inconclusive", True)


class Counted(TorchDispatchMode):
    """Counts operators that run, below autograd: a recomputation that stops leaves out the one that it stops at."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("autocast", [False, True])
def test_backward_runs_no_blocks_last_product_again(autocast: bool) -> None:
    found = []
    for recomputes in (False, True):
        model = make_model("cpu", dim=8, hidden=16, layers=LAYERS)
        forward = recomputing(model) if recomputes else model
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            loss = forward(torch.ones(1, 2, 8)).float().sum()
        with Counted() as counted:
            loss.backward()
        found.append(counted.calls)
    kept, again = found
    assert kept["mm"] == LAYERS * 6
    added = {name: again[name] - kept[name] for name in ("mm", "gelu", "mul", "native_layer_norm", "add")}
    assert added == {"mm": 2 * LAYERS, "gelu": LAYERS, "mul": LAYERS, "native_layer_norm": LAYERS, "add": 0}
