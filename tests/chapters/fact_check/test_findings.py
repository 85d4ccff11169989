"""The fact check on made-up recordings of its own, and every article has its row."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from kinetoscope.trace.kineto import read_recorded_trace
from snippets.fact_check.findings import block, facts, sweep, tables, times
from snippets.fact_check.findings.sources import ARTICLES, DOCUMENTS, short_name
from snippets.lab.finding import Device, Figure, NotTimed
from snippets.lab.finding.book import all_claims, find_claim, findings, judge
from snippets.lab.finding.claim import STATUSES, Status
from snippets.lab.recording.device import PROJECT
from tests.chapters.altered import AlteredDevice
from tests.chapters.fact_check.samples import KERNEL, block_data, recordings
from tests.lab.sample_recordings import page_on_samples, save_samples
from tests.lab.samples import BOOK, Markup

PAGE = (PROJECT / "docs" / "fact_check.md").read_text("utf-8")
OWN = findings("fact_check").claims


def with_samples(kernel: str = KERNEL) -> AlteredDevice:
    """The default device with samples of this chapter."""
    device = AlteredDevice()
    for recording, trace in recordings(kernel):
        device.recordings[recording.id] = recording
        if trace is not None:
            device.traces[recording.id] = read_recorded_trace(trace)
    return device


@pytest.fixture
def device() -> AlteredDevice:
    return with_samples()


def alone(device: AlteredDevice) -> AlteredDevice:
    """The same device without a recorded H100."""
    return replace(device, root=device.root / "nowhere")


def status(claim_id: str, device: Device) -> Status:
    """The verdict, as the GPU would judge that the source's value is for."""
    measured = find_claim(claim_id)[1]
    verdict = judge(measured, "fact_check", device)
    if verdict.status != "cannot be tested":
        return verdict.status
    assert verdict.measured is not None
    return "holds" if measured.band(verdict.measured) else "differs"


def test_every_article_has_its_row_on_the_page_and_in_the_ledger(device: AlteredDevice) -> None:
    said = {claim.source.who for _, claim in all_claims().values() if claim.source}
    rows = Markup(facts.tally(device)).text
    for document in DOCUMENTS:
        assert document.who in said, document.short
        assert document.who in rows
        assert any(each.source.who == document.who for each in facts.judged(device)), document.short
    for document in ARTICLES:
        assert any(claim.source and claim.source.who == document.who for claim in OWN), document.short


def test_each_claim_of_others_is_in_the_table_and_each_section_on_the_page() -> None:
    titles = {document.who for document in ARTICLES}
    of_articles = {claim.id for _, claim in all_claims().values() if claim.source and claim.source.who in titles}
    assert of_articles <= {*facts.CLAIMS}, "show these in docs/fact_check.md and name them in SECTIONS"
    assert len({*facts.CLAIMS}) == len(facts.CLAIMS)
    for section, claims in facts.SECTIONS.items():
        assert f"{{ #{section} }}" in PAGE, section
        for claim_id in claims:
            assert f'"{claim_id}"' in PAGE.partition(f"{{ #{section} }}")[2].partition("\n## ")[0], claim_id


def test_the_books_own_claims_are_not_checked(device: AlteredDevice) -> None:
    with pytest.raises(ValueError, match="FC7 is ours"):
        facts.judged(device, ["FC7"])
    with pytest.raises(KeyError):
        short_name("somebody")


def test_a_tally_counts_every_claim_once(device: AlteredDevice) -> None:
    counts = [facts.count(device, status).number for status in STATUSES]
    assert sum(counts) == len(facts.CLAIMS)
    assert facts.count(device, "holds").text == f"{counts[0]:.0f} of {len(facts.CLAIMS)}"
    assert facts.untestable(device).number == counts[3]
    assert facts.untestable(device).text == "3 for an A100", "an H100 has recorded"


def test_tests_of_one_statement_are_of_one_source(device: AlteredDevice) -> None:
    sources = {each.verdict.claim.id: each.source for each in facts.judged(device)}
    for claim_id, first in facts.SAME_STATEMENT.items():
        assert sources[claim_id].who == sources[first].who, claim_id
        assert first not in facts.SAME_STATEMENT, first
    assert "Deep dive" in (text := Markup(facts.tally(device)).text)
    assert "17 claims from 10 statements: " in text


def test_a_device_without_a_recording_is_named(device: AlteredDevice) -> None:
    (only_an_a100,) = (
        row for row in Markup(facts.fact_table(device)).text.split("Digest: ") if row.startswith("89.4 µs")
    )
    assert only_an_a100.startswith("89.4 µs; A100: not recorded")
    assert "H100: not recorded" not in Markup(facts.fact_table(device)).text, "an H100 has recorded"


def test_most_of_the_shapes() -> None:
    assert times.most_shapes(Figure("5 of 8"))
    assert not times.most_shapes(Figure("4 of 8"))


def test_sizes_that_fit_the_cache(device: AlteredDevice) -> None:
    assert times.hidden_bytes(device, "[batch=64,seq=128]") == 8192 * 3072 * 2
    assert " to " in times.cache_gains(device, fits=True).text
    assert " to " not in times.cache_gains(device, fits=False).text


def test_what_only_an_a100_or_an_h100_can_test() -> None:
    only_there = {claim.id: claim.source.device for claim in OWN if claim.source and claim.source.only_there}
    assert only_there == {
        **dict.fromkeys(("FC20", "FC21"), "NVIDIA A100-SXM4-80GB"),
        "FC26": "NVIDIA A100",
        **dict.fromkeys(("FC27", "FC28", "FC29", "FC30", "FC31", "FC32"), "NVIDIA H100"),
    }


def test_the_size_at_which_a_time_is_reached(device: AlteredDevice) -> None:
    assert sweep.tokens_taking(device, "bfloat16", "linear", 120.0) == pytest.approx(8192, rel=1e-3)
    assert sweep.tokens_taking(device, "bfloat16", "linear", 100.0) == pytest.approx(8192 / 1.2, rel=1e-2)
    with pytest.raises(NotTimed, match="no size in bf16 takes that long"):
        sweep.tokens_taking(device, "bfloat16", "linear", 1e9)
    with pytest.raises(NotTimed, match="no sizes around"):
        sweep.time_at(device, "bfloat16", 1, "block")
    with pytest.raises(NotTimed, match="has no pingpong in bf16 at 8192 tokens"):
        sweep.block_timing(device, "bfloat16", 8192, "pingpong")


def test_the_gain_of_fusing(device: AlteredDevice) -> None:
    """GELU is a seventh of the block of the samples: without it, the block is 1.17 times as fast."""
    assert sweep.gain(device, "bfloat16", 8192).number == pytest.approx(280 / 240, rel=1e-3)
    assert sweep.gain_at(device, "bfloat16", 10_000).number == pytest.approx(280 / 240, rel=1e-3)
    assert block.latency_saved(device, "bfloat16", 8192).number == pytest.approx(100 / 7, rel=1e-2)
    assert block.most_saved(device).number == pytest.approx(100 / 7, rel=1e-2)


def test_what_fusing_saves_next_to_gelu_itself(device: AlteredDevice) -> None:
    """At 64 tokens the fused block saves 4 of 10 µs, of which GELU takes 2; elsewhere it saves GELU's seventh."""
    assert block.gelu_share(device, "bfloat16", 8192).number == pytest.approx(100 / 7, rel=1e-3)
    data = block_data()
    samples_us = data["samples_us"]["bfloat16"]["64"]
    samples_us["gelu"] = [2.0] * 5
    samples_us["block"] = [10.0] * 5
    samples_us["epilogue"] = [6.0] * 5
    device.data("fact_check/block", **data)
    assert block.most_saved(device).number == pytest.approx(40)
    assert block.gelu_where_most_is_saved(device).number == pytest.approx(20)


@pytest.mark.parametrize(
    ("way", "enqueue_us", "expected"),
    [
        ("compiled", 103.0, "holds"),
        ("compiled", 101.0, "differs"),
        ("reduce_overhead", 101.0, "differs"),
        ("fused", 50.0, "holds"),
    ],
)
def test_fewer_launches_by_the_compiler_cost_the_cpu_more(
    device: AlteredDevice, way: str, enqueue_us: float, expected: Status
) -> None:
    """Every call takes 103 µs, eager's 100; our two kernels are not the compiler's."""
    enqueued = dict.fromkeys(("compiled", "reduce_overhead", "fused"), 103.0) | {"eager": 100.0, way: enqueue_us}
    for name, us in enqueued.items():
        device.time(f"fused_mlp/{name}", us, "enqueue")
    assert status("FC24", device) == expected


def test_the_faster_fused_block_counts(device: AlteredDevice) -> None:
    data = block_data()
    data["samples_us"]["bfloat16"]["8192"]["pingpong"] = [140.0] * 5
    device.data("fact_check/block", **data)
    assert sweep.fastest_fused(device, "bfloat16", 8192) == "pingpong"
    assert sweep.gain(device, "bfloat16", 8192).number == pytest.approx(2.0, rel=1e-3)
    del data["samples_us"]["tf32"]["64"]["epilogue"]
    with pytest.raises(NotTimed, match="no fused block in TF32 at 64 tokens"):
        sweep.fastest_fused(device, "tf32", 64)


def test_where_no_arithmetic_reaches_the_time(device: AlteredDevice) -> None:
    data = block_data()
    data["samples_us"] = {"bfloat16": {"64": data["samples_us"]["bfloat16"]["64"]}}
    device.data("fact_check/block", samples_us=data["samples_us"])
    with pytest.raises(NotTimed, match="no arithmetic"):
        block.from_2100_to_1500(device)
    assert Markup(tables.h100_table(alone(device))).text.count("bf16") == 0


def test_tables(device: AlteredDevice) -> None:
    text = Markup(tables.h100_table(alone(device))).text
    assert "the article, on an H100" in text
    assert "8,200" in text
    assert "131,072" in Markup(tables.gains(device)).text
    rows = Markup(tables.article_rows(device)).text
    assert "annotation" in rows
    assert "operator" in rows
    assert "aten::t" not in rows, "it takes no time on the GPU"
    assert "Lazy Function Loading\noverhead" in rows
    assert "cudaFuncGetAttributes\nCUDA call" in rows
    table = Markup(facts.fact_table(device)).text
    assert "cannot be tested" in table
    assert "Deep dive" in table


def test_the_page_on_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = save_samples(tmp_path, recordings())
    assert "sample" in page_on_samples("fact_check", device, monkeypatch)


def test_who_ran_the_race(tmp_path: Path) -> None:
    assert "the H200" in str(times.raced_on(BOOK).value)
    assert times.raced_on(Device(tmp_path, BOOK.name)).text == "no device"


def test_a_forward_for_one_size_and_for_any(device: AlteredDevice) -> None:
    recorded = device["regimes/modes_geglu"].data["times"]
    changed = {
        mode: {**recorded[mode], "interleaved": [us] * 5}
        for mode, us in {"eager": 120.0, "default": 100.0, "dynamic": 80.0}.items()
    }
    device.data("regimes/modes_geglu", times={**recorded, **changed})
    assert times.FIGURES["fixed_size_speedup"](device).text == "1.20x"
    assert times.FIGURES["any_size_speedup"](device).text == "1.50x"
