"""Steps from annotations: an annotation that repeats, or iterations of annotated parts that take turns."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from statistics import median_low

from msgspec import Struct

from kinetoscope.trace.events import CpuOp, by_start
from kinetoscope.trace.process_events import CLOCK_NOISE_US, Mark, Part, Work, own_end_us
from kinetoscope.trace.text import without_numbers

FETCH = "enumerate(DataLoader)#"
COMPILED = ("Torch-Compiled Region", "## Call CompiledFxGraph", "CompiledFunction", "TorchDynamo Cache Lookup")
"""PyTorch's annotations of compiled functions, of which a model may have one for each layer."""
OPTIMIZER = "Optimizer.step#"
WHOLE_STEP = 0.95
"""An annotation with so much of the GPU time is the whole step; with less, parts that take turns with it are sought."""
PARTS = ("Optimizer.", "nccl:", "gloo:")
"""PyTorch's own annotations of parts of a step."""
MIN_PARTS = 1 / 3
"""Parts with more of the GPU time make iterations, or those from whose first to whose last nearly all is launched."""
MIN_SHARE = 0.1
"""Least part of the GPU time that steps with a second name have."""
_LAYER = re.compile("layer|block|stage|expert|micro", re.IGNORECASE)
_MAX_LAYERS = 200
_MAX_NAME = 200
_SHOWN = 4
_MAX_PERIOD = 8
_MAX_BASES, _MAX_BESIDE = 8, 32

Group = list[CpuOp]


def annotation_groups(part: Part) -> list[Group]:
    """The annotations that repeat on a thread without overlapping themselves.

    Numbers in names do not count, except where layers of a model take turns: `layer_0`, `layer_1`, `layer_0`, ...
    """
    keys: dict[str, str] = {}
    groups: dict[tuple[str, str], Group] = defaultdict(list)
    for op in part.ops:
        if op.is_annotation:
            key = keys.get(op.name) or keys.setdefault(op.name, without_numbers(op.name[:_MAX_NAME]))
            groups[op.thread, key].append(op)
    repeating = (group for group in groups.values() if len(group) > 1 and not overlaps_itself(group))
    return [each for group in repeating for each in _by_layer(group)]


def _by_layer(group: Group) -> list[Group]:
    """A group for each layer, if the annotations are of layers, whose names repeat in one order; else the group."""
    count = len({op.name for op in group}) if is_layer(group) else 0
    if not 1 < count <= len(group) // 2 or count > _MAX_LAYERS:
        return [group]
    is_in_turns = all(op.name == group[index % count].name for index, op in enumerate(group))
    return [group[index::count] for index in range(count)] if is_in_turns else [group]


def is_layer(group: Sequence[CpuOp]) -> bool:
    """Whether these are named as layers of a model."""
    return bool(_LAYER.search(group[0].name))


def overlaps_itself(group: Sequence[CpuOp]) -> bool:
    """Whether one of the spans begins before the one before it ends."""
    return any(next_.start_us < op.end_us - CLOCK_NOISE_US for op, next_ in pairwise(group))


def pattern(group: Sequence[CpuOp]) -> str:
    """The common name, with `#` for numbers that differ."""
    name = group[0].name
    return name if all(op.name == name for op in group) else without_numbers(name[:_MAX_NAME])


def is_optimizer(group: Sequence[CpuOp]) -> bool:
    """Whether these are steps of an optimizer, as PyTorch annotates them."""
    return group[0].name.startswith(OPTIMIZER)


def step_annotations(groups: Sequence[Group], work: Work) -> list[Group]:
    """The annotation with most of the GPU time, then the longest, and those beside it on its thread with a part of that
    time, such as `train` and `validate`; empty if they have no more than half of it."""

    def covered_us(group: Group) -> float:
        return sum(work.during_us(op.start_us, op.end_us) for op in group)

    steps = [(covered_us(group), group) for group in groups if not group[0].name.startswith(FETCH)]
    steps.sort(key=lambda step: (-step[0], -sum(op.duration_us for op in step[1])))
    chosen, total_us = [group for _, group in steps[:1]], sum(us for us, _ in steps[:1])
    for us, group in steps[1:_MAX_BESIDE]:
        is_beside = group[0].thread == chosen[0][0].thread and not group[0].name.startswith(PARTS)
        spans = sorted((op for each in (*chosen, group) for op in each), key=by_start)
        if us >= MIN_SHARE * work.total_us and is_beside and not overlaps_itself(spans):
            chosen.append(group)
            total_us += us
    return chosen if total_us > work.total_us / 2 else []


def starts_in(group: Group, marks: Sequence[Mark]) -> bool:
    """Whether a span of the annotation starts in one of the marks, which are in start order."""
    at = ((bisect_right(marks, op.start_us, key=by_start) - 1, op.start_us) for op in group)
    return any(index >= 0 and start < marks[index].end_us for index, start in at)


def with_steps(marks: Sequence[Mark], groups: Sequence[Group]) -> list[Mark]:
    """The marks, and a step for each span of these annotations; a step ends where such a span begins."""
    spans = [Mark(0, op.name, op.start_us, op.end_us, op) for group in groups for op in group]
    merged = sorted([*marks, *spans], key=by_start)
    ends = [*(mark.start_us for mark in merged[1:]), math.inf]
    return [
        Mark(number, f"iteration #{number}" if mark.op is None else mark.name, mark.start_us, end, mark.op)
        for number, (mark, end) in enumerate(
            (mark, min(mark.end_us, limit)) for mark, limit in zip(merged, ends, strict=True)
        )
    ]


class Iterations(Struct, frozen=True):
    """Iterations, and the names of the annotated parts, in order."""

    names: tuple[str, ...]
    marks: list[Mark]
    cores: list[Mark]
    """Each iteration from its first part to its last."""
    are_annotated: bool
    """Whether the user's own annotations of parts have much of the work."""

    @property
    def text(self) -> str:
        """What marks these steps: `iterations of 'forward', 'backward'`."""
        more = f" and {len(self.names) - _SHOWN} more" if len(self.names) > _SHOWN else ""
        return f"iterations of {', '.join(map(repr, self.names[:_SHOWN]))}{more}"


def find_iterations(part: Part, groups: Sequence[Group], work: Work) -> Iterations | None:
    """An iteration for each step of an optimizer, else for each occurrence of the part with most of the GPU time, with
    the parts that take turns with it.

    None if iterations have no more than half of the GPU time, or no optimizer and only one part.
    """
    if found := _of_optimizer(part, groups, work):
        return found
    bases = [group for group in groups if not group[0].name.startswith(FETCH)]
    bases = sorted(bases, key=work.share, reverse=True)[:_MAX_BASES]
    found_around = (_iterations(part, base, groups, work) for base in bases)
    return next((found for found in found_around if len(found.names) > 1 and found.are_annotated), None)


def _of_optimizer(part: Part, groups: Sequence[Group], work: Work) -> Iterations | None:
    """An iteration for each step of the rarest optimizer, if all others take turns with it; else of the most
    frequent."""
    optimizers = sorted((group for group in groups if is_optimizer(group)), key=len)[-_MAX_BASES:]
    names = set(map(pattern, optimizers))
    bases = [base for optimizer in optimizers if len(base := _last_in_turn(optimizer, work)) > 1]
    found = [each for base in bases if work.share((each := _iterations(part, base, groups, work)).marks) > 0.5]
    return next((each for each in found if names <= set(each.names)), found[-1] if found else None)


def _last_in_turn(optimizer: Group, work: Work) -> Group:
    """The last step of each iteration, where several optimizers of one name take turns; else all steps.

    They differ in the number of launches, which repeats from the second iteration on: the first creates their state.
    """
    counts = [work.launches(op.start_us, op.end_us) for op in optimizer]
    for period in range(1, _MAX_PERIOD + 1):
        later = counts[period:]
        if len(counts) >= 3 * period and later[period:] == later[:-period]:
            return optimizer[period - 1 :: period]
    return optimizer


def _iterations(part: Part, base: Group, groups: Sequence[Group], work: Work) -> Iterations:
    spans_of: list[list[CpuOp]] = [[op] for op in base]
    names = {id(base[0]): pattern(base)}
    for group in groups:
        if group[0].thread == base[0].thread and base[0] not in group and (turns := _turns(base, group)):
            names |= {id(op): pattern(group) for op in turns[0]}
            for spans, turn in zip(spans_of, turns, strict=True):
                spans += turn
    outermost = [_outermost(spans) for spans in spans_of]
    cores = [
        Mark(number, f"iteration #{number}", parts[0].start_us, max(op.end_us for op in parts))
        for number, parts in enumerate(outermost)
    ]
    marks = [
        Mark(core.number, core.name, start, end)
        for core, (start, end) in zip(cores, _places(part, cores, work, is_last=is_optimizer(base)), strict=True)
    ]
    own = (FETCH, *PARTS)
    parts_share = work.share(op for parts in outermost for op in parts if not op.name.startswith(own))
    are_annotated = parts_share > MIN_PARTS or (not is_optimizer(base) and work.share(cores) >= WHOLE_STEP)
    return Iterations(tuple(dict.fromkeys(names[id(op)] for op in outermost[0])), marks, cores, are_annotated)


def _outermost(spans: Iterable[CpuOp]) -> list[CpuOp]:
    outermost: list[CpuOp] = []
    for op in sorted(spans, key=lambda op: (op.start_us, -op.duration_us)):
        if not outermost or op.start_us >= outermost[-1].end_us - CLOCK_NOISE_US:
            outermost.append(op)
    return outermost


def _turns(base: Group, group: Group) -> list[Sequence[CpuOp]]:
    """The occurrences of a part in the iteration of each span of `base`; empty if the part does not take turns with it.

    From one span of `base` to the next there is one in most iterations, and seldom more: other work may use the part
    too, such as `forward` in an evaluation. An iteration of an optimizer may have several, as it accumulates gradients.
    """
    starts = [op.start_us for op in group]
    at = [bisect_left(starts, op.start_us) for op in base]
    counts = Counter(after - before for before, after in pairwise(at))
    usual = min(counts)
    if not usual or 2 * counts[usual] < len(base) - 1 or (usual > 1 and not is_optimizer(base)):
        return []
    if at[0] >= usual:  # it comes before `base`
        return [group[index - usual : index] for index in at]
    return [group[index : index + usual] for index in at]


def _places(part: Part, cores: Sequence[Mark], work: Work, *, is_last: bool) -> Iterator[tuple[float, float]]:
    """Where iterations begin and end: each from its first part to the first part of the next, or, if work comes before
    the first part, from the last part of the one before to its own last part.

    Work between two iterations that is much more than usual belongs to neither, such as an evaluation. `is_last`: the
    last part is the end of an iteration, as an optimizer's step is.
    """
    gaps = [work.launches(core.end_us, following.start_us) for core, following in pairwise(cores)]
    usual = median_low(gaps)
    most = 2 * usual + 4
    before = work.launches(part.start_us(), cores[0].start_us)
    after = work.launches(cores[-1].end_us, part.end_us())
    if usual and before and (is_last or before >= usual > after):
        ends = [part.start_us(), *(core.end_us for core in cores)]
        for count, end, core in zip([before, *gaps], ends, cores, strict=False):
            yield end if count <= most else max(end, _start_of_launches(part, core, usual, work)), core.end_us
        return
    longest = max(following.start_us - core.start_us for core, following in pairwise(cores))
    limits = [*(core.start_us for core in cores[1:]), part.end_us() + 1]
    for index, (count, core, limit) in enumerate(zip([*gaps, after], cores, limits, strict=True)):
        if count <= most and index < len(cores) - 1:
            yield core.start_us, limit
        else:
            own_limit = limit if count <= most else core.end_us
            yield core.start_us, max(core.end_us, min(limit, own_end_us(part, core.start_us, own_limit, longest)))


def _start_of_launches(part: Part, core: Mark, count: int, work: Work) -> float:
    """The start of the outermost operator around the first of the last `count` launches before an iteration's parts."""
    at = work.starts[bisect_left(work.starts, core.start_us) - count]
    around = (op for op in part.ops if not op.is_annotation and op.start_us <= at < op.end_us)
    return min((op.start_us for op in around), default=at)
