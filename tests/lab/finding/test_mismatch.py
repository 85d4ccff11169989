"""Any error on another GPU becomes one sentence; on the default device it is raised with the place."""

from __future__ import annotations

import traceback
from pathlib import Path

import pytest

from kinetoscope.trace.events import TraceError
from snippets.lab.experiment import UnknownName
from snippets.lab.finding.device import Device
from snippets.lab.finding.mismatch import NOT_SHOWN, Mismatch, reading
from snippets.lab.recording.device import DEFAULT_DEVICE, SAMPLE_DEVICE
from snippets.lab.recording.schema import NotRecorded, RecordingError
from tests.lab import samples
from tests.lab.samples import point, sample, save_all

OTHER = "nvidia-t100"
WHERE = "The recording of mlp/eager on the T100 does not fit this part of the page: "
MISSING = "something that the page asks for"


def read(device: Device, error: Exception, *experiments: str) -> None:
    with reading(device, "fence mlp-kernels") as noted:
        for experiment in experiments:
            _ = noted[experiment].recording
        raise error


class Unprintable(ValueError):
    def __str__(self) -> str:
        raise RecursionError


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            ValueError("ProfilerStep#2 has 6 matmuls\ninstead of three."),
            "ProfilerStep#2 has 6 matmuls instead of three",
        ),
        (RecordingError("eager.json is damaged; record it again"), "eager.json is damaged; record it again"),
        (TraceError("no active steps"), "no active steps"),
        (TraceError("/home/someone/book/x.trace.json.gz: empty"), "x.trace.json.gz: empty"),
        (KeyError("steps"), f"{MISSING} by name is missing in it ('steps')"),
        (IndexError("list index out of range"), f"{MISSING} is missing in it (list index out of range)"),
        (StopIteration(), f"{MISSING} is missing in it"),
        (ZeroDivisionError("division by zero"), "a number in it is zero or too large"),
        (OverflowError("int too large to convert to float"), "a number in it is zero or too large"),
        (TypeError("unsupported operand"), "a value in it is missing or of another kind"),
        (AttributeError("'NoneType' object has no attribute 'op'"), "a value in it is missing or of another kind"),
        (RecursionError("maximum recursion depth exceeded"), "it is nested too deeply"),
        (MemoryError(), "it is too large"),
        (AssertionError(), "it is not as expected"),
        (Unprintable(), "it is not as expected"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_any_error_is_a_sentence_elsewhere_and_itself_on_the_default_device(
    tmp_path: Path, error: Exception, reason: str
) -> None:
    device = save_all(tmp_path, sample(), device=OTHER)
    with pytest.raises(Mismatch) as raised:
        read(device, error, "mlp/eager")
    assert str(raised.value) == f"{WHERE}{reason}."
    assert raised.value.__cause__ is error
    for name in (DEFAULT_DEVICE, SAMPLE_DEVICE):
        device = save_all(tmp_path, sample(), device=name)
        with pytest.raises(type(error)) as itself:
            read(device, error, "mlp/eager")
        assert itself.value is error
        assert error.__notes__[-1] == f"  fence mlp-kernels, on {name}, read last: mlp/eager"


@pytest.mark.parametrize("error", [*(kind("x") for kind in (*NOT_SHOWN, UnknownName)), KeyboardInterrupt()])
def test_what_has_a_cure_or_is_a_mistake_of_ours_passes(tmp_path: Path, error: BaseException) -> None:
    with pytest.raises(type(error)) as raised, reading(Device(tmp_path, OTHER)):
        raise error
    assert raised.value is error


def test_of_several_recordings_the_last_is_named(tmp_path: Path) -> None:
    device = save_all(tmp_path, sample(), sample("mlp/compiled"), device=OTHER)
    with pytest.raises(Mismatch, match=r"^One of 2 recordings on the T100, the last of them mlp/eager, does not fit"):
        read(device, IndexError(), "mlp/compiled", "mlp/eager")


def test_a_traceback_ends_with_the_place(tmp_path: Path) -> None:
    with pytest.raises(IndexError) as raised, reading(Device(tmp_path, DEFAULT_DEVICE), "fence a"):
        raise IndexError("list index out of range")
    lines = "".join(traceback.format_exception(raised.value)).splitlines()
    assert lines[-2:] == ["IndexError: list index out of range", f"  fence a, on {DEFAULT_DEVICE}"]


def test_a_point_that_a_sweep_lacks_was_not_recorded_elsewhere(tmp_path: Path) -> None:
    old = sample("mlp/sweep_eager", points=(point({"batch": 1, "seq": 1}),), has_trace=False)
    for name, error in ((OTHER, NotRecorded), (DEFAULT_DEVICE, UnknownName)):
        run = samples.save_all(tmp_path, old, device=name)["mlp/sweep_eager"]
        with pytest.raises(error, match="has no point 'batch=64'"):
            _ = run.at(batch=64).point
        with pytest.raises(error, match="has no trace"):
            _ = run.trace


def test_an_unknown_name_is_found_on_the_default_device(tmp_path: Path) -> None:
    save_all(tmp_path, sample(), device=DEFAULT_DEVICE)
    with pytest.raises(Mismatch, match=r"^What is recorded .*: no experiment 'mlp/x'\.$"):
        read(Device(tmp_path, OTHER), UnknownName("no experiment 'mlp/x'"))
    with pytest.raises(UnknownName):
        read(Device(tmp_path, DEFAULT_DEVICE), UnknownName("no experiment 'mlp/x'"))
