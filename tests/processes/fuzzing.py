"""Read mutants in a process of its own: python -m tests.processes.fuzzing FIRST COUNT [CURRENT].

Prints JSON: how many were read, refused and summed, faults by number, CPU seconds of the slowest, and peak memory. The
file CURRENT holds the number that is being read, for whoever watches. A mutant that takes more than 10 s of CPU ends
the process.
"""

from __future__ import annotations

import faulthandler
import gc
import gzip
import json
import math
import os
import re
import resource
import signal
import sys
import time
import traceback
import zlib
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from kinetoscope.diagnosis.diagnose import diagnose
from kinetoscope.doctor.checks import checks_text
from kinetoscope.doctor.trace_checks import check_trace
from kinetoscope.trace.events import Trace, TraceError
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.summary import summary_text
from kinetoscope.trace.totals import summarize, summary_json
from tests.processes.mutants import CATEGORIES, GPU_CATEGORIES, bases, make_mutant

HANG_S = 10
ADDRESS_SPACE_BYTES = 2_000_000_000
"""Above it, an allocation fails with a MemoryError, which is a fault."""
MAX_DURATION_US, LATEST = 1e15, 1e19
KEPT_CATEGORIES = set(CATEGORIES) - {"ac2g", "cuda_sync", "Trace", "unheard"}
STRICTER = ("is not complete JSON", "two lists of events")
"""Refusals of what the standard library reads: NaN or half a character outside events, a key that is twice."""
_YEAR_2100_NS = 4_102_444_800_000_000_000
_MAX_FAULTS = 20


def main() -> None:
    """Read the mutants with these numbers."""
    first, count = int(sys.argv[1]), int(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_SPACE_BYTES, ADDRESS_SPACE_BYTES))
    current = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT) if len(sys.argv) > 3 else -1
    faulthandler.register(signal.SIGPROF, chain=True)  # prints where it is, then the signal ends the process
    sound = bases()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)
    results: Counter[str] = Counter()
    faults: list[tuple[int, str]] = []
    slowest = (0.0, -1)
    for number in range(first, first + count):
        mutant = make_mutant(number, sound)
        if current >= 0:
            os.pwrite(current, f"{number:>9}".encode(), 0)
        signal.setitimer(signal.ITIMER_PROF, HANG_S)
        began = time.process_time()
        try:
            result = read_mutant(mutant.content)
        except Exception:
            result = "fault"
            faults.append((number, f"{mutant.how} {traceback.format_exc()}"))
        slowest = max(slowest, (time.process_time() - began, number))
        results[result] += 1
        if len(faults) >= _MAX_FAULTS:
            break
    report = {"results": results, "faults": faults, "slowest": slowest, "peak_bytes": peak_bytes()}
    print(json.dumps(report))


def peak_bytes() -> int:
    """Peak resident memory of this program; `ru_maxrss` would begin with that of the process that started it."""
    status = Path("/proc/self/status").read_text("ascii")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) * 1024  # type: ignore[index]


def read_mutant(content: bytes) -> str:
    """Read and use a trace: `refused`, or `read`, or `summed` where another reader agrees. Raises for a fault."""
    try:
        trace = read_trace(content)
    except TraceError as error:
        refusal = str(error)
    else:
        refusal = ""
    expected = simple_sum(content)
    if refusal:
        is_readable = expected is not None and expected.activities > 0
        assert not is_readable or any(reason in refusal for reason in STRICTER), f"{refusal}, but it has {expected}"
        return "refused"
    adds_up(trace)
    if expected is not None:
        is_same(trace, expected)
    use(trace, is_diagnosed=len(content) % 3 == 0, is_printed=len(content) % 4 == 0)
    return "read" if expected is None else "summed"


def adds_up(trace: Trace) -> None:
    """Every activity is in one step, or uncounted for one reason."""
    counted = [activity for step in trace.steps for activity in step.activities]
    uncounted = [activity for group in trace.uncounted for activity in group.activities]
    assert sorted(map(id, counted + uncounted)) == sorted(map(id, trace.activities)), "counted twice, or not at all"
    assert sorted(map(id, uncounted)) == sorted(map(id, trace.unattributed)), "uncounted, but not unattributed"
    assert all(step.start_us <= step.end_us for step in trace.steps), "a step ends before it starts"
    assert all(math.isfinite(a.start_us) and a.duration_us >= 0 for a in trace.activities), "an impossible time"


def use(trace: Trace, is_diagnosed: bool, is_printed: bool) -> None:
    """What the commands do with a trace. A diagnosis of each would take a third of the time of all mutants."""
    checks = check_trace(trace)
    summary = summarize(trace) if trace.steps else None
    if trace.steps and is_diagnosed:
        diagnose(trace)
    if is_printed:
        texts = [checks_text(checks, ""), *([summary_text(summary), summary_json(summary)] if summary else [])]
        assert not any("\x1b" in text for text in texts), "a terminal command"


class Total(NamedTuple):
    """GPU activities, their time, and how many have no usable time of their start."""

    activities: int
    sum_us: float
    without_start: int


def is_same(trace: Trace, expected: Total) -> None:
    """Each duration is rounded to 1 ns, and is a float64."""
    found = Total(len(trace.activities), math.fsum(a.duration_us for a in trace.activities), trace.unreadable)
    tolerance = 0.0006 * expected.activities + 1e-12 * expected.sum_us
    assert found.activities == expected.activities, f"{found}, expected {expected}"
    assert abs(found.sum_us - expected.sum_us) <= tolerance, f"{found}, expected {expected}"
    assert found.without_start >= expected.without_start, f"{found}, expected {expected}"


def simple_sum(content: bytes) -> Total | None:
    """What the standard library reads, in the plainest way; None if this is no whole JSON."""
    try:
        text = (gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content).decode("utf-8-sig")
        file = json.loads(text)
    except (OSError, EOFError, ValueError, RecursionError, zlib.error):
        return None
    events = file.get("traceEvents") if isinstance(file, dict) else file
    if not isinstance(events, list):
        return None
    complete = [event for event in events if isinstance(event, dict) and event.get("ph") in ("X", "i")]
    timed = [event for event in complete if has_start(event)]
    activities = [event for event in complete if event["ph"] == "X" and event.get("cat") in GPU_CATEGORIES]
    known = [event for event in activities if has_start(event)]
    durations = [number(event.get("dur")) for event in known]
    sum_us = math.fsum(us for us in durations if us is not None and 0 < us <= MAX_DURATION_US)
    return Total(len(known), sum_us / (1000 if is_in_ns(file, timed) else 1), len(activities) - len(known))


def has_start(event: dict[str, Any]) -> bool:
    """Whether an event has a usable time."""
    start = number(event.get("ts"))
    return start is not None and abs(start) < LATEST


def is_in_ns(file: Any, timed: list[dict[str, Any]]) -> bool:
    """Whether microseconds would put the first event that is kept after the year 2100, and nanoseconds would not."""
    base = file.get("baseTimeNanoseconds") if isinstance(file, dict) else 0
    base = base if isinstance(base, int) and not isinstance(base, bool) else 0
    kept = [
        number(event["ts"])
        for event in timed
        if str(event.get("cat")) in KEPT_CATEGORIES and event.get("ph") in ("X", "i")
    ]
    first = min((ts for ts in kept if ts is not None), default=0)
    return base + first * 1000 > _YEAR_2100_NS >= base + first


def number(value: Any) -> float | None:
    """A finite number, also in a string."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        value = float(value)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


if __name__ == "__main__":
    main()
