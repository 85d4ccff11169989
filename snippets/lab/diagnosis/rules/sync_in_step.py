"""The CPU waits for the GPU inside a step."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from snippets.lab.diagnosis.amounts import count_text, duration_text
from snippets.lab.diagnosis.cpu_states import is_download
from snippets.lab.diagnosis.facts import Facts
from snippets.lab.diagnosis.intervals import ns
from snippets.lab.diagnosis.rule import CannotTell, Finding, Rule
from snippets.lab.diagnosis.sites import Site
from snippets.lab.diagnosis.sources import CPU_AND_GPU, NSIGHT
from snippets.lab.trace.events import CudaCall, GpuActivity, Span

MIN_SHARE = 0.01
MAX_PLACES = 5


def check(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Group the waits by operator and line."""
    if not facts.has_gpu or not facts.trace.calls:
        return CannotTell(RULE, "the trace lacks GPU work or the CUDA calls of the CPU", CPU_AND_GPU)
    copies: dict[int, list[GpuActivity]] = defaultdict(list)
    downloads = [(a, a.launch) for a in facts.activities if is_download(a) and a.launch is not None]
    for (activity, _), site in zip(downloads, facts.sites([call for _, call in downloads]), strict=True):
        copies[id(site.op)].append(activity)
    places: dict[str, list[tuple[CudaCall, Site]]] = defaultdict(list)
    for call, site in _waits(facts):
        places[site.text or call.name].append((call, site))
    found = [_finding(facts, place, members, copies) for place, members in places.items()]
    found = [finding for finding in found if finding.ceiling_us_per_step >= MIN_SHARE * facts.step_us]
    return sorted(found, key=lambda finding: -finding.ceiling_us_per_step)[:MAX_PLACES]


def _waits(facts: Facts) -> list[tuple[CudaCall, Site]]:
    """Waits in steps, without one outside operators after the last launch: it ends the program or the recording."""
    launches = (activity.launch.start_us for activity in facts.activities if activity.launch is not None)
    last = max(launches, default=0.0)
    pageable = {ns(span.start_us) for span in facts.cpu.spans["pageable copy"]}
    waits = facts.in_steps(facts.cpu.syncs)
    return [
        (call, site)
        for call, site in zip(waits, facts.sites(waits), strict=True)
        if (call.start_us <= last if site.op is None else ns(site.op.start_us) not in pageable)
    ]


def _finding(
    facts: Facts, place: str, members: Sequence[tuple[CudaCall, Site]], copies: dict[int, list[GpuActivity]]
) -> Finding:
    calls = [call for call, _ in members]
    whole: list[Span] = [site.op or call for call, site in members]
    copied = [copy for _, site in members if site.op is not None for copy in copies.get(id(site.op), ())]
    waiting_us = facts.length_us(calls)
    waits = {id(site.op or call) for call, site in members}  # a copy may wait in two calls
    count = count_text(len(waits) / len(facts.steps), "time")
    longest = max(calls, key=lambda call: call.duration_us)
    title = f"The CPU waits for the GPU {count} per step, {duration_text(waiting_us)}, in {longest.name}"
    return Finding(RULE, title, place, facts.evidence(calls), waiting_us, facts.ceiling_us(whole, copied))


RULE = Rule(
    name="sync-in-step",
    title="The CPU waits for the GPU inside a step",
    looks_for="Calls that wait for the GPU (cudaStreamSynchronize, cudaDeviceSynchronize, cudaEventSynchronize, "
    "blocking copies), as .item(), .cpu(), nonzero() or print() make them. The GPU then runs out of work, and waits "
    "until the CPU has launched again. Waits of pageable copies and a last wait after all launches do not count.",
    threshold=f"each place from a ceiling of {MIN_SHARE:.0%} of the median step on, the {MAX_PLACES} largest",
    source=f"{NSIGHT} (cuda_api_sync)",
    advice="Keep the value on the GPU, read it every hundredth step, or copy it with non_blocking=True to pinned "
    "memory and read it a step later. Use torch.where instead of indexing by a mask or nonzero(). "
    "torch.cuda.set_sync_debug_mode('warn') names further places.",
    check=check,
)
