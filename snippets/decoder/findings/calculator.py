"""The calculator of a decoder's floor: fields that a script fills, and without a script the formula."""

from __future__ import annotations

from html import escape

from kinetoscope.html import Html
from snippets.decoder.findings.reading import CEILINGS, LARGE, read_rate
from snippets.lab.finding import Device, format_value
from snippets.lab.finding.device import all_devices
from snippets.lab.page import show as show

FIELDS = (
    ("weights", "weights, in billions", f"{LARGE.read_weights / 1e9:.2f}"),
    ("cache", "KV cache per token, in kB", f"{LARGE.cache_bytes / 1e3:.0f}"),
    ("batch", "texts at once", "1"),
    ("context", "tokens so far, per text", "1024"),
)
TYPES = (("2", "bf16, fp16"), ("1", "int8, fp8"), ("0.5", "int4"), ("4", "float32"))
FORMULA = "floor = (weights × bytes per weight + texts × tokens × KV cache per token) / rate of reading"


def calculator(device: Device) -> Html:
    """Fields for a model's sizes, and the rates of the recorded GPUs; the same for every device.

    Raises `NotRecorded` without a recorded GPU.
    """
    recorded = [each for each in all_devices(device.root) if each[CEILINGS].is_recorded]
    rates = {each.short_name: read_rate(each).number for each in recorded or [device]}
    numbers = "".join(
        f'<label>{escape(text)} <input type="number" min="0" step="any" name="{name}" value="{value}"></label>'
        for name, text, value in FIELDS
    )
    types = "".join(f'<option value="{size}">{escape(text)}</option>' for size, text in TYPES)
    gpus = "".join(
        f'<option value="{rate / 1e12:.3f}">{escape(name)}, {format_value(rate, "bytes/s")}</option>'
        for name, rate in rates.items()
    )
    other = '<label>or another rate, in TB/s <input type="number" min="0" step="any" name="rate" value=""></label>'
    fields = (
        f'{numbers}<label>type of the weights <select name="type">{types}</select></label>'
        f'<label>GPU <select name="gpu">{gpus}</select></label>{other}'
    )
    return Html(
        f'<div class="floor-calculator" data-search-exclude><p>{escape(FORMULA)}</p>'
        f'<div class="fields" hidden>{fields}</div><output role="status"></output></div>'
    )
