"""One forward pass of the MLP at one token and at 8,192, on one time scale: who waits for whom?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from kinetoscope.html import Html
from kinetoscope.timeline.strip import Scale, strip, strip_kinds, strip_legend
from kinetoscope.trace.events import Step
from kinetoscope.trace.queries import find_op
from snippets.lab.charts.numbers import chart_id
from snippets.lab.finding import Device, NotRecorded, Run, format_value
from snippets.lab.page import show as show, warning

ONE, MANY = "index/one_token", "mlp/eager"
ONE_TIMED = "mlp/sweep_eager[batch=1,seq=1]"
"""The same pass in a sweep, which has no trace: its times, where `ONE` is not recorded."""
_MARGIN = 1.02


@dataclass(frozen=True)
class Pass:
    """One forward pass: its unprofiled times and, if it was traced, its middle step."""

    value: str
    """Of the switch: `one` or `many`."""
    timed: Run
    traced: Run | None

    @property
    def tokens(self) -> str:
        """`1 token`, `8,192 tokens`."""
        parameters = self.timed.point.parameters
        tokens = int(parameters["batch"]) * int(parameters["seq"])
        return f"{tokens:,} token{'' if tokens == 1 else 's'}"

    @property
    def begin_us(self) -> float:
        """From the start of the step to the first line of the pass."""
        step = self.step
        return find_op(step, self.traced.label).start_us - step.start_us if self.traced else 0.0

    @property
    def step(self) -> Step:
        """The middle step of the trace. Raises `NotRecorded`."""
        if self.traced is None:
            raise NotRecorded(f"{ONE} is not recorded on the {self.timed.device.short_name}")
        return self.traced.step

    @property
    def span_us(self) -> float:
        """From the first line of the pass until the GPU is done; 0 without a trace."""
        if self.traced is None:
            return 0.0
        return (
            max(each.end_us for each in (*self.step.activities, *self.step.calls)) - self.step.start_us - self.begin_us
        )

    @property
    def is_gpu_bound(self) -> bool:
        """Whether the GPU computes longer than the CPU submits."""
        return self.timed.timing().median_us > self.timed.timing("enqueue").median_us


def passes(device: Device) -> tuple[Pass, Pass]:
    """One token, and 8,192. Their members raise `NotRecorded`."""
    many = device[MANY]
    chapter, _, name = ONE.partition("/")
    one = Pass("one", device[ONE], device[ONE]) if name in device.recorded_names(chapter) else None
    return one or Pass("one", device[ONE_TIMED], None), Pass("many", many, many)


def who_waits(device: Device) -> Html:
    """Both passes, with a switch that works without script: a strip, the answer, and three unprofiled times."""
    both = passes(device)
    span_us = _MARGIN * max(each.span_us for each in both)
    slowest_us = max(_times(each)[-1][1] for each in both)
    ident = chart_id("waits", device, MANY)
    switch = "".join(_option(each, ident, is_chosen=each.value == "many") for each in both)
    halves = "".join(_half(each, span_us, slowest_us, ident) for each in both)
    return Html(
        f'<figure class="waits" data-search-exclude><figcaption>Do you wait for the GPU or for the CPU?</figcaption>'
        f"<fieldset><legend>Tokens in the forward pass</legend>{switch}</fieldset>"
        '<p class="waits-note">The picture shows one forward pass of an MLP in eager PyTorch. The time scale is the '
        f"same for both numbers of tokens.</p>{halves}</figure>"
    )


def _option(each: Pass, ident: str, *, is_chosen: bool) -> str:
    checked = " checked" if is_chosen else ""
    return (
        f'<label><input type="radio" name="{ident}" value="{each.value}" autocomplete="off"{checked}> '
        f"{each.tokens}</label>"
    )


def _half(each: Pass, span_us: float, slowest_us: float, ident: str) -> str:
    """One side of the switch. Its heading is visible only on paper, where both sides are shown."""
    times = "".join(_meter(name, us, us / slowest_us, kind) for name, us, kind in _times(each))
    return (
        f'<div class="waits-half {each.value}"><p class="waits-name">{each.tokens}</p>{_picture(each, span_us, ident)}'
        f'<div class="waits-answer"><p>{answer(each)}</p>{times}</div>{_fine_print(each)}</div>'
    )


def _picture(each: Pass, span_us: float, ident: str) -> str:
    if each.traced is None:
        chapter = ONE.partition("/")[0]
        return warning(
            "Not recorded yet",
            f"The {escape(each.timed.device.short_name)} has timed this pass, but not traced it. On a machine with "
            f"that GPU run <code>make record CHAPTER={chapter}</code>.",
        )
    scale = Scale(each.begin_us, span_us)
    own = f"{ident}-{each.value}"
    described = f"{each.tokens}: {len(each.step.kernels)} kernels. {answer_text(each)}"
    drawing = strip(each.step, scale, ident=own, described=described)
    return drawing + strip_legend(strip_kinds(each.step, scale), own)


def _times(each: Pass) -> Sequence[tuple[str, float, str]]:
    """The times of the CPU, of the GPU and of your wait, in microseconds, without the profiler."""
    return (
        ("the CPU submits for", each.timed.timing("enqueue").median_us, "cpu"),
        ("the GPU computes for", each.timed.timing().median_us, "gpu"),
        ("you wait", each.timed.timing("from_python").median_us, "you"),
    )


def _meter(name: str, us: float, share: float, kind: str) -> str:
    bar = f'<rect class="{kind}" width="{100 * share:.1f}%" height="10"/>'
    return (
        f'<div class="meter"><span>{name}</span> <b>{format_value(us, "us")}</b>'
        f'<svg width="100%" height="10" aria-hidden="true">{bar}</svg></div>'
    )


def answer(each: Pass) -> Html:
    """Who waits, and the remedy, from the pass's unprofiled times."""
    if each.is_gpu_bound:
        return Html(
            "<strong>You wait for the GPU.</strong> The GPU still computes when the CPU has submitted all work. A "
            "faster kernel shortens your wait."
        )
    return Html(
        "<strong>The GPU waits for the CPU.</strong> The GPU has less work than the CPU, and idles between launches. "
        "Fewer launches shorten your wait, but a faster kernel doesn't."
    )


def answer_text(each: Pass) -> str:
    """The first sentence of the answer, as plain text."""
    return "You wait for the GPU." if each.is_gpu_bound else "The GPU waits for the CPU."


def _fine_print(each: Pass) -> str:
    """Differences between the picture and the times."""
    timed = "We measured the three times without the profiler."
    text = f"{timed} The picture comes from a trace, so it includes the profiler's own work." if each.traced else timed
    return (
        f'<p class="waits-note">{text} {escape(each.timed.environment.device)}. <a href="mlp/">The chapter on the '
        f'MLP</a> · <a href="measuring/">How we measure</a></p>'
    )
