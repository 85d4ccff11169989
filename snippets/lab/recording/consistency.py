"""Whether the times of one step fit each other. They do not when another
program used the GPU meanwhile.

The limits are wide: on an undisturbed NVIDIA H200 and H100 interleaved over
cold was 0.36 to 1.12 in 368 points, from Python over the larger of enqueue and
interleaved 0.63 to 1.18. On the H100 at most 9 % of a timing's samples were
more than 20 % off its median. With another process on the GPU, cold hardly
changed, interleaved more than doubled or did not change at all, and each loop
of small steps from Python took about 2 ms more. Either way a limit was passed.
"""

from __future__ import annotations

from collections.abc import Iterator

from snippets.lab.recording.schema import Timing, Timings

FAR_PERCENT, FEW_PERCENT = 20, 20
"""A timing is scattered when more than `FEW_PERCENT` of its samples are more
than `FAR_PERCENT` off its median."""


# fmt: off
# --8<-- [start:contradictions]
def contradictions(timings: Timings) -> tuple[str, ...]:
    """Contradictions between the times of a step, a reason each; empty if they
    agree."""
    return tuple(_contradictions(timings))


def _contradictions(timings: Timings) -> Iterator[str]:
    interleaved, cold = timings.interleaved.median_us, timings.cold.median_us
    if interleaved > 1.25 * cold + 2:
        yield f"interleaved {interleaved:.0f} us, but cold {cold:.0f} us"
    from_python, enqueue = (
        timings.from_python.median_us,
        timings.enqueue.median_us,
    )
    if from_python > 1.3 * max(enqueue, interleaved) + 10:
        yield (
            f"from Python {from_python:.0f} us, but enqueue {enqueue:.0f} us "
            f"and interleaved {interleaved:.0f} us"
        )
    if (
        timings.steady is not None
        and not 0.75 < timings.steady.median_us / interleaved < 1.5
    ):
        yield (
            f"steady {timings.steady.median_us:.0f} us, but interleaved "
            f"{interleaved:.0f} us"
        )
    for kind in ("interleaved", "cold"):
        if is_scattered(getattr(timings, kind)):
            yield (
                f"more than {FEW_PERCENT} % of the {kind} samples are over "
                f"{FAR_PERCENT} % off their median"
            )


def loop_contradiction(iteration: Timing) -> str:
    """Why a loop's times are unreliable; empty if they agree."""
    if is_scattered(iteration):
        return (
            f"more than {FEW_PERCENT} % of the blocks are over "
            f"{FAR_PERCENT} % off their median"
        )
    return ""


# --8<-- [end:contradictions]
# fmt: on


def is_scattered(timing: Timing) -> bool:
    """Whether many samples are far from the median; up to 1 us is never far."""
    limit_us = max(1.0, FAR_PERCENT / 100 * timing.median_us)
    far = sum(abs(sample - timing.median_us) > limit_us for sample in timing.samples_us)
    return 100 * far > FEW_PERCENT * len(timing.samples_us)


def trace_contradiction(busy_us: float, timings: Timings) -> str:
    """How the GPU time of a traced step contradicts its interleaved time; empty
    if it fits.

    A trace's kernels take 0.5 to 1.2 times as long: a replayed graph has gaps
    between short kernels, and a kernel that was launched early contains its
    wait.
    """
    interleaved = timings.interleaved.median_us
    if busy_us > 1.5 * interleaved + 5 or interleaved > 2 * busy_us + 8:
        return f"busy for {busy_us:.0f} us in the trace, but interleaved {interleaved:.0f} us"
    return ""


SLOWER = 1.1
"""The profiler only adds to a step. Without it, 36 loops took 0.3 to 1.06 times
as long as their recorded steps, and one whose CPU had become slower 1.46 times
(NVIDIA H200)."""


def loop_trace_contradiction(recorded_us: float, iteration: Timing) -> str:
    """How the step of a traced loop contradicts the times of the loop; empty if
    it fits. `recorded_us` is the step's span on the CPU, or the GPU's work if
    that takes longer."""
    if iteration.median_us > SLOWER * recorded_us:
        return f"{recorded_us:.0f} us in the trace, but {iteration.median_us:.0f} us without the profiler"
    return ""
