"""Ids that several ranks of a job share, made unique: each gets the digits of its rank at its end.

Every rank numbers its operators, calls and flows from 1, names its GPUs from 0, and may have the process id of another
rank on another machine. 953 of rank 3 becomes 9533, and in a job of 16 ranks 95303.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import Raw

from kinetoscope.trace.kept_events import KeptEvents

Pid = int | float | str | None
FLOW_IDS = ("id", "bind_id")
"""Fields of an event that tie it to another event of its file."""
ID_ARGS = (
    "correlation", "External id", "external id", "graph id", "graph node id", "event_id", "wait_on_cuda_event_id",
    "wait_on_cuda_event_record_corr_id",
)  # fmt: skip
"""Arguments that do so; 0 and negative numbers mean none. `Seq` and `Comms Id` are not among them, since they are the
same on all ranks of a collective, nor is `Record function id`, which leads to another file."""
INDEX_ARGS = ("Ev Idx", "Sequence number", "Python id", "Python parent id", "Python module id")
"""Likewise; 0 is an id."""
_MAX_DIGITS = 18
"""Longer ids are hashes: they stay, since 64 bits cannot hold them with a rank."""
_TEXT_PID = re.compile(r"rank ([0-9]{1,10})(?:: (.*))?", re.DOTALL)
_NUMBER = re.compile(r"-?[0-9]{1,18}")
_DECODER: msgspec.json.Decoder[dict[str, Raw]] = msgspec.json.Decoder(dict[str, Raw])


class RankIds:
    """Turns the ids of a rank's events into ids of the whole job."""

    def __init__(self, rank: int, digits: int) -> None:
        """`digits`: of the largest rank of the job."""
        self._rank, self._suffix = rank, f"{rank:0{digits}}".encode()
        self._pids: dict[bytes, Raw] = {}

    def replace(self, event: dict[str, Raw]) -> None:
        """Replace the ids of one event."""
        event["pid"] = self.pid(event.get("pid", Raw(b"null")))
        for name in FLOW_IDS:
            if name in event:
                event[name] = self._flow_id(event[name])
        if "args" in event and bytes(event["args"]).startswith(b"{"):
            event["args"] = self._args(event["args"])

    def pid(self, given: Raw) -> Raw:
        """The id of a process: `953` -> `9533`, `"Spans"` -> `"rank 3: Spans"`, `-1` -> `"rank 3: -1"`.

        Perfetto takes all ids that are negative or need more than 32 bits for one process.
        """
        text = bytes(given)
        return self._pids.get(text) or self._pids.setdefault(text, self._new_pid(text))

    def _new_pid(self, text: bytes) -> Raw:
        value = msgspec.json.decode(text)
        if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            number = f"{value}{self._suffix.decode()}" if value else str(self._rank)
            if int(number) < 2**32:
                return Raw(number.encode())
        is_named = isinstance(value, int | float | str) and not isinstance(value, bool)
        named = f"rank {self._rank}: {value}" if is_named else f"rank {self._rank}"
        return Raw(msgspec.json.encode(named))

    def _args(self, given: Raw) -> Raw:
        args = _DECODER.decode(given)
        for name in ID_ARGS:
            text = bytes(args.get(name, b""))
            if text.isdigit() and text != b"0":
                args[name] = self._appended(text)
        for name in INDEX_ARGS:
            text = bytes(args.get(name, b""))
            if text.isdigit():
                args[name] = self._appended(text)
        return Raw(msgspec.json.encode(args))

    def _flow_id(self, given: Raw) -> Raw:
        """A number or a text, which stays the text of a number where it is one: `"0x1f"` -> `"0x1f3"`."""
        text = bytes(given)
        if text[:1] == b'"':
            return Raw(text[:-1] + self._suffix + b'"')
        return self._appended(text) if text.removeprefix(b"-").isdigit() else given

    def _appended(self, text: bytes) -> Raw:
        if len(text) + len(self._suffix) > _MAX_DIGITS:
            return Raw(text)
        return Raw(str(self._rank).encode() if text == b"0" else text + self._suffix)


class PidReader:
    """Finds the rank and the process in the ids that `RankIds` made."""

    def __init__(self, digits: int) -> None:
        self._divisor = 10**digits

    def rank(self, pid: Pid) -> int | None:
        """The rank of a process; None if the id is of another origin."""
        if isinstance(pid, int):
            return int(pid % self._divisor)
        match = _TEXT_PID.fullmatch(pid) if isinstance(pid, str) else None
        return int(match[1]) if match else None

    def original(self, pid: Pid) -> Pid:
        """The id of the process in its rank's own file."""
        if isinstance(pid, int):
            return int(pid // self._divisor)
        match = _TEXT_PID.fullmatch(pid) if isinstance(pid, str) else None
        name: str | None = match[2] if match else None
        return int(name) if name and _NUMBER.fullmatch(name) else name

    def restore(self, kept: KeptEvents) -> None:
        """Give the events of one rank the process ids of its own file."""
        original: dict[Pid, Pid] = {}
        for events in kept.lists():
            for event in events:
                pid = event.pid
                if pid not in original:
                    original[pid] = self.original(pid)
                event.pid = original[pid]
        kept.runs = [(self.original(_as_pid(pid)), before) for pid, before in kept.runs]
        kept.labels = {self.original(_as_pid(pid)): text for pid, text in kept.labels.items()}


def _as_pid(pid: object) -> Pid:
    return pid if isinstance(pid, int | float | str) else None
