"""The page of several ranks: its numbers are those of the comparison, few ranks or a thousand."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from msgspec import structs
from msgspec.json import encode

from kinetoscope.diagnosis.pages import PAGES
from kinetoscope.diagnosis.rule import CannotTell, Finding, Rule
from kinetoscope.ranks.digest import Digest, digest
from kinetoscope.ranks.digest_files import write_digest
from kinetoscope.ranks.late import us_text
from kinetoscope.ranks.merge import merge
from kinetoscope.ranks.ranks import RanksReport, ranks_report
from kinetoscope.report.document import several_html
from kinetoscope.report.rank_drawing import members_text
from kinetoscope.report.rank_findings import Findings, rank_findings, rank_findings_html
from kinetoscope.report.rank_tables import quantile_ns
from kinetoscope.report.ranks_document import rank_finding_rows, ranks_document
from kinetoscope.report.ranks_html import ranks_kicker, ranks_lead, ranks_report_parts
from kinetoscope.report.several import report_several
from kinetoscope.report.trace_report import report_data
from kinetoscope.trace.documents import BRIEF_CHARACTERS, document_text
from kinetoscope.trace.events import Collective
from tests.tool.markup import EVIL
from tests.tool.report.samples import SMALL, SYNC, Page, diagnosed, traced
from tests.tool.runs import ADD, ALL_REDUCE, GEMM, trace_of
from tests.tool.trace.public import PROJECT

JOBS = PROJECT.parent / "shared" / "traces" / "ranks"
needs_jobs = pytest.mark.skipif(not JOBS.is_dir(), reason="no traces in ../shared/traces/ranks")


def late_job(count: int, late: int | None, *, group: str = "dp") -> list[Digest]:
    """Three steps. All compute for 100 us, the late rank for 160, and leave the first allreduce at 200.

    In the second allreduce all but the late rank wait for 30 us, beside a kernel.
    """
    digests = []
    for rank in range(count):
        own = 160.0 if rank == late else 100.0
        start = 360.0 if rank == late or late is None else 330.0
        work = [(GEMM, 0.0, own), (ALL_REDUCE, own, 200.0 - own), (ADD, 300.0, 150.0), (ALL_REDUCE, start, 400 - start)]
        digests.append(digest(trace_of([work] * 3, rank=rank, world_size=count, group=group)))
    return digests


def page_of(report: RanksReport, findings: Findings | None = None) -> Page:
    return Page("".join(f"<h2>{part.heading}</h2>{part.html}" for part in ranks_report_parts(report, findings or {})))


def described(page: Page, start: str) -> list[str]:
    return [text for text in page.of("aria-label") if text.startswith(start)]


def test_a_late_rank() -> None:
    report = ranks_report(late_job(4, 2))
    page = page_of(report)
    assert page.wrong == page.open_elements == []
    bars = [text for text in described(page, "rank ") if "hidden" in text]
    assert (
        bars[0]
        == "rank 2: 310 µs own work, 40.0 µs transfer, 0 µs waiting, 467 µs idle; 40.0 µs of communication hidden"
    )
    assert (
        bars[1]
        == "rank 0: 250 µs own work, 40.0 µs transfer, 60.0 µs waiting, 467 µs idle; 70.0 µs of communication hidden"
    )
    assert described(page, "rank 2 starts") == [
        "rank 2 starts at 60.0 µs, waits 0 µs, of it 0 µs exposed, then transfers for 40.0 µs"
    ]
    assert "rank 0 starts at 0 µs, waits 60.0 µs, of it 60.0 µs exposed, then transfers for 40.0 µs" in page.of(
        "aria-label"
    )
    assert "The collective that costs most is also the longest" in page.text
    assert "[0, 1, 3] 2 dp 2 90.0 µs 60.0 µs" in page.text
    assert "Why rank 2 is late" in page.text
    assert page.texts.count("late") == 3
    assert "“Moving rank 2's extra work to the other ranks saves 60.0 µs.” Only if the work goes away." in page.text
    assert "Shared out evenly over 4 ranks, about 45.0 µs." in page.text


def test_the_costliest_collective_may_not_be_the_longest() -> None:
    """The first allreduce waits for 90 us beside a kernel, the second for 40 us beside nothing."""
    digests = []
    for rank, (first, second) in enumerate(((0.0, 160.0), (90.0, 200.0))):
        work = [(GEMM, 0.0, 120.0), (ALL_REDUCE, first, 120.0 - first), (ADD, 120.0, second - 120.0)]
        work.append((ALL_REDUCE, second, 210.0 - second))
        digests.append(digest(trace_of([work], rank=rank, world_size=2, group="dp")))
    page = page_of(ranks_report(digests))
    assert "The collective that costs most is not the longest" in page.text
    assert "Lasts 120 µs on rank 0: 90.0 µs of waiting, of it 0 µs exposed, and 30.0 µs of transfer." in page.text
    assert "Lasts 50.0 µs on rank 0: 40.0 µs of waiting, of it 40.0 µs exposed, and 10.0 µs of transfer." in page.text


def test_a_late_rank_leads_to_the_book() -> None:
    report = ranks_report(late_job(2, 1))
    (html,) = (part.html for part in ranks_report_parts(report, {}, "https://book/") if part.heading.startswith("Why"))
    assert f'<a href="https://book/{PAGES["stragglers"]}">' in html
    assert ranks_document(report, {}, site="https://book/").stragglers[0].page == f"https://book/{PAGES['stragglers']}"
    assert "href" not in dict(page_of(report).attributes)


def test_ranks_without_a_late_rank() -> None:
    page = page_of(ranks_report(late_job(2, None)))
    assert "Why rank" not in page.text
    assert "late" not in page.texts
    assert described(page, "rank 1: ")[0].startswith("rank 1: 250 µs own work, 100 µs transfer, 0 µs waiting")


def test_arrows_between_the_ranks_of_two_groups() -> None:
    """Rank 2 is late for rank 1 in one group, and so rank 1 for rank 0 in another."""
    works = [[("a", 50, 250)], [("b", 40, 150), ("a", 240, 60)], [("b", 140, 50)]]
    digests = []
    for rank, calls in enumerate(works):
        work = [(GEMM, 0.0, 30.0), *((ALL_REDUCE, float(at), float(us)) for _, at, us in calls)]
        trace = trace_of([work], rank=rank, world_size=3)
        first, *kernels = trace.activities
        stated = (Collective("allreduce", group=name, ranks=(0, 1) if name == "a" else (1, 2)) for name, *_ in calls)
        made = (first, *map(lambda each, of: structs.replace(each, collective=of), kernels, stated))
        step = structs.replace(trace.steps[0], activities=made)
        digests.append(digest(structs.replace(trace, steps=(step,), activities=made)))
    page = page_of(ranks_report(digests))
    assert described(page, "rank 0 waits") == ["rank 0 waits 190 µs for rank 1, rank 1 waits 100 µs for rank 2"]
    assert not described(page_of(ranks_report(late_job(4, 2))), "rank 0 waits")


@pytest.mark.parametrize(("count", "panels", "rows"), [(8, 0, 8), (64, 8, 6 + 64), (1000, 8, 6 + 1000)])
def test_many_ranks_have_panels(count: int, panels: int, rows: int) -> None:
    late = count - 3
    html = {part.heading: part.html for part in ranks_report_parts(ranks_report([merge(late_job(count, late))]), {})}
    bars = Page(html["Where each rank's step goes"])
    assert len(described(bars, "ranks ")) == panels
    assert bars.elements.count("tr") == rows + (1 if count == 8 else 2)
    if panels:
        assert described(bars, "ranks ")[0].startswith(f"ranks {count - 8} to {count - 1}: 310 µs of own work at most")
        assert f">{late}</text>" in html["Where each rank's step goes"]
    assert sum(map(len, html.values())) < 1_500_000


@needs_jobs
@pytest.mark.parametrize("name", sorted({path.name.split(".")[0] for path in JOBS.glob("*.rank0.json.gz")}))
def test_pages_of_recorded_jobs(name: str) -> None:
    paths = sorted(JOBS.glob(f"{name}.rank*.json.gz"))
    made = report_several(paths)
    page = Page(several_html(made))
    assert page.wrong == page.open_elements == []
    assert len(page.of("id")) == len(set(page.of("id")))
    assert {address[1:] for address in page.of("href") if address.startswith("#")} <= set(page.of("id"))
    assert made.headline in page.text
    for part in made.data["parts"]:
        start = f"rank {part['rank']}: {us_text(part['own_us'])} own work, {us_text(part['transfer_us'])} transfer, "
        assert len(described(page, f"{start}{us_text(part['waiting_us'])} waiting")) == 1
    assert f"of waiting, of it {us_text(made.data['costliest_collective']['exposed_waiting_us'])} exposed" in page.text
    assert len(re.findall(r"Step \d+ of each rank on one time axis", page.text)) == 1
    assert made.data["findings"] is not None
    for finding in made.data["findings"]:
        assert finding["title"] in page.text


def found(rank: int, *checked: Rule) -> Findings:
    return {rank: rank_findings(traced(), rank, checked)}


def test_findings_of_all_ranks_are_listed_once() -> None:
    findings = {**found(0, SMALL, SYNC), **found(1, SYNC)}
    page = Page(rank_findings_html(findings, ranks_report(late_job(2, 1))))
    some, every = page.text.split("Findings of every rank", 1)
    assert "One small copy" in some
    assert "The CPU waits <50 us>" not in some
    assert every.count("The CPU waits <50 us>") == 1
    assert "[0, 1]" in every
    sync, small = json.loads(encode(rank_finding_rows(findings)))
    (alone, _) = report_data(diagnosed(traced(), SMALL, SYNC))["findings"]
    ceilings = [{"rank": 0, "ceiling_us_per_step": 30.0}, {"rank": 1, "ceiling_us_per_step": 30.0}]
    assert sync == {**alone, "ranks": ceilings}
    assert (small["rule"], small["ranks"]) == ("small", [{"rank": 0, "ceiling_us_per_step": 2.0}])


def test_a_finding_has_the_range_of_its_ranks() -> None:
    def slower(saving_us: float) -> Rule:
        return Rule(
            "slower", "Slower", "x", "x", "x", "x",
            lambda _: [Finding(rule, f"Slower by {saving_us:g}", "", (), 1.0, saving_us)],
        )  # fmt: skip

    rule = slower(0.0)
    findings = {**found(0, slower(3.0)), **found(1, slower(7.0))}
    text = Page(rank_findings_html(findings, ranks_report(late_job(2, 1)))).text
    assert "On rank 1: Slower by 7" in text
    assert "3.00 µs to 7.00 µs" in text


def test_findings_need_traces() -> None:
    report = ranks_report(late_job(2, 1))
    assert "need its trace, and this report has digests" in Page(rank_findings_html({}, report)).text
    assert rank_finding_rows({}) is None
    partly = Page(rank_findings_html(found(0, SYNC), report)).text
    assert "1 of 2 ranks are given as digests" in partly
    silent = Rule("silent", "x", "x", "x", "x", "x", lambda _: CannotTell(silent, "x", "x"))
    assert "No rule found a fault" in Page(rank_findings_html(found(0, silent), report)).text


def test_one_rank_tells_of_no_late_rank() -> None:
    report = ranks_report(late_job(1, None))
    assert "late rank unknown no collectives compared" in Page(ranks_lead(report)).text
    assert [part.heading for part in ranks_report_parts(report, {})] == [
        "Where each rank's step goes",
        "Each rank's findings",
        "The sums of every rank",
        "Kernels of all ranks",
        "Method and limits",
    ]


def test_digests_alone_make_a_page(tmp_path: Path) -> None:
    paths = []
    for rank, made in enumerate(late_job(3, 1)):
        paths.append(tmp_path / f"{rank}.digest.json")
        write_digest(made, paths[-1])
    report = report_several(paths)
    assert report.data["findings"] is None
    assert report.kicker == ranks_kicker(ranks_report(late_job(3, 1))) == "3 × NVIDIA Sample · 3 steps"
    page = Page(several_html(report))
    assert page.text.count("need its trace, and this report has digests") == 1
    assert "rank 1: last at 6 of 6 collectives; on time, a step would be 60.0 µs shorter" in page.text


def test_quantiles_are_those_of_the_bins() -> None:
    steps = [[(GEMM, 0.0, 10.0 if number < 9 else 100.0)] for number in range(10)]
    (kernel,) = digest(trace_of(steps)).kernels
    assert quantile_ns(kernel, 0.5) == pytest.approx(10_000, rel=0.19)
    assert quantile_ns(kernel, 0.99) == pytest.approx(100_000, rel=0.19)


def test_names_stay_text() -> None:
    for evil in EVIL:
        work = [[(evil, 0.0, 10.0), (ALL_REDUCE, 10.0, 5.0)]]
        digests = [digest(trace_of(work, rank=rank, world_size=2, group=evil)) for rank in range(2)]
        digests += [digest(trace_of([[(ALL_REDUCE, 10.0, 9.0)]], rank=2, world_size=2, group=evil))]
        assert not any(evil in part.html for part in ranks_report_parts(ranks_report(digests), {}))


@pytest.mark.parametrize(
    ("ranks", "text"),
    [((), "[]"), ((0, 2), "[0, 2]"), (range(64), "[0 to 63]"), (range(0, 64, 4), "[0, 4, 8, … 60]")],
)
def test_ranks_of_a_group(ranks: range, text: str) -> None:
    assert members_text(ranks) == text


def test_the_brief_json_of_many_ranks_names_the_late_one() -> None:
    findings = {rank: rank_findings(traced(), rank, [SYNC, SMALL]) for rank in range(64)}
    document = ranks_document(ranks_report([merge(late_job(64, 61))]), findings, [f"rank{n}.json" for n in range(64)])
    brief = document_text(document, "brief")
    data = json.loads(brief)
    assert len(brief) <= BRIEF_CHARACTERS
    assert data["straggler"]["rank"] == 61
    assert {"key": "ranks", "rows": 10, "of": 64} in data["truncated"]
