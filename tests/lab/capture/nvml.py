"""NVML in memory: what a GPU, a MIG slice or a card that supports little answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any


class NotSupported(Exception):
    """As NVMLError_NotSupported."""


@dataclass
class Card:
    """A GPU or a MIG slice; a slice only has `uuid`, `card` and `pids`."""

    uuid: str
    pids: dict[str, list[int]] = field(default_factory=dict)
    """`Compute`, `MPSCompute` or `Graphics` -> pids."""
    slices: Sequence[Card] = ()
    card: Card | None = None
    lacks: str = ""
    """Functions that this card does not support, by a part of their names; `nvml` for all of them."""
    reasons: int = 0x4
    instant_mw: int = 465_250
    nvlinks: Sequence[int] = ()
    """The state of each, 1 for an active one."""


class FakeNvml:
    """The functions of pynvml that `Gpu` and `open_gpu` call."""

    NVML_CLOCK_SM, NVML_CLOCK_MEM, NVML_TEMPERATURE_GPU = 1, 2, 0

    def __init__(self, *cards: Card, names: dict[int, str] | None = None, fails: bool = False) -> None:
        self.cards, self.names, self.fails = cards, names or {}, fails
        self.asked: list[str] = []
        for card in cards:
            for part in card.slices:
                part.card = card

    def nvmlInit(self) -> None:
        if self.fails:
            raise NotSupported("driver not loaded")

    def nvmlDeviceGetCount(self) -> int:
        return len(self.cards)

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Card:
        return self.cards[index]

    def nvmlDeviceGetMaxMigDeviceCount(self, card: Card) -> int:
        return 7

    def nvmlDeviceGetMigDeviceHandleByIndex(self, card: Card, index: int) -> Card:
        if index >= len(card.slices):
            raise NotSupported("not found")
        return card.slices[index]

    def nvmlDeviceGetDeviceHandleFromMigDeviceHandle(self, card: Card) -> Card:
        if card.card is None:
            raise NotSupported("invalid argument")
        return card.card

    def nvmlDeviceGetUUID(self, card: Card) -> str:
        return card.uuid

    def nvmlDeviceGetClockInfo(self, card: Card, kind: int) -> int:
        return self._of_card(card, "ClockInfo", {1: 1650, 2: 2619}[kind])

    def nvmlDeviceGetMaxClockInfo(self, card: Card, kind: int) -> int:
        return self._of_card(card, "MaxClockInfo", {1: 1980, 2: 2619}[kind])

    def nvmlDeviceGetApplicationsClock(self, card: Card, kind: int) -> int:
        return self._of_card(card, "ApplicationsClock", {1: 1755, 2: 2619}[kind])

    def nvmlDeviceGetTemperature(self, card: Card, kind: int) -> int:
        return self._of_card(card, "Temperature", 41)

    def nvmlDeviceGetFieldValues(self, card: Card, ids: list[int]) -> list[Any]:
        self._of_card(card, "FieldValues")
        assert ids == [186]
        return [SimpleNamespace(nvmlReturn=0 if card.instant_mw else 3, value=SimpleNamespace(uiVal=card.instant_mw))]

    def nvmlDeviceGetPowerUsage(self, card: Card) -> int:
        return self._of_card(card, "PowerUsage", 243_580)

    def nvmlDeviceGetTotalEnergyConsumption(self, card: Card) -> int:
        return self._of_card(card, "TotalEnergy", 3_415_562)

    def nvmlDeviceGetCurrentClocksEventReasons(self, card: Card) -> int:
        return self._of_card(card, "EventReasons", card.reasons)

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, card: Card) -> int:
        return self._of_card(card, "ThrottleReasons", card.reasons)

    def nvmlDeviceGetEnforcedPowerLimit(self, card: Card) -> int:
        return self._of_card(card, "PowerLimit", 700_000)

    def nvmlDeviceGetMigMode(self, card: Card) -> list[int]:
        return self._of_card(card, "MigMode", [int(bool(card.slices)), 0])

    def nvmlDeviceGetNvLinkState(self, card: Card, link: int) -> int:
        if link >= len(card.nvlinks):
            raise NotSupported("no such link")
        return card.nvlinks[link]

    def nvmlDeviceGetNvLinkVersion(self, card: Card, link: int) -> int:
        return self._of_card(card, "NvLinkVersion", 6)

    def nvmlDeviceGetEccMode(self, card: Card) -> list[int]:
        return self._of_card(card, "EccMode", [1, 1])

    def nvmlDeviceGetPersistenceMode(self, card: Card) -> int:
        return self._of_card(card, "Persistence", 0)

    def nvmlSystemGetDriverVersion(self) -> str:
        return "580.159.04"

    def nvmlDeviceGetComputeRunningProcesses(self, card: Card) -> list[Any]:
        return self._processes(card, "Compute")

    def nvmlDeviceGetMPSComputeRunningProcesses(self, card: Card) -> list[Any]:
        return self._processes(card, "MPSCompute")

    def nvmlDeviceGetGraphicsRunningProcesses(self, card: Card) -> list[Any]:
        return self._processes(card, "Graphics")

    def nvmlSystemGetProcessName(self, pid: int) -> str:
        if pid not in self.names:
            raise NotSupported("not found")
        return self.names[pid]

    def _processes(self, card: Card, kind: str) -> list[Any]:
        self._support(card, kind)
        return [SimpleNamespace(pid=pid) for pid in card.pids.get(kind, [])]

    def _of_card(self, card: Card, question: str, answer: Any = None) -> Any:
        assert card.card is None, "a slice has no sensors or settings of its own"
        self.asked.append(question)
        self._support(card, question)
        return answer

    def _support(self, card: Card, question: str) -> None:
        if card.lacks and (card.lacks == "nvml" or card.lacks in question):
            raise NotSupported(question)
