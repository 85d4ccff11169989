"""Are the answers right? Logits and greedy tokens of a long answer, against float32."""

from __future__ import annotations

from kinetoscope.html import Cell, Html, table
from snippets.decode_kernels.findings.names import (
    EARLY,
    INT8,
    INT8_HEADINGS,
    MAX_AUTOTUNE,
    MODELS,
    PEERS,
    errors_of,
)
from snippets.decode_kernels.findings.rungs import LARGE_MODEL, SMALL_MODEL
from snippets.decoder.findings.probed import entry
from snippets.lab.finding import Device, Figure, NotTimed, at_least, at_most, claim, format_value
from snippets.lab.page import show as show

ANSWERS = {MAX_AUTOTUNE: f"{PEERS[MAX_AUTOTUNE]}, bf16"} | INT8_HEADINGS


def error(device: Device, model: str, variant: str) -> float:
    """The error of an answer's logits, against float32 with the same weights."""
    return float(entry(device, errors_of(model), variant, "error"))


def equal(device: Device, model: str, variant: str) -> int:
    """Tokens of an answer that float32 with the same weights chooses, too."""
    return int(entry(device, errors_of(model), variant, "equal"))


def _origin(device: Device, model: str) -> str:
    return device[errors_of(model)].origin


@claim("DK21", at_most(1.5))
def error_over_compiled(device: Device) -> Figure:
    """For the smaller model, the logits of the early-launch step differ from float32 by at most 1.5 times as much as
    the logits of the max-autotune graph."""
    found = [error(device, SMALL_MODEL, each) for each in (EARLY, MAX_AUTOTUNE)]
    if not found[1]:
        raise NotTimed("the logits of the max-autotune graph don't differ from float32")
    return Figure(found[0] / found[1], "x", origin=_origin(device, SMALL_MODEL))


@claim("DK34", at_least(0.98))
def same_tokens(device: Device) -> Figure:
    """In an answer of the smaller model, float32 confirms at least 0.98 times as many tokens of the early-launch step
    as of the max-autotune graph."""
    found = [equal(device, SMALL_MODEL, each) for each in (EARLY, MAX_AUTOTUNE)]
    if not found[1]:
        raise NotTimed("float32 confirms no token of the max-autotune graph")
    return Figure(found[0] / found[1], "x", origin=_origin(device, SMALL_MODEL))


@claim("DK35", at_most(1.5))
def int8_kernels_are_exact(device: Device) -> Figure:
    """Compared with float32 and the same int8 weights, the logits of the larger model's int8 step have at most 1.5
    times the error that the bf16 step has compared with float32 and the bf16 weights."""
    plain = error(device, LARGE_MODEL, EARLY)
    if not plain:
        raise NotTimed("the logits of the bf16 step don't differ from float32")
    return Figure(error(device, LARGE_MODEL, INT8 + EARLY) / plain, "x", origin=_origin(device, LARGE_MODEL))


@claim("DK36", at_least(2))
def rounding_over_kernels(device: Device) -> Figure:
    """Rounding the larger model's weights to int8 changes the logits of the chosen tokens at least twice as much as
    computing with int8 weights in the early-launch step.

    We expected that rounding the weights changes the logits most. But each kernel rounds its results to bf16, and these
    errors add up over all layers. We didn't measure how much each kernel adds.
    """
    own = error(device, LARGE_MODEL, INT8 + EARLY)
    if not own:
        raise NotTimed("the logits of the int8 step don't differ from float32")
    rounding = float(entry(device, errors_of(LARGE_MODEL), INT8 + EARLY, "quantized"))
    return Figure(rounding / own, "x", origin=_origin(device, LARGE_MODEL))


def answer_table(device: Device) -> Html:
    """Both models' answers: error of the logits, and tokens that float32 confirms, with the same and with the original
    weights."""
    rows: list[list[Cell]] = []
    for model in MODELS:
        data = device[errors_of(model)].data
        if "left_out" in data:
            rows.append([model, "left out", str(data["left_out"]), *[None] * 3])
            continue
        for variant in (each for each in ANSWERS if each in data):
            found = data[variant]
            count = int(found["tokens"])
            rows.append(
                [
                    model,
                    ANSWERS[variant],
                    format_value(float(found["error"])),
                    f"{found['equal']} of {count}",
                    format_value(float(found["quantized"])) if found["quantized"] else None,
                    f"{found['equal_before']} of {count}",
                ]
            )
    head = ["weights", "step", "error of the logits", "same token as float32", "error of rounding to int8"]
    head += ["same token as float32 and bf16 weights"]
    return table("Answers against float32, by step and kind of weights", head, rows, text_columns=2)
