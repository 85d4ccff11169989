"""The figures and claims of the chapter training_step: a healthy step, and faults before and after their mends."""

from snippets.training_step.findings import compiling, faults, healthy, hints, probes

PARTS = (healthy, faults, compiling, probes, hints)
