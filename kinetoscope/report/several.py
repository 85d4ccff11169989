"""Several traces or digests: the ranks of one job side by side, or two traces compared.

They are ranks of one job if all ranks are known and different, and their world sizes equal and not 1; or if no file of
two tells its rank, but both were recorded at one time and communicate. Otherwise two files are a comparison, and more
are an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from msgspec import structs

from kinetoscope.compare.comparison import change_text, comparison, comparison_parts
from kinetoscope.compare.cpu import are_cpu, compare_cpu
from kinetoscope.compare.cpu_parts import cpu_change_text, cpu_parts
from kinetoscope.compare.document import ComparisonDocument, comparison_document, cpu_document, named
from kinetoscope.diagnosis.rule import Severity, severity_of
from kinetoscope.html import Html, Part
from kinetoscope.ranks.digest import Digest, digest
from kinetoscope.ranks.digest_files import is_digest, read_any, read_digest, write_digest
from kinetoscope.ranks.joined import is_merged, read_ranks
from kinetoscope.ranks.merge import are_ranks, merge
from kinetoscope.ranks.one_job import are_unnumbered_ranks
from kinetoscope.ranks.rank_files import UNNUMBERED, named_ranks
from kinetoscope.ranks.ranks import RanksReport, ranks_report
from kinetoscope.ranks.texts import ranks_headline
from kinetoscope.report.rank_findings import Findings, RankFinding, beside_waiting, rank_findings
from kinetoscope.report.ranks_document import RanksDocument, ranks_document
from kinetoscope.report.ranks_html import ranks_kicker, ranks_lead, ranks_report_parts
from kinetoscope.trace.documents import document_data
from kinetoscope.trace.events import Trace, TraceError
from kinetoscope.trace.kineto import read_trace
from kinetoscope.trace.soundness import is_whole

NOTHING = Html("")


@dataclass(frozen=True)
class _Reduced:
    """A digest, and the findings of its trace; without, if the file is a digest."""

    digest: Digest
    is_whole: bool
    findings: Sequence[RankFinding] | None = None


@dataclass(frozen=True)
class MultiReport:
    """The content of a report on several traces. Its texts are plain text from traces and must be escaped."""

    title: str
    headline: str
    parts: tuple[Part, ...]
    document: ComparisonDocument | RanksDocument
    kicker: str = "PyTorch traces"
    lead: Html = NOTHING
    """Below the headline."""
    severities: frozenset[Severity] | None = None
    """Of the findings that cost time in every step, and of late ranks; None without the traces of all ranks."""
    is_whole: bool = True
    """Whether times per step can be judged."""
    warnings: tuple[str, ...] = ()
    """Why the files may not belong together, a sentence each."""

    @property
    def data(self) -> dict[str, Any]:
        """The whole document as JSON data."""
        return document_data(self.document)


def is_several(paths: Sequence[Path]) -> bool:
    """Whether the report is about more than one trace: several files, or a file that may hold many ranks."""
    return len(paths) > 1 or is_digest(paths[0]) or is_merged(paths[0])


def report_several(paths: Sequence[Path], site: str = "") -> MultiReport:
    """Report on ranks or compare two traces; `site` is the book's address, or empty.

    Raises `TraceError` if the files are neither, or cannot be read.
    """
    if len(paths) == 2 and not any(map(is_merged, paths)):
        return _report_two(paths[0], paths[1], site)
    sides = [side for path in paths for side in _read(path)]
    if len(paths) == 1 or _are_ranks([side.digest for side in sides]):
        return _ranks(sides, paths, site)
    raise TraceError(
        f"{len(paths)} files that are not ranks of one job, with one world size and different ranks; give the ranks of "
        "one job, or two traces to compare, or groups of runs to diff --before ... --after ...; merge takes the ranks "
        "of traces that tell none from their names or their order"
    )


def reduce_to_digest(paths: Sequence[Path], output: Path, rank: int | None = None) -> Digest:
    """Write the digest of a trace, or the merged digest of a job's ranks, and return it. Raises `TraceError`.

    `rank` applies if a single trace does not tell its rank.
    """
    if rank is not None and len(paths) > 1:
        raise TraceError("--rank is for a single trace")
    if output.exists() and any(path.exists() and path.samefile(output) for path in paths):
        raise TraceError(f"{output}: would replace what it is made from; give -o another name")
    merged = merge(read_any(path, rank) for path in paths)
    write_digest(merged, output)
    return merged


def _report_two(before: Path, after: Path, site: str) -> MultiReport:
    sides = [read_digest(path) if is_digest(path) else read_trace(path) for path in (before, after)]
    digests = [digest(side) if isinstance(side, Trace) else side for side in sides]
    warnings: tuple[str, ...] = ()
    if are_unnumbered_ranks(*sides):
        named_as = named_ranks((before, after))
        warnings = () if named_as else (UNNUMBERED,)
        digests = [_numbered(side, number) for side, number in zip(sides, named_as or (0, 1), strict=True)]
    if _are_ranks(digests):
        reduced = [_reduced(side, made) for side, made in zip(sides, digests, strict=True)]
        report = _ranks(reduced, (before, after), site)
        return replace(report, warnings=(*warnings, *report.warnings))
    names, files = (before.name, after.name), named([before.name], [after.name])
    if before.name == after.name:
        names = f"{before.parent.name}/{before.name}", f"{after.parent.name}/{after.name}"
    title = f"{names[0]} and {names[1]} compared"
    old, new = sides
    if isinstance(old, Trace) and isinstance(new, Trace) and are_cpu([old], [new]):
        cpu = compare_cpu([old], [new])
        return MultiReport(title, cpu_change_text(cpu), cpu_parts(cpu, names), cpu_document(cpu, files))
    result = comparison(old, new)
    return MultiReport(title, change_text(result), comparison_parts(result, names), comparison_document(result, files))


def _numbered(side: Trace | Digest, number: int) -> Digest:
    """The digest of a file that does not tell its rank, as that of a rank."""
    if isinstance(side, Trace):
        return digest(side, number)
    return structs.replace(side, ranks=tuple(structs.replace(rank, rank=number) for rank in side.ranks))


def _read(path: Path) -> Iterator[_Reduced]:
    """A rank is diagnosed when it is read, so that no more than one trace of many is in memory."""
    if is_digest(path):
        made = read_digest(path)
        yield _reduced(made, made)
        return
    for trace in read_ranks(path) if is_merged(path) else [read_trace(path)]:
        yield _reduced(trace, digest(trace))


def _reduced(side: Trace | Digest, made: Digest) -> _Reduced:
    rank = made.ranks[0].rank
    if not isinstance(side, Trace) or rank is None:
        return _Reduced(made, not any(each.damage for each in made.ranks))
    return _Reduced(made, is_whole(side), rank_findings(side, rank))


def _are_ranks(digests: Sequence[Digest]) -> bool:
    return are_ranks([rank for each in digests for rank in each.ranks])


def _ranks(sides: Sequence[_Reduced], paths: Sequence[Path], site: str) -> MultiReport:
    report = ranks_report(side.digest for side in sides)
    alone = {side.digest.ranks[0].rank or 0: side.findings for side in sides if side.findings is not None}
    findings = beside_waiting(alone, report)
    is_sound = all(side.is_whole for side in sides)
    count = len(report.ranks)
    of_one_job = "of one job" if not report.different_runs else "that may be of different runs"
    return MultiReport(
        f"{count:,} rank{'' if count == 1 else 's'} {of_one_job}",
        ranks_headline(report),
        ranks_report_parts(report, findings, site),
        ranks_document(report, findings, [path.name for path in paths], site, is_sound),
        ranks_kicker(report),
        ranks_lead(report),
        frozenset(_severities(report, findings)) if len(findings) == count else None,
        is_sound,
        tuple(filter(None, [report.different_runs])),
    )


def _severities(report: RanksReport, findings: Findings) -> Iterator[Severity]:
    yield from (each.severity for found in findings.values() for each in found if not each.rule.is_once)
    yield from (severity_of(late.saving_us, late.step_us) for late in report.stragglers)
