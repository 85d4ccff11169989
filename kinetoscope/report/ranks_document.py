"""The JSON document of a report on the ranks of a job."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

from msgspec import Struct, structs

from kinetoscope.job.compared import Clocks
from kinetoscope.job.rank_parts import RankParts
from kinetoscope.ranks.collectives import CollectiveTimes, GroupWaiting
from kinetoscope.ranks.late import OperationTimes, Straggler
from kinetoscope.ranks.pipeline import Pipeline
from kinetoscope.ranks.ranks import METHOD, RanksReport, RankTimes, launch_bound
from kinetoscope.ranks.texts import exposed_transfer_us, ranks_headline
from kinetoscope.report.finding_rows import FindingRow, finding_ids, page_of
from kinetoscope.report.rank_findings import Findings, MergedFinding, merged
from kinetoscope.report.rank_late import STRAGGLERS
from kinetoscope.trace.documents import SCHEMA_VERSION, Cut, Unanswered


class RankCeiling(Struct, frozen=True):
    """A rank that has a finding."""

    rank: int
    ceiling_us_per_step: float


class RankFindingRow(FindingRow, frozen=True):
    """The findings of one rule on several ranks: the values are of the rank that it costs most."""

    ranks: tuple[RankCeiling, ...]
    """The ranks that have the fault, in their order. If collectives mostly wait for other ranks, `severity` counts only
    the time of the transfer."""


class StragglerRow(Struct, frozen=True):
    """A rank that the others wait for."""

    rank: int
    also_late: tuple[int, ...]
    """Other ranks that are late like this one."""
    among: tuple[int, ...]
    """The ranks that wait for each other, directly or through others, with the late ones."""
    share: float
    """Share of the waiting of the ranks `among`, hidden or not, at collectives at which the late ranks arrive last."""
    wait_us_per_step: float
    """The ceiling: the time by which a step would be shorter if the late ranks were on time."""
    waited_us_per_step: float
    """The mean time that each partner waits for the late ranks, with or without own work at the same time."""
    step_us: float
    """The time of a step on the late rank's GPU."""
    is_shared_out: bool
    """Whether an all-to-all gives the late rank more than other ranks, so that balancing gives other ranks more."""
    own_work_excess_us: float
    """How much longer the own work of the late rank takes than the median of the other ranks."""
    stalled_excess_us: float
    """Idle time of the late rank's GPU for which no launch is to blame, beyond the median of the other ranks."""
    operations: tuple[OperationTimes, ...]
    """Times by operation, the largest difference first."""
    why: str
    page: str
    """The book's section on a late rank. An address if `site` is known, else a path within the book."""


class GroupRow(Struct, frozen=True):
    """Ranks that wait for each other, directly or through others."""

    ranks: tuple[int, ...]
    straggler_rank: int | None
    wait_us_per_step: float | None
    waiting: tuple[GroupWaiting, ...]
    """Who waits for whom in which process group, the longest exposed waiting first."""


class StageRow(Struct, frozen=True):
    """A stage of a pipeline: times of a mean step in us."""

    rank: int
    own_us: float
    transfer_us: float
    waits_us: dict[str, float]
    """Exposed waiting for each rank that this stage sends to or receives from."""
    idle_us: float
    bubble_us: float
    """Time in which the stage neither works nor transfers."""
    step_us: float


class PipelineRow(Struct, frozen=True):
    """The stages of a pipeline, in the order in which they send forward."""

    stages: tuple[StageRow, ...]
    bubble_share: float
    """The share of the stages' steps in which they neither work nor transfer."""
    slowest: int
    """The stage with the most own work."""


class RanksDocument(Struct, frozen=True, kw_only=True, tag_field="kind", tag="ranks"):
    """The JSON of `report` on the ranks of a job."""

    schema_version: Literal[1] = SCHEMA_VERSION
    """Version of the schema. It rises when a key is renamed, removed or changes its meaning, not when one is added."""
    files: tuple[str, ...]
    """Names of the files, without their folders, in the order in which they were given."""
    site: str
    """Address of the book, from `--site`, KINETOSCOPE_SITE or the package; if empty, each `page` is a path."""
    headline: str
    """What the ranks wait for, and how much time the waiting costs, in a sentence or two."""
    findings: tuple[RankFindingRow, ...] | None
    """The findings of each rank's trace by rule, the most severe first, of one severity the largest ceiling; null if
    all files are digests."""
    cannot_tell: tuple[Unanswered, ...]
    """What the files cannot show. `findings`: ranks are given as digests. `stragglers`: ranks are missing, or no event
    shows which rank arrives last."""
    is_whole: bool
    """Whether times per step of all ranks can be judged: false if a file is cut off, damaged or lacks kernels."""
    ranks: tuple[RankTimes, ...]
    """The mean times of each rank's steps."""
    parts: tuple[RankParts, ...]
    """The parts of each rank's mean step; empty if the ranks have no step in common."""
    collectives_compared: int
    """Collectives compared between ranks, without sends and receives."""
    sends_compared: int
    """Sends compared with their receives."""
    straggler: StragglerRow | None
    """The first of `stragglers`; null if no rank is late."""
    stragglers: tuple[StragglerRow, ...]
    """The late rank of each set of ranks that wait for each other, the most expensive first."""
    groups: tuple[GroupRow, ...]
    """Sets of ranks that wait for each other."""
    exposed_transfer_us_per_step: float
    """Time of transfers during which the rank's GPU runs nothing else, as the median of the ranks."""
    launch_bound_rank: int | None
    """The rank whose GPU waits longest for launches; null if this waiting is less than a tenth of the rank's step."""
    pipeline: PipelineRow | None
    """The stages of a pipeline and the pipeline's bubble; null if the ranks are no pipeline."""
    costliest_collective: CollectiveTimes | None
    """The collective with the longest exposed waiting of a rank."""
    longest_collective: CollectiveTimes | None
    """The collective with the longest kernel."""
    clocks: Clocks
    """How well the clocks of the ranks agree."""
    notes: tuple[str, ...]
    """Limits of the comparison, in one sentence each."""
    method: str
    """How the late rank is found."""
    truncated: tuple[Cut, ...] = ()
    """The lists that this document shortens."""


def ranks_document(
    report: RanksReport, findings: Findings, files: Sequence[str] = (), site: str = "", is_whole: bool = True
) -> RanksDocument:
    """The document of a comparison of ranks. `findings`: of the ranks that are given as traces."""
    shown, bound = report.shown, launch_bound(report.parts)
    late = tuple(_straggler(each, site) for each in report.stragglers)
    return RanksDocument(
        files=tuple(files),
        site=site,
        headline=ranks_headline(report),
        findings=rank_finding_rows(findings, site),
        cannot_tell=tuple(_unanswered(report, findings)),
        is_whole=is_whole,
        ranks=report.ranks,
        parts=report.parts,
        collectives_compared=report.compared,
        sends_compared=report.compared_pairs,
        straggler=late[0] if late else None,
        stragglers=late,
        groups=tuple(_groups(report)),
        exposed_transfer_us_per_step=round(exposed_transfer_us(report), 3),
        launch_bound_rank=None if bound is None else bound.rank,
        pipeline=None if report.pipeline is None else _pipeline(report.pipeline),
        costliest_collective=None if shown is None else shown.costliest,
        longest_collective=None if shown is None else shown.longest,
        clocks=report.clocks,
        notes=tuple(filter(None, (report.different_runs, *report.notes))),
        method=METHOD,
    )


def rank_finding_rows(findings: Findings, site: str = "") -> tuple[RankFindingRow, ...] | None:
    """The merged findings as rows; None without traces."""
    if not findings:
        return None
    united = merged(findings)
    ids = finding_ids([(each.largest.rule.name, each.largest.where) for each in united])
    return tuple(_finding(each, ident, site) for each, ident in zip(united, ids, strict=True))


def _finding(found: MergedFinding, ident: str, site: str) -> RankFindingRow:
    row = found.largest.row
    ranks = tuple(RankCeiling(each.rank, round(each.saving_us, 3)) for each in found.findings)
    return RankFindingRow(**structs.asdict(structs.replace(row, id=ident, page=f"{site}{row.page}")), ranks=ranks)


def _unanswered(report: RanksReport, findings: Findings) -> Iterator[Unanswered]:
    digests = len(report.ranks) - len(findings)
    if digests:
        yield Unanswered(
            "findings", f"{digests:,} of {len(report.ranks):,} ranks are given as digests", "the traces of these ranks"
        )
    if report.missing_ranks:
        yield Unanswered("stragglers", f"{report.missing_ranks:,} ranks of the job are not given", "all ranks")
    if not (report.compared or report.compared_pairs):
        yield Unanswered(
            "stragglers",
            "no collective was found on several ranks",
            "the same steps on two ranks or more, with prof.step() after each iteration",
        )


def _straggler(late: Straggler, site: str) -> StragglerRow:
    return StragglerRow(
        rank=late.rank,
        also_late=late.also_late,
        among=late.among,
        share=round(late.share, 4),
        wait_us_per_step=late.saving_us,
        waited_us_per_step=late.waited_us,
        step_us=late.step_us,
        is_shared_out=late.is_shared_out,
        own_work_excess_us=late.excess_us,
        stalled_excess_us=late.stalled_us,
        operations=late.operations,
        why=late.why,
        page=page_of(STRAGGLERS, site),
    )


def _groups(report: RanksReport) -> Iterator[GroupRow]:
    for component in report.components:
        late = next((each for each in report.stragglers if each.among == component), None)
        yield GroupRow(
            component,
            None if late is None else late.rank,
            None if late is None else late.saving_us,
            tuple(row for row in report.waiting if row.rank in component),
        )


def _pipeline(found: Pipeline) -> PipelineRow:
    stages = (
        StageRow(
            stage.rank,
            stage.own_us,
            stage.transfer_us,
            {str(other): us for other, us in stage.waits_us.items()},
            stage.idle_us,
            stage.bubble_us,
            stage.step_us,
        )
        for stage in found.stages
    )
    return PipelineRow(tuple(stages), found.bubble_share, found.slowest)
