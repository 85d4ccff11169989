"""How exact the activation is: claims and the chart on errors by hand."""

from __future__ import annotations

import pytest

from snippets.fused_mlp.findings import activation
from snippets.lab.finding.claim import Status
from tests.chapters.altered import AlteredDevice
from tests.chapters.fused_mlp.test_shapes import put
from tests.chapters.fused_mlp.verdicts import measured, status, statuses, text_of, value

LARGE, MIDDLE, SMALL = (-7.97, -4.0), (-1.99, -1.0), (-0.996, -0.5)


def errors(device: AlteredDevice, right: float = 2e-3, rough: float = 250.0) -> None:
    """Three stretches of negative inputs, whose errors grow with their size, and one of positive inputs."""
    exact = [[*LARGE, right], [*MIDDLE, right / 10], [*SMALL, right / 100], [0.5, 0.996, right / 100]]
    wrong = [[*LARGE, rough], [*MIDDLE, 0.51], [*SMALL, 0.5], [0.5, 0.996, 0.9]]
    forms = {name: wrong if name.startswith("rough") else exact for name in activation.FORMS}
    put(device, "activation_errors", forms=forms)


@pytest.mark.parametrize(
    ("right", "rough", "expected"),
    [
        (2e-3, 250.0, ["holds", "holds"]),
        (0.005, 128.0, ["holds", "holds"]),
        (0.0051, 127.0, ["differs", "differs"]),
    ],
)
def test_digits_of_both_forms(device: AlteredDevice, right: float, rough: float, expected: list[Status]) -> None:
    errors(device, right, rough)
    assert [measured(device, name).value for name in ("F95", "F96")] == [right, rough]
    assert statuses(device, "F95", "F96") == expected


def test_the_size_from_which_rounding_is_no_excuse(device: AlteredDevice) -> None:
    errors(device)
    assert value(device, "rough_from") == 1.0
    forms = {"rough_gelu_tanh": [[*LARGE, 1.0], [*SMALL, 0.51]]}
    put(device, "activation_errors", forms=forms)
    assert value(device, "rough_from") == 0.5


def test_the_chart_has_two_forms_and_its_numbers_all(device: AlteredDevice) -> None:
    errors(device)
    drawn = activation.activation_chart(device)
    text = text_of(drawn)
    assert "GELU, as a sigmoid: 2.0e-03 units at most; GELU, one rough tanh: 250 units at most." in text
    assert "4 to 7.97 2.0e-03 2.5e+02 2.0e-03 2.5e+02 2.0e-03" in text
    assert drawn.count("<svg") == 1
    assert ">rounding to bf16</text>" in drawn


def test_what_right_digits_cost(device: AlteredDevice) -> None:
    for us, expected in ((105.0, "holds"), (106.0, "differs")):
        put(device, "steps", activation={"gelu_tanh": [us] * 3, "rough_gelu_tanh": [100.0] * 3})
        assert (measured(device, "F109").value, status(device, "F109")) == (us / 100, expected)
    put(device, "steps", activation={"gelu_tanh": [105.0] * 3})
    assert status(device, "F109") == "not measured"
