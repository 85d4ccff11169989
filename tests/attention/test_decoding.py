"""Decoding, training and errors: claims on recordings and traces, and on altered ones."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable

import msgspec
import pytest

from snippets.attention.findings import decoding, training
from snippets.attention.findings.decoding import DECODE
from snippets.attention.findings.training import TRAINING
from snippets.lab.finding.book import Verdict, judge
from snippets.lab.finding.claim import Status
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.loading import load_recording, load_trace
from snippets.lab.recording.schema import Recording, Timing
from snippets.lab.trace.events import GpuActivity, Trace
from tests.bench import AlteredRecordings

CLAIMS = {claim.id: claim for claim in (*decoding.CLAIMS, *training.CLAIMS)}
replace = msgspec.structs.replace


def judged(name: str) -> Verdict:
    return judge(CLAIMS[name], "attention", DEFAULT_DEVICE)


def verdict(name: str) -> Status:
    return judged(name).word


class Altered(AlteredRecordings):
    """The builder's recordings with one quantity, or the kernels of a trace, put in by hand."""

    def point(self, experiment: str, **given: float) -> None:
        """Replace fields of an experiment's one point; `warm_us` is a constant warm time."""
        found = load_recording(experiment, DEFAULT_DEVICE)
        at = found.points[0]
        us = given.pop("warm_us", None)
        if us is not None:
            assert at.timings is not None
            at = replace(at, timings=replace(at.timings, warm=Timing(us, us, us, (us, us, us))))
        self.recordings[experiment] = replace(found, points=(replace(at, **given),))

    def kernels(
        self, experiment: str, change: Callable[[Trace, GpuActivity], GpuActivity | None], *, steps: int = 3
    ) -> None:
        """Change GPU activities of the first `steps` steps of a trace, or drop them by None."""
        traced = self.trace(experiment, DEFAULT_DEVICE)
        changed = tuple(
            replace(
                step,
                activities=tuple(new for one in step.activities if (new := change(traced, one)) is not None),
            )
            for step in traced.steps[:steps]
        )
        self.traces[experiment] = replace(traced, steps=(*changed, *traced.steps[steps:]))


@pytest.fixture
def altered(monkeypatch: pytest.MonkeyPatch) -> Altered:
    return Altered(monkeypatch)


def test_every_verdict_is_the_one_the_prose_was_written_for() -> None:
    found = [judge(claim, "attention", DEFAULT_DEVICE) for claim in CLAIMS.values()]
    assert [(one.claim.id, one.word, one.reason) for one in found if one.word != "holds"] == []
    assert list(CLAIMS) == [f"O-A{number}" for number in range(43, 60)]


def test_every_figure_is_computed() -> None:
    for figures in (decoding.FIGURES, training.FIGURES):
        assert all(of(DEFAULT_DEVICE).text for of in figures.values())


# Decoding


def test_work_and_share_by_hand(altered: Altered) -> None:
    """All keys, values and 128 queries and results in bf16, at a copy of 2 GiB in as many seconds a byte."""
    assert decoding.FIGURES["decode_bytes"](DEFAULT_DEVICE).value == 2 * 2 * 128 * (8192 + 1) * 64
    found = load_recording(DECODE["flash"], DEFAULT_DEVICE)
    copied = next(one for one in found.ceilings if one.what == "copy")
    at = found.points[0]
    altered.point(DECODE["flash"], warm_us=2 * at.bytes / copied.bytes * copied.timing.median_us)
    assert decoding.copy_share("flash")(DEFAULT_DEVICE).value == pytest.approx(50)
    assert verdict("O-A43") == "differs"


@pytest.mark.parametrize(
    ("name", "way", "us"), [("O-A44", "naive", 95.0), ("O-A46", "efficient", 250.0), ("O-A48", "math", 700.0)]
)
def test_a_claim_on_a_ratio_can_fail(altered: Altered, name: str, way: str, us: float) -> None:
    altered.point(DECODE[way], warm_us=us)
    altered.point(DECODE["cuDNN"], warm_us=70.0)
    assert verdict(name) == "differs"


def test_blocks_are_those_of_the_longest_kernel(altered: Altered) -> None:
    found = judged("O-A47").measured
    assert found is not None
    assert found.value == "2 kernels, 256 blocks"
    altered.kernels(DECODE["flash"], lambda _, one: None if "combine" in one.name else one)
    assert verdict("O-A47") == "differs"
    altered.kernels(DECODE["flash"], lambda _, one: None if "combine" in one.name else one, steps=1)
    assert verdict("O-A47") == "inconclusive"


def test_another_grid(altered: Altered) -> None:
    altered.kernels(DECODE["efficient"], lambda _, one: replace(one, grid=(2, 16, 8)))
    found = judged("O-A45")
    assert found.measured is not None
    assert (found.word, found.measured.value) == ("differs", "256 and 128 blocks")


def test_shared_memory_of_a_block() -> None:
    shared = {way: decoding.FIGURES[f"decode_{way}_shared"](DEFAULT_DEVICE).value for way in ("efficient", "cudnn")}
    assert shared == {"efficient": 18944, "cudnn": 45376}


def test_the_compiled_form_runs_another_kernel(altered: Altered) -> None:
    altered.kernels(DECODE["compiled"], lambda _, one: replace(one, name="another"))
    found = judged("O-A49")
    assert found.measured is not None
    assert found.word == "differs"
    assert found.measured.text.startswith("another instead of cudnn_generated")


def test_the_decoding_table() -> None:
    listed = decoding.decode_table()
    assert listed.count("<tr>") == 1 + len(DECODE)
    assert "in place" not in listed
    assert "65,536" in listed


def test_a_single_query_by_is_causal_returns_the_first_value() -> None:
    rows = re.findall(r"<tr>(.*?)</tr>", decoding.alignments(), re.DOTALL)[1:]
    cells = [[re.sub(r"<[^>]+>", "", cell) for cell in row.split("\n")] for row in rows]
    assert cells == [["aligned_top_left", "yes", "no"], ["aligned_lower_right", "no", "yes"]]


# Training


def test_the_order_of_training_is_compared_with_that_of_the_forward(altered: Altered) -> None:
    altered.point(TRAINING["Flex"], warm_us=240.0)
    found = judged("O-A50")
    assert found.measured is not None
    assert found.word == "differs"
    assert found.measured.text == "Flex, cuDNN, flash, efficient, compiled, in place, naive, math"


def test_kernels_of_every_way(altered: Altered) -> None:
    altered.kernels(TRAINING["Flex"], lambda _, one: None if "backward_0" in one.name else one)
    found = judged("O-A51")
    assert found.measured is not None
    assert found.word == "differs"
    assert str(found.measured.value).endswith("compiled 8, Flex 2")


def test_peaks(altered: Altered) -> None:
    peak = load_recording(TRAINING["naive"], DEFAULT_DEVICE).points[0].peak_memory_bytes
    altered.point(TRAINING["efficient"], peak_memory_bytes=peak // 7)
    altered.point(TRAINING["in place"], peak_memory_bytes=peak - 1)
    assert (verdict("O-A52"), verdict("O-A53")) == ("differs", "differs")
    assert str(training.FIGURES["training_memory_order"](DEFAULT_DEVICE).value).split(", ")[:2] == ["Flex", "cuDNN"]


def test_backward_over_forward_by_hand(altered: Altered) -> None:
    """Forward one kernel, backward five: with 10 us each, and with all but one of the five 0."""
    altered.kernels(TRAINING["flash"], lambda _, one: replace(one, duration_us=10.0))
    assert training.backward_ratio("flash")(DEFAULT_DEVICE).value == pytest.approx(5)
    assert verdict("O-A54") == "differs"
    assert training.FIGURES["training_copies"](DEFAULT_DEVICE).value == pytest.approx(100 * 2 / 6)


def test_only_copies_of_the_backward_pass_count(altered: Altered) -> None:
    traced = load_trace(TRAINING["flash"], DEFAULT_DEVICE)
    step = traced.steps[1]
    assert [training.is_backward(traced, one) for one in step.activities] == [False, True, True, True, True, True]
    assert [kernel.duration_us for kernel in training.copies(traced, step)] == [
        kernel.duration_us for kernel in step.kernels[1:3]
    ]
    altered.kernels(
        TRAINING["efficient"], lambda t, one: None if (op := t.op_of(one)) and op.name == "aten::copy_" else one
    )
    found = judged("O-A55")
    assert found.measured is not None
    assert (found.word, found.measured.value) == ("differs", "2, 0, 0")


# Errors


def test_one_wrong_step_shows(altered: Altered) -> None:
    altered.point(DECODE["Flex"], relative_error=6e-3)
    found = judged("O-A56")
    assert found.measured is not None
    assert (found.word, found.measured.value) == ("differs", 6e-3)


def test_the_nearest(altered: Altered) -> None:
    altered.point("attention/flex", relative_error=1e-3)
    found = judged("O-A57")
    assert found.measured is not None
    assert (found.word, found.measured.value) == ("differs", "Flex")


def test_errors_of_forwards_by_hand(altered: Altered) -> None:
    altered.point("attention/naive", relative_error=3e-3)
    altered.point("attention/flash", relative_error=2e-3)
    assert training.error_ratio("attention/naive", "attention/flash")(DEFAULT_DEVICE).value == pytest.approx(1.5)
    assert verdict("O-A58") == "differs"


def with_error(name: str, error: float) -> Recording:
    """The sweep of the wider head with another error of a way at 1024 tokens."""
    found = load_recording("attention/lengths_128", DEFAULT_DEVICE)
    data = copy.deepcopy(found.data)
    data["1024"]["variants"][name]["error"] = error
    return replace(found, data=data)


def test_errors_of_wider_heads(altered: Altered) -> None:
    narrow = training.swept_error(64, 1024, "naive", DEFAULT_DEVICE)
    altered.recordings["attention/lengths_128"] = with_error("naive", 2 * narrow)
    assert training.wide_error("naive")(DEFAULT_DEVICE).value == pytest.approx(2)
    assert verdict("O-A59") == "differs"


def test_tables_of_training_and_errors() -> None:
    for listed in (training.training_table(), training.errors_table()):
        assert listed.count("<tr>") == 1 + len(TRAINING)
    assert training.errors_table().count('title="none"') == 1  # decoding masks nothing, so nothing in place
    assert training.wide_errors().count("<tr>") == 4


def test_what_could_not_be_had_from_the_hub_is_said(altered: Altered) -> None:
    assert "cannot be reached" in training.hub()
    found = load_recording("attention/hub_flash", DEFAULT_DEVICE)
    measured = {"version": 1, "hub": [1, 2, 3], "flash": [4, 5, 6], "errors": {"hub": 2e-3, "flash": 1e-3}}
    altered.recordings[found.id] = replace(found, data=measured)
    listed = training.hub()
    assert listed.count("<tr>") == 3
    assert "2.00 µs" in listed
    assert "2.00e-03" in listed
