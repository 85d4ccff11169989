"""A claim is a sentence and a band for a measured figure, written as one function.

    @claim("M7", between(4, 17), scope="timing", source=Source("Part 2", "0.19 ms, 0.19 ms and 0.17 ms"))
    def down_is_faster(device: Device) -> Figure:
        \"\"\"Down is about a tenth faster than gate and up, which do the same amount of work.\"\"\"
        return device["mlp/eager"].per_step(percent_faster, "%")

The docstring is the sentence. A second paragraph explains why the claim differs on the default device; only a claim
that differs there has one. Statuses on a device:

holds          the band contains the figure; of a timing, its whole spread
differs        the band does not contain it, or nothing of its spread: a finding, shown beside the source's value
inconclusive   the steps of a trace disagree about a count, the spread of a timing crosses a limit of the band, a part
               of a timing has no value, or a recording was disturbed
cannot be tested   the source's value is that of another GPU, such as a time: this device has a value, and no verdict
not measured   this device lacks a recording that the claim needs

The statuses accepted for a device stand with its recordings (accepted.py).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from snippets.lab.experiment import UnknownName, nearest
from snippets.lab.finding.band import Band
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import Measure
from snippets.lab.recording.device import slug

Scope = Literal["every-gpu", "this-gpu", "timing"]
SCOPES: tuple[Scope, ...] = get_args(Scope)
Status = Literal["holds", "differs", "inconclusive", "cannot be tested", "not measured"]
STATUSES: tuple[Status, ...] = ("holds", "differs", "inconclusive", "cannot be tested", "not measured")

SERIES = {
    "Part 1": "https://huggingface.co/blog/torch-profiler",
    "Part 2": "https://huggingface.co/blog/torch-mlp-fusion",
    "Part 3": "https://huggingface.co/blog/torch-attention-profile",
}
"""The posts of the series *Profiling in PyTorch* -> their addresses, as in mkdocs.yml."""
ARTICLES = {
    "The Profiling Deep-Dive on nn.Linear Fusion": (
        "https://1minai.site/article/huggingface-details-pytorch-profiling-for-fused-mlp-layers"
    ),
    "Hugging Face has published the second installment of its PyTorch profiling series": (
        "https://tokenfeed.pages.dev/humans-teach-pytorch-to-skip-the-middleman-admirably"
    ),
    "Profiling in PyTorch: From nn.Linear to Fused MLP Optimization": (
        "https://explore.n1n.ai/blog/profiling-pytorch-nn-linear-fused-mlp-optimization-2026-06-12"
    ),
}
"""Articles about the series, by title -> their addresses."""


@dataclass(frozen=True)
class Source:
    """A source, the value it gives, and for which device."""

    who: str
    value: str
    device: str = "NVIDIA A100-SXM4-80GB"
    """The beginning of its name, `NVIDIA H100`, where a source says no more; empty where it names none."""
    only_there: bool = False
    """Whether the value is that GPU's alone, such as a time: on another one the claim cannot be tested."""

    @property
    def address(self) -> str:
        """The address of the source; empty if unknown."""
        return {**SERIES, **ARTICLES}.get(self.who, "")

    def can_be_tested_on(self, device_name: str) -> bool:
        """Whether the GPU with this folder name can hold or refute the value: `NVIDIA H100` names each kind of H100."""
        return not self.only_there or f"{device_name}-".startswith(f"{slug(self.device)}-")


@dataclass(frozen=True)
class Claim:
    """A checkable sentence of the book. Calling it with a device returns the measured figure."""

    id: str
    sentence: str
    scope: Scope
    """every-gpu: counts, orders, equal names; this-gpu: a name, an API, a tile; timing: a ratio or a band."""
    measure: Measure
    band: Band
    source: Source | None = None
    """None if the sentence is ours."""
    why: str = ""
    """How the claim differs on the default device and why it matters."""
    is_advice: bool = False
    """Whether readers act on the sentence: a rule of thumb, or which of several is fastest."""

    def __call__(self, device: Device) -> Figure:
        """Measure the figure on a device."""
        return self.measure(device)


def claim(
    identity: str,
    band: Band,
    *,
    scope: Scope = "every-gpu",
    source: Source | None = None,
    is_advice: bool = False,
) -> Callable[[Measure], Claim]:
    """Make a claim from the decorated function. The function's docstring is the claim's sentence.

    Raises `ValueError` without a docstring, `UnknownName` for a scope that does not exist.

    Args:
        identity: `M7`; unique in the book.
        band: the figures for which the claim holds.
        scope: `every-gpu`: it should hold on all; `this-gpu`: a name, a launch API or a tile; `timing`: a ratio or band
            of times. The last two may differ on another GPU.
        source: the source and its value; None if the sentence is ours.
        is_advice: readers act on the sentence, such as a rule of thumb; where it differs, the page always shows it.
    """

    if scope not in SCOPES:
        raise UnknownName(f"claim {identity}: no scope {scope!r}{nearest(scope, SCOPES)}")

    def decorate(measure: Measure) -> Claim:
        sentence, _, why = inspect.cleandoc(measure.__doc__ or "").partition("\n\n")
        if not sentence:
            raise ValueError(f"claim {identity}: its function needs a docstring, which is the sentence")
        return Claim(identity, _one_line(sentence), scope, measure, band, source, _one_line(why), is_advice)

    return decorate


def _one_line(text: str) -> str:
    return " ".join(text.split())
