"""A recording is read strictly or not at all, and an error says how to record it again."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kinetoscope.trace.events import TraceError
from snippets.lab.recording.device import chapter_folder
from snippets.lab.recording.loading import load_ranks, load_recording, load_trace, trace_path
from snippets.lab.recording.schema import MAX_NESTING, NotRecorded, RecordingError, parse_recording
from tests.lab.rank_samples import merged_trace
from tests.lab.samples import DEVICE, as_dict, environment, sample, save_all, trace_json, untie

AGAIN = "on a machine with this GPU run make record CHAPTER=mlp"


def test_a_missing_recording_says_how_to_make_it(tmp_path: Path) -> None:
    with pytest.raises(NotRecorded) as raised:
        load_recording(tmp_path, DEVICE, "mlp/eager")
    assert str(raised.value) == f"no recording 'mlp/eager' for {DEVICE}; {AGAIN}"


@pytest.mark.parametrize("has_trace", [True, False])
def test_a_missing_trace_says_how_to_make_it(tmp_path: Path, has_trace: bool) -> None:
    save_all(tmp_path, sample(has_trace=has_trace))
    trace_path(tmp_path, DEVICE, sample()).unlink(missing_ok=True)
    with pytest.raises(NotRecorded) as raised:
        load_trace(tmp_path, DEVICE, "mlp/eager")
    assert str(raised.value) == f"mlp/eager has no trace for {DEVICE}; make record CHAPTER=mlp"


def without(*path: str) -> Callable[[dict[str, Any]], None]:
    def change(decoded: dict[str, Any]) -> None:
        for key in path[:-1]:
            decoded = decoded[key]
        del decoded[path[-1]]

    return change


def with_value(value: Any, *path: str | int) -> Callable[[dict[str, Any]], None]:
    def change(decoded: Any) -> None:
        for key in path[:-1]:
            decoded = decoded[key]
        decoded[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (with_value(3, "schema"), "has schema 3 and this version reads 2"),
        (with_value("1", "schema"), "has schema '1' and this version reads 2"),
        (without("schema"), "has schema None and this version reads 2"),
        (without("digest"), "is damaged: Object missing required field `digest`"),
        (without("circumstances", "driver"), "missing required field `driver` - at `$.circumstances`"),
        (with_value("4", "circumstances", "multiprocessors"), "Expected `int`, got `str`"),
        (with_value([1, 1], "schedule"), "is damaged: Expected `array` of length 3"),
        (
            with_value(None, "points", 0, "relative_error"),
            "Expected `float`, got `null` - at `$.points[0].relative_error`",
        ),
        (with_value("no", "has_trace"), "Expected `bool`, got `str` - at `$.has_trace`"),
        (with_value([1.5, "x"], "points", 0, "ceilings", 0, "timing", "samples_us"), "Expected `float`, got `str`"),
        (
            with_value(21.0, "points", 0, "timings", "warm", "median_us"),
            "is damaged: interleaved of point 0 contradicts its own samples",
        ),
        (
            with_value([2, 2], "points", 0, "ceilings", 0, "timing", "rounds"),
            "is damaged: ceiling copy of point 0 contradicts its own samples",
        ),
        (with_value("0" * 63, "trace_sha256"), "is damaged: trace_sha256 is not the digest of a trace"),
        (with_value("compiled", "experiment"), "is a recording of 'mlp/compiled', not of 'mlp/eager'"),
        (with_value("../../x", "chapter"), "is a recording of '../../x/eager', not of 'mlp/eager'"),
    ],
)
def test_a_field_that_is_not_what_it_should_be(
    tmp_path: Path, change: Callable[[dict[str, Any]], None], message: str
) -> None:
    decoded = as_dict(sample())
    change(decoded)
    path = chapter_folder(tmp_path, DEVICE, "mlp") / "eager.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(decoded))
    with pytest.raises(RecordingError) as raised:
        load_recording(tmp_path, DEVICE, "mlp/eager")
    assert not isinstance(raised.value, NotRecorded)
    assert str(raised.value).startswith("eager.json ")
    assert message in str(raised.value)
    assert str(raised.value).endswith(f"; {AGAIN}")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        json.dumps(as_dict(sample())).encode()[:-40],
        b"[]",
        b"null",
        b'"schema"',
        b"\xff\xfe\x00",
        b'{"schema": "\xff"}',
        b"version https://git-lfs.github.com/spec/v1\n",
        gzip.compress(b"{}", mtime=0),
        b"[" * 100_000,
    ],
)
def test_a_file_that_is_not_a_recording(tmp_path: Path, content: bytes) -> None:
    path = chapter_folder(tmp_path, DEVICE, "mlp") / "eager.json"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.raises(RecordingError) as raised:
        load_recording(tmp_path, DEVICE, "mlp/eager")
    assert str(raised.value).startswith("eager.json is not a recording (")
    assert str(raised.value).endswith(f"); {AGAIN}")


def test_a_repaired_recording_is_read_again(tmp_path: Path) -> None:
    save_all(tmp_path, sample())
    path = chapter_folder(tmp_path, DEVICE, "mlp") / "eager.json"
    assert load_recording(tmp_path, DEVICE, "mlp/eager").label == "mlp_fwd"
    path.write_text("{")
    os.utime(path, ns=(1, 1))
    with pytest.raises(RecordingError):
        load_recording(tmp_path, DEVICE, "mlp/eager")
    save_all(tmp_path, sample(label="repaired"))
    assert load_recording(tmp_path, DEVICE, "mlp/eager").label == "repaired"


def test_a_trace_of_another_recording_is_damage(tmp_path: Path) -> None:
    save_all(tmp_path / "other", sample(), trace=trace_json(name="other"))
    save_all(tmp_path, sample())
    path, other = (trace_path(root, DEVICE, sample()) for root in (tmp_path, tmp_path / "other"))
    load_trace(tmp_path, DEVICE, "mlp/eager")
    other.replace(path)
    with pytest.raises(RecordingError) as raised:
        load_trace(tmp_path, DEVICE, "mlp/eager")
    assert str(raised.value) == (
        f"eager.trace.json.gz is damaged: it is not the trace that eager.json was saved with; restore both "
        f"with git, or {AGAIN}"
    )
    untie(path)  # as a recording from before the digest
    assert load_trace(tmp_path, DEVICE, "mlp/eager").steps[0].activities[0].name == "other"


def test_data_that_is_nested_too_deep_is_damage(tmp_path: Path) -> None:
    nested: list[Any] = []
    for _ in range(MAX_NESTING - 1):
        nested = [nested]
    content = msgspec.json.encode(sample(data={"a": nested[0]}))
    assert parse_recording(content, "eager.json").data == {"a": nested[0]}
    with pytest.raises(RecordingError, match="its data is nested more than 32 levels deep"):
        parse_recording(msgspec.json.encode(sample(data={"a": [nested]})), "eager.json")


def test_the_traces_of_several_ranks(tmp_path: Path) -> None:
    save_all(tmp_path, sample(environment=environment(gpus=2)), trace=merged_trace((40.0, 100.0)))
    traces = load_ranks(tmp_path, DEVICE, "mlp/eager")
    assert [(trace.rank, len(trace.steps)) for trace in traces] == [(0, 3), (1, 3)]
    assert load_trace(tmp_path, DEVICE, "mlp/eager") is traces[0]


@pytest.mark.parametrize(
    ("gpus", "trace", "message"),
    [
        (4, merged_trace((1.0, 2.0)), f"has the traces of 2 ranks, and its recording is of 4 GPUs; {AGAIN}"),
        (2, trace_json(), "its member mergedRanks is missing or damaged"),
    ],
)
def test_other_ranks_than_those_of_the_recording(tmp_path: Path, gpus: int, trace: bytes, message: str) -> None:
    save_all(tmp_path, sample(environment=environment(gpus=gpus)), trace=trace)
    with pytest.raises((RecordingError, TraceError)) as raised:
        load_ranks(tmp_path, DEVICE, "mlp/eager")
    assert message in str(raised.value)


@pytest.mark.parametrize("gpus", [0, 65])
def test_a_number_of_gpus_that_cannot_be(gpus: int) -> None:
    with pytest.raises(RecordingError, match=f"^mlp/eager is damaged: it has {gpus} GPUs; record it again$"):
        parse_recording(msgspec.json.encode(sample(environment=environment(gpus=gpus))), "mlp/eager")
