"""The tables of the page on reading a trace: the first numbers to check, and how a kernel is launched."""

from __future__ import annotations

from collections.abc import Sequence

from kinetoscope.html import Cell, Html, code, table
from kinetoscope.trace.events import Span, Step
from kinetoscope.trace.queries import require_kernels
from snippets.lab.finding import Device, TraceError, format_value
from snippets.lab.page import comparison_table, kernel_name_html, show as show

FIRST_STEPS = {"linear, eager": "linear/eager", "MLP, eager": "mlp/eager", "MLP, compiled": "mlp/compiled"}
FIRST_QUANTITIES = {
    "kernels in a step": "kernels_per_step",
    "copies in a step": "memcpys_per_step",
    "fills in a step": "memsets_per_step",
    "GPU busy": "busy_us",
    "the step on the CPU": "cpu_us",
}


def first_look(device: Device) -> Html:
    """The first numbers to check, for a step that waits for the CPU and for one that does not."""
    return comparison_table(device, FIRST_STEPS, "A first look at three traces", quantities=FIRST_QUANTITIES)


def journey(device: Device, experiment: str, caption: str = "") -> Html:
    """How the first kernel of the middle step was launched: operators, call, kernel, and the ids that link them."""
    run = device[experiment]
    require_kernels(run.trace)
    step = run.step
    if not step.kernels:
        raise TraceError(f"{experiment}: {step.name} has no kernel, though another step has one")
    kernel = step.kernels[0]
    rows: list[Sequence[Cell]] = []
    for op in kernel.op.chain if kernel.op else ():
        kind = "annotation" if op.is_annotation else "operator"
        tie = f"External id {op.external_id}" if op is kernel.op else "time: it encloses the next row"
        rows.append([code(op.name), f"{kind}, CPU", tie, *_times(step, op)])
    if kernel.launch:
        tie = f"External id {kernel.launch.external_id}, correlation {kernel.launch.correlation}"
        rows.append([code(kernel.launch.name), "CUDA call, CPU", tie, *_times(step, kernel.launch)])
    tie = f"External id {kernel.external_id}, correlation {kernel.correlation}"
    rows.append([kernel_name_html(kernel.name), f"kernel, stream {kernel.stream}", tie, *_times(step, kernel)])
    head = ["name", "what and where", "tied by", "begins after", "lasts"]
    return table(caption or f"From annotation to kernel: {experiment}, {step.name}", head, rows, text_columns=3)


def _times(step: Step, span: Span) -> tuple[str, str]:
    return format_value(span.start_us - step.start_us, "us"), format_value(span.duration_us, "us")
