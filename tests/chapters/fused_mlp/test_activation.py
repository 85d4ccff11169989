"""How exact the activation is: claims and the chart on errors by hand."""

from __future__ import annotations

import pytest

from snippets.fused_mlp.findings import activation
from snippets.lab.finding.claim import Status
from tests.chapters.altered import AlteredDevice
from tests.chapters.fused_mlp.test_shapes import put
from tests.chapters.fused_mlp.verdicts import measured, status, statuses, text_of, value

SMALL, MIDDLE, LARGE = (0.5, 0.996), (1.0, 1.99), (2.0, 7.97)


def errors(device: AlteredDevice, right: float = 1e-5, rough: float = 1.0) -> None:
    """Three ranges; the error grows with the input."""
    exact = [[*SMALL, right / 100], [*MIDDLE, right / 10], [*LARGE, right]]
    wrong = [[*SMALL, 1e-3], [*MIDDLE, 3e-3], [*LARGE, rough]]
    forms = {"gelu_tanh": exact, "silu": exact, "rough_gelu_tanh": wrong, "rough_silu": wrong}
    put(device, "activation_errors", forms=forms)


@pytest.mark.parametrize(
    ("right", "rough", "expected"),
    [
        (1e-5, 1.0, ["holds", "holds"]),
        (2.0**-12, 2.1, ["holds", "holds"]),
        (2.5e-4, 0.98, ["differs", "differs"]),
    ],
)
def test_digits_of_both_forms(device: AlteredDevice, right: float, rough: float, expected: list[Status]) -> None:
    errors(device, right, rough)
    assert [measured(device, name).value for name in ("F95", "F96")] == [right, rough]
    assert statuses(device, "F95", "F96") == expected


def test_the_size_from_which_rounding_is_no_excuse(device: AlteredDevice) -> None:
    errors(device)
    assert value(device, "rough_from") == 1.0
    put(device, "activation_errors", forms={"rough_gelu_tanh": [[*LARGE, 1.0], [*SMALL, 0.01]]})
    assert value(device, "rough_from") == 0.5


def test_the_chart_has_both_forms_and_its_numbers_all_four(device: AlteredDevice) -> None:
    errors(device)
    drawn = activation.activation_chart(device)
    text = text_of(drawn)
    assert "GELU, as a sigmoid: 1.0e-05 at most; GELU, one rough tanh: 1.00 at most." in text
    assert "2 to 7.97 1.0e-05 1.0e+00 1.0e-05 1.0e+00" in text
    assert drawn.count("<svg") == 1
    assert ">rounding to bf16</text>" in drawn


def test_what_right_digits_cost(device: AlteredDevice) -> None:
    for us, expected in ((105.0, "holds"), (106.0, "differs")):
        put(device, "steps", activation={"gelu_tanh": [us] * 3, "rough_gelu_tanh": [100.0] * 3})
        assert (measured(device, "F109").value, status(device, "F109")) == (us / 100, expected)
    put(device, "steps", activation={"gelu_tanh": [105.0] * 3})
    assert status(device, "F109") == "not measured"
