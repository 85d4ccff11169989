"""The page on kernel names: the grammar as tables, names of two GPUs, all recorded names, the decoder box.

All of it is computed from the decoder's grammar and from recordings. The page contains that grammar, so the box works
offline and decodes exactly as Python does.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape

from kinetoscope.html import Cell, Html, details, table
from kinetoscope.trace.kernel_grammar import GRAMMAR_FILE, Basis, Family, TokenRule, fill_template, grammar
from kinetoscope.trace.kernel_names import decode_kernel_name
from snippets.lab.finding import Device, NotRecorded
from snippets.lab.page import kernel_name_html, show as show
from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.loading import load_recordings

FOLDED_FROM = 20
"""A table of the grammar with more rows is folded."""
BOX_EXPERIMENT = "mlp/eager"
"""The box starts with its first kernel's name on the default device: a page has one box, not one in each tab."""
MARKS: dict[Basis, str] = {"documented": "●", "inferred": "◐", "unknown": "○"}
SIDE_BY_SIDE: Sequence[tuple[str, str, str, str, int]] = (
    (
        "a product of two 4096 x 4096 matrices",
        "Part 1",
        "ampere_bf16_s16816gemm_bf16_128x256_ldg8_f2f_stages_64x3_nn",
        "matmul_add/eager_4096",
        0,
    ),
    (
        "nn.Linear with a bias",
        "Part 2",
        "cutlass_80_wmma_tensorop_bf16_s161616gemm_bf16_32x32_32x1_tn_align8",
        "linear/eager",
        0,
    ),
    ("GeGLU: gate", "Part 2", "ampere_bf16_s16816gemm_bf16_128x128_…_stages_32x5_tn", "mlp/eager", 0),
    ("GeGLU: down", "Part 2", "ampere_bf16_s16816gemm_bf16_128x256_…_stages_64x3_tn", "mlp/eager", -1),
    ("GELU and the multiplication, compiled", "Part 2", "triton_poi_fused__unsafe_view_gelu_mul_0", "mlp/compiled", 2),
    ("GELU and the multiplication, by Liger", "Part 2", "_geglu_tanh_forward_kernel", "mlp/liger", 2),
)
"""Operation; the A100's name from its source, with `…` where the source cuts it; experiment and kernel index here."""


def basis(known: Basis) -> Html:
    """The evidence for a token's meaning, as a sign and a word."""
    return Html(f'<span class="basis {known}">{MARKS[known]} {known}</span>')


def families(device: Device, *ids: str) -> Html:
    """Tables of the grammar: the meaning of the tokens of these families, the evidence and its source."""
    of = {family.id: family for family in grammar().families}
    return Html("".join(_family(of[name]) for name in ids))


def _family(family: Family) -> Html:
    seen: set[tuple[str, str]] = set()
    rows: list[Sequence[Cell]] = []
    for rule in family.rules:
        meaning = in_general(rule)
        if rule.means and (rule.like, meaning) not in seen:
            seen.add((rule.like, meaning))
            source = f"<small>{escape(rule.source)}</small>" if rule.source else ""
            rows.append([_token(rule.like), meaning, Html(f"{basis(rule.basis)}{source}")])
    rules = _of_tokens(family.title, rows)
    folded = details(f"{family.title}: {len(rows)} kinds of token", rules) if len(rows) > FOLDED_FROM else rules
    return Html(f"<p>{escape(family.about)}</p>{folded}")


def _token(text: str) -> Html:
    return Html(f"<code>{escape(text)}</code>")


def _of_tokens(caption: str, rows: Sequence[Sequence[Cell]]) -> str:
    """A table of tokens; its frame lets long tokens break, so that a phone shows all three columns."""
    inner = table(caption, ["token", "meaning", "evidence"], rows, text_columns=3)
    return f'<div class="kernel-tokens">{inner}</div>'


def sources(device: Device) -> Html:
    """The sources behind their short names in the tables of the grammar."""
    rows = list(grammar().sources.items())
    inner = table("Sources for the meanings of names", ["source", "what it is"], rows, text_columns=2)
    return Html(f'<div class="kernel-tokens">{inner}</div>')


def in_general(rule: TokenRule) -> str:
    """The meaning of a rule's token in its example; `…` for values that depend on the whole name."""
    match = grammar().expression(rule.part.split("(?=", 1)[0]).match(rule.like)
    values = {key: value for key, value in (match.groupdict() if match else {}).items() if value is not None}
    meaning = fill_template(rule.means, values, grammar())
    return grammar().expression(r"\{[a-z]+(?:\|[a-z]+)?\}").sub("…", rule.means) if meaning is None else meaning


def tokens(device: Device, experiment: str, *, index: int) -> Html:
    """The tokens of a recorded kernel's name, one by one."""
    kernel = decode_kernel_name(_recorded(device, experiment, index))
    rows = [[_token(token.token), token.meaning, basis(token.basis)] for token in kernel.tokens]
    return Html(_of_tokens(f"The tokens of the name {kernel.short}", rows))


def side_by_side(device: Device) -> Html:
    """The same operation on the A100 of the series and on this device, with the two names."""
    rows: list[Sequence[Cell]] = [
        [
            what,
            Html(f"{kernel_name_html(name)}<small>{escape(source)}</small>"),
            kernel_name_html(_recorded(device, experiment, index)),
        ]
        for what, source, name, experiment, index in SIDE_BY_SIDE
    ]
    device_name = device[SIDE_BY_SIDE[0][3]].environment.device
    return table(
        "One operation, and its kernel's name on two GPUs",
        ["", "A100, in the series", device_name],
        rows,
        text_columns=3,
        is_searched=True,
    )


def _recorded(device: Device, experiment: str, index: int) -> str:
    """The name of a kernel of the middle step, by its index in GPU order."""
    return device[experiment].step.kernels[index].name


def recorded_names(device: Device) -> Html:
    """Every name in the recordings of a device, decoded, with where it was recorded first and how often."""
    where: dict[str, list[str]] = {}
    for recording in load_recordings(device.root, device.name):
        if recording.has_trace:
            names = {activity.name for activity in device[recording.id].trace.activities}
            for name in sorted(names):
                where.setdefault(name, []).append(recording.id)
    if not where:
        raise NotRecorded(f"no recorded trace for {device.name}; run make record on that machine")
    kernels = sorted(map(decode_kernel_name, where), key=lambda kernel: (kernel.library, kernel.operation, kernel.name))
    rows = [
        [kernel_name_html(kernel.name), kernel.library, kernel.operation, _first_of(where[kernel.name])]
        for kernel in kernels
    ]
    head = ["kernel, copy or fill", "library", "operation", "recorded in"]
    return table(f"All names recorded on the {device.short_name}", head, rows, text_columns=4, is_searched=True)


def _first_of(experiments: Sequence[str]) -> str:
    more = len(experiments) - 1
    return f"{experiments[0]}, and {more} more" if more else experiments[0]


def decoder(device: Device) -> Html:
    """The box that decodes a pasted name, and its grammar; the same for every device."""
    content = json.dumps(json.loads(GRAMMAR_FILE.read_bytes()), separators=(",", ":")).replace("<", "\\u003c")
    begin = escape(_recorded(Device(device.root, DEFAULT_DEVICE), BOX_EXPERIMENT, 0))
    return Html(
        '<div id="kernel-decoder" class="kernel-decoder" hidden>'
        '<label for="kernel-decoder-name">A kernel\'s name</label>'
        f'<textarea id="kernel-decoder-name" rows="3" spellcheck="false" autocapitalize="off">{begin}</textarea>'
        '<p class="short" aria-live="polite"></p><div class="decoded kernel-tokens"></div></div>'
        f'<script type="application/json" id="kernel-grammar">{content}</script>'
    )
