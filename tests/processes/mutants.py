"""Damaged traces: each mutant is made from its number alone, so that one that is found can be made again."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.tool.events import (
    HOST,
    Event,
    annotation,
    gpu_annotation,
    kernel,
    launch,
    memcpy,
    memset,
    op,
    overhead,
    step,
)

SEED = 13
REAL = ("linear_eager", "matmul_add_64_eager")
TRACES = Path(__file__).parents[1] / "traces"
GPU_CATEGORIES = ("kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset")
CATEGORIES = (
    *GPU_CATEGORIES, "cpu_op", "Operator", "user_annotation", "cuda_runtime", "Runtime", "cuda_driver", "hip_runtime",
    "gpu_user_annotation", "overhead", "python_function", "cpu_instant_event", "ac2g", "cuda_sync", "Trace", "unheard",
)  # fmt: skip
RAW = "@raw@"
"""Begins a string whose rest is written as it is, without quotes: what no encoder of JSON would write."""
VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 7, 0.5, -3.25, 1e-320, 1e15, 1e18, -1e18, 1e300, -1e300, 2**31, 2**53 + 1, 2**63,
    2**64, -(2**63), 10**30, f"{RAW}NaN", f"{RAW}Infinity", f"{RAW}-Infinity", f"{RAW}1e999", RAW + "9" * 5000,
    f"{RAW}-0", f"{RAW}01", f"{RAW}'x'", RAW + "[" * 400 + "]" * 400, RAW + "[" * 5000 + "]" * 5000,
    RAW + '{"a":' * 300 + "1" + "}" * 300, RAW, "", "7", "0.5", "-3", "1e5", "nan", "inf", "x", "x" * 3000,
    "aten::mm", "ProfilerStep#2", "ProfilerStep#99999999999999999999", "cudaGraphLaunch", "rank 3", "kernel",
    "\u202eevil", "\x1b[31m", "\0", "<script>", "'\"\\", "\U0001f525" * 40, f'{RAW}"\\ud800"', f'{RAW}"\t"',
    f'{RAW}"\udc80"', [], {}, [[]], [{}], [None], [1, 2, 3], [-1, 2**70, 0], [[64, 64], [64]], [[[[[[]]]]]],
    {"a": {}}, {"name": None},
)  # fmt: skip
TOP = ("traceEvents", "deviceProperties", "distributedInfo", "baseTimeNanoseconds", "displayTimeUnit", "schemaVersion")


@dataclass(frozen=True)
class Mutant:
    """A damaged trace file."""

    number: int
    content: bytes
    how: tuple[str, ...]
    """The names of its mutations."""


def bases() -> list[dict[str, Any]]:
    """Sound traces, small: two real ones, and the kinds that they are not."""
    return [*map(_real, REAL), _steps(), _ranks(), _replays(), _old(), _without_steps()]


def _real(name: str) -> dict[str, Any]:
    """A recorded trace, but for most of the sixty names and ranks of its threads."""
    content: dict[str, Any] = json.loads(gzip.decompress((TRACES / f"{name}.json.gz").read_bytes()))
    names = [event for event in content["traceEvents"] if event.get("ph") == "M"]
    return content | {"traceEvents": [event for event in content["traceEvents"] if event not in names[9:]]}


def make_mutant(number: int, sound: list[dict[str, Any]]) -> Mutant:
    """The mutant with this number, of one of these traces."""
    dice = random.Random(f"{SEED}/{number}")
    content = dict(dice.choice(sound))
    content["traceEvents"] = list(content["traceEvents"])
    how = []
    if dice.random() < 0.75:
        for _ in range(dice.choice((1, 1, 2, 3, 8))):
            mutate = dice.choice(EVENT_MUTATIONS)
            mutate(content, dice)
            how.append(mutate.__name__)
    if dice.random() < 0.15:
        mutate = dice.choice(FILE_MUTATIONS)
        mutate(content, dice)
        how.append(mutate.__name__)
    text = _written(content["traceEvents"] if dice.random() < 0.08 else content, dice)
    if not how or dice.random() < 0.25:
        for _ in range(dice.choice((1, 1, 1, 2, 5))):
            damage = dice.choice(TEXT_MUTATIONS)
            text = damage(text, dice)
            how.append(damage.__name__)
    if dice.random() < 0.12:
        text, damaged = _compressed(text, dice)
        how.append(damaged)
    return Mutant(number, text, tuple(how))


def _written(content: Any, dice: random.Random) -> bytes:
    # on lines of their own, by separators: with an indent, json.dumps takes ten times as long
    text = json.dumps(content, separators=dice.choice((None, None, None, (",\n ", " :\t"))))
    if RAW in text:
        parts = text.split(f'"{RAW}')
        text = parts[0] + "".join(_unquoted(part) for part in parts[1:])
    return text.encode("utf-8", "surrogateescape")


def _unquoted(part: str) -> str:
    end = 0
    while part[end] != '"':
        end += 2 if part[end] == "\\" else 1
    return str(json.loads(f'"{part[:end]}"')) + part[end + 1 :]


# Mutations of events and of the file: a trace that is JSON, with other values.


def _event(content: dict[str, Any], dice: random.Random) -> tuple[list[Any], int, Event]:
    """The list of events, and a copy in it of an event, which may be changed."""
    events = content["traceEvents"]
    if not isinstance(events, list) or not events:
        return [{}], 0, {}
    at = dice.randrange(len(events))
    event = dict(events[at]) if isinstance(events[at], dict) else {}
    if isinstance(event.get("args"), dict):
        event["args"] = dict(event["args"])
    events[at] = event
    return events, at, event


def remove_event(content: dict[str, Any], dice: random.Random) -> None:
    events, at, _ = _event(content, dice)
    del events[at]


def duplicate_event(content: dict[str, Any], dice: random.Random) -> None:
    events, at, event = _event(content, dice)
    events[at:at] = [event] * dice.choice((1, 1, 2, 40))


def reorder_events(content: dict[str, Any], dice: random.Random) -> None:
    events, _, _ = _event(content, dice)
    dice.shuffle(events)


def change_field(content: dict[str, Any], dice: random.Random) -> None:
    _, _, event = _event(content, dice)
    event[dice.choice(("ph", "cat", "name", "pid", "tid", "ts", "dur", "args", "id"))] = dice.choice(VALUES)


def change_time(content: dict[str, Any], dice: random.Random) -> None:
    _, _, event = _event(content, dice)
    event[dice.choice(("ts", "dur"))] = dice.choice(VALUES)


def change_argument(content: dict[str, Any], dice: random.Random) -> None:
    _, _, event = _event(content, dice)
    args = event.setdefault("args", {})
    if isinstance(args, dict):
        known = [*args, "correlation", "External id", "stream", "device", "grid", "Input Dims", "Bytes"]
        args[dice.choice(known)] = dice.choice(VALUES)


def remove_field(content: dict[str, Any], dice: random.Random) -> None:
    _, _, event = _event(content, dice)
    if event:
        del event[dice.choice([*event])]


def swap_category(content: dict[str, Any], dice: random.Random) -> None:
    _, _, event = _event(content, dice)
    event["cat"] = dice.choice(CATEGORIES)


def swap_events(content: dict[str, Any], dice: random.Random) -> None:
    """Give the arguments of one event to another."""
    (_, _, one), (_, _, other) = _event(content, dice), _event(content, dice)
    one["args"], other["args"] = other.get("args"), one.get("args")


def change_everywhere(content: dict[str, Any], dice: random.Random) -> None:
    """One value in a field of all events of a category."""
    _, _, chosen = _event(content, dice)
    key, value = (
        dice.choice(("pid", "tid", "ts", "dur", "cat", "name", "correlation", "External id")),
        dice.choice(VALUES),
    )
    events = content["traceEvents"]
    for at, event in enumerate(events if isinstance(events, list) else []):
        if isinstance(event, dict) and event.get("cat") == chosen.get("cat"):
            is_argument = key in ("correlation", "External id") and isinstance(event.get("args"), dict)
            events[at] = {**event, "args": {**event["args"], key: value}} if is_argument else {**event, key: value}


def shift_times(content: dict[str, Any], dice: random.Random) -> None:
    by = dice.choice((-1e15, -1e6, 1e3, 1e12, 1.5e15, 1e18, 4e18))
    events = content["traceEvents"]
    for at, event in enumerate(events if isinstance(events, list) else []):
        if isinstance(event, dict) and isinstance(event.get("ts"), int | float) and not isinstance(event["ts"], bool):
            events[at] = {**event, "ts": event["ts"] + by}


def replace_event(content: dict[str, Any], dice: random.Random) -> None:
    events, at, _ = _event(content, dice)
    events[at] = dice.choice(VALUES)


def change_file(content: dict[str, Any], dice: random.Random) -> None:
    content[dice.choice(TOP)] = dice.choice(VALUES)


def change_devices(content: dict[str, Any], dice: random.Random) -> None:
    content["deviceProperties"] = [{dice.choice(("id", "name", "numSms")): dice.choice(VALUES)}, dice.choice(VALUES)]


def change_ranks(content: dict[str, Any], dice: random.Random) -> None:
    content["distributedInfo"] = {"rank": dice.choice(VALUES), "world_size": dice.choice(VALUES)}


def events_last(content: dict[str, Any], dice: random.Random) -> None:
    content["traceEvents"] = content.pop("traceEvents")


EVENT_MUTATIONS: tuple[Callable[[dict[str, Any], random.Random], None], ...] = (
    remove_event, duplicate_event, reorder_events, change_field, change_field, change_time, change_time,
    change_argument, change_argument, remove_field, swap_category, swap_category, swap_events, change_everywhere,
    shift_times, replace_event,
)  # fmt: skip
FILE_MUTATIONS: tuple[Callable[[dict[str, Any], random.Random], None], ...] = (
    change_file,
    change_file,
    change_devices,
    change_ranks,
    events_last,
)


# Mutations of text: a file that is perhaps no JSON any more.


def flip_bits(text: bytes, dice: random.Random) -> bytes:
    changed = bytearray(text)
    for _ in range(dice.choice((1, 1, 1, 3, 50)) if changed else 0):
        changed[dice.randrange(len(changed))] ^= 1 << dice.randrange(8)
    return bytes(changed)


def cut(text: bytes, dice: random.Random) -> bytes:
    return text[: dice.randrange(len(text) + 1)]


def remove_part(text: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(text) + 1)
    return text[:at] + text[at + dice.choice((1, 1, 5, 100)) :]


def insert_part(text: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(text) + 1)
    part = dice.choice(
        (b'"', b"{", b"}", b"[", b"]", b",", b":", b"\\", b"\0", b"\xff", b"\n", b"null", b"NaN", b"},{", b"]}", b"/*",
         b'{"traceEvents":[', b"\xef\xbb\xbf", b"-", b"9" * 400, b"[" * 3000, b'{"a":' * 2000)
    )  # fmt: skip
    return text[:at] + part + text[at:]


def repeat_part(text: bytes, dice: random.Random) -> bytes:
    at = dice.randrange(len(text) + 1)
    return text[:at] + text[at : at + dice.choice((1, 30, 400))] * dice.choice((2, 3, 20)) + text[at:]


def move_part(text: bytes, dice: random.Random) -> bytes:
    one, two, three = sorted(dice.randrange(len(text) + 1) for _ in range(3))
    return text[:one] + text[two:three] + text[one:two] + text[three:]


def encode(text: bytes, dice: random.Random) -> bytes:
    encoding = dice.choice(("utf-16", "utf-16-le", "utf-16-be", "utf-8-sig", "utf-32"))
    return text.decode("utf-8", "replace").encode(encoding)


def append(text: bytes, dice: random.Random) -> bytes:
    return text + dice.choice((b"\0" * 100, b" \n", b"x", b"{}", b"[]", b",", text[:500], text))


TEXT_MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    flip_bits,
    cut,
    remove_part,
    insert_part,
    repeat_part,
    move_part,
    encode,
    append,
)


def _compressed(text: bytes, dice: random.Random) -> tuple[bytes, str]:
    """Gzip, most of it damaged."""
    packed = gzip.compress(text, compresslevel=1, mtime=0)
    name = dice.choice(("whole", "flip_bits", "cut", "remove_part", "append", "members", "twice"))
    if name == "members":
        half = len(text) // 2
        packed = gzip.compress(text[:half], 1, mtime=0) + gzip.compress(text[half:], 1, mtime=0)
    elif name == "twice":
        packed = gzip.compress(packed, 1, mtime=0)
    elif name != "whole":
        damage: Callable[[bytes, random.Random], bytes] = globals()[name]
        packed = packed[:2] + damage(packed[2:], dice)
    return packed, f"gzip {name}"


# Sound traces of the kinds that the real ones are not.


def _file(events: list[Event], **more: Any) -> dict[str, Any]:
    devices = [{"id": 0, "name": "NVIDIA H200", "numSms": 132}]
    return {"schemaVersion": 1, "deviceProperties": devices, **more, "traceEvents": events}


def _work(identity: int, at: float, name: str = "gemm", **more: Any) -> list[Event]:
    return [
        op("aten::mm", at, 12, external=identity, dims=[[64, 64], [64, 64]], types=["float", "float"]),
        launch(identity, at + 3, external=identity),
        kernel(name, identity, at + 9, 5.125, **more),
    ]


def _steps() -> dict[str, Any]:
    """Copies, overhead, annotations on the GPU, stacks, memory, a collective, and work before the first step."""
    events = [*_work(90, 500.0), overhead("Buffer Flush", 1010, 15)]
    for number in (1, 2, 3):
        at = 1000.0 * number
        events += [step(number, at, 800), gpu_annotation(f"ProfilerStep#{number}", at + 5, 780)]
        events += _work(number * 10, at + 20)
        nccl = {"Collective name": "allreduce", "In msg nelems": 64, "Group size": 2, "dtype": "Float"}
        events += _work(number * 10 + 1, at + 60, "ncclDevKernel_AllReduce", stream=20, **nccl)
        events += [
            launch(number * 10 + 2, at + 90, name="cudaMemcpyAsync"),
            memcpy(number * 10 + 2, at + 95, 2.5, 4096),
        ]
        events += [launch(number * 10 + 3, at + 98, name="cudaMemsetAsync"), memset(number * 10 + 3, at + 99, 1.25, 64)]
        events.append({**op("train.py(3): step", at + 1, 700, cat="python_function"), "args": {"Python id": number}})
        args = {"Bytes": 512, "Total Allocated": 512, "Total Reserved": 2048, "Device Type": 1, "Device Id": 0}
        events.append(
            {"ph": "i", "cat": "cpu_instant_event", "name": "[memory]", "pid": HOST, "ts": at + 9, "args": args}
        )
    return _file(events)


def _ranks() -> dict[str, Any]:
    """Two ranks in one file, each of which counts from 1."""
    ranks = []
    for pid in (412, 413):
        events = [annotation("step", 1000.0 * number, 100) for number in (1, 2)]
        events += [*_work(1, 1010), *_work(2, 2010, device=pid - 412)]
        labels = {"ph": "M", "name": "process_labels", "pid": pid, "args": {"labels": f"rank {pid - 412}"}}
        ranks += [labels, *({**event, "pid": pid} if event["pid"] == HOST else event for event in events)]
    return _file(ranks, distributedInfo={"backend": "nccl", "rank": 0, "world_size": 2})


def _replays() -> dict[str, Any]:
    """One launch of a CUDA graph, many kernels."""
    events = []
    for number in range(3):
        events.append(launch(number + 1, 100.0 * number, name="cudaGraphLaunch"))
        events += [kernel(f"k{index}", number + 1, 100.0 * number + 9 + 8 * index, 6) for index in range(5)]
    return _file(events)


def _old() -> dict[str, Any]:
    """The categories of PyTorch 1.8, times in strings."""
    names = {"cpu_op": "Operator", "user_annotation": "Operator", "cuda_runtime": "Runtime", "kernel": "Kernel"}
    events = [step(1, 0, 100), *_work(1, 10), step(2, 200, 100), *_work(2, 210)]
    return _file([{**event, "cat": names[event["cat"]], "ts": str(event["ts"])} for event in events])


def _without_steps() -> dict[str, Any]:
    return _file([*_work(1, 10), *_work(2, 50), kernel("alone", 77, 80, 3)], baseTimeNanoseconds=1790857026000000000)
