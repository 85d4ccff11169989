"""Name what is no trace of PyTorch's profiler, and the tool that reads it."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from kinetoscope.trace.events import Trace

ACCEPTED = "a .json or .json.gz trace of the PyTorch profiler"
_SNAPSHOT = "a pickle, maybe a memory snapshot of PyTorch", "https://pytorch.org/memory_viz shows it"
_NSYS = "a report of Nsight Systems", "Nsight Systems and nsys stats read it"
_NCU = "a report of Nsight Compute", "Nsight Compute (ncu-ui, ncu --import) reads it"
_PERFETTO = "a binary trace of Perfetto", "https://ui.perfetto.dev shows it"
_XPLANE = "a profile of JAX, TensorFlow or PyTorch/XLA", "XProf (TensorBoard) reads it"
_ARCHIVE = "unpack it, and give the .json in it"
_STARTS: tuple[tuple[bytes, str, str], ...] = (
    (
        b"SQLite format 3\0",
        "a SQLite database, as Nsight Systems or rocprofv3 export it",
        "nsys stats or rocpd reads it",
    ),
    (b"NVR\0", *_NCU),
    (b"PK\x03\x04", "a .zip archive", _ARCHIVE),
    (b"7z\xbc\xaf", "a .7z archive", _ARCHIVE),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd", "unpack it with zstd -d"),
    (b"BZh", "compressed with bzip2", "unpack it with bunzip2"),
    (b"\xfd7zXZ\0", "compressed with xz", "unpack it with xz -d"),
    (b"\x04\x22\x4d\x18", "compressed with lz4", "unpack it with lz4 -d"),
    *((b"\x80" + bytes([protocol]), *_SNAPSHOT) for protocol in (2, 3, 4, 5)),
    (b"version https://git-lfs", "a pointer of Git LFS, not the file itself", "fetch the file with git lfs pull"),
    (b"<", "HTML or XML, maybe the page of a site instead of its file", "download the file itself"),
)
_SUFFIXES: tuple[tuple[str, tuple[str, str]], ...] = (
    (".nsys-rep", _NSYS), (".qdrep", _NSYS), (".qdstrm", _NSYS), (".ncu-rep", _NCU), (".pftrace", _PERFETTO),
    (".perfetto-trace", _PERFETTO), (".pb", _XPLANE), (".pickle", _SNAPSHOT), (".pkl", _SNAPSHOT),
)  # fmt: skip
_MEMBERS: tuple[tuple[frozenset[str], str, str], ...] = tuple(
    (frozenset(members.split()), what, reader)
    for members, what, reader in (
        (
            "schema nodes",
            "an execution trace (PARAM, Chakra)",
            "PARAM and Chakra read it, and export_chrome_trace records times",
        ),
        ("segments device_traces", "a memory snapshot of PyTorch", _SNAPSHOT[1]),
        ("nodes samples timeDeltas", "a CPU profile of a browser or Node.js", "the browser's developer tools read it"),
        ("shared profiles", "a profile for Speedscope", "https://www.speedscope.app shows it"),
        ("rocprofiler-sdk-tool", "a result of rocprofv3", "rocprofv3's own tools read it"),
        ("cells nbformat", "a notebook", "give the trace that it writes"),
    )
)
ASCEND = "a trace of Ascend's profiler; MindStudio Insight reads it"
BROWSER = "a trace of a browser; the command open shows it in Perfetto"
AUTOGRAD = "an export of torch.autograd.profiler, which records no GPU work; use torch.profiler"
VIZTRACER = "a trace of VizTracer; vizviewer shows it"
XLA = "a trace of JAX, TensorFlow or PyTorch/XLA; XProf (TensorBoard) reads it"
ACCELERATOR = "a trace of an accelerator that is not read; the command open shows it in Perfetto"
OTHER = "a trace of another profiler; the command open shows it in Perfetto"
_BROWSER_CATEGORIES = ("blink", "v8", "cc", "devtools.timeline", "toplevel", "loading", "__metadata")


def name_file(where: str, head: bytes, members: Collection[str] = ()) -> str:
    """What a file is by its first bytes, its members as JSON or its name, and what reads it; empty if unknown."""
    found = next((each for each in _STARTS if head.startswith(each[0])), None)
    if found is None and head[257:262] == b"ustar":
        found = b"", "a .tar archive", _ARCHIVE
    if found is not None:
        return _sentence(where, found[1], found[2])
    for needed, what, reader in _MEMBERS:
        if needed <= set(members):
            return _sentence(where, what, reader)
    suffixes = ((what, reader) for suffix, (what, reader) in _SUFFIXES if where.lower().endswith(suffix))
    return next((_sentence(where, what, reader) for what, reader in suffixes if not members), "")


def _sentence(where: str, what: str, reader: str) -> str:
    return f"{where}: is {what}, not {ACCEPTED}; {reader}"


def name_origin(categories: Iterable[str], processes: Iterable[str], members: Collection[str]) -> str:
    """The profiler whose events have these categories and process names, in a file with these members."""
    named, kinds = " ".join(processes), {part for category in categories for part in category.split(",")}
    if "Ascend" in named or "CANN" in named:
        return ASCEND
    if "CPU functions" in named:
        return AUTOGRAD
    if "viztracer_metadata" in members:
        return VIZTRACER
    if "/host:" in named or "/device:" in named:
        return XLA
    if any(kind.startswith(_BROWSER_CATEGORIES) for kind in kinds):
        return BROWSER
    return ACCELERATOR if "schemaVersion" in members else OTHER


def is_foreign(trace: Trace) -> bool:
    """Whether a file has events, and none that is read."""
    return bool(trace.unread) and not (trace.cpu_ops or trace.calls or trace.activities)


def foreign_text(trace: Trace) -> str:
    """A sentence for a file with events of which none is read: how many, of which categories, and whose they are."""
    count = sum(events for _, events in trace.unread)
    categories = [category[:40] for category, _ in trace.unread if category]
    listed = f" ({', '.join(categories[:4])}{', ...' * (len(categories) > 4)})" if categories else ""
    events = f"{count:,} event{'s' * (count != 1)}"
    return f"{events}, none with a category that is read{listed}: {trace.origin or OTHER}"
