"""The names of a rank's processes in a merged file: `rank 3: GPU 0`, in the order of the ranks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw

from kinetoscope.ranks.rank_files import Event
from kinetoscope.trace.json_events import JSON_ERRORS

NAME, LABELS, ORDER = "process_name", "process_labels", "process_sort_index"
MAX_PROCESSES = 1000
"""Of a rank: so many have a place of their own in the order."""


class ProcessLabels:
    """Collects a rank's events about its processes, and writes them with the rank."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._first: dict[bytes, Raw] = {}
        self._given: dict[bytes, dict[str, Event]] = {}

    def take(self, event: Event) -> bool:
        """Whether an event names, labels or orders a process; such an event is kept for `events`."""
        pid = event["pid"]
        self._first.setdefault(bytes(pid), event.get("ts", Raw(b"0")))
        if bytes(event.get("ph", b"")) != b'"M"' or (name := _text(event.get("name"))) not in (NAME, LABELS, ORDER):
            return False
        self._given.setdefault(bytes(pid), {})[name] = event
        return True

    def events(self) -> Iterator[dict[str, Any]]:
        """The three events of each process, in the order that the rank's file gives them."""
        pids = sorted(self._first, key=self._order)
        for place, pid in enumerate(pids):
            given = self._given.get(pid, {})
            label = _text(_args(given, LABELS).get("labels"))
            name = _text(_args(given, NAME).get("name"))
            shown = label or name or _text(Raw(pid)).removeprefix(f"rank {self._rank}: ")
            named = f"rank {self._rank}: {shown}" if shown else f"rank {self._rank}"
            order = self._rank * MAX_PROCESSES + min(place, MAX_PROCESSES - 1)
            yield self._event(pid, NAME, given, {"name": named, **({"original": name} if name else {})})
            if LABELS in given:
                yield self._event(pid, LABELS, given, {})
            yield self._event(pid, ORDER, given, {"sort_index": order})

    def _order(self, pid: bytes) -> float:
        value = _args(self._given.get(pid, {}), ORDER).get("sort_index", Raw(b"0"))
        with suppress(*JSON_ERRORS):
            return msgspec.json.decode(value, type=float)
        return 0.0

    def _event(self, pid: bytes, name: str, given: dict[str, Event], args: dict[str, Any]) -> dict[str, Any]:
        event = given.get(name, {"ph": "M", "name": name, "ts": self._first[pid], "tid": 0})
        return {**event, "pid": Raw(pid), "args": {**_args(given, name), **args}}


def _args(given: dict[str, Event], name: str) -> dict[str, Raw]:
    with suppress(KeyError, *JSON_ERRORS):
        return msgspec.json.decode(given[name]["args"], type=dict[str, Raw])
    return {}


def _text(value: Raw | None) -> str:
    with suppress(*JSON_ERRORS):
        return msgspec.json.decode(value or Raw(b'""'), type=str)
    return ""
