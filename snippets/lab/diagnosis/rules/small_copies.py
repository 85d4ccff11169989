"""Many small copies where one would do."""

from __future__ import annotations

from collections.abc import Sequence

from snippets.lab.diagnosis.facts import Facts
from snippets.lab.diagnosis.rule import CannotTell, Finding, Rule
from snippets.lab.diagnosis.waste import Waste, count, findings, launched, no_gpu_work, runs, streams
from snippets.lab.trace.events import GpuActivity, Step

MIN_COPIES = 20
SMALL_BYTES = 65_536


def check(facts: Facts) -> Sequence[Finding] | CannotTell:
    """By the kind and the bytes of memcpys."""
    return no_gpu_work(RULE, facts) or findings(RULE, facts, _look, _describe)


def _direction(activity: GpuActivity) -> str:
    """`HtoD` or `DtoD` for a small memcpy, else empty."""
    if activity.kind != "memcpy" or activity.moved_bytes is None or activity.moved_bytes > SMALL_BYTES:
        return ""
    return next((way for way in ("HtoD", "DtoD") if way in activity.name), "")


def _is_upload(activity: GpuActivity) -> bool:
    return _direction(activity) == "HtoD"


def _is_inside(activity: GpuActivity) -> bool:
    return _direction(activity) == "DtoD"


def _look(step: Step) -> list[Waste]:
    groups = [
        [run for stream in streams(step) for run in runs(stream, belongs)] for belongs in (_is_upload, _is_inside)
    ]
    return [launched(run) for group in groups if sum(map(len, group)) >= MIN_COPIES for run in group if len(run) > 1]


def _describe(waste: Sequence[Waste], time_us: float) -> str:
    copies = count(sum(len(found.activities) for found in waste), "small copy")
    return f"{copies}, one after another: {time_us:,.1f} us per step with the gaps between them"


RULE = Rule(
    name="small-copies",
    title="Many small copies",
    looks_for=(
        "Memcpys from the host to the GPU, or within it, that are small and follow each other on a stream: each "
        "costs a "
        "launch and microseconds, however few its bytes. The ceiling leaves one of each row."
    ),
    threshold=(
        f"At least {MIN_COPIES} of one direction in a step, of at most {SMALL_BYTES // 1024} KiB; ceiling at least 1 %."
    ),
    source=(
        "CUDA C++ Best Practices Guide, batch many small transfers into one: "
        "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/; the threshold is this book's"
    ),
    advice=(
        "Put small tensors into one buffer and copy that: collate on the CPU into pinned memory; within the GPU use "
        "`torch.cat`, `torch.stack` or `torch._foreach_copy_`."
    ),
    check=check,
)
