"""How much the GPUs work: of several GPUs each by itself, and kernels apart from copies that no kernel hides."""

from __future__ import annotations

from kinetoscope.diagnosis.facts import Facts
from kinetoscope.diagnosis.gaps import Waits
from kinetoscope.diagnosis.gpu_use import GpuUse
from kinetoscope.diagnosis.rules.exposed_copies import MIN_SHARE as MIN_COPIES_ALONE
from kinetoscope.html import Cell, Html, note, table
from kinetoscope.report.waiting import gpu_busy_us, share
from kinetoscope.report.work_tables import share_cell
from kinetoscope.trace.units import format_value


def percent(part: float) -> str:
    """A share in percent, without decimals: `less than 1 %` for a small one."""
    return "less than 1 %" if 0 < part < 0.01 else f"{100 * part:.0f} %"


def work_clause(use: GpuUse, waits: Waits, of: str) -> str:
    """`the GPU works 80 % of it`, where `it` is `of`; of several GPUs each, and of kernels apart from copies alone."""
    shares = sorted(gpu.share for gpu in use.gpus)
    if len(shares) > 1:
        low, high = percent(shares[0]), percent(shares[-1])
        each = f"each {high} of {of}" if low == high else f"{low} to {high} of {of}"
        return f"its {len(shares)} GPUs work {'in turns, ' if use.take_turns else ''}{each}"
    if (copies := copies_alone_share(use)) >= MIN_COPIES_ALONE:
        return f"kernels run {percent(use.kernels_us / use.step_us)} of {of}, copies alone {percent(copies)}"
    return f"the GPU works {percent(share(gpu_busy_us(waits), waits))} of {of}"


def busy_tile(use: GpuUse, waits: Waits) -> tuple[str, str, str]:
    """The GPU's part of a step, and two lines: a mean of several GPUs, and copies that run alone."""
    busy_us, idle_us, line = gpu_busy_us(waits), waits.gpu_idle_us, "per step"
    part = share(busy_us, waits)
    if len(use.gpus) > 1:
        busy_us = sum(gpu.busy_us for gpu in use.gpus) / len(use.gpus)
        part, idle_us = sum(gpu.share for gpu in use.gpus) / len(use.gpus), use.step_us - busy_us
        line = f"per step, mean of {len(use.gpus)} GPUs"
    copies = format_value(use.host_copies_alone_us, "us") if copies_alone_share(use) >= MIN_COPIES_ALONE else ""
    more = f"; copies alone {copies} of it" if copies else ""
    busy, idle = format_value(busy_us, "us"), format_value(idle_us, "us")
    return percent(part).replace("less than", "<"), f"{busy} {line}", f"{more}; idle {idle}"


def copies_alone_share(use: GpuUse) -> float:
    """The part of a step in which copies between host and GPU run, and no kernel."""
    return use.host_copies_alone_us / use.step_us if use.step_us else 0.0


def gpus_html(facts: Facts) -> Html:
    """A table of several GPUs, and a sentence on copies that run alone; empty without either."""
    use = facts.gpu_use
    html = ""
    if len(use.gpus) > 1:
        rows: list[list[Cell]] = [
            [
                f"GPU {gpu.device}",
                format_value(gpu.busy_us, "us"),
                share_cell(gpu.share),
                format_value(gpu.bubble_us, "us"),
                share_cell(gpu.bubble_us / use.step_us),
            ]
            for gpu in use.gpus
        ]
        head = ["GPU", "works, per step", "of the step", "idle while another GPU works", "of the step"]
        html += table("Each GPU by itself", head, rows)
        html += note("The times above and the gaps below are of all GPUs: the GPU works while any GPU works.")
    if copies_alone_share(use) >= MIN_COPIES_ALONE:
        alone, kernels = format_value(use.host_copies_alone_us, "us"), format_value(use.kernels_us, "us")
        text = f"The GPU's work includes copies between host and GPU while no kernel runs: {alone} per step. "
        html += note(f"{text}Kernels run for {kernels} per step.")
    return Html(html)
