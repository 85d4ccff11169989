"""The sums of every rank, the kernels of all ranks, and the method and limits of the comparison."""

from __future__ import annotations

from kinetoscope.html import Cell, Html, bold, code, details, note, table
from kinetoscope.ranks.digest import Digest
from kinetoscope.ranks.kernels import KernelDigest, bin_middle_ns
from kinetoscope.ranks.late import us_text
from kinetoscope.ranks.ranks import RanksReport, RankTimes

SHOWN_RANKS, SHOWN_KERNELS = 32, 20


def sums_html(report: RanksReport) -> Html:
    """The sums of every rank; of many, those first for which the others wait most."""
    head = ["rank", "device", "steps", "step on the CPU", "compute", "communication", "exposed", "GPU idle", "last at"]
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
    return Html(f"{tables[0]}{more}{bars}")


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


def kernels_html(merged: Digest) -> Html:
    """The kernels with the largest sums over all ranks."""
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
