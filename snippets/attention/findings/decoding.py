"""Decoding: one new query for each head."""

import math
import re
from collections.abc import Mapping

from kinetoscope.html import Html
from kinetoscope.trace.events import Step
from kinetoscope.trace.queries import kernel_names, longest_kernel
from snippets.attention.findings.speed import STEADY
from snippets.attention.findings.variants import EIGHT
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    at_least,
    at_most,
    claim,
    equals,
    format_value,
    matches,
)
from snippets.lab.finding.measure import (
    derived,
    paired_ratio,
    share_of_ceiling,
    smallest,
)
from snippets.lab.page import (
    Columns,
    Computation,
    devices_table,
    floor_bars,
    prediction as prediction,
    show as show,
    variants_table,
)
from snippets.lab.recording.ceilings import COPY

READING = Computation(
    "How long must reading keys and values take?",
    "attention.decode_floor_us",
    "{attention.decode_cudnn.bytes} at {attention.decode_copy_rate}.",
    "Divide the bytes of keys and values by a copy's rate.",
)
DECODE = {heading: name.replace("/", "/decode_") for heading, name in EIGHT.items() if heading != "in place"}
"""Decoding has no mask, so it has no variant in place."""
CUDNN = DECODE["cuDNN"]


def blocks(step: Step) -> int:
    """Blocks of the longest kernel's grid."""
    return math.prod(longest_kernel(step).grid or (0,))


def shared_bytes(step: Step) -> int:
    """Shared memory of a block of the longest kernel."""
    return longest_kernel(step).shared_memory_bytes or 0


@claim("O-A43", at_least(80), scope="timing")
def lower_copy_share(device: Device) -> Figure:
    """In decoding, cuDNN and flash move keys and values at 80 % or more of a plain copy's rate."""
    return smallest(*(share_of_ceiling(device[DECODE[heading]], COPY) for heading in ("cuDNN", "flash")))


@claim("O-A44", at_most(1.25), scope="timing")
def naive_over_cudnn(device: Device) -> Figure:
    """In decoding, naive attention takes at most 25 % longer than cuDNN."""
    return paired_ratio(device[DECODE["naive"]], device[CUDNN])


@claim("O-A45", equals("128 and 128 blocks"), scope="this-gpu")
def same_grid(device: Device) -> Figure:
    """In decoding, efficient and cuDNN both launch a block for each head of each sequence."""
    efficient, cudnn = (device[DECODE[heading]].per_step(blocks) for heading in ("efficient", "cuDNN"))
    return derived(f"{efficient.value} and {cudnn.value} blocks", efficient, cudnn)


@claim("O-A46", at_least(4), scope="timing")
def efficient_over_cudnn(device: Device) -> Figure:
    """In decoding, the efficient backend takes at least four times as long as cuDNN."""
    return paired_ratio(device[DECODE["efficient"]], device[CUDNN])


@claim("O-A47", equals("flash_fwd_splitkv_kernel (1, 2, 128), flash_fwd_splitkv_combine_kernel"), scope="this-gpu")
def flash_split(device: Device) -> Figure:
    """In decoding, flash runs two blocks for each of the 128 heads, and a second kernel that combines their results."""

    def kernels(step: Step) -> str:
        names = [re.split(r"[<(]", kernel.name)[0].rpartition("::")[2] for kernel in step.kernels]
        first, *others = names or ["none"]
        return ", ".join([f"{first} {longest_kernel(step).grid}", *others])

    return device[DECODE["flash"]].per_step(kernels)


@claim("O-A48", at_least(11), scope="timing")
def math_over_cudnn(device: Device) -> Figure:
    """In decoding, the math backend takes at least eleven times as long as cuDNN."""
    return paired_ratio(device[DECODE["math"]], device[CUDNN])


@claim("O-A49", equals(True), scope="this-gpu")
def compiled_is_cudnn(device: Device) -> Figure:
    """In decoding, compiled attention runs one kernel, which has the name of cuDNN's kernel."""
    compiled, cudnn = (device[DECODE[heading]].per_step(kernel_names) for heading in ("compiled", "cuDNN"))
    is_same = compiled.value == cudnn.value
    text = f"{compiled.value}, in both" if is_same else f"{compiled.value} instead of {cudnn.value}"
    return derived(is_same, compiled, cudnn, display=text)


@claim("O-A61", matches(r"cudnn_\w+_sdpa_sm80_flash_fprop_wmma_\w+"), scope="this-gpu")
def decode_cudnn_kernel(device: Device) -> Figure:
    """In decoding, cuDNN runs a kernel with sm80 and wmma in its name."""
    return device[CUDNN].per_step(kernel_names)


def floor_us(device: Device) -> Figure:
    """The time of the bytes of keys and values at the rate of a large copy."""
    run = device[CUDNN]
    return Figure(1e6 * run.point.bytes / run.ceiling(COPY).rate, "us", origin=f"keys and values at the rate of {COPY}")


def decode_bars(device: Device) -> Html:
    """One query for each head, seven ways, from the floor up."""
    rungs = {heading: device[experiment].time() for heading, experiment in DECODE.items()}
    caption = "GPU time of attention in decoding, with one query for each head"
    return floor_bars(device, ("the floor: bytes / a copy's rate", floor_us(device)), rungs, caption)


def decode_table(device: Device) -> Html:
    """One query for each head, seven ways: time, share of a copy's rate, and the longest kernel's blocks."""
    columns: Columns = {
        "kernels": "kernels_per_step",
        "GPU, interleaved": "interleaved_us",
        "share of a copy's rate": lambda run: share_of_ceiling(run, COPY).text,
        **STEADY,
        "from Python": "from_python_us",
        "blocks": lambda run: f"{blocks(run.step):,}",
        "shared memory": lambda run: format_value(shared_bytes(run.step), "bytes"),
    }
    caption = "Attention in decoding. The last two columns describe the longest kernel"
    return variants_table(device, DECODE, caption, columns=columns)


def decode_devices(device: Device) -> Html:
    """The time of each way on every recorded device."""
    figures = {heading: f"{experiment.replace('/', '.')}.interleaved_us" for heading, experiment in DECODE.items()}
    return devices_table(device, figures, "Interleaved GPU time of attention in decoding, on each GPU")


FIGURES: Mapping[str, Measure] = {
    "decode_floor_us": floor_us,
    "decode_copy_rate": lambda device: Figure(device[CUDNN].ceiling(COPY).rate, "bytes/s", origin=COPY),
    "decode_naive_us": lambda device: device[DECODE["naive"]].time(),
    "decode_copy_share": lambda device: share_of_ceiling(device[CUDNN], COPY),
    "decode_blocks": lambda device: device[CUDNN].per_step(blocks),
    "decode_multiprocessors": lambda device: Figure(device[CUDNN].environment.multiprocessors, origin=device.name),
    "decode_efficient_shared": lambda device: device[DECODE["efficient"]].per_step(shared_bytes, "bytes"),
    "decode_cudnn_shared": lambda device: device[CUDNN].per_step(shared_bytes, "bytes"),
}
