"""The page on kernel names, with the real grammar and real recordings."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path

import pytest

from kinetoscope.trace.kernel_grammar import GRAMMAR_FILE, TokenRule, grammar
from kinetoscope.trace.kernel_names import decode_kernel_name
from snippets.kernel_names import findings
from snippets.lab.finding import Device, NotRecorded
from snippets.lab.recording.device import PROJECT
from snippets.lab.recording.loading import load_recordings
from tests.lab.samples import BOOK, DEVICE, Markup, assert_only_text, cells, recordings, sample, save_all, trace_json


def test_a_family_as_a_table() -> None:
    content = findings.families(BOOK, "memset")
    assert content.startswith("<p>A fill isn&#x27;t a kernel of the program")
    assert cells(content) == [
        ["token", "meaning", "evidence"],
        ["Memset", "a fill with one value", "● documentedKineto"],
        ["CUDA memset", "a fill with one value, in the words of Nsight Systems", "● documentedNsight Systems"],
        ["Device", "the kind of memory", "● documentedKineto"],
    ]


def test_long_tables_are_folded_and_all_are_text() -> None:
    for family in grammar().families:
        content = findings.families(BOOK, family.id)
        rows = cells(content)[1:]
        assert len(rows) == len({(token, meaning) for token, meaning, _ in rows}) > 0
        assert content.count("<details") == (len(rows) > findings.FOLDED_FROM)
        assert_only_text(content, *(token for token, _, _ in rows))
        assert "{" not in "".join(meaning for _, meaning, _ in rows)


def test_the_page_shows_every_family_whose_names_are_written_out() -> None:
    page = (PROJECT / "docs" / "kernel_names.md").read_text(encoding="utf-8")
    calls = re.findall(r'print\(show\("[^"]+", families, (.*)\)\)', page)
    names = [name for call in calls for name in re.findall(r'"([^"]+)"', call)]
    assert sorted(names) == sorted(family.id for family in grammar().families if "mangled" not in family.id)


def test_the_meaning_of_a_rule_is_that_of_its_example() -> None:
    assert findings.in_general(TokenRule("(?<t>@size)(?=_)", "64x8", "a tile of {t}")) == "a tile of 64x8"
    assert findings.in_general(TokenRule("x(?=<(?<t>[a-z]+))", "x", "of {t}")) == "of …"
    assert findings.in_general(TokenRule("x(?=<(?<t>[a-z]+))", "x", "a part[ of {t}]")) == "a part"


def test_sources() -> None:
    assert cells(findings.sources(BOOK))[1:] == [[key, value] for key, value in grammar().sources.items()]


def test_a_recorded_name_token_by_token() -> None:
    assert cells(findings.tokens(BOOK, "mlp/eager", index=0))[:2] == [
        ["token", "meaning", "evidence"],
        ["nvjet", "cuBLAS's matrix products for Hopper and newer", "◐ inferred"],
    ]


def test_two_names_for_the_same_work() -> None:
    content = findings.side_by_side(BOOK)
    rows = cells(content)
    assert rows[0] == ["", "A100, in the series", "NVIDIA H200"]
    assert rows[1] == [
        "a product of two 4096 x 4096 matrices",
        "cuBLAS GEMM bf16 · 128x256x64 · nnPart 1",
        "cuBLAS GEMM bf16 · 256x128x64 · NNT",
    ]
    assert [row[0] for row in rows[1:]] == [what for what, *_ in findings.SIDE_BY_SIDE]
    kernels = [decode_kernel_name(name) for name in names_in(content)]
    for theirs, ours in zip(kernels[::2], kernels[1::2], strict=True):
        assert (theirs.operation, theirs.dtype) == (ours.operation, ours.dtype)
        assert (theirs.name == ours.name) == (ours.library in ("inductor", "triton"))


def names_in(content: str) -> list[str]:
    return [unescape(name) for name in re.findall(r'class="kernel-raw"><code>(.*?)</code>', content, re.DOTALL)]


@pytest.mark.slow
def test_all_names_of_a_device() -> None:
    content = findings.recorded_names(BOOK)
    traces = [BOOK[recording.id].trace for recording in load_recordings(BOOK.root, BOOK.name) if recording.has_trace]
    assert sorted(names_in(content)) == sorted({activity.name for trace in traces for activity in trace.activities})
    assert ["copy device to device", "cuda", "copy"] in [row[:3] for row in cells(content)]


def test_all_names_where_nothing_is_recorded(tmp_path: Path) -> None:
    with pytest.raises(NotRecorded, match="make record"):
        findings.recorded_names(Device(tmp_path, DEVICE))


def test_where_a_name_was_recorded(tmp_path: Path) -> None:
    device = save_all(tmp_path, sample(), sample("mlp/compiled"))
    assert cells(findings.recorded_names(device)) == [
        ["kernel, copy or fill", "library", "operation", "recorded in"],
        ["fill of memory (Device)", "cuda", "memset", "mlp/compiled, and 1 more"],
        ["gemm", "unknown", "other", "mlp/compiled, and 1 more"],
    ]


def test_the_box_has_the_grammar_that_python_reads() -> None:
    content = findings.decoder(BOOK)
    data = content.split('<script type="application/json" id="kernel-grammar">')[1].removesuffix("</script>")
    assert json.loads(data) == json.loads(GRAMMAR_FILE.read_bytes())
    assert "<" not in data
    box = content.split("<script")[0]
    assert Markup(box).text.startswith("A kernel's name" + "nvjet_")
    assert 'id="kernel-decoder" class="kernel-decoder" hidden' in box


def test_a_page_has_one_box_where_two_devices_are_recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_all(tmp_path, sample(), device=BOOK.name)
    save_all(tmp_path, sample(), trace=trace_json(name="another_kernel"), device=DEVICE)
    recordings(monkeypatch, tmp_path)
    content = findings.show("kernel-names-decoder", findings.decoder)
    assert content.count('id="kernel-decoder"') == 1
    assert ">gemm</textarea>" in content
