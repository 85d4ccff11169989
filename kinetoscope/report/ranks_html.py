"""Ranks of one job as sections of a report."""

from __future__ import annotations

from html import escape
from statistics import median

from kinetoscope.html import Cell, Html, Part, bold, code, details, note, table
from kinetoscope.ranks.digest import Digest
from kinetoscope.ranks.kernels import KernelDigest, bin_middle_ns
from kinetoscope.ranks.late import us_text
from kinetoscope.ranks.ranks import METHOD, RanksReport, RankTimes
from kinetoscope.ranks.texts import ranks_headline, straggler_text

SHOWN_RANKS, SHOWN_KERNELS = 32, 20


def ranks_report_parts(report: RanksReport) -> tuple[Part, ...]:
    """The sections of `report RANK0 RANK1 ...`."""
    return (
        Part("Who waits for whom", _straggler_html(report)),
        Part("Ranks side by side", _ranks_html(report)),
        Part("Kernels of all ranks", _kernels_html(report.digest)),
    )


def _straggler_html(report: RanksReport) -> Html:
    exposed = sorted(rank.exposed_us for rank in report.ranks)
    least, middle, most = (us_text(us) for us in (exposed[0], median(exposed), exposed[-1]))
    lines = [
        straggler_text(report.straggler) if report.straggler else ranks_headline(report),
        f"Communication without a kernel beside it: {least} to {most} per step, in the median {middle}.",
        *report.notes,
    ]
    return Html("".join(f"<p>{escape(line)}</p>" for line in lines))


def _ranks_html(report: RanksReport) -> Html:
    head = ["rank", "device", "steps", "step", "compute", "communication", "exposed", "GPU idle", "last at"]
    head.append("others wait")
    order = sorted(report.ranks, key=lambda rank: (-rank.delays_us, rank.rank))
    tables = []
    for caption, ranks in (
        ("Mean times per step of each rank", order[:SHOWN_RANKS]),
        ("Mean times per step of the other ranks", order[SHOWN_RANKS:]),
    ):
        rows = [_cells(rank, report) for rank in sorted(ranks, key=lambda rank: rank.rank)]
        tables.append(table(caption, head, rows, text_columns=2))
    rest = len(order) - SHOWN_RANKS
    more = details(f"{rest} more ranks, for which the others wait less", tables[1]) if rest > 0 else ""
    bars = note("Bars: share of the longest step. Last at: collectives at which the rank arrived last.")
    return Html(f"{tables[0]}{more}{bars}{note(METHOD)}")


def _cells(rank: RankTimes, report: RanksReport) -> list[Cell]:
    late = report.straggler.rank if report.straggler else None
    longest = max(max(each.wall_us, each.compute_us + each.exposed_us + each.idle_us) for each in report.ranks)
    times = (rank.wall_us, rank.compute_us, rank.communication_us, rank.exposed_us, rank.idle_us)
    return [
        bold(str(rank.rank), rank.rank == late),
        rank.device or None,
        rank.steps,
        *(_time_cell(us, longest) for us in times),
        rank.last_at,
        us_text(rank.delays_us),
    ]


def _time_cell(us: float, longest_us: float) -> Html:
    width = 100 * us / longest_us if longest_us else 0.0
    bar = f'<svg class="share" width="56" height="5" aria-hidden="true"><rect width="{width:.1f}%"/></svg>'
    return Html(f"{us_text(us)}{bar}")


def _kernels_html(merged: Digest) -> Html:
    head = ["kernel", "grid", "block", "calls", "total", "mean", "median", "99 %", "longest"]
    longest = sorted(merged.kernels, key=lambda kernel: -kernel.total_ns)
    rows = [_kernel_cells(kernel) for kernel in longest[:SHOWN_KERNELS]]
    listed = table("Kernels of all ranks and steps, the largest sums first", head, rows, text_columns=3)
    return Html(listed + note("Median and 99 % are read from bins of 19 % width."))


def _kernel_cells(kernel: KernelDigest) -> list[Cell]:
    shapes = ("×".join(map(str, shape)) if shape else None for shape in (kernel.grid, kernel.block))
    times = (kernel.total_ns, kernel.total_ns / kernel.calls, quantile_ns(kernel, 0.5), quantile_ns(kernel, 0.99))
    return [
        code(kernel.name),
        *shapes,
        kernel.calls,
        *(us_text(ns / 1000) for ns in (*times, kernel.max_ns)),
    ]


def quantile_ns(kernel: KernelDigest, share: float) -> float:
    """A quantile of the durations, to within its bin."""
    reached = 0
    for index in sorted(kernel.durations):
        reached += kernel.durations[index]
        if reached >= share * kernel.calls:
            return min(max(bin_middle_ns(index), kernel.min_ns), kernel.max_ns)
    return kernel.max_ns
