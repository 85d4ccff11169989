"""Split the JSON of a trace into its events, without holding the file: a 1 GB trace is read in windows of 1 MB.

A window is cut where one object ends and the next begins. The JSON decoder tells whether that place is between two
events and not inside one: only then do the characters before it and a closing bracket make a whole list. A window that
does not decode (damaged events, NaN, the end of the list) is split by counting brackets, one small window at a time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import Raw

from kinetoscope.trace.events import TraceError
from kinetoscope.trace.foreign import name_file

MAX_WINDOW_BYTES, MIN_WINDOW_BYTES = 1 << 20, 1 << 15
MAX_MEMBERS_BYTES = 64 << 20
_EVENTS_KEY = re.compile(rb'"traceEvents"\s*:\s*\[')
_MAX_KEYS, _HEAD_BYTES = 16, 512
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+("?)|[\[\]{},]', re.DOTALL)
_OPEN, _CLOSE, _QUOTE, _COMMA = b"[{", b"]}", ord('"'), ord(",")
JSON_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""Errors from decoding text that is not JSON; the second also occurs after skipped bytes."""


def undecoded(text: bytes) -> list[Any]:
    """The events of a list, each as its JSON. Raises an error of `JSON_ERRORS` if the text is not a list."""
    return msgspec.json.decode(text, type=list[Raw])


class EventText:
    """The events of a JSON object with `traceEvents`, or of a bare list, and the object's other members."""

    def __init__(self, blocks: Iterator[bytes], where: str, decode: Callable[[bytes], list[Any]] = undecoded) -> None:
        """`decode` decodes a list of events; it raises an error of `JSON_ERRORS` if a text is not a list."""
        self.members: dict[str, Raw] = {}
        """The top-level members besides `traceEvents`, complete after `events` has ended."""
        self.is_cut = False
        """Whether the text ends before the list of events, or the object, does."""
        self._blocks, self._where, self._decode = blocks, where, decode
        self._text, self._head = bytearray(), b""

    def events(self) -> Iterator[list[Any]]:
        """Yield the events in groups, decoded or as JSON. Raises `TraceError`."""
        is_object = self._enter()
        window, has_more = MAX_WINDOW_BYTES, True
        while True:
            while has_more and len(self._text) < window:
                has_more = self._read()
            group = self._whole_window(window)
            if group is not None:
                yield group
                window = min(2 * window, MAX_WINDOW_BYTES)
                continue
            with memoryview(self._text) as view:
                text = bytes(view[: max(window, MIN_WINDOW_BYTES)])
            events, end, is_closed = split_events(text)
            yield events
            del self._text[:end]
            if is_closed:
                return self._leave(is_object)
            if end:
                window = MIN_WINDOW_BYTES
            elif has_more or window < len(self._text):
                window *= 4  # one event is larger than the window
            else:
                self.is_cut = True
                yield self._last()
                return None

    def _last(self) -> list[bytes]:
        """The last event of a file that was cut off after it."""
        with suppress(*JSON_ERRORS):
            msgspec.json.decode(self._text)
            return [bytes(self._text)]
        return []

    def _read(self) -> bool:
        block = next(self._blocks, None)
        self._text += block or b""
        return block is not None

    def _enter(self) -> bool:
        """Move after the bracket that opens the list of events; return whether the list is a member of an object."""
        while not self._text.strip():
            self._text.clear()
            if not self._read():
                raise self._no_trace()
        self._head = bytes(self._text[:_HEAD_BYTES])
        del self._text[: len(self._text) - len(self._text.lstrip())]
        start = self._text[:1]
        if start == b"[":
            del self._text[:1]
            return False
        if start != b"{":
            raise self._no_trace()
        checked, keys = 0, 0
        while True:
            while match := _EVENTS_KEY.search(self._text, checked):
                checked, keys = match.end(), keys + 1
                del match  # it would keep the text from being shortened
                if self._opens_events(bytes(self._text[:checked])):
                    del self._text[:checked]
                    return True
                if keys == _MAX_KEYS:
                    raise self._no_trace()
            checked = max(checked, len(self._text) - 64)
            if len(self._text) > MAX_MEMBERS_BYTES:
                raise TraceError(f"{self._where}: JSON, but no traceEvents in its first {MAX_MEMBERS_BYTES >> 20} MB")
            if not self._read():
                raise self._no_trace()

    def _opens_events(self, text: bytes) -> bool:
        """Whether the bracket at the end of `text` opens a member of the outermost object."""
        try:
            members = msgspec.json.decode(text + b"]}", type=dict[str, Raw])
        except JSON_ERRORS:
            return False
        members.pop("traceEvents", None)
        self.members.update(members)
        return True

    def _no_trace(self) -> TraceError:
        text = bytes(self._text)
        try:
            content = msgspec.json.decode(text)
        except JSON_ERRORS as error:
            if named := name_file(self._where, self._head):
                return TraceError(named)
            if text[:1] not in (b"{", b"["):
                return TraceError(f"{self._where} is not a .json or .json.gz trace")
            return TraceError(f"{self._where}: is not complete JSON ({error}); copy or record the trace again")
        if isinstance(content, dict) and (named := name_file(self._where, b"", content)):
            return TraceError(named)
        return TraceError(
            f"{self._where}: JSON, but not a Kineto trace (no list of traceEvents); use export_chrome_trace"
        )

    def _whole_window(self, window: int) -> list[Any] | None:
        """The events up to the last place in the window that is between two events; None if there is no such place."""
        end = _last_comma(self._text, window)
        if end < 0:
            return None
        try:
            with memoryview(self._text) as view:
                group = self._decode(b"".join((b"[", view[:end], b"]")))
        except JSON_ERRORS:
            return None
        del self._text[: end + 1]
        return group

    def _leave(self, is_object: bool) -> None:
        """Read the members after the list of events."""
        while self._read():
            if len(self._text) > MAX_MEMBERS_BYTES:
                raise TraceError(f"{self._where}: over {MAX_MEMBERS_BYTES >> 20} MB after traceEvents")
        rest = bytes(self._text).strip()
        if is_object:
            rest = b"{" + rest.removeprefix(b",")
        elif not rest:
            return
        try:
            members = msgspec.json.decode(rest, type=dict[str, Raw] if is_object else list[Raw])
        except JSON_ERRORS as error:
            if "truncated" not in str(error):
                raise TraceError(
                    f"{self._where}: is not complete JSON (after traceEvents: {error}); copy or record the trace again"
                ) from error
            self.is_cut = True
            return
        if not isinstance(members, dict) or "traceEvents" in members:
            raise TraceError(f"{self._where}: JSON, but not a Kineto trace (two lists of events)")
        self.members.update(members)


def _last_comma(text: bytearray, window: int) -> int:
    """The last comma between `}` and `{` in the window, among its last 64 candidates; -1 if there is none."""
    at = min(window, len(text))
    for _ in range(64):
        at = text.rfind(b"{", 0, at)
        if at < 0:
            break
        before = bytes(text[max(0, at - 64) : at]).rstrip()
        if before.endswith(b",") and before[:-1].rstrip().endswith(b"}"):
            return max(0, at - 64) + len(before) - 1
    return -1


def split_events(text: bytes) -> tuple[list[bytes], int, bool]:
    """Split text that begins inside a list by counting brackets.

    Returns the complete elements, their length with the commas after them, and whether the list ended.
    """
    events: list[bytes] = []
    depth, start, end = 0, 0, 0
    for match in _TOKEN.finditer(text):
        token = text[match.start()]
        if token == _QUOTE:
            if not match[1]:
                break
        elif token in _OPEN:
            depth += 1
        elif token in _CLOSE and depth:
            depth -= 1
        elif depth == 0:  # a comma, or the bracket that ends the list
            if event := text[start : match.start()].strip():
                events.append(event)
            start = end = match.end()
            if token != _COMMA:
                return events, end, True
    return events, end, False
