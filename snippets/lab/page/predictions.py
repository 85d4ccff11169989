"""Predictions: a page gives the means to compute a value; a reader computes it, predicts, and then looks.

A prediction is a guess with a first step. The form checks the computed value at once, with reasons for near misses; the
prediction itself is committed, as a guess is, and only then the one veiled figure shows:

    ??? question "Predict: how long does `generate` take for a token?"

        (a fence that shows `prediction("decoder.generate_us", READING)`, with a `Computation` of the findings)

        Because ...
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

from kinetoscope.html import Html
from kinetoscope.trace.units import format_value
from snippets.lab.finding.book import figure
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.page.guesses import guess_box, number_guess, printed_unit, strong

_NAME = re.compile(r"\{([\w.]+)\}")


@dataclass(frozen=True)
class Computation:
    """What the page has given the means to compute.

    A text may contain figures: `weights and cache, {decoder.read_bytes}`.
    """

    question: str
    """`How long does reading take?`."""
    figure: str
    """The name of the computed figure."""
    why: str
    """How the value is computed: shown next to it."""
    hint: str
    """Shown next to the empty field, and below a value that is neither right nor near."""
    near: Mapping[str | float, str] = field(default_factory=dict)
    """Figure, or a number in the unit of the computed one -> why a reader may have computed that value instead."""


def prediction(
    device: Device,
    figure_name: str,
    computation: Computation,
    noun: str = "",
    *,
    veils: Sequence[str] = (),
    of: str = "",
    at: str = "",
) -> Html:
    """Ask for a computed value and check it. Then ask for a prediction of the measured `figure_name`.

    The answer shows both values, and how many times the computed value was measured where they have one unit. The
    other arguments are those of `guess_number`; so are the errors.
    """
    guess, measured = number_guess(device, figure_name, noun, of, at)
    computed, answer = figure(computation.figure, device), figure(figure_name, device)
    scale, unit = printed_unit(computed)
    why = _with_figures(computation.why, device)
    compute: dict[str, Any] = {
        "question": computation.question,
        "answer": computed.value,
        "text": computed.text,
        "why": why,
        "hint": _with_figures(computation.hint, device),
        "scale": scale,
        "label": "times" if unit == "x" else unit,
        "near": [
            [figure(value, device).number if isinstance(value, str) else value, _with_figures(reason, device)]
            for value, reason in computation.near.items()
        ],
    }
    before = f"<em>{escape(computation.question)}</em> Computed: {strong(computed)}. {escape(why)} "
    after = _compared(answer, computed)
    return guess_box(device, guess | {"compute": compute}, measured, veils, before=before, after=after)


def _compared(answer: Figure, computed: Figure) -> str:
    """How many times the computed value was measured, or the other way round; empty for two units or a zero."""
    if computed.unit != answer.unit or not computed.number or not answer.number:
        return ""
    ratio = answer.number / computed.number
    text = format_value(max(ratio, 1 / ratio), "x")
    if ratio >= 1:
        return f", <strong>{text}</strong> the computed value"
    return f"; the computed value is <strong>{text}</strong> the measured value"


def _with_figures(text: str, device: Device) -> str:
    return _NAME.sub(lambda match: figure(match[1], device).text, text)
