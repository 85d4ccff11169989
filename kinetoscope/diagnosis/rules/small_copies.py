"""Many small copies that one copy could replace."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.missing import no_gpu_work
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.diagnosis.waste import Waste, findings, launched, runs, streams
from kinetoscope.trace.events import GpuActivity, Step
from kinetoscope.trace.queries import Direction, copy_direction

MIN_COPIES = 20
SMALL_BYTES = 65_536


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Check the kind and the bytes of memcpys."""
    return findings(RULE, facts, _look, _describe)


def _is_small(activity: GpuActivity, direction: Direction) -> bool:
    moved = activity.moved_bytes
    return (
        activity.kind == "memcpy"
        and moved is not None
        and moved <= SMALL_BYTES
        and copy_direction(activity.name) == direction
    )


def _look(step: Step) -> list[Waste]:
    directions: tuple[Direction, ...] = ("HtoD", "DtoD")
    groups = [
        [run for stream in streams(step) for run in runs(stream, partial(_is_small, direction=direction))]
        for direction in directions
    ]
    return [launched(run) for group in groups if sum(map(len, group)) >= MIN_COPIES for run in group if len(run) > 1]


def _describe(waste: Sequence[Waste], time_us: float) -> str:
    copies = count_text(sum(len(found.activities) for found in waste), "small copy")
    return f"{copies}, one after another: {duration_text(time_us)} per step with the gaps between them"


RULE = Rule(
    name="small-copies",
    title="Many small copies",
    looks_for="Memcpys from the host to the GPU, or within it, that are small and follow each other on a stream: each "
    "costs a launch and microseconds, however few its bytes. The ceiling leaves one of each row.",
    threshold=f"At least {MIN_COPIES} of one direction in a step, of at most {SMALL_BYTES // 1024} KiB; ceiling at "
    "least 1 %.",
    source="CUDA C++ Best Practices Guide, batch many small transfers into one: "
    "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/; the threshold is this book's",
    advice="Put small tensors into one buffer and copy that: collate on the CPU into pinned memory; within the GPU "
    "use `torch.cat`, `torch.stack` or `torch._foreach_copy_`.",
    find=find,
    needs=(no_gpu_work,),
    confidence="medium",
    mistaken="The tensors are needed at different times, so that they cannot be copied together.",
)
