"""Several traces or digests: the ranks of one job side by side, or two traces compared.

They are ranks of one job if all ranks are known and different, and their world sizes equal and not 1. Otherwise two
files are a comparison, and more are an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kinetoscope.compare.comparison import change_text, comparison, comparison_data, comparison_parts
from kinetoscope.compare.cpu import are_cpu, compare_cpu
from kinetoscope.compare.cpu_parts import cpu_change_text, cpu_data, cpu_parts
from kinetoscope.html import Html, Part
from kinetoscope.ranks.digest import Digest, digest
from kinetoscope.ranks.digest_files import is_digest, read_any, read_digest, write_digest
from kinetoscope.ranks.joined import is_merged, read_ranks
from kinetoscope.ranks.merge import are_ranks, merge
from kinetoscope.ranks.ranks import ranks_report
from kinetoscope.ranks.texts import ranks_data, ranks_headline
from kinetoscope.report.rank_findings import RankFinding, findings_data, rank_findings
from kinetoscope.report.ranks_html import ranks_kicker, ranks_lead, ranks_report_parts
from kinetoscope.trace.events import Trace, TraceError
from kinetoscope.trace.kineto import read_trace

NOTHING = Html("")


@dataclass(frozen=True)
class _Reduced:
    """A digest, and the findings of its trace; without, if the file is a digest."""

    digest: Digest
    findings: Sequence[RankFinding] | None = None


@dataclass(frozen=True)
class MultiReport:
    """The content of a report on several traces. Its texts are plain text from traces and must be escaped."""

    title: str
    headline: str
    parts: tuple[Part, ...]
    data: dict[str, Any]
    kicker: str = "PyTorch traces"
    lead: Html = NOTHING
    """Below the headline."""


def is_several(paths: Sequence[Path]) -> bool:
    """Whether the report is about more than one trace: several files, or a file that may hold many ranks."""
    return len(paths) > 1 or is_digest(paths[0]) or is_merged(paths[0])


def report_several(paths: Sequence[Path]) -> MultiReport:
    """Report on ranks or compare two traces. Raises `TraceError` if the files are neither, or cannot be read."""
    if len(paths) == 2 and not any(map(is_merged, paths)):
        return _report_two(paths[0], paths[1])
    sides = [side for path in paths for side in _read(path)]
    if len(paths) == 1 or _are_ranks([side.digest for side in sides]):
        return _ranks(sides)
    raise TraceError(
        f"{len(paths)} files that are not ranks of one job, with one world size and different ranks; give the ranks of "
        "one job, or two traces to compare, or groups of runs to diff --before ... --after ..."
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


def _report_two(before: Path, after: Path) -> MultiReport:
    sides = [read_digest(path) if is_digest(path) else read_trace(path) for path in (before, after)]
    digests = [digest(side) if isinstance(side, Trace) else side for side in sides]
    if _are_ranks(digests):
        return _ranks([_reduced(side, made) for side, made in zip(sides, digests, strict=True)])
    names = before.name, after.name
    if before.name == after.name:
        names = f"{before.parent.name}/{before.name}", f"{after.parent.name}/{after.name}"
    title = f"{names[0]} and {names[1]} compared"
    old, new = sides
    if isinstance(old, Trace) and isinstance(new, Trace) and are_cpu([old], [new]):
        cpu = compare_cpu([old], [new])
        return MultiReport(title, cpu_change_text(cpu), cpu_parts(cpu, names), cpu_data(cpu))
    result = comparison(old, new)
    return MultiReport(title, change_text(result), comparison_parts(result, names), comparison_data(result))


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
    return _Reduced(made, rank_findings(side, rank) if isinstance(side, Trace) and rank is not None else None)


def _are_ranks(digests: Sequence[Digest]) -> bool:
    return are_ranks([rank for each in digests for rank in each.ranks])


def _ranks(sides: Sequence[_Reduced]) -> MultiReport:
    report = ranks_report(side.digest for side in sides)
    findings = {side.digest.ranks[0].rank or 0: side.findings for side in sides if side.findings is not None}
    count = len(report.ranks)
    return MultiReport(
        f"{count:,} rank{'' if count == 1 else 's'} of one job",
        ranks_headline(report),
        ranks_report_parts(report, findings),
        {**ranks_data(report), "findings": findings_data(findings)},
        ranks_kicker(report),
        ranks_lead(report),
    )
