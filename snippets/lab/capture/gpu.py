"""NVML's report about the GPU that torch uses: clocks, power, energy, throttling, processes.

NVML is optional. Without it, or if a card does not support a question, the answer is 0 or empty.
"""

from __future__ import annotations

import importlib
import os
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import torch

THROTTLE = {
    0x001: "idle",
    0x002: "application clocks",
    0x004: "power cap",
    0x008: "hardware slowdown",
    0x010: "sync boost",
    0x020: "thermal",
    0x040: "hardware thermal",
    0x080: "power brake",
    0x100: "display clocks",
    0x200: "board limit",
    0x400: "reliability",
}
"""Bits of nvmlDeviceGetCurrentClocksEventReasons, in words."""
POWER_INSTANT = 186
"""NVML_FI_DEV_POWER_INSTANT: nvmlDeviceGetPowerUsage averages over a second on most cards."""
STATES = ("disabled", "enabled")
NVLINK = {1: "1.0", 2: "2.0", 3: "2.2", 4: "3.0", 5: "3.1", 6: "4.0", 7: "5.0", 8: "6.0"}
"""nvmlNvlinkVersion_t: the numbers of NVLink's versions."""
MAX_NVLINKS = 36


@dataclass(frozen=True)
class Reading:
    """One reading of NVML; 0 or empty if the card does not answer."""

    clock_mhz: float = 0.0
    """The multiprocessors' clock."""
    watts: float = 0.0
    joules: float = 0.0
    """Energy counter since the driver was loaded: subtract two readings. 0 if the reading left it out."""
    throttle: tuple[str, ...] = ()
    """Reasons for a lowered clock, such as `power cap`."""


class Gpu:
    """A GPU as NVML sees it, or no GPU: then every number is 0. No method raises.

    A MIG slice has its own UUID and processes; its sensors and settings are those of the whole card.
    """

    def __init__(self, nvml: Any = None, handle: Any = None) -> None:
        self._nvml, self._handle = nvml, handle
        self._card = self._ask(handle, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
        self.uuid: str = self._ask("", "nvmlDeviceGetUUID", handle)

    def __bool__(self) -> bool:
        return bool(self.uuid)

    def reading(self, energy: bool = True) -> Reading:
        """Clock, power, throttle reasons and energy now, without CUDA.

        On an H200, the energy counter takes 3 ms and the others 20 us: between short samples, leave it out.
        """
        reasons = self._of_card(None, "nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:  # a driver before 535
            reasons = self._of_card(0, "nvmlDeviceGetCurrentClocksThrottleReasons")
        return Reading(
            clock_mhz=float(self._of_card(0, "nvmlDeviceGetClockInfo", self._constant("NVML_CLOCK_SM"))),
            watts=self._milliwatts() / 1e3,
            joules=self._of_card(0, "nvmlDeviceGetTotalEnergyConsumption") / 1e3 if energy else 0.0,
            throttle=throttle_words(reasons),
        )

    def processes(self) -> dict[int, str]:
        """Compute, MPS and graphics processes on this GPU: pid -> program without folder or arguments."""
        found: dict[int, str] = {}
        for kind in ("Compute", "MPSCompute", "Graphics"):
            for process in self._ask([], f"nvmlDeviceGet{kind}RunningProcesses", self._handle):
                name = self._ask("", "nvmlSystemGetProcessName", process.pid)
                found[int(process.pid)] = program_name(name)
        return found

    def circumstances(self) -> dict[str, Any]:
        """Fields of `Environment`: driver, power_limit_w, mig, ecc, persistence and clocks."""
        mig = self._of_card((None, None), "nvmlDeviceGetMigMode")[0]
        if mig is None and self:
            mig = 0  # a card without MIG answers "not supported"
        return {
            "driver": self._ask("", "nvmlSystemGetDriverVersion"),
            "power_limit_w": self._of_card(0, "nvmlDeviceGetEnforcedPowerLimit") / 1e3,
            "mig": state(mig),
            "ecc": state(self._of_card((None, None), "nvmlDeviceGetEccMode")[0]),
            "persistence": state(self._of_card(None, "nvmlDeviceGetPersistenceMode")),
            "clocks": {name: value for name, value in self._clocks().items() if value},
        }

    def nvlink(self) -> str:
        """`NVLink 4.0, 18 links`, the active ones; empty without NVLink."""
        active = [each for each in range(MAX_NVLINKS) if self._of_card(0, "nvmlDeviceGetNvLinkState", each) == 1]
        if not active:
            return ""
        version = self._of_card(0, "nvmlDeviceGetNvLinkVersion", active[0])
        return f"NVLink {NVLINK.get(version, '')}".rstrip() + f", {len(active)} link{'s' * (len(active) > 1)}"

    def _clocks(self) -> dict[str, float]:
        questions = {"": "ClockInfo", "max_": "MaxClockInfo", "application_": "ApplicationsClock"}
        kinds = {"sm": self._constant("NVML_CLOCK_SM"), "memory": self._constant("NVML_CLOCK_MEM")}
        clocks = {
            f"{prefix}{kind}_mhz": float(self._of_card(0, f"nvmlDeviceGet{question}", number))
            for prefix, question in questions.items()
            for kind, number in kinds.items()
        }
        celsius = self._of_card(0, "nvmlDeviceGetTemperature", self._constant("NVML_TEMPERATURE_GPU"))
        return {**clocks, "power_w": self._milliwatts() / 1e3, "temperature_c": float(celsius)}

    def _milliwatts(self) -> float:
        for value in self._of_card([], "nvmlDeviceGetFieldValues", [POWER_INSTANT]):
            if value.nvmlReturn == 0 and value.value.uiVal:
                return float(value.value.uiVal)
        return float(self._of_card(0, "nvmlDeviceGetPowerUsage"))

    def _of_card(self, default: Any, name: str, *arguments: Any) -> Any:
        return self._ask(default, name, self._card, *arguments)

    def _constant(self, name: str) -> Any:
        return getattr(self._nvml, name, None)

    def _ask(self, default: Any, name: str, *arguments: Any) -> Any:
        """The answer, or `default` if a card, its driver or this NVML has none."""
        if self._nvml is None:
            return default
        try:
            return getattr(self._nvml, name)(*arguments)
        except Exception:  # not supported, no permission, unknown function, a name that is not UTF-8
            return default


def open_gpu(nvml: Any = None, visible: str | None = None, torch_uuid: Callable[[], str] | None = None) -> Gpu:
    """The GPU of this process: torch's, once torch uses CUDA; before that, the first of CUDA_VISIBLE_DEVICES.

    Without NVML, `bool(gpu)` is False and its readings are 0. CUDA counts the fastest card first and NVML goes by slot:
    in a machine with different cards, only a UUID, or a process in which torch uses CUDA, identifies the card.
    """
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES", "0") if visible is None else visible
    try:
        nvml = nvml or importlib.import_module("pynvml")
        nvml.nvmlInit()
        uuid = (torch_uuid or _torch_uuid)()
        return Gpu(nvml, _find_handle(nvml, uuid or chosen.split(",")[0].strip()))
    except Exception:  # no package, no library, no driver, no such GPU
        return Gpu()


def open_gpus(count: int, nvml: Any = None, visible: str | None = None) -> list[Gpu]:
    """The first `count` GPUs of CUDA_VISIBLE_DEVICES, in a process that has not used CUDA; without NVML, no GPUs."""
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES") if visible is None else visible
    names = chosen.split(",") if chosen else [str(index) for index in range(count)]
    if count == 1:
        return [open_gpu(nvml, visible)]
    return [open_gpu(nvml, name.strip(), str) for name in names[:count]]


def _torch_uuid() -> str:
    """The bare UUID of torch's GPU, or of its MIG slice; empty before torch uses CUDA."""
    if not torch.cuda.is_initialized():
        return ""
    return str(torch.cuda.get_device_properties(torch.cuda.current_device()).uuid)


def _find_handle(nvml: Any, chosen: str) -> Any:
    """The GPU or MIG slice with an index or a UUID, which may lack its prefix or its end."""
    cards = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
    if chosen.isdigit() and int(chosen) < len(cards):
        return next(iter(_slices(nvml, cards[int(chosen)])), cards[int(chosen)])
    everything = [handle for card in cards for handle in (card, *_slices(nvml, card))]
    for handle in everything if chosen else []:
        uuid = nvml.nvmlDeviceGetUUID(handle)
        if uuid.startswith(chosen) or uuid.removeprefix("GPU-").removeprefix("MIG-") == chosen:
            return handle
    raise LookupError(chosen)


def _slices(nvml: Any, card: Any) -> list[Any]:
    """The MIG slices of a card; empty for a card without MIG, or with MIG disabled."""
    slices = []
    try:
        for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(card) if nvml.nvmlDeviceGetMigMode(card)[0] else 0):
            slices.append(nvml.nvmlDeviceGetMigDeviceHandleByIndex(card, index))
    except Exception:  # not supported, or fewer slices than the card could have
        return slices
    return slices


def throttle_words(reasons: int) -> tuple[str, ...]:
    """The set bits in words; an unknown bit becomes `reason 0x800`."""
    bits = [1 << index for index in range(reasons.bit_length()) if reasons >> index & 1]
    return tuple(THROTTLE.get(bit, f"reason 0x{bit:x}") for bit in bits)


def program_name(command: str) -> str:
    """`/usr/bin/python3 train.py` -> `python3`, without folders and arguments, which may contain names of users and
    projects."""
    words = command.split()
    return re.split(r"[/\\]", words[0])[-1] if words else "unknown"


def state(value: int | None) -> str:
    """`disabled`, `enabled`, or empty if unknown."""
    return "" if value is None else STATES[bool(value)]


def others_by_pid(gpu: Gpu, ours: set[int], alive: Callable[[int], bool] | None = None) -> dict[int, str]:
    """Processes on the GPU that are neither `ours` nor in a session led by one of ours, by pid.

    `ours` are pids that use the GPU; empty before the first worker starts. In a container, some drivers return pids of
    the host. Such a pid does not exist here, so its owner is unknown: as many of them count as ours as NVML fails to
    list of `ours`, and only the rest are others.
    """
    found = gpu.processes()
    foreign = {pid: name for pid, name in found.items() if pid not in ours and _session(pid) not in ours}
    hidden = [pid for pid in sorted(foreign) if not (alive or _is_alive)(pid)]
    for pid in hidden[: len(ours - found.keys())]:
        del foreign[pid]
    return foreign


def others(gpu: Gpu, ours: Iterable[int]) -> tuple[str, ...]:
    """Names of the processes of `others_by_pid`, sorted, as `Environment.other_processes` keeps them."""
    return tuple(sorted(others_by_pid(gpu, set(ours)).values()))


def _session(pid: int) -> int:
    """The session of a process. A worker leads its own, which includes the processes that it starts."""
    try:
        return os.getsid(pid)
    except OSError:
        return -1


def _is_alive(pid: int) -> bool:
    """Whether a process with this pid exists here, also if it is another user's."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
