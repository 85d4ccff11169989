"""Find the iterations of a loop that nothing marks, by launches that repeat: those of a token loop, or of any other.

The launches of the busiest thread are a sequence of outermost operators (of kernels, where no operator is recorded;
of operators alone, in a trace without GPU work). A launch that recurs cuts the sequence into stretches. Stretches are
iterations if all of this holds:

1. At least `MIN_ITERATIONS` agree in nine of ten launches. Of these, the ones with the same kernels and grids count, if
   most have them: so a prefill is no iteration of the token loop after it, and three tokens after one are enough.
2. Of the stretches from the first iteration to the last, nine of ten are iterations: or else two things take turns.
   Prompts between tokens do not count, of requests that have two tokens or more on average.
3. They have most of the GPU time or of the time: since the first iteration if each is a token, else of all. The prompts
   of later requests do not count.
4. Each is a token by the rules of tokens.py, or has an embedding, a loss or a pick: a layer has none of them.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from itertools import chain, pairwise
from statistics import median_low, quantiles

from msgspec import Struct

from kinetoscope.trace.events import CpuOp, CudaCall, GpuActivity, Span, starting_in
from kinetoscope.trace.loop_launches import Launches, Stretch, launches_of, operators_of
from kinetoscope.trace.multisets import Counters, common_share, largest_group
from kinetoscope.trace.tokens import is_token, may_pick_token, may_start_token

MIN_ITERATIONS, MIN_TOKENS = 4, 3
SAME_LAUNCHES, SAME_KERNELS = 0.9, 0.5
"""Least common share of the launches of two stretches, and of their kernels with grids, for which they agree."""
MIN_IN_A_ROW = 0.9
MIN_PER_PROMPT = 2
"""Least number of tokens of a request on average, after its prompt: with fewer, two things take turns."""
MORE_WORK = 1.5
"""Least work of a prompt between tokens, in tokens."""
MIN_LAUNCHES = 3
SAME_NUMBER = 0.8
"""Two stretches have about as many launches if the fewer are at least this part of the others."""
MAX_ANCHORS = 12
NEARBY = 0.1
"""A launch that recurs sooner than after this share of the usual distance belongs to the occurrence before it."""
_LOSS = re.compile(r"_loss(?:_|$)")


class Loop(Struct, frozen=True):
    """(start, end) of each iteration in µs; whether each produces one token; whether each has one graph replay."""

    spans: list[tuple[float, float]]
    are_tokens: bool
    are_replays: bool = False


def find_loop(ops: Sequence[CpuOp], calls: Sequence[CudaCall], activities: Sequence[GpuActivity]) -> Loop | None:
    """The iterations of a loop; None without one.

    None also if each has one graph replay and is no token: then the replays mark the steps.
    """
    if (calls and not activities) or not _may_be_whole(chain(ops, activities)):
        return None
    launches = launches_of(activities) if activities else operators_of(ops)
    if len(launches) < 2 * MIN_ITERATIONS:
        return None
    work = sorted((a for a in activities if a.launch is not None), key=_launched_at)
    for anchor in _anchors(launches):
        every = _cut(launches, anchor)
        stretches = _agreeing(launches, every) if _are_alike_in_length(every) else []
        if not _are_a_loop(launches, every, stretches):
            continue
        are_replays = all(sum(launches.replays[s.first : s.end]) == 1 for s in stretches)
        spans = _spans(launches, stretches)
        follows_prompt = _follows_prompt(launches, every, stretches)

        def produces_token(span: tuple[float, float], follows_prompt: bool = follows_prompt) -> bool:
            return is_token(starting_in(ops, *span), _launched(work, *span), follows_prompt=follows_prompt)

        tokens = [span for span in spans if produces_token(span)] if produces_token(spans[len(spans) // 2]) else []
        if len(tokens) >= max(MIN_TOKENS, MIN_IN_A_ROW * len(spans) - 1):
            return Loop(tokens, are_tokens=True, are_replays=are_replays)
        if not _are_in_a_row(every, stretches):
            continue
        if are_replays:
            return None
        is_whole = all(_is_whole(starting_in(ops, start, end)) for start, end in spans)
        if len(spans) >= MIN_ITERATIONS and is_whole and _covers(launches, stretches, of_all=True):
            return Loop(spans, are_tokens=False)
    return None


def _launched_at(activity: GpuActivity) -> float:
    return activity.launch.start_us if activity.launch is not None else 0.0


def _launched(work: Sequence[GpuActivity], start_us: float, end_us: float) -> Sequence[GpuActivity]:
    """The activities launched in a stretch of time; `work` in the order of its launches."""
    return work[bisect_left(work, start_us, key=_launched_at) : bisect_left(work, end_us, key=_launched_at)]


def _are_alike_in_length(every: Sequence[Stretch]) -> bool:
    """Whether half of the stretches have about the usual number of launches, not one or two: a cheap test before their
    comparison."""
    lengths = [stretch.end - stretch.first for stretch in every]
    usual = median_low(lengths)
    alike = sum(0.8 * usual <= length <= usual / 0.8 for length in lengths)
    return usual >= MIN_LAUNCHES and 2 * alike >= len(lengths)


def _prompts(launches: Launches, every: Sequence[Stretch], agreeing: Sequence[Stretch]) -> list[Stretch]:
    """Prompts among agreeing stretches, of one request after the other."""
    firsts = {stretch.first for stretch in agreeing}
    return [
        before
        for before, after in pairwise(_in_range(every, agreeing))
        if before.first not in firsts and after.first in firsts
        if _is_prompt(launches, before, after) or _is_forward_pass(launches, before, after)
    ]


def _is_forward_pass(launches: Launches, stretch: Stretch, token: Stretch) -> bool:
    """Whether a stretch has more work than a token in about as many launches, from an embedding to a pick."""
    keys = launches.keys[stretch.first : stretch.end]
    is_whole = any(map(may_start_token, keys)) and any(map(may_pick_token, keys))
    work_us, token_us = (sum(launches.work_us[s.first : s.end]) for s in (stretch, token))
    return is_whole and _are_as_many(stretch, token) and work_us > token_us


def _are_as_many(one: Stretch, other: Stretch) -> bool:
    few, many = sorted((one.end - one.first, other.end - other.first))
    return few >= SAME_NUMBER * many


def _in_range(every: Sequence[Stretch], agreeing: Sequence[Stretch]) -> Sequence[Stretch]:
    return every[every.index(agreeing[0]) : every.index(agreeing[-1]) + 1] if agreeing else ()


def _are_in_a_row(every: Sequence[Stretch], agreeing: Sequence[Stretch], prompts: int = 0) -> bool:
    """Whether agreeing stretches are most of those in their range, without so many prompts."""
    return len(agreeing) >= MIN_IN_A_ROW * (len(_in_range(every, agreeing)) - prompts)


def _are_a_loop(launches: Launches, every: Sequence[Stretch], agreeing: Sequence[Stretch]) -> bool:
    """Whether agreeing stretches are many enough, most of those in their range, and long enough.

    Prompts between them do not count, nor does their time. A pass with another number of launches, or with hardly more
    work, is no prompt: where a large model checks the tokens of a small one, two things take turns.
    """
    if len(agreeing) < MIN_TOKENS or len(every) < MIN_ITERATIONS:
        return False
    prompts = _prompts(launches, every, agreeing)
    token_us = sum(launches.work_us[agreeing[0].first : agreeing[0].end])
    between = sum(
        _are_as_many(prompt, agreeing[0]) and sum(launches.work_us[prompt.first : prompt.end]) >= MORE_WORK * token_us
        for prompt in prompts
    )
    are_in_a_row = _are_in_a_row(every, agreeing, between if MIN_PER_PROMPT * between <= len(agreeing) else 0)
    return are_in_a_row and _covers(launches, agreeing, of_all=False, without=prompts)


def _anchors(launches: Launches) -> list[str]:
    """Launches that may begin an iteration: an embedding or a pick, then those that recur as often as most others."""
    counts = Counter(launches.keys)
    counts = Counter({key: count for key, count in counts.items() if MIN_ITERATIONS <= count <= len(launches) // 2})
    peers = Counter(counts.values())
    keys = list(dict.fromkeys(launches.keys))  # the earliest first
    first = [key for starts in (may_start_token, may_pick_token) for key in keys if key in counts and starts(key)]
    rest = sorted(
        (key for key in keys if key in counts and key not in first), key=lambda key: (-peers[counts[key]], counts[key])
    )
    return [*first, *rest][:MAX_ANCHORS]


def _cut(launches: Launches, anchor: str) -> list[Stretch]:
    """The stretches from each anchor to the next, or until after each pick; the last has at most the usual length."""
    places = [index for index, key in enumerate(launches.keys) if key == anchor]
    distances = [after - before for before, after in pairwise(places)]
    usual = quantiles(distances, n=4)[2] if len(distances) > 1 else 0
    kept = places[:1]
    for place in places[1:]:
        if place - kept[-1] >= NEARBY * usual:
            kept.append(place)
    if may_pick_token(anchor):
        kept = [0, *(place + 1 for place in kept if place + 1 < len(launches))]
    stretches = [Stretch(before, after) for before, after in pairwise(kept)]
    length = median_low([stretch.end - stretch.first for stretch in stretches]) if stretches else len(launches)
    return [*stretches, Stretch(kept[-1], min(len(launches), kept[-1] + length))]


def _agreeing(launches: Launches, stretches: Sequence[Stretch]) -> list[Stretch]:
    """The largest group of stretches with the same launches; of these with the same kernels, if most have them."""
    every = Counters()
    alike = largest_group([every[tuple(launches.keys[s.first : s.end])] for s in stretches], SAME_LAUNCHES)
    of_details = Counters(launches.different)
    chosen = [stretches[index] for index in alike]
    details = [of_details[tuple(launches.details[s.first : s.end])] for s in chosen]
    same = largest_group(details, SAME_KERNELS)
    if len(same) >= MIN_TOKENS and 2 * len(same) > len(alike):
        alike = [alike[index] for index in same]
    return [stretches[index] for index in alike]


def _covers(launches: Launches, stretches: Sequence[Stretch], *, of_all: bool, without: Sequence[Stretch] = ()) -> bool:
    """Whether the stretches have most of the GPU time, or most of the time: since the first of them, or of all."""
    begin = 0 if of_all else stretches[0].first
    (work_us, lasted_us), (other_work_us, others_us) = (_times(launches, each) for each in (stretches, without))
    whole_us = launches.ends_us[-1] - launches.starts_us[begin] - others_us
    return 2 * work_us > sum(launches.work_us[begin:]) - other_work_us or 2 * lasted_us > whole_us


def _times(launches: Launches, stretches: Sequence[Stretch]) -> tuple[float, float]:
    """The GPU time and the time of stretches."""
    work_us = sum(chain.from_iterable(launches.work_us[s.first : s.end] for s in stretches))
    return work_us, sum([end - start for start, end in _spans(launches, stretches)])


def _follows_prompt(launches: Launches, every: Sequence[Stretch], chosen: Sequence[Stretch]) -> bool:
    """Whether a stretch with more GPU work, most of it the same launches, lies directly before the first iteration."""
    index = every.index(chosen[0])
    return index > 0 and _is_prompt(launches, every[index - 1], chosen[0])


def _is_prompt(launches: Launches, prompt: Stretch, token: Stretch) -> bool:
    alike = common_share(*(Counter[Hashable](launches.keys[s.first : s.end]) for s in (prompt, token)))
    prompt_us, token_us = (sum(launches.work_us[s.first : s.end]) for s in (prompt, token))
    return alike >= SAME_KERNELS and prompt_us > token_us


def _is_whole(ops: Iterable[CpuOp]) -> bool:
    """Whether these operators have an embedding, a pick or a loss: a layer has none of them."""
    return any(_is_of_whole(op.name) for op in ops)


def _may_be_whole(events: Iterable[Span]) -> bool:
    """Whether a stretch of these events may be an iteration by rule 4: a cheap test before all others."""
    return any(map(_is_of_whole, {event.name for event in events}))


def _is_of_whole(name: str) -> bool:
    return bool(_LOSS.search(name)) or may_start_token(name) or may_pick_token(name)


def _spans(launches: Launches, stretches: Iterable[Stretch]) -> list[tuple[float, float]]:
    """The time of each stretch: until the next launch, or until the last launches of all end."""
    starts, count = launches.starts_us, len(launches)
    return [
        (starts[s.first], starts[s.end] if s.end < count else max(launches.ends_us[s.first : s.end])) for s in stretches
    ]
