"""The tree *What do you see?*, each leaf with a picture from a recording."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kinetoscope.html import Html
from kinetoscope.timeline.strip import GPU_ALONE, SMALL, Rows, Scale, strip
from kinetoscope.trace.queries import find_op, step_us
from snippets.index.findings.bar_rows import bar_rows
from snippets.index.findings.cards import symptom_cards
from snippets.lab.finding import Device, NotRecorded, TraceError, format_value
from snippets.lab.finding.device import all_devices
from snippets.lab.page import show as show

_MARGIN = 1.02
Picture = Callable[[Device], Html]


def see(device: Device) -> Html:
    """The tree with pictures from the first recorded device, so that all devices show the same."""
    shown, *_ = all_devices(device.root)
    pictures: dict[str, Html] = {}
    for name, picture in PICTURES.items():
        try:
            pictures[name] = picture(shown)
        except (NotRecorded, TraceError):
            continue  # a leaf without a picture says all that it has to say
    return symptom_cards(pictures)


def _step(experiment: str, described: str) -> Picture:
    """A picture of a whole step, from its annotation's start until the GPU is done."""

    def picture(device: Device) -> Html:
        run = device[experiment]
        step = run.step
        begin = find_op(step, run.label).start_us - step.start_us
        end = max(each.end_us for each in (*step.activities, *step.calls)) - step.start_us
        return _strip(run.id, device, Scale(begin, _MARGIN * (end - begin)), described)

    return picture


def _whole(experiment: str, described: str) -> Picture:
    """A picture of a step from its start to its end: what is before its annotation counts, too."""

    def picture(device: Device) -> Html:
        return _strip(experiment, device, Scale(0, step_us(device[experiment].step)), described)

    return picture


def _gpu_part(experiment: str, described: str) -> Picture:
    """A picture of a step from the start of its GPU work to its end."""

    def picture(device: Device) -> Html:
        step = device[experiment].step
        begin = step.activities[0].start_us - step.start_us
        end = max(each.end_us for each in step.activities) - step.start_us
        return _strip(experiment, device, Scale(begin, _MARGIN * (end - begin)), described, GPU_ALONE)

    return picture


def _strip(experiment: str, device: Device, scale: Scale, described: str, rows: Rows = SMALL) -> Html:
    ident = f"see-{experiment.replace('/', '-')}"
    return strip(device[experiment].step, scale, ident=ident, described=described, rows=rows)


def _giant_step(device: Device) -> Html:
    """The steps of a process that was profiled from its first step on."""
    times = [step_us(step) for step in device["matmul_add/unscheduled"].trace.steps[:4]]
    rows = [(f"step {index}", us, format_value(us, "us")) for index, us in enumerate(times)]
    return bar_rows(rows, described="Four steps of a product and a sum: the first step is much longer", kind="op")


def _compiling(device: Device) -> Html:
    """The first call at each batch size of a function that is compiled for every shape."""
    data = device["mlp/new_shapes"].data
    calls = zip(data["batches"], data["static"]["first_call_ms"], strict=True)
    rows = [(f"batch {batch}", ms, format_value(1e3 * ms, "us")) for batch, ms in calls]
    return bar_rows(rows, described="First calls with four batch sizes, each of which compiles", kind="op")


def _memory(device: Device) -> Html:
    """The peak of attention that stores its scores, at the four longest sequences tried."""
    lengths = device["attention/lengths_64"].data.items()
    naive = {int(tokens): variants["variants"]["naive"] for tokens, variants in lengths}
    peaks = sorted((tokens, 0 if "stopped" in each else each["peak_bytes"]) for tokens, each in naive.items())
    texts = [format_value(peak, "bytes") if peak else "out of memory" for _, peak in peaks]
    rows = [(f"{tokens:,} tokens", peak, text) for (tokens, peak), text in zip(peaks, texts, strict=True)][-4:]
    return bar_rows(rows, described="Peak memory of naive attention, by the length of the sequence", kind="whole")


PICTURES: Mapping[str, Picture] = {
    "gap-in-operators": _step("matmul_add/eager_64", "A short kernel after each operator, and gaps between them"),
    "gap-in-a-wait": _step("matmul_add/item_4096", "A call that waits until the GPU is done"),
    "gap-outside-pytorch": _whole("training_step/loader_before", "A gap in which the CPU is in no operator"),
    "products-at-the-ceiling": _step("matmul_add/eager_4096", "One long product, and a short sum after it"),
    "bytes-at-the-ceiling": _gpu_part("attention/naive", "Pointwise kernels and a copy between two products"),
    "below-both-ceilings": _gpu_part("attention/math", "Two long products in float32, and many other kernels"),
    "one-giant-step": _giant_step,
    "compiling-again": _compiling,
    "memory-grows": _memory,
}
"""Name of a symptom -> its picture. Another GPU has its own pictures only where it is the only one recorded."""
