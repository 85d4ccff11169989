"""What a token has to read, and how fast this GPU reads."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from kinetoscope.html import Html, table
from snippets.decoder.findings.probed import entry, rate, time
from snippets.lab.charts.numbers import figure_cell
from snippets.lab.finding import (
    Device,
    Figure,
    Measure,
    at_least,
    claim,
    format_value,
    largest,
    percent,
    unpaired_ratio,
)
from snippets.lab.page import Computation, prediction as prediction, show as show

BF16_BYTES = 2
CONTEXT = 512 + 32 // 2
"""Earlier tokens in the middle of an answer of 32 to a prompt of 512."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a decoder, as its `Config` has them."""

    layers: int
    dim: int
    hidden: int
    heads: int
    kv_heads: int
    vocab: int

    @property
    def kv_dim(self) -> int:
        """Numbers of a token's keys in a layer."""
        return self.kv_heads * self.dim // self.heads

    @property
    def embedding(self) -> int:
        """Weights of the input embedding, of which a token reads one row."""
        return self.vocab * self.dim

    @property
    def read_weights(self) -> int:
        """Weights of all products, the head's included."""
        attention = 2 * self.dim * (self.dim + self.kv_dim)
        return self.layers * (attention + 3 * self.dim * self.hidden) + self.embedding

    @property
    def weights(self) -> int:
        """All of them."""
        return self.read_weights + self.embedding + (2 * self.layers + 1) * self.dim

    @property
    def cache_bytes(self) -> int:
        """Keys and values of one token in all layers."""
        return 2 * self.layers * self.kv_dim * BF16_BYTES

    def read_bytes(self, batch: int, context: int) -> int:
        """What a decode step has to read: weights once, and each sequence's keys and values."""
        return BF16_BYTES * self.read_weights + batch * context * self.cache_bytes


SHAPES = {
    "1.1b": Shape(22, 2048, 5632, 32, 4, 32_000),
    "8b": Shape(32, 4096, 14_336, 32, 8, 128_256),
}
SMALL, LARGE = SHAPES["1.1b"], SHAPES["8b"]
CEILINGS = "decoder/ceilings"


def ceiling(device: Device, name: str) -> Figure:
    """The rate of reading by a `sum` or a `matvec`, of a `copy`, or of a `matmul`."""
    data = device[CEILINGS].data
    amount, unit = (data["flops"], "flop/s") if name == "matmul" else (data["bytes"][name], "bytes/s")
    return rate(amount, time(device, CEILINGS, "samples_us", name), unit)


def read_rate(device: Device) -> Figure:
    """The rate of reading alone: the higher of a sum's and of a matrix times a vector."""
    return largest(ceiling(device, "sum"), ceiling(device, "matvec"))


def floor_of(device: Device, read_bytes: int) -> Figure:
    """The time of reading so many bytes."""
    per_s = read_rate(device)
    low, high = per_s.bounds
    spread = (1e6 * read_bytes / high, 1e6 * read_bytes / low)
    return Figure(1e6 * read_bytes / per_s.number, "us", spread, "bytes at the rate of reading alone")


def floor_us(device: Device) -> Figure:
    """The time of reading what a token of the smaller model needs."""
    return floor_of(device, SMALL.read_bytes(1, CONTEXT))


@claim("DE1", at_least(95), scope="timing")
def reads_as_it_copies(device: Device) -> Figure:
    """A kernel that only reads reaches at least 95 % of the rate of a copy."""
    return percent(unpaired_ratio(read_rate(device), ceiling(device, "copy")))


READING = Computation(
    "How long does the GPU take to read the bytes that a token needs?",
    "decoder.floor_us",
    "{decoder.read_weight_bytes} of weights and {decoder.read_cache_bytes} of cache, at {decoder.read_rate}.",
    "Add the bytes that a token needs, and divide by the rate of reading. Three digits are enough.",
    {
        "decoder.floor_with_embedding": "your result counts the whole input embedding, but the GPU reads only one row.",
        "decoder.floor_without_head": "your result leaves out the output head, a matrix as large as the embedding.",
        "decoder.floor_at_copy": "your result uses the rate of a copy, but the GPU writes almost nothing.",
    },
)


def given(device: Device) -> Html:
    """What a token of the smaller model reads, and the rates of this GPU."""
    numbers = f"{SMALL.weights:,} numbers of 2 bytes"
    row = f"{SMALL.vocab:,} x {SMALL.dim:,} numbers, of which a token needs one row"
    head = SMALL.dim // SMALL.heads
    kept = f"2 x {SMALL.layers} layers x {SMALL.kv_heads} heads x {head} numbers of 2 bytes"
    rows = [
        ["all weights", numbers, format_value(BF16_BYTES * SMALL.weights, "bytes")],
        ["weights of the input embedding", row, format_value(BF16_BYTES * SMALL.embedding, "bytes")],
        ["KV cache of one earlier token", kept, f"{SMALL.cache_bytes:,} bytes"],
        ["earlier tokens", "a prompt of 512 tokens, and half of an answer of 32 tokens", f"{CONTEXT:,}"],
        [
            "highest rate of reading",
            "measured: the higher of two rates, of a sum and of a matrix times a vector",
            figure_cell(read_rate(device)),
        ],
        ["rate of a copy", "measured: bytes read plus bytes written, per second", figure_cell(ceiling(device, "copy"))],
    ]
    return table(
        "Given: a decoder of 1.1 billion weights in bf16", ["quantity", "source", "amount"], rows, text_columns=2
    )


def _constant(value: int, unit: str = "") -> Measure:
    return lambda device: Figure(value, unit, origin="the sizes of the model")


FIGURES: Mapping[str, Measure] = {
    "read_rate": read_rate,
    "copy_rate": lambda device: ceiling(device, "copy"),
    "matmul_rate": lambda device: ceiling(device, "matmul"),
    "floor_us": floor_us,
    "floor_with_embedding": lambda device: floor_of(
        device, SMALL.read_bytes(1, CONTEXT) + BF16_BYTES * SMALL.embedding
    ),
    "floor_without_head": lambda device: floor_of(device, SMALL.read_bytes(1, CONTEXT) - BF16_BYTES * SMALL.embedding),
    "floor_at_copy": lambda device: Figure(
        1e6 * SMALL.read_bytes(1, CONTEXT) / ceiling(device, "copy").number, "us", origin="bytes at a copy's rate"
    ),
    "read_weight_bytes": _constant(BF16_BYTES * SMALL.read_weights, "bytes"),
    "read_cache_bytes": _constant(CONTEXT * SMALL.cache_bytes, "bytes"),
    "cache_token_bytes": _constant(SMALL.cache_bytes, "bytes"),
    "large_weight_bytes": _constant(BF16_BYTES * LARGE.read_weights, "bytes"),
    "large_floor_us": lambda device: floor_of(device, LARGE.read_bytes(1, CONTEXT)),
    "ridge": lambda device: Figure(
        round(ceiling(device, "matmul").number / read_rate(device).number), origin="rate of a product / rate of reading"
    ),
    "read_samples": lambda device: Figure(len(entry(device, CEILINGS, "samples_us", "sum")), origin=CEILINGS),
}
