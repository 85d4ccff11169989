"""The CPU waits for the GPU inside a step."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.cpu_states import is_download
from kinetoscope.diagnosis.facts import MIN_SHARE, Facts
from kinetoscope.diagnosis.gaps import RELAUNCH_US
from kinetoscope.diagnosis.missing import no_calls, no_gpu_work
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sites import Site
from kinetoscope.diagnosis.sources import NSIGHT, STEPS
from kinetoscope.trace.events import CudaCall, GpuActivity, Span
from kinetoscope.trace.intervals import Interval, intersect, interval, length_us, ns, union, union_of
from kinetoscope.trace.text import without_numbers

MAX_PLACES = 5
MIN_UNSEEN = 0.05
MAX_COPY_US = 100.0
"""A longer download costs more than the wait for it: the rule `exposed-copies` counts it."""


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Group the waits by operator and line."""
    copies = downloads(facts)
    unclaimed, unseen = unclaimed_times(facts)
    places: dict[str, list[tuple[CudaCall, Site]]] = defaultdict(list)
    for call, site in waits(facts):
        if facts.is_token_loop and id(site.op) in copies:
            continue  # the rule host-reads
        place = site._replace(annotation=without_numbers(site.annotation))  # `iteration 7` is where `iteration 8` is
        places[_text(call, place)].append((call, site))
    found = [
        finding for place, members in places.items() for finding in _findings(facts, place, members, copies, unclaimed)
    ]
    unseen_us = length_us(unseen) / len(facts.steps)
    if not found and unseen_us >= MIN_UNSEEN * facts.step_us:
        reason = f"in {duration_text(unseen_us)} of the waits of a step no GPU work was recorded: it may be older"
        return CannotTell(RULE, reason, STEPS)
    return sorted(found, key=lambda each: -each.saving_us_per_step)[:MAX_PLACES]


def _text(call: CudaCall, site: Site) -> str:
    return site.text if site.op else f"{call.name} {site.text}".rstrip()


def downloads(facts: Facts) -> dict[int, list[GpuActivity]]:
    """The short copies to the host of each operator that makes them, by the operator's id."""
    copies: dict[int, list[GpuActivity]] = defaultdict(list)
    short = (a for a in facts.activities if is_download(a) and a.duration_us <= MAX_COPY_US)
    made = [(a, a.launch) for a in short if a.launch is not None]
    for (activity, _), site in zip(made, facts.sites([call for _, call in made]), strict=True):
        copies[id(site.op)].append(activity)
    return copies


def waits(facts: Facts) -> list[tuple[CudaCall, Site]]:
    """Waits in steps, except a wait outside operators after the last launch: that wait ends the program or the
    recording."""
    launches = (activity.launch.start_us for activity in facts.activities if activity.launch is not None)
    last = max(launches, default=0.0)
    pageable = {ns(span.start_us) for span in facts.cpu.spans["pageable copy"]}
    calls = facts.in_steps(facts.cpu.syncs)
    return [
        (call, site)
        for call, site in zip(calls, facts.sites(calls), strict=True)
        if (call.start_us <= last if site.op is None else ns(site.op.start_us) not in pageable)
    ]


def unclaimed_times(facts: Facts) -> tuple[list[Interval], list[Interval]]:
    """Times in which the GPU is idle for another reason than a wait, and those of them that lie in waits without any
    explanation.

    Between two activities during a wait, the work is already launched. After the last activity, the GPU is idle until
    the CPU learns of it. Idle time beyond `RELAUNCH_US`, or after no work, has a reason that the trace does not show.
    So has idle time in which nothing is recorded on the CPU.
    """
    waiting = union_of(facts.cpu.syncs)
    starts, ends = {start for start, _ in waiting}, {end for _, end in (*waiting, *facts.windows)}
    idle = intersect(waiting, facts.idle)
    long = [(start, end) for start, end in idle if end - start > ns(RELAUNCH_US)]
    unseen = [(start if start in starts else start + ns(RELAUNCH_US), end) for start, end in long]
    unrecorded = intersect(facts.cpu.unrecorded(facts.windows), facts.idle)
    return union([*unseen, *(each for each in idle if each[1] not in ends), *unrecorded]), unseen


def until_work(facts: Facts, span: Span) -> Span:
    """A wait in which the GPU ends its work, extended until the GPU works again, by at most `RELAUNCH_US`.

    Without the wait, the CPU is ahead and the GPU continues immediately. If the GPU had no work, the CPU was not ahead.
    """
    start, end = interval(span)
    index = bisect_right(facts.busy, end, key=lambda busy: busy[0])
    if index in (0, len(facts.busy)) or not start <= facts.busy[index - 1][1] <= end:
        return span
    after_us = min(facts.busy[index][0] / 1000 - span.end_us, RELAUNCH_US)
    return Span(span.name, span.start_us, round(span.duration_us + after_us, 3))


def _findings(
    facts: Facts,
    place: str,
    members: Sequence[tuple[CudaCall, Site]],
    copies: dict[int, list[GpuActivity]],
    unclaimed: Sequence[Interval],
) -> list[Finding]:
    calls = [call for call, _ in members]
    whole: list[Span] = [site.op or call for call, site in members]
    copied = [copy for _, site in members if site.op is not None for copy in copies.get(id(site.op), ())]
    if facts.saving_us(whole, copied, unclaimed) < MIN_SHARE * facts.step_us:
        return []
    waiting_us = facts.length_us(calls)
    places = {id(site.op or call) for call, site in members}  # a copy may wait in two calls
    count = count_text(len(places) / len(facts.steps), "time")
    longest = max(calls, key=lambda call: call.duration_us)
    title = f"The CPU waits for the GPU {count} per step, {duration_text(waiting_us)}, in {longest.name}"
    saving_us = facts.saving_us([until_work(facts, site.outer or call) for call, site in members], copied, unclaimed)
    measured = (Measured("waits per step", len(calls) / len(facts.steps), "calls"),)
    where = place if len({site.annotation for _, site in members}) > 1 else _text(*members[0])
    return [Finding(RULE, title, where, facts.evidence(calls), waiting_us, saving_us, measured=measured)]


RULE = Rule(
    name="sync-in-step",
    title="The CPU waits for the GPU inside a step",
    looks_for="The CPU calls a function that waits for the GPU (cudaStreamSynchronize, cudaDeviceSynchronize, "
    "cudaEventSynchronize, or a blocking copy), for example for .item(), .cpu(), nonzero() or print(). Then the GPU "
    "runs out of work, and waits until the CPU launches again. Some waits don't count: waits of pageable copies, a "
    "last wait after all launches, and waiting time in which the trace shows no GPU work. Nor does idle time in which "
    "the trace shows nothing of the CPU.",
    threshold=f"At one place in the code, a fix could save at least {MIN_SHARE:.0%} of the median step. The rule "
    f"reports the {MAX_PLACES} largest places.",
    source=f"{NSIGHT} (cuda_api_sync); the share is this book's",
    advice="Keep the value on the GPU, read it every hundredth step, or copy it with non_blocking=True to pinned "
    "memory and read it a step later. Use torch.where instead of nonzero() or indexing by a mask. "
    "torch.cuda.set_sync_debug_mode('warn') names more places.",
    find=find,
    needs=(no_gpu_work, no_calls),
    confidence="high",
    mistaken="The program needs the value to decide what it does next, or waits on purpose at the end of a step.",
)
