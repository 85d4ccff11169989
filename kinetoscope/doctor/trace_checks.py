"""Check what is missing or wrong in a trace: the checks of `doctor TRACE`, each a function of a `Trace`.

They find faults of the recording. The report's rules find faults of the recorded program.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence

from msgspec import structs

from kinetoscope.doctor.checks import MISSING_EVENTS, Check, Status
from kinetoscope.doctor.step_checks import (
    SCHEDULE,
    check_overhead,
    check_same_work,
    check_shapes,
    check_stacks,
    check_steps,
    check_warm_up,
)
from kinetoscope.trace.events import Trace
from kinetoscope.trace.foreign import foreign_text, is_foreign
from kinetoscope.trace.missing_gpu import counter_ranges, dropped_kernels, launch_calls
from kinetoscope.trace.processes import COMPARE_RANKS, merged_text
from kinetoscope.trace.text import shortened
from kinetoscope.trace.units import format_value

OPERATORLESS_SHARE = 0.50
"""Share of kernels without an operator from which most of the work cannot be attributed (our limit)."""
CLOCK_NOISE_US = 1.0
"""Clocks of CPU and GPU are aligned to about this."""
DAMAGED_SHARE = 0.10
"""Share of GPU activities with impossible times from which the others are in doubt, too (our limit)."""
_RECORD = "ProfilerActivity.CUDA among the activities"
_DROPPED_CURES = {
    "all at the end": "call torch.cuda.synchronize() before the profile ends",
    "all at the start": f"let the profiler warm up: {SCHEDULE}; with CUDA 12.6 to 13.0, update PyTorch",
    "in between": (
        "record fewer steps, with nothing else that profiles this GPU; call doctor on the machine that recorded it"
    ),
}


def check_trace(trace: Trace) -> list[Check]:
    """All checks that apply to this trace."""
    found = (check(trace) for check in CHECKS)
    return [check for check in found if check is not None]


def check_ranks(checks_of: Mapping[int, Sequence[Check]]) -> list[Check]:
    """The checks of several ranks' traces, each rank by itself: what is right on all ranks takes one line.

    Args:
        checks_of: rank -> the checks of its trace.
    """
    together: dict[str, dict[int, Check]] = {}
    for rank, checks in checks_of.items():
        for check in checks:
            together.setdefault(check.name, {})[rank] = check
    found = [Check("ranks", "ok", f"this file has {len(checks_of):,} ranks: {COMPARE_RANKS}")]
    for name, of_ranks in together.items():
        wrong = {rank: check for rank, check in of_ranks.items() if check.status != "ok"}
        texts = {check.seen for check in of_ranks.values()}
        if not wrong:
            first = next(iter(of_ranks.values()))
            seen = first.seen if len(texts) == 1 else f"on each of {len(of_ranks):,} ranks"
            found.append(Check(name, "ok", seen, sources=first.sources))
        ranks_of: dict[Check, list[int]] = {}
        for rank, check in wrong.items():
            ranks_of.setdefault(check, []).append(rank)
        for check, ranks in ranks_of.items():
            listed = ", ".join(map(str, ranks[:8])) + ", ..." * (len(ranks) > 8)
            found.append(structs.replace(check, seen=f"rank{'s' * (len(ranks) > 1)} {listed}: {check.seen}"))
    return found


def trace_verdict(checks: Sequence[Check]) -> str:
    """Whether the trace is reliable, in a sentence."""
    failed = dict.fromkeys(check.name for check in checks if check.status == "failed")
    if failed:
        return f"record it again: {', '.join(failed)}"
    warnings = sum(check.status == "warning" for check in checks)
    return f"usable, with {warnings} warning{'s' * (warnings != 1)}" if warnings else "nothing is missing or wrong"


def check_cut(trace: Trace) -> Check:
    """Whether the file is complete: a process that is killed while writing leaves a part (kineto#595,
    pytorch#130622)."""
    sources = ("kineto#595", "pytorch#130622")
    if not trace.is_cut:
        return Check("file", "ok", "complete", sources=sources)
    cure = "copy it again, or let the process that records end by itself; a large trace takes minutes to write"
    return Check("file", "warning", "ends in the middle: what was complete is read, the rest is lost", cure, sources)


def check_unread(trace: Trace) -> Check | None:
    """Events of unknown categories, such as other accelerators', which the reader skips."""
    if not trace.unread:
        return None
    several = ", ".join(f"{count:,} of {shortened(category) or 'none'}" for category, count in trace.unread[:4])
    more = ", ..." * (len(trace.unread) > 4)
    return Check("left out", "ok", f"events of other categories are left out: {several}{more}")


def check_damaged(trace: Trace) -> Check | None:
    """Events with missing or impossible values, which the reader leaves out or cuts (kineto#109,
    AMD-AGI/TraceLens#669)."""
    if not trace.damaged:
        return None
    share = sum(damage.count for damage in trace.damaged) / max(1, len(trace.activities))
    seen = "; ".join(damage.text.removeprefix("damaged: ") for damage in trace.damaged)
    cure = "record it again, fewer steps at a time; if it happens again, update PyTorch and the driver"
    status: Status = "failed" if share >= DAMAGED_SHARE else "warning"
    return Check("impossible times", status, seen, cure, ("kineto#109", "TraceLens#669"))


def check_gpu_events(trace: Trace) -> Check:
    """Whether there is GPU work, and if not, why: the most frequent question (pytorch#192021 and others)."""
    kinds = Counter(activity.kind for activity in trace.activities)
    if kinds["kernel"]:
        seen = ", ".join(f"{kinds[kind]:,} {kind}{'s' * (kinds[kind] != 1)}" for kind in kinds)
        return Check("GPU events", "ok", seen, sources=MISSING_EVENTS)
    if is_foreign(trace):
        seen, _, reader = foreign_text(trace).partition("; ")
        return Check("format", "failed", seen, reader)
    if ranges := counter_ranges(trace):
        seen = f"no kernel: CUPTI measured {ranges:,} ranges with counters instead of recording activities"
        return Check("GPU events", "failed", seen, "leave out profiler_metrics of experimental_config", MISSING_EVENTS)
    launches = len(launch_calls(trace))
    if launches:
        seen = f"no kernel, though {launches:,} launches were recorded: the GPU's side was not delivered"
        cure = (
            f"have {_RECORD}, and call doctor on the machine that recorded it: no permission to profile, another "
            "profiler in the process (Nsight, CUPTI counters of Kineto) or a CUPTI of another CUDA are the usual "
            "reasons; end the profile after torch.cuda.synchronize()"
        )
        return Check("GPU events", "failed", seen, cure, MISSING_EVENTS)
    if trace.unread and not kinds:
        seen = "no kernel that is read; events of other categories are left out: of another accelerator?"
        return Check("GPU events", "warning", seen, "the command open shows them in Perfetto")
    if trace.calls or trace.devices or kinds:
        seen = f"no kernel and no launch: {len(trace.calls):,} other runtime calls, {sum(kinds.values())} copies"
        cure = f"let work run on the GPU while the profiler is active: {SCHEDULE}; have {_RECORD}"
        return Check("GPU events", "failed", seen, cure, MISSING_EVENTS)
    if trace.cpu_ops:
        cure = f"nothing, if it ran on a CPU; else have {_RECORD}, a torch built for this GPU, and call doctor there"
        return Check("GPU events", "warning", "no GPU work and no CUDA call: a trace of a CPU", cure, MISSING_EVENTS)
    cure = f"no step was active: run at least wait + warmup + active iterations of the schedule, as in {SCHEDULE}"
    return Check(
        "GPU events", "failed", "no operators, no CUDA calls, no GPU work: nothing was recorded", cure, MISSING_EVENTS
    )


def check_dropped(trace: Trace) -> Check | None:
    """Launches whose kernels are missing (kineto#762); launches captured into a CUDA graph have no kernels."""
    found = dropped_kernels(trace)
    if found is None:
        return None
    if not found.without_kernel:
        return Check(
            "dropped kernels", "ok", f"none: all {found.launches:,} launches have their work", sources=MISSING_EVENTS
        )
    cure = _DROPPED_CURES[found.where]
    counts = f"{found.without_kernel:,} of {found.launches:,} launches ({found.share:.1%})"
    seen = f"{counts} have no kernel in the trace, {found.where}"
    return Check("dropped kernels", "failed" if found.is_too_much else "warning", seen, cure, MISSING_EVENTS)


def check_unlaunched(trace: Trace) -> Check | None:
    """Kernels whose launch is missing: their operator and step are unknown."""
    kernels = [activity for activity in trace.activities if activity.kind == "kernel"]
    without = [kernel for kernel in kernels if kernel.launch is None]
    if not kernels:
        return None
    if not without:
        return Check("launches", "ok", "every kernel has its launch")
    share = len(without) / len(kernels)
    seen = f"{len(without):,} of {len(kernels):,} kernels ({share:.1%}) have no launch in the trace"
    if not trace.calls and any(not op.is_annotation for op in trace.cpu_ops):
        cure = "operators are there, but no CUDA call: profile again, and take the file as torch.profiler writes it"
    elif not trace.calls:
        cure = "no CUDA call was recorded: have ProfilerActivity.CPU among the activities, too"
    elif all(kernel.launch is None for kernel in kernels[: len(without)]):
        cure = f"they come first, launched before the profile began: {SCHEDULE}"
    else:
        cure = "calls of a kind that this torch does not record (cuLaunchKernelEx in torch 2.6): update torch"
    return Check("launches", "warning", seen, cure)


def check_operators(trace: Trace) -> Check | None:
    """Kernels that no operator launched: kernels of replayed CUDA graphs (pytorch#95347), or of other threads
    (kineto#443)."""
    launched = [a for a in trace.activities if a.kind == "kernel" and a.launch is not None]
    without = [kernel for kernel in launched if kernel.op is None or kernel.op.is_annotation]
    if not launched or (not trace.cpu_ops and not trace.steps):
        return None
    sources = ("pytorch#95347", "kineto#443")
    if len(without) < OPERATORLESS_SHARE * len(launched):
        return Check("operators", "ok", "nearly every kernel has its operator", sources=sources)
    replayed = sum("GraphLaunch" in kernel.launch.name for kernel in without if kernel.launch)
    seen = (
        f"{len(without):,} of {len(launched):,} kernels have no operator, {replayed:,} of them of replayed CUDA graphs"
    )
    cures = ["record once without CUDA graphs to see whose kernels these are"] if replayed else []
    if replayed < len(without):
        cures.append("threads that start after the profiler show no operators, and kernels of your own have none")
    return Check("operators", "warning", seen, "; ".join(cures), sources)


def check_ids(trace: Trace) -> Check | None:
    """Ids that collide: several ranks in one file, each counted from 1, or a correlation that two launches share."""
    hosts = {_process(op.thread) for op in trace.cpu_ops}  # some accelerators' own side has calls, too
    calls: dict[int, set[str]] = defaultdict(set)
    for call in trace.calls:
        if call.correlation and (not hosts or _process(call.thread) in hosts):
            calls[call.correlation].add(_process(call.thread))
    ops: dict[int, set[str]] = defaultdict(set)
    for op in trace.cpu_ops:
        if op.external_id is not None:
            ops[op.external_id].add(_process(op.thread))
    correlations, external = (sum(len(processes) > 1 for processes in ids.values()) for ids in (calls, ops))
    launched = Counter((_process(call.thread), call.correlation) for call in launch_calls(trace) if call.correlation)
    twice = sum(count > 1 for count in launched.values())
    if twice:
        seen = f"{twice:,} correlations belong to several launches of one process: kernels go to the first"
        return Check("ids", "warning", seen, "record one profile per file; do not join files of several")
    if not correlations and not external:
        return Check("ids", "ok", "each is of one process") if calls or ops else None
    seen = f"{correlations:,} correlations and {external:,} external ids are of several processes"
    if trace.processes:
        seen += f"; {merged_text(trace.processes)}, which are told apart"
    return Check("ids", "warning", seen, "keep the file of each rank; give them to report together")


def check_clocks(trace: Trace) -> Check | None:
    """Impossible times: kernels that start before their launch, activities without a duration."""
    if not trace.activities:
        return None
    early = [-delay for a in trace.activities if (delay := a.launch_delay_us) is not None and delay < -CLOCK_NOISE_US]
    empty = sum(activity.duration_us == 0 for activity in trace.activities)
    problems, cures = [], []
    if early:
        most = format_value(max(early), "us")
        problems.append(f"{len(early):,} activities start before their launch, by up to {most}")
        cures.append("the clocks of CPU and GPU were not aligned: trust durations, not delays; update torch")
    if empty:
        problems.append(f"{empty:,} of {len(trace.activities):,} activities have a duration of 0")
        cures.append("a profiler before PyTorch 2.2 rounds to whole us; else buffers were lost: record fewer steps")
    if not problems:
        return Check("clocks", "ok", "work starts after its launch, and takes time", sources=("pytorch#124547",))
    return Check("clocks", "warning", "; ".join(problems), "; ".join(cures), ("pytorch#124547",))


CHECKS: tuple[Callable[[Trace], Check | None], ...] = (
    check_cut,
    check_unread,
    check_damaged,
    check_gpu_events,
    check_dropped,
    check_unlaunched,
    check_operators,
    check_ids,
    check_clocks,
    check_steps,
    check_same_work,
    check_warm_up,
    check_overhead,
    check_stacks,
    check_shapes,
)


def _process(thread: str) -> str:
    return thread.partition("/")[0]
