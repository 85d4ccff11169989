"""Predictions: the data of the first step, and the computed value beside the measured one."""

from __future__ import annotations

from pathlib import Path

import pytest

from snippets.lab.experiment import UnknownName
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.page.predictions import Computation, prediction
from tests.lab import samples
from tests.lab.conftest import Book
from tests.lab.page.test_guesses import data
from tests.lab.samples import Markup, sample, save_all

READING = Computation(
    "How long does reading take?",
    "mlp.floor",
    "{mlp.bytes} at a copy's rate.",
    "Divide {mlp.bytes}.",
    {"mlp.all": "that counts {mlp.bytes} twice.", 2.0: "no."},
)


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return save_all(tmp_path, sample())


def figures(book: Book, **values: Figure) -> None:
    known = {"floor": Figure(490.0, "us"), "all": Figure(520.0, "us"), "bytes": Figure(2_070_000_000, "bytes")} | values
    book(mlp=samples.findings(**{name: lambda device, each=each: each for name, each in known.items()}))


def test_what_the_form_checks(book: Book, device: Device) -> None:
    figures(book, it=Figure(14_600.0, "us"))
    box = prediction(device, "mlp.it", READING, veils=("mlp-bars",))
    assert data(box)["compute"] == {
        "question": "How long does reading take?",
        "answer": 490.0,
        "text": "490 µs",
        "why": "2.07 GB at a copy's rate.",
        "hint": "Divide 2.07 GB.",
        "scale": 1.0,
        "label": "µs",
        "near": [[520.0, "that counts 2.07 GB twice."], [2.0, "no."]],
    }
    assert (data(box)["answer"], data(box)["scale"], data(box)["label"]) == (14_600.0, 1000.0, "ms")
    assert dict(Markup(box).attributes)["data-veils"] == "mlp-bars"


@pytest.mark.parametrize(
    ("measured", "text"),
    [
        (Figure(14_600.0, "us"), "Measured: 14.6 ms on the SAMPLE, 29.8x the computed value."),
        (Figure(245.0, "us"), "Measured: 245 µs on the SAMPLE; the computed value is 2.00x the measured value."),
        (Figure(3.0, "x"), "Measured: 3.00x on the SAMPLE."),
        (Figure(0.0, "us"), "Measured: 0 µs on the SAMPLE."),
    ],
)
def test_the_computed_value_beside_the_measured_one(book: Book, device: Device, measured: Figure, text: str) -> None:
    figures(book, it=measured)
    said = "How long does reading take? Computed: 490 µs. 2.07 GB at a copy's rate. "
    assert Markup(prediction(device, "mlp.it", READING)).text == said + text


def test_a_figure_that_does_not_exist(book: Book, device: Device) -> None:
    figures(book, it=Figure(1.0, "us"))
    with pytest.raises(UnknownName, match=r"no figure 'mlp\.bites'; did you mean mlp\.bytes"):
        prediction(device, "mlp.it", Computation("?", "mlp.floor", "{mlp.bites}", ""))
