"""Every claim of the page in one table, and the number that hold: by source and by device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from kinetoscope.html import Cell, Html, code, table
from kinetoscope.trace.text import shortened
from snippets.fact_check.findings.other_device import recorded, source_verdict
from snippets.fact_check.findings.sources import DOCUMENTS, H100, short_name
from snippets.lab.finding import Device, Figure, Measure
from snippets.lab.finding.book import Verdict, find_claim, judge
from snippets.lab.finding.claim import STATUSES, Source, Status
from snippets.lab.finding.device import all_devices
from snippets.lab.page import show as show
from snippets.lab.page.verdict import COUNTED, status_badge

SECTIONS: Mapping[str, Mapping[str, str]] = {
    "five-to-four": {
        "FC1": "Five kernels become four",
        "M1": "Eager: GEMM, GEMM, GELU, mul, GEMM",
        "M8": "Compiled: mm, mm, fused, mm",
        "M9": "The products stay as they are",
        "FC39": "The answers stay the same",
        "FC4": "Fusing moves data fewer times",
        "FC47": "Each Linear has a launch of its own",
        "FC50": "Three Linears and an activation",
    },
    "fifty-megabytes": {
        "M11": "The [8192, 3072] tensor is 50 MB",
        "FC2": "An 8192 by 768 tensor is 50 MB",
        "M12": "One round trip is saved",
        "FC3": "50 MB of traffic are saved",
        "FC43": "50 MB of writes are saved",
        "FC44": "The test tensor is 8192 by 768",
        "FC45": "The round trip makes the speedup",
        "FC38": "Fusing saves energy",
        "FC46": "Fewer trips, faster training",
        "FC41": "Fusing spares the memory bus",
    },
    "four-percent": {
        "K3": "Liger's kernel is 4 % slower",
        "FC20": "Inductor's kernel takes 89.4 µs",
        "FC21": "Liger's kernel takes 92.8 µs",
        "FC37": "Liger's MLP takes 92.8 µs",
    },
    "launch-overhead": {
        "O-P13": "60–70 % less launch overhead",
        "RG18": "The same, in a stack of Linears",
        "FC23": "The same, by our two kernels",
    },
    "wall-time": {
        "O-P11": "20–30 % less wall time",
        "FC25": "The same, at the race's shapes",
        "RG19": "The same, a stack at few tokens",
        "RG20": "The same, a stack at many tokens",
    },
    "from-2-1-to-1-5": {"FC26": "2.1 ms become 1.5 ms"},
    "operator-or-kernel": {
        "FC6": "aten::addmm is the CUDA kernel",
        "FC49": "The Linear's kernel is cuBLAS's",
        "FC5": "nn.Linear is matmul and add",
        "L12": "The same kernel in both",
    },
    "h100-table": {
        "FC27": "Linear 0.12 ms, GELU 0.04 ms",
        "FC28": "GELU alone 0.04 ms",
        "FC29": "Linear with GELU 0.12 ms",
        "FC30": "Block 0.28 ms",
        "FC31": "Fused block 1.33x as fast",
        "FC32": "15–25 % less latency",
    },
    "small-batches": {
        "FC33": "Small batches lose",
        "FC34": "Because of register pressure",
        "RG53": "The same, of a Linear's kernel",
    },
    "new-shapes": {
        "K4": "Each new shape compiles again",
        "FC9": "A new shape might compile again",
        "FC10": "Liger's kernel never does",
        "FC11": "Liger's kernel comes compiled",
        "K2": "A Liger call has no guards",
        "FC40": "Fast because of one fixed size",
    },
    "another-gpu": {
        "FC8": "Kernels change with the GPU",
        "M2": "The products' names and tiles",
        "M3": "Four elements to a thread",
        "M4": "An occupancy query per GEMM",
        "L8": "The Linear's CUTLASS kernel",
    },
    "memory": {
        "FC35": "No gain beyond the cache",
        "TM26": "No gain in mixed precision",
        "FC48": "Mixed precision: memory limits",
        "FC12": "Registers limit the batch",
    },
    "fragmentation": {
        "TM58": "More in use than the sum: fragmented",
        "TM53": "memory_summary finds fragmentation",
        "TM54": "The profiler finds the operation",
    },
    "headlines": {
        "P1": "matmul and add: two kernels",
        "P3": "At 64, the GPU works 1 % of the time",
        "P25": "1.78 ms of waiting for 26 µs",
        "P28": "The same product, 580 to 1084 µs",
        "P40": "Compiled: one launch fewer",
        "P45": "Compiled: twice the CPU's time",
        "L1": "nn.Linear: one kernel",
        "L5": "Compiled: the same kernel",
        "L11": "Other strides: an error",
        "M5": "Six names for each Linear",
        "M7": "down is a tenth faster",
        "A1": "Naive attention: six activities",
        "A2": "In place: five",
        "A3": "SDPA math: 20 kernels",
        "A4": "SDPA math: 3.7 times as long",
        "A9": "flash: an occupancy of 13 %",
        "A11": "flash before cuDNN before efficient",
    },
}
"""Section of the page -> the claims of others in it -> their titles in the table."""
CLAIMS = tuple(claim_id for claims in SECTIONS.values() for claim_id in claims)
SAME_STATEMENT: Mapping[str, str] = {
    **dict.fromkeys(("RG18", "FC23"), "O-P13"),
    **dict.fromkeys(("FC25", "RG19", "RG20"), "O-P11"),
    "RG53": "FC34",
    "TM26": "FC35",
    "FC28": "FC27",
}
"""Claim -> another one that tests the same statement of the source, in another way or at another size."""
LONGEST = 60
"""Characters of a value in the table; the section has the rest."""


class Judged(NamedTuple):
    """A claim of a source with its verdict on a device."""

    source: Source
    verdict: Verdict


def judged(device: Device, claim_ids: Iterable[str] = CLAIMS) -> list[Judged]:
    """The claims of others on a device. Raises `ValueError` for one of ours."""
    found = []
    for claim_id in claim_ids:
        chapter, claim = find_claim(claim_id)
        if claim.source is None:
            raise ValueError(f"{claim_id} is ours: it has no source to check")
        found.append(Judged(claim.source, judge(claim, chapter, device.whole)))
    return found


def counted(device: Device) -> list[Judged]:
    """Other authors' claims on a device; claims that it cannot test are judged on the recorded device of their
    value."""
    return [Judged(each.source, source_verdict(each.verdict)) for each in judged(device)]


def tally(device: Device) -> Html:
    """How many claims of each source hold, differ, cannot be tested or are not measured on a device.

    A value for another recorded GPU counts as that GPU judges it.
    """
    found = counted(device)
    rows: list[list[Cell]] = [
        [_document(document.who), _counted([each for each in found if each.source.who == document.who])]
        for document in DOCUMENTS
    ]
    head = ["source", "verdicts"]
    rows.append([_document("all"), _counted(found)])
    others = dict.fromkeys(each.verdict.device for each in found if each.verdict.device.name != device.name)
    caption = f"Verdicts by source on the {device.short_name}"
    caption += "".join(f"; of values for an {_model(each)}, on the {each.short_name}" for each in others)
    return table(caption, head, rows, text_columns=len(head))


def _counted(found: Sequence[Judged]) -> str:
    """`9 claims from 6 statements: 3 hold, 6 differ`; as many statements as claims are not named."""
    statements = {SAME_STATEMENT.get(each.verdict.claim.id, each.verdict.claim.id) for each in found}
    of = f" from {len(statements)} statements" if len(statements) < len(found) else ""
    return f"{len(found)} claims{of}: {_statuses(found)}"


def _statuses(found: Sequence[Judged]) -> str:
    """`3 hold, 6 differ`."""
    counts = Counter(each.verdict.status for each in found)
    return ", ".join(
        f"{counts[status]} {COUNTED[status][counts[status] != 1]}" for status in STATUSES if counts[status]
    )


def _document(who: str) -> Cell:
    """A source's short name, with its title below it."""
    if who == "all":
        return Html("<strong>all</strong>")
    title = "" if short_name(who) == who else f"<small>{escape(who)}</small>"
    return Html(f"{escape(short_name(who))}{title}")


def fact_table(device: Device) -> Html:
    """Each claim of others: who says it, which value, and the verdict on every recorded device, with its value."""
    devices = all_devices(device.root)
    columns = [judged(each) for each in devices]
    rows: list[list[Cell]] = []
    for section, claims in SECTIONS.items():
        for claim_id, title in claims.items():
            of_claim = [column[CLAIMS.index(claim_id)] for column in columns]
            source = of_claim[0].source
            said = f"{short_name(source.who)}: {shortened(source.value, LONGEST)}"
            if not any(source.can_be_tested_on(each.name) for each in devices):
                said += f"; {_model(source)}: not recorded"
            link = Html(f'<a href="#{escape(section)}">{escape(title)}</a><small>{escape(said)}</small>')
            rows.append([link, *(_verdict(each.verdict) for each in of_claim)])
    head = ["claim", *(each.short_name for each in devices)]
    return table("What was said, and what was measured", head, rows)


def _model(named: Source | Device) -> str:
    """`A100` or `H100`: the GPU that a value is for, or that judges it."""
    name = named.device if isinstance(named, Source) else named.short_name
    return "H100" if "H100" in name else "A100"


def _verdict(verdict: Verdict) -> Html:
    """The status, and below it the measured value, shortened."""
    if verdict.measured is None:
        return status_badge(verdict)
    text = verdict.measured.text
    value = code(text, 40) if "_" in text else Html(escape(shortened(text, 40)))
    return Html(f"{status_badge(verdict)}<small>{value}</small>")


def count(device: Device, status: Status) -> Figure:
    """The claims of others with a status, as the tally counts them."""
    number = sum(each.verdict.status == status for each in counted(device))
    return Figure(number, origin="the claims of this page", display=f"{number} of {len(CLAIMS)}")


def untestable(device: Device) -> Figure:
    """The claims that no recorded device can test, and for which GPUs they are."""
    sources = [each.source for each in counted(device) if each.verdict.status == "cannot be tested"]
    models = Counter(map(_model, sources))
    parts = [f"{number} for an {model}" for model, number in sorted(models.items())]
    display = " and ".join(parts) or "none"
    return Figure(len(sources), origin="the claims of this page", display=display)


def h100_verdicts(device: Device) -> Figure:
    """How the recorded H100 judges the claims that only an H100 can test: `4 hold, 1 differs`."""
    there = recorded(device, H100)
    for_it = [each for each in judged(there) if each.source.only_there and each.source.device == H100]
    return Figure(len(for_it), origin=f"{there.short_name}, {len(for_it)} claims", display=_statuses(for_it))


FIGURES: Mapping[str, Measure] = {
    "holding": lambda device: count(device, "holds"),
    "differing": lambda device: count(device, "differs"),
}
