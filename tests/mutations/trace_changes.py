"""Possible changes of a trace: each has a name and a kind, and alters every step alike unless it names a step."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import msgspec

from kinetoscope.trace.communication import is_collective
from kinetoscope.trace.events import CpuOp, CudaCall, GpuActivity, Span, Step, Trace, by_start

replace = msgspec.structs.replace
FACTORS = (2.0, 0.5, 10.0, 0.1)
MANY = 40
"""In a step with more activities than this, the first and the last of each name stand for the others."""
FINE_FACTORS = tuple(1.15**exponent for exponent in (*range(-14, 0), *range(1, 15)))
"""Up to seven times in either direction: some bands are narrow, and some claims differ by such a factor."""
OTHER = "something_else"
"""A name that no recording has."""
COMMON = ("aten::bmm", "aten::fill_", "aten::add", "aten::copy_")
"""Operators that claims deny."""
Kind = Literal["time", "structure", "either"]
Change = Callable[[Trace], Trace]
Named = tuple[str, Kind, Change]
OfActivity = Callable[[GpuActivity], Sequence[GpuActivity]]
OfOp = Callable[[CpuOp], Sequence[CpuOp]]
OfCall = Callable[[CudaCall], Sequence[CudaCall]]


def generic(trace: Trace) -> Iterator[Named]:
    """Changes of a trace that every claim tries: those of each name before those of each piece of GPU work, of which a
    step may have a thousand."""
    for factor in FACTORS:
        yield f"{factor:g} times as long: all GPU work", "time", activities(None, _longer(factor))
    yield "later: all GPU work", "time", activities(None, _later)
    yield "back to back: all GPU work", "time", _back_to_back
    yield "as long as the first of its name: all GPU work", "time", _evened
    yield "dropped: all GPU work", "structure", _dropped_from(0)
    yield "dropped: all copies", "structure", activities(None, _without_copies)
    yield from _of_spans(trace)
    for name in _names(trace.cpu_ops):
        for factor in FACTORS:
            yield f"{factor:g} times as long: op {name}", "time", ops(name, _longer(factor))
        yield f"later: op {name}", "time", ops(name, _later)
        for what, of_op in OP_CHANGES.items():
            yield f"{what}: op {name}", "structure", ops(name, of_op)
        yield f"launched by op {name}: first GPU work", "structure", _by_op(name)
    for name in _names(trace.calls):
        for factor in FACTORS:
            yield f"{factor:g} times as long: call {name}", "time", calls(name, _longer(factor))
        yield f"later: call {name}", "time", calls(name, _later)
        for what, of_call in CALL_CHANGES.items():
            yield f"{what}: call {name}", "structure", calls(name, of_call)
    for index in _places(trace):
        for factor in FACTORS:
            yield f"{factor:g} times as long: GPU work {index}", "time", activities(index, _longer(factor))
        yield f"later: GPU work from {index}", "time", _later_from(index)
        for what, of_activity in ACTIVITY_CHANGES.items():
            yield f"{what}: GPU work {index}", "structure", activities(index, of_activity)


def directed(trace: Trace, names: Sequence[str], numbers: Sequence[int]) -> Iterator[Named]:
    """Changes toward the names and numbers of a claim; changes of single steps; changes in small steps."""
    places, op_names, call_names = _places(trace), _names(trace.cpu_ops), _names(trace.calls)
    for call in call_names:
        yield f"first of all: call {call}", "structure", _first_of_all(call)
    for op in op_names:
        for call in call_names:
            yield f"at the start of op {op}: call {call}", "structure", _call_in_op(call, op)
    for name in dict.fromkeys((*names, *COMMON)):
        for index in places:
            yield f"named {name}: GPU work {index}", "structure", activities(index, _named(name))
            yield f"named …_{name}: GPU work {index}", "structure", activities(index, _ending(name))
        for op in op_names:
            yield f"named {name}: op {op}", "structure", ops(op, _named(name))
        for call in call_names:
            yield f"named {name}: call {call}", "structure", calls(call, _named(name))
            yield f"after a {name}: call {call}", "structure", calls(call, _after(name))
    for number in numbers:
        yield f"with {number} in its template: all GPU work", "structure", activities(None, _template(number))
        for field in ("registers", "shared_memory_bytes", "moved_bytes"):
            for index in places:
                yield f"{number} {field}: GPU work {index}", "structure", activities(index, _exactly(field, number))
    for index in places:
        yield f"dropped: GPU work from {index}", "structure", _dropped_from(index)
        for factor in FINE_FACTORS:
            yield f"{factor:.2f} times as long: GPU work {index}", "time", activities(index, _longer(factor))
        for call in call_names:
            yield f"during call {call}: GPU work {index}", "time", _during(call, index)
    yield from _of_steps(trace)


def _places(trace: Trace) -> Sequence[int]:
    """Places in the GPU work of a step: all, or of many the first and the last of each name. Who finds a flip among
    fewer has found one among all."""
    names = [activity.name for activity in trace.steps[0].activities] if trace.steps else []
    if len(names) <= MANY:
        return range(len(names))
    last = {name: place for place, name in enumerate(names)}
    first = {name: place for place, name in reversed([*enumerate(names)])}
    return sorted({*first.values(), *last.values()})


def _names(spans: Sequence[Span]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(span.name for span in spans))


# -- what happens to one activity, op or call


def _longer(factor: float) -> Callable[[Any], Sequence[Any]]:
    return lambda span: (replace(span, duration_us=factor * span.duration_us),)


def _later(span: Any) -> Sequence[Any]:
    return (replace(span, start_us=span.start_us + 1000),)


def _without_copies(activity: GpuActivity) -> Sequence[GpuActivity]:
    return () if activity.kind == "memcpy" else (activity,)


def _named(name: str) -> Callable[[Any], Sequence[Any]]:
    return lambda span: (replace(span, name=name),)


def _ending(name: str) -> Callable[[Any], Sequence[Any]]:
    return lambda span: (replace(span, name=f"{span.name}_{name}"),)


def _soon(span: Any, us: float = 0.001) -> Any:
    return replace(span, start_us=round(span.start_us + us, 3))


def _after(name: str) -> OfCall:
    return lambda call: (replace(_soon(call, -0.001), name=name, correlation=0), call)


def _template(number: int) -> OfActivity:
    return lambda activity: (replace(activity, name=re.sub(r"<\d+", f"<{number}", activity.name)),)


def _exactly(field: str, value: float) -> OfActivity:
    return lambda activity: (replace(activity, **{field: value}),)


def _followed(kind: Literal["kernel", "memcpy", "memset"] | None, name: str = "", **changed: Any) -> OfActivity:
    """The activity, and another one after it with a launch of its own."""

    def followed(activity: GpuActivity) -> Sequence[GpuActivity]:
        launch = activity.launch and _soon(activity.launch)
        new = replace(activity, start_us=activity.end_us, launch=launch, kind=kind or activity.kind, **changed)
        return activity, replace(new, name=name or activity.name)

    return followed


def _scaled(name: str, factor: float) -> OfActivity:
    """The activity with another number where it has one, or another first extent."""

    def scaled(activity: GpuActivity) -> Sequence[GpuActivity]:
        old: Any = getattr(activity, name)
        if isinstance(old, tuple):
            return (replace(activity, **{name: (max(1, int(factor * old[0])), *old[1:])}),)
        return (activity if old is None else replace(activity, **{name: type(old)(factor * old)}),)

    return scaled


def _other_launch(**changed: Any) -> OfActivity:
    return lambda activity: (replace(activity, launch=activity.launch and replace(activity.launch, **changed)),)


LAUNCH_FIELDS = ("grid", "block", "registers", "shared_memory_bytes", "moved_bytes", "occupancy_percent")
ACTIVITY_CHANGES: Mapping[str, OfActivity] = {
    "dropped": lambda activity: (),
    "renamed": _named(OTHER),
    "twice": _followed(None),
    "before a memcpy": _followed("memcpy", "Memcpy DtoD (Device -> Device)", moved_bytes=1000),
    "before a memset": _followed("memset", "Memset (Device)", moved_bytes=4),
    "before a kernel": _followed("kernel", OTHER),
    **{f"{factor:g} {name}": _scaled(name, factor) for factor in (2.0, 0.5) for name in LAUNCH_FIELDS},
    "no occupancy": _exactly("occupancy_percent", 0.0),
    "an occupancy of 50 %": _exactly("occupancy_percent", 50.0),
    "1000 bytes of shared memory": _exactly("shared_memory_bytes", 1000),
    "another launch": _other_launch(name=OTHER),
    "a driver's launch": _other_launch(is_driver=True),
    "no op": lambda activity: (replace(activity, op=None),),
    "another stream": lambda activity: (replace(activity, stream=activity.stream + 1),),
}
OP_CHANGES: Mapping[str, OfOp] = {
    "dropped": lambda op: (),
    "renamed": _named(OTHER),
    "twice": lambda op: (op, _soon(op)),
    "other types": lambda op: (replace(op, input_types=("double",) * len(op.input_types)),),
    "other shapes": lambda op: (replace(op, input_shapes=_doubled(op.input_shapes)),),
    "other strides": lambda op: (replace(op, input_strides=tuple(strides[::-1] for strides in op.input_strides)),),
}
CALL_CHANGES: Mapping[str, OfCall] = {
    "dropped": lambda call: (),
    "renamed": _named(OTHER),
    "twice": lambda call: (call, _soon(call)),
}


def _doubled(shapes: tuple[tuple[int, ...], ...]) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(2 * size for size in shape) for shape in shapes)


# -- what that does to a trace


def activities(index: int | None, change: OfActivity) -> Change:
    """Change the activity with this index in its step, or every one; launches of their own join the calls."""

    def changed(trace: Trace) -> Trace:
        new, launches = dict[int, Sequence[GpuActivity]](), dict[int, list[CudaCall]]()
        for place, step in enumerate(trace.steps):
            for activity in step.activities if index is None else step.activities[index : index + 1]:
                new[id(activity)] = change(activity)
                own = [each.launch for each in new[id(activity)][1:] if each.launch]
                launches.setdefault(place, []).extend(own)
        return _with_calls(_with_activities(trace, new), launches)

    return changed


def _with_activities(trace: Trace, new: Mapping[int, Sequence[GpuActivity]]) -> Trace:
    def all_of(old: tuple[GpuActivity, ...]) -> tuple[GpuActivity, ...]:
        return tuple(each for activity in old for each in new.get(id(activity), (activity,)))

    steps = tuple(replace(step, activities=all_of(step.activities)) for step in trace.steps)
    return replace(trace, steps=steps, activities=all_of(trace.activities))


def _with_calls(trace: Trace, more: Mapping[int, list[CudaCall]]) -> Trace:
    def merged(old: tuple[CudaCall, ...], new: list[CudaCall]) -> tuple[CudaCall, ...]:
        return tuple(sorted([*old, *new], key=by_start)) if new else old

    steps = tuple(replace(step, calls=merged(step.calls, more.get(n, []))) for n, step in enumerate(trace.steps))
    return replace(trace, steps=steps, calls=merged(trace.calls, [call for new in more.values() for call in new]))


def _later_from(index: int) -> Change:
    """A hole in each step, before the activity with this index."""
    return lambda trace: _with_activities(trace, {id(a): _later(a) for s in trace.steps for a in s.activities[index:]})


def _back_to_back(trace: Trace) -> Trace:
    """In each step, work begins when the work before it ends."""
    new = dict[int, Sequence[GpuActivity]]()
    for step in trace.steps:
        end_us = step.activities[0].start_us if step.activities else 0.0
        for activity in step.activities:
            new[id(activity)] = (replace(activity, start_us=end_us),)
            end_us += activity.duration_us
    return _with_activities(trace, new)


def _evened(trace: Trace) -> Trace:
    """All work of a name takes as long as the first."""
    first = {activity.name: activity.duration_us for activity in reversed(trace.activities)}
    return activities(None, lambda activity: (replace(activity, duration_us=first[activity.name]),))(trace)


def only_communication(trace: Trace) -> Trace:
    """Collectives have nothing beside them."""
    return activities(None, lambda activity: (activity,) if is_collective(activity) else ())(trace)


def mirrored(trace: Trace, last: int) -> Trace:
    """The trace of a rank as that of the rank in its place when all ranks are in reverse order."""

    def other(rank: int | None) -> int | None:
        return None if rank is None else last - rank

    def members(ranks: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(last - rank for rank in reversed(ranks))

    def renumbered(activity: GpuActivity) -> Sequence[GpuActivity]:
        if (own := activity.collective) is None:
            return (activity,)
        own = replace(own, ranks=members(own.ranks), peer=other(own.peer), rank=other(own.rank))
        return (replace(activity, collective=own),)

    groups = tuple((name, members(ranks)) for name, ranks in trace.groups)
    return replace(activities(None, renumbered)(trace), rank=other(trace.rank), groups=groups)


def _dropped_from(index: int) -> Change:
    return lambda trace: _with_activities(trace, {id(a): () for s in trace.steps for a in s.activities[index:]})


def _during(call: str, index: int) -> Change:
    """An activity runs as long as the last call of a name."""

    def changed(trace: Trace) -> Trace:
        last = [each for each in trace.calls if each.name == call][-1]
        moved = {"start_us": last.start_us, "duration_us": last.duration_us}
        return activities(index, lambda activity: (replace(activity, **moved),))(trace)

    return changed


def _by_op(name: str) -> Change:
    """The first activity of each step was launched by the first op of a name."""

    def changed(trace: Trace) -> Trace:
        new = dict[int, Sequence[GpuActivity]]()
        for step in trace.steps:
            op = next((op for op in step.ops if op.name == name), None)
            new |= {id(activity): (replace(activity, op=op),) for activity in step.activities[:1] if op}
        return _with_activities(trace, new)

    return changed


def ops(name: str, change: OfOp) -> Change:
    """Change the ops of a name, wherever the trace refers to them. Their callers take the place of dropped ones."""

    def changed(trace: Trace) -> Trace:
        new = dict[int, tuple[CpuOp, ...]]()

        def of(op: CpuOp | None) -> CpuOp | None:
            while op is not None and id(op) in new and not new[id(op)]:
                op = op.parent
            return new[id(op)][0] if op is not None and id(op) in new else op

        for op in trace.cpu_ops:  # callers come first
            parent = of(op.parent)
            own = op if parent is op.parent else replace(op, parent=parent)
            if own is not op or op.name == name:
                new[id(op)] = tuple(change(own)) if op.name == name else (own,)

        def all_of(old: tuple[CpuOp, ...]) -> tuple[CpuOp, ...]:
            return tuple(each for op in old for each in new.get(id(op), (op,)))

        steps = tuple(replace(step, ops=all_of(step.ops)) for step in trace.steps)
        moved = {id(a): (replace(a, op=of(a.op)),) for step in trace.steps for a in step.activities}
        return _with_activities(replace(trace, cpu_ops=all_of(trace.cpu_ops), steps=steps), moved)

    return changed


def calls(name: str, change: OfCall) -> Change:
    """Change the calls of a name, also where they are launches; the work of a dropped launch keeps it."""

    def changed(trace: Trace) -> Trace:
        def all_of(old: tuple[CudaCall, ...]) -> tuple[CudaCall, ...]:
            return tuple(each for call in old for each in (change(call) if call.name == name else (call,)))

        moved = {
            id(activity): (replace(activity, launch=change(activity.launch)[-1]),)
            for step in trace.steps
            for activity in step.activities
            if activity.launch and activity.launch.name == name and change(activity.launch)
        }
        steps = tuple(replace(step, calls=all_of(step.calls)) for step in trace.steps)
        return _with_activities(replace(trace, calls=all_of(trace.calls), steps=steps), moved)

    return changed


def _call_in_op(call: str, op: str) -> Change:
    """The calls of a name begin with the first op of a name in their step."""

    def changed(trace: Trace) -> Trace:
        def moved(step: Step) -> Step:
            start = next((each.start_us for each in step.ops if each.name == op), None)
            if start is None:
                return step
            began = (replace(each, start_us=start) if each.name == call else each for each in step.calls)
            return replace(step, calls=tuple(sorted(began, key=by_start)))

        return replace(trace, steps=tuple(map(moved, trace.steps)))

    return changed


def _first_of_all(name: str) -> Change:
    """The last call of a name begins with the first step."""

    def changed(trace: Trace) -> Trace:
        last = [call for call in trace.calls if call.name == name][-1]
        first = replace(last, start_us=trace.steps[0].start_us)
        return replace(trace, calls=tuple(sorted((c if c is not last else first for c in trace.calls), key=by_start)))

    return changed


# -- steps and the profiler's own spans


def _of_spans(trace: Trace) -> Iterator[Named]:
    yield "renamed: steps", "structure", lambda t: replace(t, steps=tuple(replace(s, name=OTHER) for s in t.steps))
    yield "dropped: last step", "structure", lambda t: replace(t, steps=t.steps[:-1])
    yield "dropped: overheads", "structure", lambda t: replace(t, overheads=())
    yield "twice: overheads", "structure", lambda t: replace(t, overheads=t.overheads + t.overheads)
    yield "buffer requests: in every step", "structure", _with_requests
    for index in range(len(trace.steps)):
        yield f"0.01 times as long: step {index}", "time", _shortened(index)


def _shortened(index: int) -> Change:
    """A step that ends early; the work that it launched stays."""

    def changed(trace: Trace) -> Trace:
        steps = list(trace.steps)
        step = steps[index]
        steps[index] = replace(step, end_us=step.start_us + 0.01 * (step.end_us - step.start_us))
        return replace(trace, steps=tuple(steps))

    return changed


def _with_requests(trace: Trace) -> Trace:
    spans = (Span("Activity Buffer Request", step.start_us, step.end_us - step.start_us) for step in trace.steps)
    return replace(trace, overheads=(*trace.overheads, *spans))


def _of_steps(trace: Trace) -> Iterator[Named]:
    count = len(trace.steps)
    for index in range(min(count, 3)):
        yield f"every step as step {index}", "either", lambda t, i=index: replace(t, steps=(t.steps[i],) * count)
    if count > 1:
        yield (
            "first and second step swapped",
            "either",
            lambda t: replace(t, steps=(t.steps[1], t.steps[0], *t.steps[2:])),
        )
    for place in range(min(count, 3)):
        for index in range(len(trace.steps[place].activities)):
            for factor in (*FACTORS, *FINE_FACTORS):
                what = f"{factor:.2f} times as long: GPU work {index} of step {place}"
                yield what, "time", _only(place, activities(index, _longer(factor)))
            yield f"later: GPU work from {index} of step {place}", "time", _only(place, _later_from(index))
        for name in _names(trace.steps[place].calls):
            yield f"dropped: call {name} of step {place}", "structure", _only(place, calls(name, lambda call: ()))


def _only(place: int, change: Change) -> Change:
    """What a change does to one step, the others left as they are."""

    def changed(trace: Trace) -> Trace:
        steps = list(trace.steps)
        steps[place] = change(trace).steps[place]
        return replace(trace, steps=tuple(steps))

    return changed


def as_a_stack(trace: Trace) -> Trace:
    """Of three products, the second reads what the first writes, and its own result is as wide."""
    first, second, _ = (
        index
        for index, activity in enumerate(trace.steps[0].activities)
        if activity.kind == "kernel" and activity.op and activity.op.name == "aten::mm"
    )
    op = trace.steps[0].activities[first].op
    assert op is not None
    (rows, _), (_, width) = op.input_shapes[:2]

    def changed(activity: GpuActivity) -> Sequence[GpuActivity]:
        shapes = ((rows, width), (width, width))
        return (replace(activity, op=activity.op and replace(activity.op, input_shapes=shapes)),)

    return activities(second, changed)(trace)


def without_idle_ops(trace: Trace) -> Trace:
    """Every operator is left that puts work on the GPU, itself or by another one."""
    at_work = {op.name for activity in trace.activities if activity.op for op in activity.op.chain}
    for name in dict.fromkeys(op.name for op in trace.cpu_ops if op.name not in at_work):
        trace = ops(name, OP_CHANGES["dropped"])(trace)
    return trace


def as_on_a100(trace: Trace) -> Trace:
    """The first kernels, all of one name, and the last one, of another, have the names of Part 2's trace."""
    first, last = (trace.steps[0].kernels[index].name for index in (0, -1))
    names = {
        first: "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
        last: "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_tn",
    }
    return activities(None, lambda activity: (replace(activity, name=names.get(activity.name, activity.name)),))(trace)
