"""The chapter mlp: claims about compilations and new shapes."""

from __future__ import annotations

from snippets.mlp.findings import fusion
from tests.chapters.altered import AlteredDevice, measured, status, verdict
from tests.chapters.mlp.changes import figure
from tests.lab.samples import BOOK


def test_a_mode_that_was_not_recorded_is_named(device: AlteredDevice) -> None:
    data = {mode: of for mode, of in device["mlp/new_shapes"].data.items() if mode != "liger"}
    device.record("mlp/new_shapes", data=data)
    compiles_again = verdict(device, "K4")
    assert compiles_again.status == "not measured"
    assert compiles_again.reason == "mlp/new_shapes has no 'liger'; make record CHAPTER=mlp"
    assert "Liger" not in fusion.new_shapes(device)


def test_the_cost_of_compiling_by_hand(device: AlteredDevice) -> None:
    device.data(
        "mlp/new_shapes",
        static={"compiled": [1, 2], "first_call_ms": [900.0, 300.0]},
        automatic={"compiled": [1, 2, 2], "first_call_ms": [400.0, 500.0, 2.0]},
    )
    assert (measured(device, "O-P10").value, measured(device, "O-P10").spread) == (225.0, (150.0, 450.0))
    assert status(device, "O-P10") == "inconclusive"
    device.data("mlp/new_shapes", automatic={"compiled": [1, 2, 2], "first_call_ms": [400.0, 500.0, 0.5]})
    assert status(device, "O-P10") == "holds"
    device.data("mlp/new_shapes", automatic={"compiled": [1, 2, 2], "first_call_ms": [400.0, 500.0, 30.0]})
    assert status(device, "O-P10") == "differs"
    device.data("mlp/new_shapes", automatic={"compiled": [1, 2], "first_call_ms": [400.0, 500.0]})
    assert (status(device, "O-P10"), measured(device, "O-P10").text) == ("inconclusive", "every call compiled")


def test_compilations_are_counted_to_the_last_batch() -> None:
    assert figure("automatic_compilations", BOOK).value == 2
