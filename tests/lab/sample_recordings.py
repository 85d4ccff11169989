"""Sample recordings of a chapter: its own experiments, with numbers that a test makes up.

    python -m tests.lab.sample_recordings rmsnorm FOLDER    what `make serve SAMPLE=rmsnorm` shows

writes those that `recordings()` of tests/chapters/rmsnorm/samples.py returns.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from snippets.lab.experiment import Parameters, Work, find
from snippets.lab.finding.device import Device
from snippets.lab.page.inline import fig_formatter
from snippets.lab.recording.ceilings import matmul_name
from snippets.lab.recording.device import PROJECT, SAMPLE_DEVICE
from snippets.lab.recording.saving import save_recording
from snippets.lab.recording.schema import Ceiling, Recording, Timing, Timings
from snippets.lab.tools.page_rules import INLINE
from snippets.lab.tools.page_text import executed_fences
from tests.lab import samples
from tests.lab.rank_samples import merged_operators
from tests.lab.samples import Operator

Sample = tuple[Recording, bytes | None]
"""A recording and, where its experiment is traced, the JSON of its trace."""
LINK = "NVLink 4.0, 18 links, peer access"
SPREAD = (0.98, 0.99, 1.0, 1.01, 1.02)
"""Of the samples of a timing around its median."""
COPY_BYTES_PER_S, MATMUL_FLOPS_PER_S = 4e12, 7e14


def sample_of(
    experiment: str,
    us: float | Callable[[Parameters], float],
    operators: Sequence[Operator] = (),
    data: Mapping[str, Any] | None = None,
    ranks: Sequence[Sequence[Operator]] = (),
) -> Sample:
    """A sample of one experiment: its label, points and work, with made-up times.

    Args:
        experiment: `chapter/experiment`.
        us: the time of a step on the GPU; of a sweep, as a function of a point's parameters; of a loop, that of an
            iteration.
        operators: what each step of the trace calls: (name, shapes of its inputs, its kernels with their microseconds).
        data: what a probe returned.
        ranks: of an experiment on several GPUs, the operators of each rank; without, all ranks have `operators`.
            `("all_reduce", [[elements]], [("nccl", 20.0)])` is a collective of so many microseconds of transfer, which
            ends on all ranks at once; so are `all_gather` and `reduce_scatter`.
    """
    (described,) = find(experiment)
    at = () if described.probe is not None else described.points
    works = [described.work(**parameters) if described.work else Work(bytes=0) for parameters in at]
    points = tuple(
        samples.point(
            dict(parameters),
            _timings(us(parameters) if callable(us) else us) if described.timed and described.make else None,
            flops=work.flops,
            bytes=work.bytes,
            iteration=_timing(us(parameters) if callable(us) else us) if described.timed and described.loop else None,
        )
        for parameters, work in zip(at, works, strict=True)
    )
    recording = samples.sample(
        experiment,
        label=described.label,
        points=points,
        ceilings=tuple(_ceilings(works)),
        data=dict(data or {}),
        has_trace=described.is_traced,
        first_steps=described.first_steps,
        environment=samples.environment(gpus=described.gpus, link=LINK if described.gpus > 1 else ""),
    )
    if not described.is_traced:
        return recording, None
    if described.gpus > 1:
        return recording, merged_operators(ranks or [operators] * described.gpus, described.label)
    return recording, samples.trace_json(label=described.label, operators=operators)


def _timings(us: float) -> Timings:
    """Interleaved as given, a little more from a cold cache, and as a Python loop that waits for the CPU would take."""
    launched = max(us, 20.0)
    return Timings(_timing(us), _timing(1.2 * us), _timing(launched + 10), _timing(launched), 4, 1_000_000)


def _timing(us: float) -> Timing:
    return Timing(us, SPREAD[1] * us, SPREAD[3] * us, tuple(share * us for share in SPREAD))


def _ceilings(works: Iterable[Work]) -> list[Ceiling]:
    """A copy, a large matmul, and a bare matmul of each shape of the work."""
    ceilings = [Ceiling("copy", 2 << 30, 0, _timing(1e6 * (2 << 30) / COPY_BYTES_PER_S))]
    for m, k, n in sorted({(8192, 8192, 8192)}.union(*(work.matmuls for work in works))):
        moved, flops = 2 * (m * k + k * n + m * n), 2 * m * k * n
        ceilings.append(Ceiling(matmul_name(m, k, n), moved, flops, _timing(1e6 * flops / MATMUL_FLOPS_PER_S)))
    return ceilings


def save_samples(root: Path, recordings: Iterable[Sample]) -> Device:
    """Write sample recordings below `root`; return their device."""
    for recording, trace in recordings:
        save_recording(root, SAMPLE_DEVICE, recording, trace)
    return Device(root, SAMPLE_DEVICE)


def page_on_samples(chapter: str, device: Device, monkeypatch: pytest.MonkeyPatch, page: str = "") -> str:
    """The output of the fences and inline figures of a page, by default the chapter's, on sample recordings.

    Raises their errors.
    """
    page = page or chapter
    monkeypatch.setenv("RECORDINGS", str(device.root))
    monkeypatch.setenv("SAMPLE", chapter)
    text = (PROJECT / "docs" / f"{page}.md").read_text(encoding="utf-8")
    shown: list[str] = []
    for fence in executed_fences(f"{page}.md", text):
        exec(compile(fence.body, fence.place, "exec"), {"print": shown.append})
    inline = [match["name"] for match in INLINE.finditer(text) if match["kind"] == "fig"]
    return "\n".join([*shown, *(fig_formatter(name, "", "", None) for name in inline)])


def main(chapter: str, folder: str) -> int:
    """Write the samples of a chapter; return 2 if it has none."""
    path = f"tests/chapters/{chapter}/samples.py"
    if not re.fullmatch(r"[a-z][a-z0-9_]*", chapter) or not (PROJECT / path).is_file():
        print(f"error: no {path}; write its recordings(), as make chapter lays it out", file=sys.stderr)
        return 2
    save_samples(Path(folder), import_module(f"tests.chapters.{chapter}.samples").recordings())
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
