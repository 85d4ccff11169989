"""Hand-made results of the chapter's probes: compilations, idle gaps, new shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.chapters.altered import AlteredDevice

FAST, SLOW = (24576, 128), (49152, 256)


def trial(*compilations: tuple[tuple[int, int], float], logs: Mapping[str, float] | None = None) -> dict[str, Any]:
    """The data of `tuned` for a trial, from (blocks, threads) and microseconds of each compilation."""
    return {
        "grid": [[launch[0], 1, 1] for launch, _ in compilations],
        "block": [[launch[1], 1, 1] for launch, _ in compilations],
        "fused_us": [us for _, us in compilations],
        "benchmark_us": [logs or {} for _ in compilations],
    }


LOGS = {"1024 elements, 4 warps": 1000.0, "512 elements, 8 warps": 90.0}
DEFAULT = ((SLOW, 60.0), (FAST, 40.0), (SLOW, 62.0), (SLOW, 61.0))
TUNED = {
    **trial(*DEFAULT, logs=LOGS),
    "trials": {
        "room": trial((FAST, 40.0), (FAST, 41.0), logs={"1024 elements, 4 warps": 65.0, "512 elements, 8 warps": 85.0}),
        "coordinate_descent_tuning": trial((SLOW, 60.0), ((12288, 128), 39.0)),
        "autotune_pointwise=False": trial((FAST, 40.0)),
    },
    "while_tuning": {
        "default": {"Memcpy HtoD (Pinned -> Device)": {"count": 57, "median_us": 950.0}},
        "room": {"triton_poi_fused_0": {"count": 57, "median_us": 40.0}},
    },
    "forward_us": {
        "24576x1x1, 128x1x1": [200.0, 202.0, 204.0],
        "49152x1x1, 256x1x1": [220.0, 222.0, 224.0],
        "eager": [240.0, 242.4, 244.8],
        "Liger": [210.0, 212.0, 214.0],
    },
}
IDLE = {
    "cycles": [0, 500],
    "after": {
        work: [
            {"before_us": [60.0, 60.0, 60.0], "gap_us": [1.0, 1.0, 1.0], "up_us": [us, us + 2, us + 1]},
            {"before_us": [60.0, 60.0, 60.0], "gap_us": [50.0, 50.0, 50.0], "up_us": [50.0, 51.0, 52.0]},
        ]
        for work, us in (("gate", 60.0), ("small result", 58.0), ("fill", 50.0))
    },
}
SHAPES = {
    "dynamo": {
        "one": {
            "batches": [64, 32, 16, 48, 1],
            "graphs": [1, 2, 2, 2, 3],
            "in_graphs": [1, 2, 3, 4, 5],
            "warnings": [0],
        },
        "marked": {"batches": [64, 32], "graphs": [1, 1], "in_graphs": [1, 2], "warnings": [0]},
        "static": {
            "batches": [*range(2, 14)],
            "graphs": [*range(1, 9), 8, 8, 8, 8],
            "in_graphs": [*range(1, 9), 8, 8, 8, 8],
            "warnings": [1],
        },
    },
    "reshape": {
        "contiguous": {"ops": ["aten::reshape", "aten::view"], "activities": []},
        "transposed": {"ops": ["aten::reshape", "aten::clone", "aten::copy_"], "activities": ["copy"]},
    },
}


def probed() -> AlteredDevice:
    """The device with hand-made results of its probes."""
    device = AlteredDevice()
    device.record("mlp/tuned", data=TUNED)
    device.data("mlp/new_shapes", **SHAPES)
    device.record("mlp/after_idle", data=IDLE)
    return device
