"""The step waits for data."""

from __future__ import annotations

from collections.abc import Sequence

from snippets.lab.diagnosis.amounts import duration_text, share_text
from snippets.lab.diagnosis.facts import Facts
from snippets.lab.diagnosis.missing import no_operators
from snippets.lab.diagnosis.rule import CannotTell, Finding, Rule
from snippets.lab.diagnosis.sources import TENSORBOARD

MIN_SHARE = 0.05


def check(facts: Facts) -> Sequence[Finding] | CannotTell:
    """Time in the iterator of `DataLoader` that is not hidden behind GPU work."""
    fetches = facts.in_steps(facts.cpu.spans["data loading"])
    if not fetches:
        return no_operators(RULE, facts) or []
    loading_us, ceiling_us = facts.length_us(fetches), facts.ceiling_us(fetches)
    if ceiling_us < MIN_SHARE * facts.step_us:
        return []
    longest = max(fetches, key=lambda fetch: fetch.duration_us)
    site = facts.sites([longest])[0]
    where = f"{longest.name} at {site.line}" if site.line else longest.name
    title = f"Fetching a batch takes {duration_text(loading_us)} per step ({share_text(loading_us, facts.step_us)})"
    is_single = "_SingleProcess" in longest.name
    advice = "The main process loads the data itself: set num_workers. " + RULE.advice if is_single else ""
    return [Finding(RULE, title, where, facts.evidence(fetches), loading_us, ceiling_us, advice)]


RULE = Rule(
    name="loader-stall",
    title="The step waits for data",
    looks_for="enumerate(DataLoader)#...__next__, PyTorch's annotation around fetching a batch, while the GPU has no "
    "work. Loading without a DataLoader has no such annotation and is not seen.",
    threshold=f"from a ceiling of {MIN_SHARE:.0%} of the median step on",
    source=f"{TENSORBOARD} (DataLoader above 5 % of a step)",
    advice="Use more num_workers with persistent_workers=True, a larger prefetch_factor, pin_memory=True; decode and "
    "augment ahead of time or on the GPU.",
    check=check,
)
