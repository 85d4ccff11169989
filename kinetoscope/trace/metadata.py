"""Top-level members of a trace: its GPUs, its rank."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw, Struct

from kinetoscope.trace.json_events import JSON_ERRORS

Device = dict[str, Any]


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
            tuple(device for device in devices if isinstance(device, dict)) if isinstance(devices, list) else (),
            _integer(group.get("rank")),
            _integer(group.get("world_size")),
            _integer(_value(members, "baseTimeNanoseconds")) or 0,
            tuple(_groups(group.get("pg_config"))),
            frozenset(members),
        )

    def device(self, index: int | None) -> Device:
        """Properties of the GPU with this index in activities; empty if the trace does not tell which GPU that is.

        An index that is not among the trace's ids (`HIP_VISIBLE_DEVICES`) means some GPU of a host whose GPUs all have
        one name.
        """
        if index is None:
            return self.devices[0] if self.devices else {}
        ids = [device.get("id", position) for position, device in enumerate(self.devices)]
        if index in ids:
            return self.devices[ids.index(index)]
        names = {repr(device.get("name")) for device in self.devices}
        return self.devices[0] if len(names) == 1 else {}


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
        if isinstance(name, str) and isinstance(ranks, list) and all(isinstance(rank, int) for rank in ranks):
            yield name, tuple(ranks)


def _value(members: Mapping[str, Raw], key: str) -> Any:
    try:
        return msgspec.json.decode(members[key])
    except (KeyError, *JSON_ERRORS):
        return None


def _integer(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
