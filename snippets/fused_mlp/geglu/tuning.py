"""Choose one of several ways for a kind of work: the same way in every process.

A choice is looked up in two places: among the choices made on this machine,
kept in a file for each GPU and version; and in the table `tuned.json` next to
this module. If neither has the work, the ways are timed.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from statistics import median

import torch

FOLDER = "GEGLU_KERNELS_CACHE"
"""Environment variable: the folder for choices, or `off` to keep none."""
SHIPPED = Path(__file__).with_name("tuned.json")
LOAD_MS, TURN_MS, TURNS = 100.0, 2.0, 6
MARGIN = 1.02
"""The first way in the list that is at most this many times as slow as the
fastest wins, so that two processes agree although their times differ."""

Ways = Mapping[str, Callable[[], object]]


# --8<-- [start:choice]
TIMES_US: dict[str, dict[str, dict[str, float]]] = {}
"""Times measured in this process: GPU -> work -> way -> median microseconds."""


FAILED: dict[str, dict[str, str]] = {}
"""Ways that failed when this process wanted to time them: work -> way ->
error."""


class NoWay(RuntimeError):
    """None of the ways runs on this GPU; the message is the first way's
    error."""


LOCK = threading.RLock()
"""Held while ways are timed, so that threads time one after the other."""


def choose(
    work: str, ways: Ways, compile_all: Callable[[], object]
) -> str | None:
    """The name of the way to take on the current GPU; None if it is unknown and
    nothing can be timed, because a CUDA graph is being captured."""
    gpu = torch.cuda.get_device_name()
    with LOCK:
        chosen = choices(gpu).get(work)
        if chosen in ways:
            return chosen
        if torch.cuda.is_current_stream_capturing():
            return None
        compile_all()
        running = those_that_run(work, ways)
        times_us = timed(running)
        TIMES_US.setdefault(gpu, {})[work] = times_us
        chosen = keep(gpu, work, first_of_the_fastest(times_us), running)
        choices(gpu)[work] = chosen
    return chosen


def those_that_run(work: str, ways: Ways) -> Ways:
    """The ways that this GPU and this version of Triton can run. Raises `NoWay`
    if there are none."""
    from .launch import FAILURES

    failed = {}
    for name, run in ways.items():
        try:
            run()  # compiles, and makes the choices inside
        except FAILURES as error:
            failed[name] = f"{type(error).__name__}: {error}"
    if failed:
        FAILED[work] = failed
    if len(failed) == len(ways):
        raise NoWay(next(iter(failed.values())))
    return {name: run for name, run in ways.items() if name not in failed}


def first_of_the_fastest(times_us: Mapping[str, float]) -> str:
    """The first way that is at most `MARGIN` times as slow as the fastest."""
    limit_us = MARGIN * min(times_us.values())
    return next(name for name, us in times_us.items() if us <= limit_us)


# --8<-- [end:choice]


# --8<-- [start:timed]
def timed(ways: Ways) -> dict[str, float]:
    """Median microseconds of each way, interleaved, on a GPU kept busy with
    them.

    The first way must not profit from a cool GPU: an H200 lowers its clock
    after some 20 ms of products.
    """
    graphs = {name: repeated(run) for name, run in ways.items()}
    samples_us: dict[str, list[float]] = {name: [] for name in graphs}
    load_ms = 0.0
    while load_ms < LOAD_MS:
        load_ms += sum(
            calls * replayed_us(graph, calls) / 1e3
            for graph, calls in graphs.values()
        )
    for turn in range(TURNS):
        names = list(graphs)[:: 1 if turn % 2 == 0 else -1]
        for name in names:
            samples_us[name].append(replayed_us(*graphs[name]))
    return {name: median(samples) for name, samples in samples_us.items()}


def repeated(run: Callable[[], object]) -> tuple[torch.cuda.CUDAGraph, int]:
    """A CUDA graph of several calls whose replay takes about `TURN_MS`, and the
    number of calls."""
    graph = captured(run, 3)
    replayed_us(graph, 3)
    calls = max(3, min(200, round(TURN_MS * 1e3 / replayed_us(graph, 3))))
    return captured(run, calls), calls


def captured(run: Callable[[], object], calls: int) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    # The work of other threads, such as pinning memory, must not break the
    # capture.
    with torch.cuda.graph(
        graph,
        stream=stream_of(torch.cuda.current_device()),
        capture_error_mode="thread_local",
    ):
        for _ in range(calls):
            run()
    return graph


@functools.cache
def stream_of(device: int) -> torch.cuda.Stream:
    """A stream for captures on this GPU. PyTorch's own belongs to the GPU that
    captured first, and cuBLAS keeps memory for every stream that it has
    seen."""
    return torch.cuda.Stream(device)


def replayed_us(graph: torch.cuda.CUDAGraph, calls: int) -> float:
    """Microseconds per call in one replay."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    graph.replay()
    end.record()
    end.synchronize()
    return 1e3 * begin.elapsed_time(end) / calls


# --8<-- [end:timed]


@functools.cache
def choices(gpu: str) -> dict[str, str]:
    """Work -> way: the shipped choices, overridden by the choices of this
    machine."""
    return _names(_read(SHIPPED).get(gpu)) | _names(_read(file_of(gpu)))


def file_of(gpu: str) -> Path | None:
    """The file of this GPU's choices; None if choices are not kept.

    Its name contains PyTorch's and Triton's versions and a hash of the kernels,
    so choices made for others are ignored.
    """
    folder = os.environ.get(FOLDER) or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or "~/.cache", "geglu_kernels"
    )
    if folder == "off":
        return None
    import triton

    name = "".join(one if one.isalnum() else "-" for one in gpu.lower())
    versions = f"{torch.__version__}-{triton.__version__}-{_code()}"
    try:
        return Path(folder).expanduser() / f"{name}-{versions}.json"
    except RuntimeError:  # a user without a home
        return None


@functools.cache
def _code() -> str:
    """A hash of the kernels' sources."""
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*kernels.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]


def keep(gpu: str, work: str, way: str, ways: Collection[str]) -> str:
    """Store a choice in the file of this GPU; return the stored choice. A
    choice that another process stored first wins, unless it is not one of
    `ways`.

    If the file cannot be written, only this process uses the choice.
    """
    path = file_of(gpu)
    if path is None:
        return way
    kept = _names(_read(path))
    if kept.get(work, "") not in ways:
        kept[work] = way
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, suffix=".json", delete=False
        ) as file:
            json.dump(kept, file, indent=1, sort_keys=True)
        os.replace(file.name, path)
    except OSError:
        pass
    return kept[work]


def ship() -> None:
    """Add this machine's choices for its GPU to the table that the package
    ships."""
    gpu = torch.cuda.get_device_name()
    shipped = _read(SHIPPED)
    shipped[gpu] = _names(shipped.get(gpu)) | _names(_read(file_of(gpu)))
    text = json.dumps(shipped, indent=1, sort_keys=True)
    SHIPPED.write_text(text + "\n", "utf-8")


def _read(path: Path | None) -> dict:
    """The object in a file; empty if the file is missing or unreadable."""
    try:
        found = json.loads(path.read_text("utf-8")) if path else {}
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _names(found: object) -> dict[str, str]:
    """Work -> way, without invalid entries of a broken file."""
    pairs = found.items() if isinstance(found, dict) else ()
    return {work: way for work, way in pairs if isinstance(way, str)}
