"""torch.compile or Triton compiles inside a step."""

from __future__ import annotations

import re
from collections.abc import Sequence

from kinetoscope.diagnosis.amounts import count_text, duration_text
from kinetoscope.diagnosis.cpu_states import outermost
from kinetoscope.diagnosis.facts import MIN_SHARE, Facts
from kinetoscope.diagnosis.missing import no_operators
from kinetoscope.diagnosis.rule import CannotTell, Finding, Measured, Rule
from kinetoscope.diagnosis.sources import OWN

_COMPILE_ID = re.compile(r"compile_id=(\d+)/(\d+)")


def find(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Compilations, by the annotations of Dynamo or the Python functions of Dynamo and Triton."""
    compiling = facts.in_steps(facts.cpu.spans["compiling"])
    if not compiling:
        return [] if facts.has_stacks else no_operators(RULE, facts) or []
    saving_us = facts.saving_us(compiling)
    if saving_us < MIN_SHARE * facts.step_us:
        return []
    whole = outermost(compiling)
    site = facts.sites([max(whole, key=lambda span: span.duration_us)])[0]
    matches = (_COMPILE_ID.search(op.name) for op in facts.in_steps(facts.cpu.ops))
    again = sorted({match[0] for match in matches if match is not None and match[2] != "0"})
    total_us = facts.length_us(compiling)
    where = site.line or site.module or site.text
    runs = count_text(len(whole), "compilation")
    title = f"Compiling takes {duration_text(total_us)} per step: {runs} in {count_text(len(facts.steps), 'step')}"
    if again:
        title += f"; compiled again: {', '.join(again[:3])}"
    measured = (
        Measured("compilations", len(whole), "compilations"),
        Measured("of compiled code", len(again), "compilations"),
    )
    return [Finding(RULE, title, where, facts.evidence(whole), total_us, saving_us, measured=measured)]


RULE = Rule(
    name="recompiles",
    title="Code is compiled inside a step",
    looks_for="The trace shows Dynamo's annotations of compiling (dynamo_timed, entire_frame_compile). If stacks "
    "were recorded, the trace shows functions of Dynamo and Triton that compile. A compile_id N/M with M above 0 "
    "means that function N compiles again.",
    threshold=f"The ceiling is at least {MIN_SHARE:.0%} of the median step.",
    source=f"{OWN}; https://docs.pytorch.org/docs/stable/torch.compiler_troubleshooting.html explains recompilation",
    advice="If these are the first steps, record later steps. If not, TORCH_LOGS=recompiles prints the guard that "
    "failed: mark the dimension with torch._dynamo.mark_dynamic, pad to a few sizes, or pass tensors instead of "
    "numbers.",
    find=find,
    confidence="high",
    mistaken="The steps are the first steps of the run, which compile everything once.",
)
