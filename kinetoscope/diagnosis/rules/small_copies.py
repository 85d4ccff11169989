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
    looks_for="Small copies from the CPU to the GPU, or within the GPU, follow each other on a stream. Each copy "
    "takes a launch and microseconds, even for a few bytes. The ceiling replaces each series of small copies by one "
    "copy.",
    threshold=f"A step has at least {MIN_COPIES} copies of one direction, of at most {SMALL_BYTES // 1024} KiB each. "
    "The ceiling is at least 1 % of the step.",
    source="CUDA C++ Best Practices Guide, batch many small transfers into one: "
    "https://docs.nvidia.com/cuda/cuda-c-best-practices-guide/; the threshold is this book's",
    advice="Put small tensors into one buffer and copy the buffer. For copies to the GPU, collate on the CPU into "
    "pinned memory. Within the GPU, use `torch.cat`, `torch.stack` or `torch._foreach_copy_`.",
    find=find,
    needs=(no_gpu_work,),
    confidence="medium",
    mistaken="The program needs the tensors at different times, so it can't copy them together.",
)
