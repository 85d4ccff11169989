"""Learning in each precision: losses, and weights that an update leaves unchanged."""

from __future__ import annotations

import statistics
from typing import Any

from kinetoscope.html import Cell, Html, table
from snippets.lab.finding import Device, Figure, at_least, between, claim, equals, format_value
from snippets.lab.page import show as show
from snippets.training_memory.findings.steps import EAGER

FAST, SLOW = "1e-3", "1e-4"
"""The learning rates, as the probe names them."""
SHOWN = (0, 25, 50, 100, 200, 299)
"""Steps whose losses the table shows."""


def trained(device: Device, rate: str, variant: str) -> dict[str, Any]:
    """The probe's data of a learning rate and a variant."""
    found: dict[str, Any] = device["training_memory/accuracy"].data[rate][variant]
    return found


def _origin(device: Device, rate: str, variant: str) -> str:
    return f"{device['training_memory/accuracy'].origin}, {variant}, learning rate {rate}"


def _over_float32(device: Device, rate: str, variant: str) -> Figure:
    """The trained model's loss / the loss of the model trained in float32, batch by batch."""
    pairs = zip(trained(device, rate, variant)["evaluated"], trained(device, rate, "fp32")["evaluated"], strict=True)
    ratios = [loss / exact for loss, exact in pairs]
    return Figure(statistics.median(ratios), "x", (min(ratios), max(ratios)), _origin(device, rate, variant))


def _furthest_from_float32(device: Device, variant: str) -> Figure:
    """Of the ratios at the two learning rates, the one that is further from 1."""
    ratios = (_over_float32(device, rate, variant) for rate in (FAST, SLOW))
    return max(ratios, key=lambda ratio: abs(ratio.number - 1))


@claim("TM21", between(0.95, 1.05))
def autocast_learns_the_same(device: Device) -> Figure:
    """After training under autocast, the model's loss equals the loss after float32 training, within 5 %, at both
    learning rates."""
    return _furthest_from_float32(device, "autocast")


@claim("TM22", between(0.95, 1.05))
def tf32_learns_the_same(device: Device) -> Figure:
    """After training with TF32 products, the model's loss equals the loss after float32 training, within 5 %, at both
    learning rates."""
    return _furthest_from_float32(device, "tf32")


@claim("TM23", at_least(1.2))
def bfloat16_learns_less(device: Device) -> Figure:
    """After training with bf16 weights at a learning rate of 1e-4, the model's loss is at least 1.2 times the loss
    after float32 training."""
    return _over_float32(device, SLOW, "bfloat16")


@claim("TM29", between(1.05, 1.3))
def bfloat16_fast(device: Device) -> Figure:
    """After training with bf16 weights at a learning rate of 1e-3, the model's loss is between 1.05 and 1.3 times the
    loss after float32 training."""
    return _over_float32(device, FAST, "bfloat16")


def unchanged(device: Device, rate: str, variant: str) -> Figure:
    """The share of a matrix's elements that the last step left bit by bit as they were."""
    share = trained(device, rate, variant)["matrices"][-1]
    return Figure(100 * share, "%", origin=_origin(device, rate, variant))


@claim("TM24", at_least(50))
def unchanged_weights(device: Device) -> Figure:
    """At a learning rate of 1e-4, the last update leaves most of the bf16 weights unchanged to the last bit."""
    return unchanged(device, SLOW, "bfloat16")


def unchanged_fast(device: Device) -> Figure:
    """The same at a learning rate of 1e-3."""
    return unchanged(device, FAST, "bfloat16")


@claim("TM25", equals(0))
def moved_norms(device: Device) -> Figure:
    """With bf16 weights, every scale of every norm is still exactly 1 after training."""
    shares = [trained(device, rate, "bfloat16")["norms_moved"] for rate in (FAST, SLOW)]
    return Figure(max(shares), origin=_origin(device, f"{FAST} and {SLOW}", "bfloat16"))


def moved_norms_float32(device: Device) -> Figure:
    """The share of the norms' scales that float32 training has moved from 1."""
    share = trained(device, FAST, "fp32")["norms_moved"]
    return Figure(100 * share, "%", origin=_origin(device, FAST, "fp32"))


def steps(device: Device) -> Figure:
    """How many steps each model was trained for."""
    run = device["training_memory/accuracy"]
    return Figure(len(trained(device, FAST, "fp32")["losses"]), origin=run.origin)


def losses(device: Device) -> Html:
    """The loss along the way, and of the trained model in float32, by precision and learning rate."""
    rows: list[list[Cell]] = []
    for rate in (SLOW, FAST):
        for name, variant in EAGER.items():
            found = trained(device, rate, variant)
            along = [f"{found['losses'][index]:.4f}" for index in SHOWN if index < len(found["losses"])]
            rows.append([f"{name}, {rate}", *along, f"{statistics.fmean(found['evaluated']):.4f}"])
    count = len(trained(device, FAST, "fp32")["losses"])
    steps = (f"step {index + 1}" for index in SHOWN if index < count)
    head = ["precision and learning rate", *steps, "after training, on new batches"]
    return table("The loss during and after training, by precision", head, rows)


def _percent(share: float) -> str:
    return format_value(100 * share, "%") if share >= 0.001 or not share else "below 0.1 %"


def updates(device: Device) -> Html:
    """The share of weights that an update leaves unchanged, by step, learning rate and precision."""
    rows: list[list[Cell]] = []
    at: list[int] = trained(device, FAST, "fp32")["at"]
    chosen = [index for index, step in enumerate(at) if step in (0, 50, 100, 200) or step == at[-1]]
    for rate in (SLOW, FAST):
        for name, variant in (("float32", "fp32"), ("bf16 weights", "bfloat16")):
            found = trained(device, rate, variant)
            shares = [*(found["matrices"][index] for index in chosen), found["norms"][-1]]
            rows.append([f"{name}, {rate}", *map(_percent, shares)])
    head = ["weights and learning rate", *(f"step {at[index] + 1}" for index in chosen), "scales of norms, last step"]
    return table("Share of the weights that an update leaves unchanged", head, rows)
