"""Recordings whose numbers are made up: each takes what one claim is about, everything else stays beside its band."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from snippets.fused_mlp.experiments.subjects import SHAPES
from snippets.fused_mlp.findings import activation, calls, few_tokens, quack, shapes
from snippets.fused_mlp.findings.launching import ALONE, EARLY, LATE
from snippets.fused_mlp.findings.shapes import shape_name
from tests.chapters.altered import AlteredDevice
from tests.chapters.fused_mlp.verdicts import THIN, WIDE, point_of, put, thrice

LARGE, MIDDLE, SMALL = (-7.97, -4.0), (-1.99, -1.0), (-0.996, -0.5)
ROW = {
    "capability": 80, "kernel": "gate_up", "tiles": "128x64x64, 3 stages", "instruction": "HMMA",
    "copies": 24, "registers": 136, "spills": 0, "shared_bytes": 65_536,
}  # fmt: skip


def errors(device: AlteredDevice, right: float = 2e-3, rough: float = 250.0) -> None:
    """Three stretches of negative inputs, whose errors grow with their size, and one of positive inputs."""
    exact = [[*LARGE, right], [*MIDDLE, right / 10], [*SMALL, right / 100], [0.5, 0.996, right / 100]]
    wrong = [[*LARGE, rough], [*MIDDLE, 0.51], [*SMALL, 0.5], [0.5, 0.996, 0.9]]
    forms = {name: wrong if name.startswith("rough") else exact for name in activation.FORMS}
    put(device, "activation_errors", forms=forms)


def compiled(device: AlteredDevice, *changed: dict[str, Any]) -> None:
    """What was compiled for other GPUs, a row for each."""
    rows = [list((ROW | each).values()) for each in changed]
    put(device, "architectures", columns=list(ROW), rows=rows, limits={"80": 166_912, "90": 232_448})


def ampere_code(device: AlteredDevice, error: float = 2e-3, old_us: float = 140.0) -> None:
    sizes = {"77x264x344": {"error": error, "eager_error": 2e-3}, "8x8x8": {"error": 1e-3, "eager_error": 2e-3}}
    interleaved = thrice({"code for 8.0": old_us, "own code": 100.0})
    put(device, "ampere_code", tiles="64x32x64, 3 stages", interleaved=interleaved, errors=sizes)


def enqueued(device: AlteredDevice, **changed_us: float) -> None:
    times_us = {
        calls.EAGER: 68.0, calls.EMPTY: 20.0, calls.BY_TRITON: 120.0, calls.LAUNCHES: 12.0, calls.OPERATOR: 30.0,
        calls.WHOLE: 40.0,
    }  # fmt: skip
    names = {"triton": calls.BY_TRITON, "operator": calls.OPERATOR, "empty": calls.EMPTY}
    put(device, "enqueued", **thrice(times_us | {names[name]: us for name, us in changed_us.items()}))


def few(
    device: AlteredDevice,
    one_us: float = 97.0,
    sixteen_us: float = 106.0,
    steady_us: float = 97.0,
    watts: float = 500.0,
) -> None:
    """The others take 100 us for one token, 110 for 16, and steady always 100 at 500 W."""
    names = few_tokens.VARIANTS.values()
    both_us = {1: (100.0, one_us), 16: (110.0, sixteen_us), 4: (105.0, 105.0), 64: (150.0, 150.0)}
    interleaved = {
        str(tokens): thrice(dict.fromkeys(names, us) | {"fused": ours_us}) for tokens, (us, ours_us) in both_us.items()
    }
    steady = dict.fromkeys(names, sensed(100.0, 1980.0, 500.0)) | {"fused": sensed(steady_us, 1980.0, watts)}
    put(device, "few_tokens", interleaved=interleaved, steady=dict.fromkeys(few_tokens.STEADY_TOKENS, steady))


def sensed(us: float, clock_mhz: float | None = 1500.0, watts: float = 700.0) -> dict[str, Any]:
    """A steady time, with its clock and power."""
    return {"samples_us": [us] * 3, "clock_mhz": clock_mhz, "watts": watts}


def steps(first_us: float, second_starts_us: float) -> list[list[list[float]]]:
    """Five equal steps of two kernels."""
    return [[[-8.0, 0.0, first_us], [50.0, second_starts_us, second_starts_us + 60.0]]] * 5


def launches(device: AlteredDevice, rested_us: float = 100.0, early_us: float = 100.0, alone_us: float = 130.0) -> None:
    """Traces after a rest, and after a load: launched early, one after the other (100 us), and alone."""
    rested = {
        EARLY: steps(rested_us, rested_us), LATE: steps(rested_us, rested_us + 2), ALONE: [[[-8.0, 0.0, rested_us]]] * 5
    }  # fmt: skip
    loaded = {EARLY: steps(early_us, early_us - 10), LATE: steps(100.0, 102.0), ALONE: [[[-8.0, 0.0, alone_us]]] * 5}
    variants = (EARLY, LATE, ALONE)
    timed = {"interleaved": thrice(dict.fromkeys(variants, 170.0)), "steady": dict.fromkeys(variants, sensed(190.0))}
    put(device, "launches", **timed, rested=rested, loaded=loaded)


# Tables of shapes


def put_rows(
    device: AlteredDevice, ours_us: Mapping[shapes.Shape, float], dtype: str = "bfloat16", ours_joules: float = -1.0
) -> None:
    """A table in which the others take 100 us, Liger 99, in every row. With an energy each step takes a hundredth
    longer steady, and a joule, ours as many as given."""
    peers = [(f"{dtype}_{name}", name) for name in shapes.PEERS_OF[dtype].values()]
    for experiment, name in (*peers, ("bfloat16_portable", "portable")):
        steady = {"joules": ours_joules if name == "fused" else 1.0} if ours_joules >= 0 else {}
        points = [
            point_of(shape, {"fused": us, "liger": 99.0, "portable": 70.0}.get(name, 100.0), **steady)
            for shape, us in ours_us.items()
        ]
        put(device, experiment, *points)


def put_steady_rows(device: AlteredDevice, ours_joules: float, thin_us: float = 98.0) -> None:
    for dtype in shapes.DTYPES:
        put_rows(device, {WIDE: 33.0, THIN: thin_us}, dtype, ours_joules)


# Beside QuACK


def beside_quack(device: AlteredDevice, untuned: float = 1.0, tuned: float = 1.0) -> None:
    """Its times as parts of ours."""
    parts = {"fused": 1.0, "quack": untuned, "quack tuned": tuned}
    both = {name: [100.0 * part, 110.0 * part, 120.0 * part] for name, part in parts.items()}
    steady = {name: sensed(100.0 * part) for name, part in parts.items()}
    device.record("fused_mlp/quack", data={"forward": both, "gate_up": both, "steady": steady})


def times_of(ours_us: float, steady_us: float) -> dict[str, Any]:
    """The probe's data for a shape at which QuACK takes 110 us, tuned 100."""
    times = {"fused": ours_us, "quack": 110.0, "quack tuned": 100.0}
    steady = {name: {"samples_us": [us] * 3} for name, us in (times | {"fused": steady_us}).items()}
    return {"forward": thrice(times), "steady": steady}


def put_shapes(device: AlteredDevice, **of: dict[str, Any]) -> None:
    """Every shape of the table, ours ahead by 10 % where it claims to be, else behind by 5 %."""
    data = {
        shape_name(shape): times_of(90.0, 91.0) if shape in quack.OURS_AHEAD else times_of(102.0, 105.0)
        for shape in SHAPES
    }
    device.record("fused_mlp/quack_shapes", data={"version": "1.2.3", **data, **of})


def put_tiles(device: AlteredDevice, fused_us: float = 100.0, shared_mhz: float | None = 1420.0) -> None:
    """With 128x128 and nothing shared, QuACK's takes 100 us, shared 99 % of that. Interleaved, all take 5 us less. All
    run at 1400 MHz, or at `shared_mhz` if they share."""
    alone_us = {"128x192": 98.0, "128x128": 100.0, "fused": fused_us}
    shared_us = {f"{name}, shared": 0.99 * us for name, us in alone_us.items() if name != "fused"}
    times_us = alone_us | shared_us
    steady = {name: sensed(us, shared_mhz if name in shared_us else 1400.0) for name, us in times_us.items()}
    turns = thrice({name: us - 5 for name, us in times_us.items()})
    device.record("fused_mlp/quack", data={"tiles": {"forward": turns, "steady": steady}})
