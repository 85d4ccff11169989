"""What a CUDA graph reads outlives its recording; a stand-in for CUDA runs the recordings on the CPU."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from snippets.decoder import faults, loops, model
from snippets.decoder.experiments import clocks, growing
from snippets.decoder.experiments.token_loops import prompt_of


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The stream of each recording, in order; a recording runs its step once, and a replay does nothing."""
    found: list[Any] = []

    @contextmanager
    def graph(_graph: Any, stream: Any) -> Iterator[None]:
        found.append(stream)
        yield

    def new_stream() -> Any:
        return SimpleNamespace(wait_stream=lambda _: None)

    names = {
        "CUDAGraph": lambda: SimpleNamespace(replay=lambda: None),
        "Stream": new_stream,
        "current_stream": new_stream,
        "graph": graph,
        "stream": lambda _: nullcontext(),
        "synchronize": lambda: None,
    }
    for name, stand_in in names.items():
        monkeypatch.setattr(torch.cuda, name, stand_in)
    return found


def caches_of(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> list[weakref.ref[Any]]:
    """The keys and values of the caches that a function is going to make."""
    found: list[weakref.ref[Any]] = []
    make = getattr(owner, name)

    def watched(*given: Any, **named: Any) -> Any:
        result = make(*given, **named)
        cache = result[-1] if isinstance(result, tuple) else result
        found.extend(weakref.ref(tensor) for kept in cache for tensor in (kept.keys, kept.values))
        return result

    monkeypatch.setattr(owner, name, watched)
    return found


@pytest.fixture(scope="module")
def decoder() -> model.Decoder:
    return model.build("tiny", "cpu", torch.float32, max_length=128)


def test_a_recorded_step_keeps_what_it_reads(
    decoder: model.Decoder, streams: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    caches = caches_of(monkeypatch, growing, "filled")
    replays = [
        clocks.recorded(growing.decode_at(decoder, growing.filled(decoder, 1, end), 1, end), "cuda") for end in (4, 8)
    ]
    assert (len(caches), [one() for one in caches].count(None)) == (8, 0)
    assert streams[0] is not streams[1]
    replays.clear()
    assert [one() for one in caches] == [None] * 8


@pytest.mark.parametrize("start", [faults.replayed, faults.sampling_before, faults.item_before])
def test_a_decode_graph_keeps_its_cache(
    decoder: model.Decoder, streams: list[Any], monkeypatch: pytest.MonkeyPatch, start: Callable[..., Any]
) -> None:
    caches = caches_of(monkeypatch, faults, "read_prompt")
    running = start(decoder, prompt_of(decoder, 1, 8), 4, batch=2)
    for _ in range(10):  # two answers
        next(running)
    assert (len(streams), len(caches), [one() for one in caches].count(None)) == (1, 4, 0)


def test_each_decode_graph_has_a_stream_of_its_own(decoder: model.Decoder, streams: list[Any]) -> None:
    ids = prompt_of(decoder, 1, 8)
    running = [loops.graph(decoder, ids, 4) for _ in range(2)]
    for each in running:
        next(each), next(each)
    assert (len(streams), streams[0] is streams[1]) == (2, False)
