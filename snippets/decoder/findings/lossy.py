"""Weights of fewer bytes: a product of one row, and the whole model."""

from __future__ import annotations

from collections.abc import Mapping

from kinetoscope.html import Cell, Html, table
from snippets.decoder.findings.probed import entry, rate, ratio, time
from snippets.decoder.findings.reading import floor_of, read_rate
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    Source,
    at_least,
    at_most,
    claim,
    format_value,
    percent,
    unpaired_ratio,
)
from snippets.lab.page import Computation, floor_bars, prediction as prediction, show as show

PRODUCTS, MODELS = "decoder/one_product", "decoder/quantized_models"
WIDE = "4096 x 14336"


def product_us(device: Device, way: str, shape: str = WIDE) -> Figure:
    """The time of a product of one row, with weights of a kind."""
    return time(device, PRODUCTS, shape, way, "us")


def over_bf16(device: Device, way: str) -> Figure:
    """The time of a product with weights of a kind over that with bf16, both at the wide shape."""
    return ratio(device, PRODUCTS, (WIDE, way, "us"), (WIDE, "bf16", "us"))


def model_over_bf16(device: Device, way: str) -> Figure:
    """The time of a token with weights of a kind over that with bf16."""
    return unpaired_ratio(time(device, MODELS, way, "us"), time(device, MODELS, "bf16", "us"))


def kernel_count(device: Device, way: str) -> Figure:
    """The kernels of one product with weights of a kind."""
    return Figure(len(entry(device, PRODUCTS, WIDE, way, "kernels")), origin=f"{device[PRODUCTS].origin}, {way}")


@claim("DE44", at_least(1.5), scope="timing")
def naive_int8(device: Device) -> Figure:
    """For one row, an int8 product compiled in the default mode takes at least 1.5 times as long as a bf16 product."""
    return over_bf16(device, "int8 compiled")


@claim("DE45", at_most(0.75), scope="timing")
def tuned_int8(device: Device) -> Figure:
    """For one row, an int8 product compiled with max-autotune takes at most three quarters of the time of a bf16
    product."""
    return over_bf16(device, "int8 max-autotune")


@claim("DE46", at_least(3), scope="timing", source=Source("FlagGems#5371", "2.3x a Triton kernel", device="NVIDIA H20"))
def packed_int8(device: Device) -> Figure:
    """For one row, PyTorch's own int8 operator takes at least three times as long as a bf16 product."""
    return over_bf16(device, "int8 packed")


@claim("DE47", at_most(0.8), scope="timing")
def int4(device: Device) -> Figure:
    """For one row, PyTorch's int4 operator takes at most four fifths of the time of a bf16 product."""
    return over_bf16(device, "int4")


@claim("DE48", at_least(4))
def fp8_kernels(device: Device) -> Figure:
    """Without compilation, an fp8 product of one row runs at least four kernels, because other kernels convert the
    activations first."""
    return kernel_count(device, "fp8")


@claim("DE49", at_least(1), scope="timing")
def int8_model(device: Device) -> Figure:
    """If layers are compiled in the default mode, a token of the int8 model takes at least as long as a token of the
    bf16 model."""
    return model_over_bf16(device, "int8")


@claim("DE50", at_most(0.9), scope="timing")
def tuned_int8_model(device: Device) -> Figure:
    """A token of the int8 model compiled with max-autotune takes at most nine tenths of the time of a token of the bf16
    model."""
    return model_over_bf16(device, "int8 max-autotune")


def int8_floor(device: Device) -> Figure:
    """The time of reading the codes and scales of the wide product in int8."""
    return floor_of(device, entry(device, PRODUCTS, WIDE, "int8", "bytes"))


HALF = Computation(
    "How long does the GPU take to read the codes and scales in int8?",
    "decoder.int8_floor_us",
    "{decoder.int8_bytes} at {decoder.read_rate}.",
    "Divide the bytes of the codes and scales by the rate of reading.",
    {"decoder.bf16_floor_us": "your result is the time of reading the weights in bf16."},
)


def product_bars(device: Device) -> Html:
    """A product of one row with each kind of weights, from the floor of int8 up."""
    found = device[PRODUCTS].data[WIDE]
    times = {way: product_us(device, way) for way in found if "us" in found[way]}
    rungs = dict(sorted(times.items(), key=lambda item: item[1].number))
    caption = "Time of the product of one row and 4096 x 14336 weights, by kind of weights"
    floor = (
        "floor in int8: bytes / rate of reading",
        floor_of(device, entry(device, PRODUCTS, WIDE, "int8", "bytes")),
    )
    return floor_bars(
        device,
        floor,
        rungs,
        caption,
        conditions="Each product runs in a CUDA graph, over eight matrices one after the other.",
    )


def products(device: Device) -> Html:
    """Every kind of weights at both shapes: time, rate, share, kernels, error."""
    rows: list[list[Cell]] = []
    for shape, ways in device[PRODUCTS].data.items():
        for way, found in ways.items():
            if "us" not in found:
                rows.append([shape, way, str(found.get("stopped", "")), *[None] * 5])
                continue
            us = product_us(device, way, shape)
            reads = rate(found["bytes"], us, "bytes/s")
            share = percent(unpaired_ratio(reads, read_rate(device)))
            counts: list[Cell] = [
                str(len(found["kernels"])),
                format_value(found["error"]),
                format_value(found["rounding"]),
            ]
            moved = format_value(found["bytes"], "bytes")
            rows.append([shape, way, figure_cell(us), moved, figure_cell(share), *counts])
    head = [
        "size of the weights",
        "kind of weights",
        "time",
        "bytes",
        "share of the highest rate",
        "kernels",
        "error of the kernel",
        "error with rounding",
    ]
    return table("The product of one row of activations, by size and kind of weights", head, rows, text_columns=2)


def models(device: Device) -> Html:
    """A token of the whole model with each kind of weights."""
    rows: list[list[Cell]] = []
    for way, found in device[MODELS].data.items():
        if "us" not in found:
            rows.append([way, str(found.get("stopped", "")), *[None] * 3])
            continue
        us = time(device, MODELS, way, "us")
        share = percent(unpaired_ratio(rate(found["bytes"], us, "bytes/s"), read_rate(device)))
        rows.append(
            [
                way,
                figure_cell(us),
                format_value(found["bytes"], "bytes"),
                figure_cell(share),
                format_value(found["error"]),
            ]
        )
    head = [
        "kind of weights",
        "time of a token",
        "bytes of weights",
        "share of the highest rate",
        "error of the logits",
    ]
    return table("A token of the smaller model, by kind of weights", head, rows)


FIGURES: Mapping[str, Measure] = {
    "int8_floor_us": int8_floor,
    "bf16_floor_us": lambda device: floor_of(device, entry(device, PRODUCTS, WIDE, "bf16", "bytes")),
    "int8_bytes": lambda device: Figure(entry(device, PRODUCTS, WIDE, "int8", "bytes"), "bytes", origin=PRODUCTS),
    "bf16_bytes": lambda device: Figure(entry(device, PRODUCTS, WIDE, "bf16", "bytes"), "bytes", origin=PRODUCTS),
    "bf16_product_us": lambda device: product_us(device, "bf16"),
    "int8_product_us": lambda device: product_us(device, "int8 compiled"),
    "int8_kernels": lambda device: kernel_count(device, "int8 compiled"),
    "tuned_kernels": lambda device: kernel_count(device, "int8 max-autotune"),
    "fp8_over_bf16": lambda device: over_bf16(device, "fp8"),
    "fp8_compiled_over_bf16": lambda device: over_bf16(device, "fp8 compiled"),
    "int4_model": lambda device: model_over_bf16(device, "int4"),
    "int8_error": lambda device: Figure(entry(device, PRODUCTS, WIDE, "int8", "rounding"), origin=PRODUCTS),
    "int4_error": lambda device: Figure(entry(device, PRODUCTS, WIDE, "int4", "rounding"), origin=PRODUCTS),
}
