"""Distinguish the processes of several ranks that were merged into one file.

Each rank numbers its operators and calls from 1, and the GPUs of two ranks may both be number 0, so an activity
identifies its launch only together with its process. Two facts identify the process: the order of a file that holds one
rank after the other, and that no activity starts before its launch. If both fail, the activity has no launch.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence

from kinetoscope.trace.events import CudaCall
from kinetoscope.trace.kept_events import MAX_RUNS, KeptEvents
from kinetoscope.trace.kineto_events import Kernel

CallsOf = dict[str, dict[int, CudaCall]]
"""Process -> correlation -> the first call with it."""
COMPARE_RANKS = "kinetoscope report FILE reads and compares them all"
"""For a file that `kinetoscope merge` wrote."""
_RANK = re.compile(r"\brank[\s:#_-]*([0-9]{1,6})\b", re.IGNORECASE)
_MAX_PROCESSES = 1024
_MOST_NAMES = 8
_CLOCK_NOISE_US = 1.0  # clocks of CPU and GPU are aligned to about this
_MOSTLY = 0.99


class Processes:
    """The host processes of a file. `names` is empty if there is only one."""

    def __init__(self, kept: KeptEvents) -> None:
        pids = _host_processes(kept)
        self._names = {pid: process_name(pid, kept.labels.get(pid, "")) for pid in pids}
        self.names = tuple(dict.fromkeys(self._names.values())) if len(pids) > 1 else ()
        runs = [(pid, before) for pid, before in kept.runs if pid in self._names]
        runs = [run for index, run in enumerate(runs) if index == 0 or run[0] != runs[index - 1][0]]
        self._is_one_after_another = len(runs) == len(pids) and len(kept.runs) < MAX_RUNS
        self._runs = runs

    def of(self, pid: object) -> str:
        """The name of a host process; empty if there is only one."""
        return self._names.get(pid, "") if self.names else ""

    def owners(self, events: Sequence[Kernel], calls_of: CallsOf, start_us: Callable[[Kernel], float]) -> list[str]:
        """The process of each GPU activity, in the order of the file; empty if the trace does not tell."""
        if not self.names or len(self.names) > _MAX_PROCESSES:
            return [""] * len(events)
        if self._is_one_after_another:
            befores = [before for _, before in self._runs][1:]
            owners = [self.of(self._runs[bisect_right(befores, index)][0]) for index in range(len(events))]
            if _are_launched(events, owners, calls_of, start_us):
                return owners
        return _by_causality(events, calls_of, start_us)


def _host_processes(kept: KeptEvents) -> list[object]:
    """The processes with operators and calls: an accelerator may have its own calls, a helper may have operators
    alone."""
    if len({pid for pid, _ in kept.runs}) < 2:
        return [pid for pid, _ in kept.runs[:1]]
    of_ops = dict.fromkeys(op.pid for op in kept.ops)
    of_calls = dict.fromkeys(call.pid for call in kept.calls)
    return [pid for pid in of_ops if pid in of_calls] if of_ops and of_calls else list(of_ops or of_calls)


def merged_text(names: Sequence[str]) -> str:
    """The merged processes of a file, the first eight by name."""
    shown = ", ".join(names[:_MOST_NAMES]) + ", ..." * (len(names) > _MOST_NAMES)
    kind = "ranks" if all(_RANK.match(name) for name in names) else "processes"
    return f"this file has {len(names):,} {kind} ({shown})"


def process_name(pid: object, label: str) -> str:
    """`rank 3` if the process is labeled so, else `process 412`."""
    match = _RANK.search(label) or _RANK.search(str(pid))
    return f"rank {int(match[1])}" if match else f"process {pid}"


def _are_launched(
    events: Sequence[Kernel], owners: Sequence[str], calls_of: CallsOf, start_us: Callable[[Kernel], float]
) -> bool:
    """Whether nearly all activities start after a call of their assumed process."""
    launched = sum(
        _starts_after(start_us(event), calls_of.get(owner, {}).get(event.args.correlation or 0))
        for event, owner in zip(events, owners, strict=True)
    )
    return launched >= _MOSTLY * len(events)


def _by_causality(events: Sequence[Kernel], calls_of: CallsOf, start_us: Callable[[Kernel], float]) -> list[str]:
    """The one process whose calls come before all activities of a GPU, else before this activity; empty if several."""
    candidates: dict[int, list[tuple[str, CudaCall]]] = defaultdict(list)
    for process, calls in calls_of.items():
        for correlation, call in calls.items():
            candidates[correlation].append((process, call))
    possible: list[list[str]] = []
    matches: dict[object, Counter[str]] = defaultdict(Counter)
    impossible: dict[object, set[str]] = defaultdict(set)
    for event in events:
        start, found = start_us(event), candidates.get(event.args.correlation or 0, ())
        possible.append([process for process, call in found if _starts_after(start, call)])
        matches[event.pid].update(possible[-1])
        impossible[event.pid].update(process for process, call in found if not _starts_after(start, call))
    only = {gpu: set(matches[gpu]) - impossible[gpu] for gpu in matches}
    if len(only) == len(calls_of):  # a GPU for each: ranks share none
        _eliminate(only)
    owners = []
    for event, own in zip(events, possible, strict=True):
        of_gpu = only[event.pid]
        owners.append(next(iter(of_gpu)) if len(of_gpu) == 1 else own[0] if len(own) == 1 else "")
    return owners


def _eliminate(only: dict[object, set[str]]) -> None:
    """If a GPU can have only one process, remove that process from the candidates of all other GPUs."""
    settled = [gpu for gpu in only if len(only[gpu]) == 1]
    for gpu in settled:  # grows on the way
        for other, processes in only.items():
            if other != gpu and len(processes) > 1:
                processes -= only[gpu]
                if len(processes) == 1:
                    settled.append(other)


def _starts_after(start_us: float, call: CudaCall | None) -> bool:
    return call is not None and start_us >= call.start_us - _CLOCK_NOISE_US
