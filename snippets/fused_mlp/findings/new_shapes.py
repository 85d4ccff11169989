"""The cost of a new shape: when the compiler compiles again, and when our forward tunes."""

from collections.abc import Mapping

from kinetoscope.html import Html, table
from snippets.fused_mlp.findings.probes import probed
from snippets.lab.finding import Device, Figure, Measure, claim, equals, format_value
from snippets.lab.page import show as show


def pauses(device: Device, variant: str) -> list[int]:
    """Numbers of tokens whose first call compiled a graph, or tuned the package's forward, in order."""
    run = device["fused_mlp/new_shapes"]
    built = probed(run, variant, "built")
    return [
        tokens for tokens, before, after in zip(run.data["tokens"], [0, *built], built, strict=False) if after > before
    ]


def pauses_at(device: Device, variant: str) -> Figure:
    """The numbers of tokens at which a variant compiles or tunes."""
    return Figure(", ".join(map(str, pauses(device, variant))), origin="fused_mlp/new_shapes")


def first_call_us(device: Device, variant: str, index: int) -> Figure:
    """The first call at one of the numbers of tokens."""
    times_ms = probed(device["fused_mlp/new_shapes"], variant, "first_call_ms")
    return Figure(1e3 * times_ms[index], "us", origin=f"fused_mlp/new_shapes, {variant}")


@claim("F60", equals("8192, 8184, 6144, 4096, 3996"), scope="this-gpu")
def static_pauses(device: Device) -> Figure:
    """With dynamic=False, torch.compile compiles for each of the five numbers of tokens."""
    return pauses_at(device, "static")


@claim("F61", equals("8192, 8184"), scope="this-gpu")
def automatic_pauses(device: Device) -> Figure:
    """By default, torch.compile compiles for only the first two of the five numbers of tokens."""
    return pauses_at(device, "automatic")


@claim("F62", equals("8192, 4096"), scope="this-gpu")
def our_pauses(device: Device) -> Figure:
    """Our forward tunes twice, at its first call and at the first call with another power of two of tokens."""
    return pauses_at(device, "fused")


def first_calls(device: Device) -> Html:
    """Time of the first call at five numbers of tokens in turn, and of the call after it."""
    data = device["fused_mlp/new_shapes"].data
    titles = {"static": "dynamic=False", "automatic": "default", "fused": "our forward"}
    columns = [data[name][calls] for name in titles for calls in ("first_call_ms", "second_call_ms")]
    calls = zip(data["tokens"], *columns, strict=True)
    rows = [[tokens, *(format_value(1e3 * ms, "us") for ms in times_ms)] for tokens, *times_ms in calls]
    head = [
        "tokens",
        *(heading for title in titles.values() for heading in (f"{title}, first call", f"{title}, second call")),
    ]
    return table("First and second calls with five numbers of tokens, one after the other", head, rows)


FIGURES: Mapping[str, Measure] = {
    "new_bucket_us": lambda device: first_call_us(device, "fused", 3),
    "very_first_us": lambda device: first_call_us(device, "fused", 0),
}
