"""The fact check on made-up recordings of its own, and every article has its row."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from kinetoscope.trace.kineto import read_recorded_trace
from snippets.fact_check.findings import block, facts, structure, sweep, tables, times
from snippets.fact_check.findings.sources import ARTICLES, DEEP_DIVE, DOCUMENTS, TUTORIAL
from snippets.fact_check.findings.statements import STATEMENTS
from snippets.fact_check.findings.values import LABELS
from snippets.lab.finding import Device, Figure, NotTimed
from snippets.lab.finding.book import all_claims, find_claim, findings, judge
from snippets.lab.finding.claim import STATUSES, Status
from snippets.lab.finding.device import all_devices
from snippets.lab.recording.device import PROJECT
from tests.chapters.altered import AlteredDevice
from tests.chapters.fact_check.samples import KERNEL, block_data, recordings
from tests.lab.sample_recordings import page_on_samples, save_samples
from tests.lab.samples import BOOK, Markup, cells

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
        assert document.short in rows
        assert any(each.source.who == document.who for each in facts.judged(device)), document.short
    for document in ARTICLES:
        assert any(claim.source and claim.source.who == document.who for claim in OWN), document.short


def test_each_claim_of_an_article_is_in_its_table() -> None:
    for document, statements in STATEMENTS.items():
        claims = {claim.id for _, claim in all_claims().values() if claim.source and claim.source.who == document.who}
        tested = {claim_id for key, statement in statements.items() for claim_id in (key, *statement.also)}
        assert claims <= tested, document.short
        assert {claim_id for claim_id in tested if not claim_id.islower()} <= LABELS.keys()
        fence = next(line for line in PAGE.splitlines() if f'article, "{document.short}"' in line)
        assert re.findall(r'"([^"]+)"', fence)[2:] == [*statements], "the page shows them in this order"


def test_a_page_names_all_statements_of_an_article(device: AlteredDevice) -> None:
    with pytest.raises(ValueError, match=r"name these statements of TokenFeed on the page: \['FC50', 'regimes'\]"):
        facts.article(device, "TokenFeed", "FC5", "FC4", "FC46")


def test_statements_lead_to_sections_of_this_page_and_others() -> None:
    """The check of the built site follows links to other pages."""
    own = {statement.link for of in STATEMENTS.values() for statement in of.values() if statement.link[0] == "#"}
    assert [link for link in sorted(own) if f"{{ {link} }}" not in PAGE] == []
    assert [anchor for anchor in facts.ANCHORS.values() if f"{{ #{anchor} }}" not in PAGE] == []


def test_statements_have_no_number_that_was_measured() -> None:
    unit = re.compile(r"\d[\d.,]*\s?(?:[mµun]s|[GT]B|[kMGT]B|%|x)(?!\w)")
    assert [key for of in STATEMENTS.values() for key, statement in of.items() if unit.search(statement.plain)] == []


def test_what_is_right_holds_and_what_is_not_differs(device: AlteredDevice) -> None:
    """A sentence that begins with *Right* is about claims that hold on every device, and no other sentence is."""
    for statements in STATEMENTS.values():
        for key, statement in statements.items():
            claims = [find_claim(claim_id)[1] for claim_id in (key, *statement.also) if not key.islower()]
            statuses = {
                facts.source_verdict(judge(claim, "fact_check", each)).status
                for claim in claims
                if claim.source
                for each in all_devices(BOOK.root)
            }
            if statuses:
                assert statement.plain.startswith("Right") == (statuses == {"holds"}), key


def test_the_books_own_claims_are_not_checked(device: AlteredDevice) -> None:
    with pytest.raises(ValueError, match="FC7 is ours"):
        facts.judged(device, ["FC7"])
    with pytest.raises(ValueError, match="FC7 is ours"):
        facts.posts(device, "FC7")


def test_a_tally_counts_every_claim_once(device: AlteredDevice) -> None:
    statuses = [each.verdict.status for each in facts.counted(device)]
    counts = [statuses.count(status) for status in STATUSES]
    judged = facts.judged(device)
    assert sum(counts) == len(judged) == len({each.verdict.claim.id for each in judged})
    last = [str(number) for number in (counts[0], counts[1], sum(counts[2:]))]
    assert cells(facts.tally(device))[-1][1:] == last


def test_a_statement_has_the_verdicts_of_every_device(device: AlteredDevice) -> None:
    text = Markup(facts.article(device, "1minai", *STATEMENTS[DEEP_DIVE])).text
    assert "1minai: what the article says, and what we measured" in text
    assert "CPU time that two fused kernels save" in text
    assert "no verdict" in text
    assert "read, not measured" in text
    assert 'id="claim-fc23"' in facts.article(device, "1minai", *STATEMENTS[DEEP_DIVE])


def test_a_value_for_one_gpu_is_judged_by_it_alone() -> None:
    text = Markup(facts.article(BOOK, "n1n.ai", *STATEMENTS[TUTORIAL])).text
    (gelu,) = (row for row in text.split("“") if row.startswith("GeLU 0.04 ms”"))
    assert "H100: 43.9 µs" in gelu
    assert "H200" not in gelu


def test_a_post_that_differs_has_the_first_sentence_of_the_reason() -> None:
    text = Markup(facts.posts(BOOK, "P1", "P25")).text
    assert "✓ holds" in text
    assert "When no GPU work is left, cudaDeviceSynchronize takes only its own time." in text
    assert "In the series's trace the GPU began late" not in text


def test_verdicts_that_differ_have_signs() -> None:
    text = Markup(facts.posts(BOOK, "M7")).text
    assert "≠ H100: 13.4 %" in text
    assert "? H200: 10.3 %" in text


def test_a_stack_feeds_each_linear_from_the_one_before() -> None:
    assert structure.widths_of_the_linears.band(Figure("768 to 3072, 3072 to 3072, 3072 to 768"))
    assert not structure.widths_of_the_linears.band(Figure("768 to 3072, 768 to 3072, 3072 to 768"))
    assert not structure.widths_of_the_linears.band(Figure("768 to 3072, 3072 to 768"))


def test_the_overhead_that_two_kernels_save(device: AlteredDevice) -> None:
    device.time("fused_mlp/eager", 100.0, "enqueue")
    device.time("fused_mlp/fused", 35.0, "enqueue")
    assert times.overhead_saved(device).number == pytest.approx(65)
    assert status("FC23", device) == "holds"


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


def test_the_page_on_samples(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = save_samples(tmp_path, recordings())
    assert "sample" in page_on_samples("fact_check", device, monkeypatch)


def test_who_ran_the_race(tmp_path: Path) -> None:
    assert "the H200" in str(times.raced_on(BOOK).value)
    assert times.raced_on(Device(tmp_path, BOOK.name)).text == "no device"


def test_the_verdict_in_the_sentence_is_the_ledgers() -> None:
    verdict = judge(find_claim("FC25")[1], "fact_check", BOOK)
    assert facts.FIGURES["wall_time_verdict"](BOOK).text == verdict.status


def test_registers_on_both_sides(device: AlteredDevice) -> None:
    assert re.fullmatch(r"eager \d+, fused \d+", times.registers(device).text)
