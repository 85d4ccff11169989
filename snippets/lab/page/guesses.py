"""Guess boxes: what a page asks before it shows. The answer is a figure or a verdict, never typed.

A box stands in a folded block whose summary is the question:

    ??? question "Guess: how many kernels does one forward launch?"

        (a fence that shows `guesses.number("mlp.eager.kernels_per_step")`)

        Five kernels, because ...

What is written here is the measured answer, and without JavaScript that is all there is. `guess.js` puts a form in
front of the fold, made from `data-guess`, and then says how far the guess was off.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from html import escape
from typing import Any

from snippets.lab.finding.book import all_claims, judge
from snippets.lab.finding.figure import UNITS, Figure
from snippets.lab.finding.quantities import UnknownFigure, figure
from snippets.lab.html import Html
from snippets.lab.page.kernel_name import with_kernel_names
from snippets.lab.recording.device import short_name, shown_device
from snippets.lab.recording.schema import NotRecorded

CLAIM = "claim:"
IT_IS_SO = ("holds=It is so", "differs=It is not")
"""What can be said of a claim."""


def guess_number(figure_name: str, unit_word: str = "") -> Html:
    """Ask for a number; `unit_word` says of what, as in `kernels`.

    A count has to be met exactly. A quantity is asked for in the unit in which it is written, and a guess of it is
    judged by how many times too high or too low it is.

    Raises `ValueError` for a figure that is no number from zero up, or that a number alone does not say.
    """
    device = shown_device()
    shown = figure(figure_name, device)
    if isinstance(shown.value, str | bool) or shown.said or shown.value < 0:
        raise ValueError(f"{figure_name} is {shown.text!r}, which is no number to guess; ask for it by guesses.choice")
    scale, unit = _written_in(shown)
    guess = {
        "kind": "number",
        "answer": shown.value,
        "exact": isinstance(shown.value, int) and not shown.unit,
        "scale": scale,
        "label": unit_word or ("times" if unit == "x" else unit),
        "suffix": unit if unit in ("", "x") else f" {unit}",
    }
    spread = f" ({escape(shown.spread_text)})" if shown.spread_text else ""
    return _box(guess, Html(f"{_said(shown)}{spread}"), device)


def guess_choice(name: str, *options: str) -> Html:
    """Ask which of `options` was measured.

    Args:
        name: a figure, or `claim:M2`, of which the options are that it is so and that it is not.
        options: each the figure's value as it is written, or `value=label`; for a claim `holds=...`, `differs=...`.

    Raises `ValueError` when there are not two options, or what was measured is none of them.
    """
    device = shown_device()
    shown, answers = _verdict(name.removeprefix(CLAIM), device) if name.startswith(CLAIM) else _value(name, device)
    labels = dict(_option(one) for one in options or (IT_IS_SO if name.startswith(CLAIM) else ()))
    if len(labels) < 2:
        raise ValueError(f"a choice of {name} has {len(labels)} options")
    answer = next((one for one in answers if one in labels), None)
    if answer is None:
        raise ValueError(f"{name} is {answers[0]!r} on {device}, which is none of {', '.join(map(repr, labels))}")
    named = labels[answer] != answer
    parts = [f"<strong>{escape(labels[answer])}</strong>"] if named else []
    parts += [_said(shown)] if not (named and isinstance(shown.value, bool) and not shown.said) else []
    return _box({"kind": "choice", "answer": answer, "options": list(labels.items())}, Html(": ".join(parts)), device)


def guess_order(figure_name: str, separator: str = ", ") -> Html:
    """Ask for the order of the items that the figure lists; an item may come more than once.

    The items are offered in an order of their own, the same at every build. Raises `ValueError` for a figure that
    lists less than two different items.
    """
    device = shown_device()
    shown = figure(figure_name, device)
    items = str(shown.value).split(separator)
    offered = sorted(set(items), key=lambda item: sha256(f"{figure_name} {item}".encode()).digest())
    if len(offered) < 2:
        raise ValueError(f"{figure_name} is {shown.value!r} on {device}, which has no order to guess")
    return _box({"kind": "order", "answer": items, "options": offered}, _said(shown), device)


def _written_in(shown: Figure) -> tuple[float, str]:
    """The unit that a figure is written in, and how many of its own units make one: 1455 us -> (1000.0, "ms")."""
    if not shown.unit:
        return 1.0, ""
    written = shown.text.rpartition(" ")[2] if " " in shown.text else shown.unit  # only `1.56x` has no space
    return next((scale, name) for scale, name in UNITS[shown.unit] if name == written)


def _value(figure_name: str, device: str) -> tuple[Figure, tuple[str, ...]]:
    shown = figure(figure_name, device)
    return shown, (shown.text, str(shown.value))


def _verdict(claim_id: str, device: str) -> tuple[Figure, tuple[str, ...]]:
    """What a claim measured, and its verdict. Raises `UnknownFigure`, and `RecordingMissing` where nothing was."""
    if claim_id not in all_claims():
        raise UnknownFigure(f"no claim {claim_id!r}")
    chapter, claim = all_claims()[claim_id]
    verdict = judge(claim, chapter, device)
    if verdict.measured is None:
        raise NotRecorded(verdict.reason)
    return verdict.measured, (verdict.word,)


def _option(option: str) -> tuple[str, str]:
    value, _, label = option.partition("=")
    return value, label or value


def _said(shown: Figure) -> Html:
    doubt = "" if shown.conclusive else ", but the steps disagree"
    return Html(f"<strong>{with_kernel_names(shown.text)}</strong>{doubt}")


def _box(guess: Mapping[str, Any], measured: Html, device: str) -> Html:
    """The measured answer, with empty places around it for what the reader said and how far that was off."""
    data = escape(json.dumps(guess, ensure_ascii=False, allow_nan=False))
    return Html(
        f'<div class="guess" data-device="{escape(device)}" data-guess="{data}"><p><span class="guess-said"></span>'
        f'Measured: {measured} on the {escape(short_name(device))}.<span class="guess-off"></span></p></div>'
    )
