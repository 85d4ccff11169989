"""Guess boxes: questions on a page before the measurement. The answer is a figure or a verdict, never typed.

A box is in a folded block; the summary is the question:

    ??? question "Guess: how many kernels does one forward launch?"

        (a fence that shows `guess_number("mlp.eager.kernels_per_step")`)

        Five kernels, because ...

This module writes the measured answer, which readers without JavaScript see alone. `guess.js` builds a form from
`data-guess`, puts it in front of the fold, and shows how far the guess was off. `curtain.js` veils the one figure of
the page that `veils` names until the reader commits a guess or asks to see it. Verdicts in `veils` wait with it:

    show("mlp-guess-gelu", guess_number, "mlp.gelu_of_gate", "%", veils=("mlp-forward", "mlp-kernels-verdicts"))
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from typing import Any

from kinetoscope.html import Html
from kinetoscope.trace.units import UNITS
from snippets.lab.finding.book import figure, find_claim, judge
from snippets.lab.finding.claim import STATUSES
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.page.kernel_name import with_kernel_names
from snippets.lab.recording.schema import NotRecorded, NotTimed

CLAIM = "claim:"
CLAIM_OPTIONS = ("holds=It is so", "differs=It is not")


def guess_number(
    device: Device,
    figure_name: str,
    noun: str = "",
    *,
    veils: Sequence[str] = (),
    of: str = "",
    at: str = "",
) -> Html:
    """Ask for a number, which becomes a mark in the figures that answer it.

    A guess of a count must be exact. A quantity is asked for in its printed unit; the box shows by which factor a guess
    is too high or too low. Where a veiled chart has an axis of the same unit, the guess becomes a mark there, to scale.

    Args:
        device: whose measurement is the answer.
        figure_name: the figure to guess.
        noun: of what, as in `kernels`.
        veils: the one figure that answers it, and verdicts about that figure.
        of: the figure that the guess is a share (`%`) or a multiple (`x`) of, such as the other kernel's time.
        at: the short name of a slice, `GELU`: the guess is how long that takes, drawn into veiled timelines.

    Raises `ValueError` for a figure that is not a number at or above zero, or that has its own display.
    """
    guess, measured = number_guess(device, figure_name, noun, of, at)
    return guess_box(device, guess, measured, veils)


def number_guess(device: Device, figure_name: str, noun: str, of: str, at: str) -> tuple[dict[str, Any], Html]:
    """The data of a form that asks for a number, and the measured number."""
    answer = figure(figure_name, device)
    if isinstance(answer.value, str | bool) or answer.display or answer.value < 0:
        raise ValueError(f"{figure_name} is {answer.text!r}, not a number to guess; ask for it by guess_choice")
    scale, unit = printed_unit(answer)
    guess: dict[str, Any] = {
        "kind": "number",
        "answer": answer.value,
        "exact": isinstance(answer.value, int) and not answer.unit,
        "scale": scale,
        "label": noun or ("times" if unit == "x" else unit),
        "suffix": unit if unit in ("", "x") else f" {unit}",
    }
    mark = _mark(device, answer.unit, of)
    if at and mark.get("unit") != "us":
        raise ValueError(f"a guess of {figure_name} is no time to draw at {at}; give `of`")
    guess |= {"mark": mark | {"at": at}} if at else {"mark": mark} if mark else {}
    spread = f" ({escape(answer.spread_text)})" if answer.spread_text else ""
    return guess, Html(f"{strong(answer)}{spread}")


def _mark(device: Device, unit: str, of: str) -> dict[str, Any]:
    """The place of a guess on an axis: the axis's unit, and the factor `times` from guess to axis; empty without a
    place."""
    if of and unit in ("%", "x"):
        whole = figure(of, device)
        return {"unit": whole.unit, "times": whole.number / (100 if unit == "%" else 1)}
    if of:
        raise ValueError(f"a guess in {unit or 'counts'} is no share or multiple of {of}")
    return {"unit": unit, "times": 1.0} if unit and unit not in ("%", "x") else {}


def guess_choice(device: Device, figure_or_claim: str, *options: str, veils: Sequence[str] = ()) -> Html:
    """Ask which of `options` was measured.

    Args:
        device: whose measurement is the answer.
        figure_or_claim: a figure, or `claim:M2` with the options `holds` and `differs`.
        options: each a printed value of the figure, or `value=label`; for a claim `holds=...`, `differs=...`.
        veils: the one figure that answers it, and verdicts about that figure.

    Raises `ValueError` for fewer than two options, or if the measured value is not an option; `NotTimed` for an
    inconclusive claim, unless that is an option.
    """
    is_claim = figure_or_claim.startswith(CLAIM)
    labels = dict(_option(option) for option in options or (CLAIM_OPTIONS if is_claim else ()))
    if len(labels) < 2:
        raise ValueError(f"a choice of {figure_or_claim} has {len(labels)} options; give at least two")
    if is_claim and not labels.keys() <= set(STATUSES):
        listed = ", ".join(map(repr, labels))
        raise ValueError(f"a choice of {figure_or_claim} has the options {listed}; write {' and '.join(CLAIM_OPTIONS)}")
    measured, answers = _of_claim(device, figure_or_claim) if is_claim else _of_figure(device, figure_or_claim)
    answer = next((answer for answer in answers if answer in labels), None)
    if answers == ("inconclusive",) and answer is None:
        raise NotTimed(f"{figure_or_claim} is inconclusive on {device.name}")
    if answer is None:
        listed = ", ".join(map(repr, labels))
        raise ValueError(f"{figure_or_claim} is {answers[0]!r} on {device.name}, which is none of {listed}")
    named = labels[answer] != answer
    parts = [f"<strong>{escape(labels[answer])}</strong>"] if named else []
    parts += [strong(measured)] if not (named and isinstance(measured.value, bool) and not measured.display) else []
    guess = {"kind": "choice", "answer": answer, "options": list(labels.items())}
    return guess_box(device, guess, Html(": ".join(parts)), veils)


def guess_order(device: Device, figure_name: str, *, veils: Sequence[str] = ()) -> Html:
    """Ask for the order of the items that the figure lists. An item may come more than once.

    The box offers the items in an order that is the same in every build. Raises `ValueError` for a figure with fewer
    than two different items.
    """
    answer = figure(figure_name, device)
    items = str(answer.value).split(", ")
    offered = sorted(set(items), key=lambda item: sha256(f"{figure_name} {item}".encode()).digest())
    if len(offered) < 2:
        raise ValueError(f"{figure_name} is {answer.value!r} on {device.name}, which has no order to guess")
    return guess_box(device, {"kind": "order", "answer": items, "options": offered}, strong(answer), veils)


def printed_unit(figure: Figure) -> tuple[float, str]:
    """The printed unit of a figure and its factor over the figure's unit: 1455 us -> (1000.0, "ms")."""
    if not figure.unit:
        return 1.0, ""
    written = figure.text.rpartition(" ")[2] if " " in figure.text else figure.unit  # only `1.56x` has no space
    return next((scale, name) for scale, name in UNITS[figure.unit] if name == written)


def _of_figure(device: Device, name: str) -> tuple[Figure, tuple[str, ...]]:
    measured = figure(name, device)
    return measured, (measured.text, str(measured.value))


def _of_claim(device: Device, name: str) -> tuple[Figure, tuple[str, ...]]:
    """The figure of a claim, and its status. Raises `UnknownName`, and `NotRecorded` without a measurement."""
    chapter, claim = find_claim(name.removeprefix(CLAIM))
    verdict = judge(claim, chapter, device)
    if verdict.measured is None:
        raise NotRecorded(verdict.reason)
    return verdict.measured, (verdict.status,)


def _option(option: str) -> tuple[str, str]:
    value, _, label = option.partition("=")
    return value, label or value


def strong(figure: Figure) -> Html:
    """A figure in bold, with a doubt where the steps disagree."""
    doubt = "" if figure.conclusive else ", but the steps of the trace disagree"
    return Html(f"<strong>{with_kernel_names(figure.text)}</strong>{doubt}")


def guess_box(
    device: Device, guess: Mapping[str, Any], measured: Html, veils: Sequence[str], *, before: str = "", after: str = ""
) -> Html:
    """The measured answer with empty elements for the reader's guess and its error, between `before` and `after`.

    Raises `ValueError` for `veils` that is one string instead of a tuple of fences' ids.
    """
    if isinstance(veils, str):
        raise ValueError(f"veils is the string {veils!r}; write a tuple: veils=({veils!r},)")
    data = escape(json.dumps(guess, ensure_ascii=False, allow_nan=False))
    veiled = f' data-veils="{escape(" ".join(veils))}"' if veils else ""
    return Html(
        f'<div class="guess" data-device="{escape(device.name)}"{veiled} data-guess="{data}"><p><span '
        f'class="guess-said"></span>{before}Measured: {measured} on the {escape(device.short_name)}{after}.'
        '<span class="guess-off">'
        "</span></p></div>"
    )
