"""Events that the reader leaves out, since a value that every such event has is missing or impossible."""

from __future__ import annotations

from collections import Counter, defaultdict

from kinetoscope.trace.events import Damage, DamagedEvent

NO_OBJECT = "of another type than an object"
NO_JSON = "that cannot be decoded"
NO_TIME = "without a time, or with an impossible one"
NO_DURATION = "without a duration, or with an impossible one"
NO_SIZE = "without a size in bytes, or with an impossible one"
NO_PHASE = "without a phase, or with another than the category has"
NO_CATEGORY = "of no known category, with the arguments of GPU work"
MAX_EVENTS = 10
_MAX_NAMES = 1000


class LeftOut:
    """Counts damaged events by reason, and their names."""

    def __init__(self) -> None:
        self._names: dict[str, Counter[str]] = defaultdict(Counter)
        self._events: Counter[str] = Counter()
        self._work: Counter[str] = Counter()

    def add(self, reason: str, name: object, *, is_work: bool, count: int = 1) -> None:
        """Count an event, or several. `is_work`: whether it is GPU work, a call or an operator, or may be."""
        self._events[reason] += count
        self._work[reason] += count * is_work
        names = self._names[reason]
        text = name[:200] if isinstance(name, str) else ""
        if text and (text in names or len(names) < _MAX_NAMES):
            names[text] += 1

    def damage(self, *, has_gpu_work: bool) -> list[Damage]:
        """The damage for each reason, with the most frequent names.

        Without any GPU work that is read, events of unknown categories are another accelerator's, and not damaged.
        """
        return [
            Damage(
                reason,
                "left out",
                count,
                tuple(DamagedEvent(name) for name, _ in self._names[reason].most_common(MAX_EVENTS)),
                self._work[reason],
            )
            for reason, count in self._events.items()
            if has_gpu_work or reason != NO_CATEGORY
        ]
