"""Mistakes in findings and pages that have to be errors before anything is recorded, with the nearest name."""

from __future__ import annotations

import re
from pathlib import Path
from types import ModuleType

import pytest

from snippets.lab.experiment import UnknownName
from snippets.lab.finding.book import figure, judge
from snippets.lab.finding.device import Device
from snippets.lab.finding.figure import Figure
from snippets.lab.finding.measure import paired_ratio
from snippets.lab.page import guess_choice, kernel_table, show
from snippets.lab.recording.device import DEFAULT_DEVICE, SAMPLE_DEVICE
from snippets.lab.recording.schema import NotRecorded
from tests.lab import samples
from tests.lab.conftest import Book

MISSPELLED = r"^no experiment 'mlp/eagre'; did you mean mlp/eager"
DEVICES = (DEFAULT_DEVICE, SAMPLE_DEVICE, "nvidia-other")


def misspelled(device: Device) -> Figure:
    """The second of two runs, which the first one without a recording would hide."""
    return paired_ratio(device["mlp/compiled"], device["mlp/eagre"])


@pytest.mark.parametrize("name", DEVICES)
def test_a_misspelled_experiment_is_an_error_where_nothing_is_recorded(tmp_path: Path, name: str) -> None:
    device = Device(tmp_path, name)
    with pytest.raises(NotRecorded):
        device["mlp/eager"].time()
    for mistaken in (lambda: device["mlp/eagre"], lambda: misspelled(device)):
        with pytest.raises(UnknownName, match=MISSPELLED):
            mistaken()
    with pytest.raises(UnknownName, match=MISSPELLED):
        judge(samples.claim(measure=misspelled), "mlp", device)


def test_a_misspelled_experiment_in_a_fence_ends_the_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    samples.recordings(monkeypatch, tmp_path)
    with pytest.raises(UnknownName, match=MISSPELLED):
        show("mlp-kernels", kernel_table, "mlp/eagre")


def test_a_recording_whose_experiment_is_gone_can_be_read(tmp_path: Path) -> None:
    device = samples.save_all(tmp_path, samples.sample("mlp/gone"))
    assert device["mlp/gone"].label == "mlp_fwd"


@pytest.mark.parametrize("options", [("yes=It is so", "no=It is not"), ("holds", "difers")])
def test_options_of_a_claim_are_checked_before_it_is_measured(
    tmp_path: Path, book: Book, options: tuple[str, ...]
) -> None:
    book(mlp=samples.findings(samples.claim(id="M1", measure=lambda device: device["mlp/eager"].time())))
    keys = re.escape(", ".join(repr(option.partition("=")[0]) for option in options))
    cure = "write holds=It is so and differs=It is not"
    with pytest.raises(ValueError, match=rf"^a choice of claim:M1 has the options {keys}; {cure}$"):
        guess_choice(Device(tmp_path, DEFAULT_DEVICE), "claim:M1", *options)
    with pytest.raises(NotRecorded):
        guess_choice(Device(tmp_path, DEFAULT_DEVICE), "claim:M1")


def test_a_mistake_shows_on_a_sample_and_is_left_out_on_another_gpu(tmp_path: Path) -> None:
    def mistaken(device: Device) -> Figure:
        return Figure(("one kernel",)[1])

    judged = judge(samples.claim(measure=mistaken), "mlp", Device(tmp_path, "nvidia-other"))
    assert judged.status == "not measured"
    for name in (DEFAULT_DEVICE, SAMPLE_DEVICE):
        with pytest.raises(IndexError):
            judge(samples.claim(measure=mistaken), "mlp", Device(tmp_path, name))


@pytest.mark.parametrize("postponed", ["", "from __future__ import annotations\n"])
def test_a_measure_is_a_figure_by_its_name(tmp_path: Path, book: Book, postponed: str) -> None:
    module = ModuleType("snippets.mlp.findings")
    code = f"{postponed}from snippets.lab.finding import Device, Figure\ndef five(device: Device) -> Figure:\n"
    exec(f"{code}    return Figure(5)\n", vars(module))
    book(mlp=module)
    assert figure("mlp.five", Device(tmp_path, DEFAULT_DEVICE)) == Figure(5)
