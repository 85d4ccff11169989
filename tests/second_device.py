"""A made-up second device: the default one's recordings, changed in every way in which another GPU's may differ.

Slower, above all what was compiled; other names of kernels; a product in two kernels; the kernels that need Hopper, a
chapter and a sweep not recorded; one recording disturbed; nothing accepted.
"""

from __future__ import annotations

import gzip
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from msgspec.json import decode, encode

from snippets.lab.recording.device import DEFAULT_DEVICE
from snippets.lab.recording.schema import Timing

NAME = "nvidia-t100"
DEVICE = "NVIDIA T100"
MHZ = 1230.0
"""Its clock: where a device decides, it can be told which one did."""
MISSING = ("attention/*", "fused_mlp/*fused*", "mlp/sweep_liger.*", "devices/after_profiling.*")
DISTURBED = "linear/eager"
SPLIT = "linear/eager_wide"
"""Its products run two kernels each."""
LARGE_BYTES = 10_000_000
AMPERE_GEMM = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x4_tn"


def make_up(root: Path) -> None:
    """Write the device's recordings below `root`, next to those of the default device."""
    source, target = root / DEFAULT_DEVICE, root / NAME
    for folder in filter(Path.is_dir, source.glob("*")):
        shutil.copytree(folder, target / folder.name)
    for pattern in MISSING:
        for path in target.glob(pattern):
            path.unlink()
    for path in target.glob("*/*.json"):
        _rewrite(path, f"{path.parent.name}/{path.stem}")
    for path in target.glob("*/*.trace.json.gz"):
        name = path.name.removesuffix(".trace.json.gz")
        content = _other_trace(decode(gzip.decompress(path.read_bytes())), f"{path.parent.name}/{name}")
        text = encode(content)
        level = 6 if len(text) > LARGE_BYTES else 1  # a recording may not be larger than its limit
        path.write_bytes(gzip.compress(text, level, mtime=0))
    for folder in filter(Path.is_dir, target.glob("*")):
        if not any(folder.iterdir()):
            folder.rmdir()


def _slower(name: str) -> float:
    return 4.0 if "compiled" in name else 2.0


def _rewrite(path: Path, name: str) -> None:
    recording = decode(path.read_bytes())
    recording.pop("trace_sha256", None)  # its trace is another one, too
    circumstances = recording["circumstances"]
    circumstances |= {"device": DEVICE, "compute_capability": "8.0", "multiprocessors": 108}
    circumstances["clocks"]["sm_mhz"] = MHZ
    for timing in scale_timings(recording["points"], _slower(name)):
        timing |= {"clock_mhz": MHZ} if "clock_mhz" in timing else {}
    if name == DISTURBED:
        recording["points"][0]["disturbed"] = "interleaved 40 us, but cold 20 us"
    path.write_bytes(encode(recording))


def scale_timings(points: Any, factor: float) -> Iterator[dict[str, Any]]:
    """Every timing in the points of a recording, ceilings' too, once it takes so many times as long."""
    for timing in _timings(points):
        slower = Timing.from_samples([factor * sample for sample in timing["samples_us"]])
        timing |= {key: getattr(slower, key) for key in ("median_us", "q1_us", "q3_us", "samples_us")}
        yield timing


def _timings(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "samples_us" in value:
            yield value
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _timings(each)


def _other_trace(trace: dict[str, Any], name: str) -> dict[str, Any]:
    found = []
    for event in trace["traceEvents"]:
        found.append(event)
        event |= {key: event[key] * _slower(name) for key in ("ts", "dur") if key in event}
        if event.get("cat") == "kernel" and "gemm" not in event["name"] and event["name"].startswith("nvjet"):
            event["name"] = AMPERE_GEMM
            if name == SPLIT:
                half = event["dur"] / 2
                event["dur"] = half
                reduction = {"name": "splitKreduce_kernel", "ts": event["ts"] + half, "dur": half}
                found.append(event | reduction)
    return trace | {"traceEvents": found}
