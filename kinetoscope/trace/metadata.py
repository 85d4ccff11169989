"""Top-level members of a trace: its GPUs, its rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from kinetoscope.trace.json_events import JSON_ERRORS

Device = dict[str, Any]
_MAX_RANK, _MAX_BASE_NS, _MAX_PROPERTY = 2**31, 2**62, 2**62


MERGED_RANKS = "mergedRanks"
"""The member of a file that `kinetoscope merge` wrote."""


class Metadata(Struct, frozen=True):
    """The top-level members that kinetoscope uses; a missing member, or one of another type, is empty."""

    devices: tuple[Device, ...] = ()
    rank: int | None = None
    world_size: int | None = None
    base_ns: int = 0
    """The origin of times, in ns since 1970."""
    groups: tuple[tuple[str, tuple[int, ...]], ...] = ()
    """Process groups by name, with the ranks that are their members."""
    members: frozenset[str] = frozenset()
    """The names of all top-level members."""

    @classmethod
    def of(cls, members: Mapping[str, Raw]) -> Metadata:
        """Decode the top-level members of a trace."""
        devices, group = _value(members, "deviceProperties"), _value(members, "distributedInfo")
        group = group if isinstance(group, dict) else {}
        return cls(
            tuple(map(_known, filter(_is_object, devices))) if isinstance(devices, list) else (),
            _integer(group.get("rank"), 0, _MAX_RANK),
            _integer(group.get("world_size"), 1, _MAX_RANK),
            _integer(_value(members, "baseTimeNanoseconds"), 0, _MAX_BASE_NS) or 0,
            tuple(_groups(group.get("pg_config"))),
            frozenset(members),
        )

    def device(self, index: int | None) -> Device:
        """Properties of the GPU with this index in activities; empty if the trace does not tell which GPU that is.

        An index that is not among the trace's ids (`HIP_VISIBLE_DEVICES`) means some GPU of a host whose GPUs all have
        one name.
        """
        return next(self.find_devices([index]))

    def find_devices(self, indices: Iterable[int | None]) -> Iterator[Device]:
        """The properties of several GPUs, as `device` finds each."""
        first = self.devices[0] if self.devices else {}
        known: dict[object, Device] = {}
        for position, device in enumerate(self.devices):
            number = device.get("id", position)
            known.setdefault(number if isinstance(number, int | float | str) else None, device)
        have_one_name = len({repr(device.get("name")) for device in self.devices}) == 1
        other = first if have_one_name else {}
        return (first if index is None else known.get(index, other) for index in indices)


def device_name(device: Device) -> str | None:
    """The name of a GPU, None if its properties have none."""
    name = device.get("name")
    return name if isinstance(name, str) and name else None


def most_used(indices: Iterable[int]) -> int | None:
    """The most frequent index, on a tie the lowest; None without indices."""
    counts: dict[int, int] = {}
    for index in indices:
        counts[index] = counts.get(index, 0) + 1
    return min(counts, key=lambda index: (-counts[index], index), default=None)


def _groups(configs: object) -> Iterator[tuple[str, tuple[int, ...]]]:
    for config in configs if isinstance(configs, list) else ():
        given = config if isinstance(config, dict) else {}
        name, ranks = given.get("pg_name"), given.get("ranks")
        known = [_integer(rank, 0, _MAX_RANK) for rank in ranks] if isinstance(ranks, list) else [None]
        found = tuple(rank for rank in known if rank is not None)
        if isinstance(name, str) and len(found) == len(known):
            yield name, found


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _known(device: Device) -> Device:
    """The properties of a GPU without impossible numbers."""
    return {name: value for name, value in device.items() if not isinstance(value, int) or abs(value) <= _MAX_PROPERTY}


def _value(members: Mapping[str, Raw], key: str) -> Any:
    try:
        return msgspec.json.decode(members[key])
    except (KeyError, *JSON_ERRORS):
        return None


def _integer(value: object, least: int, most: int) -> int | None:
    return value if type(value) is int and least <= value <= most else None
