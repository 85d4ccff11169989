"""The articles' claims about compilations, and about the guards of compiled code."""

from __future__ import annotations

from kinetoscope.trace.events import Step
from snippets.fact_check.findings.sources import ANYWHERE, digest
from snippets.lab.finding import Device, Figure, at_least, claim, equals, matches
from snippets.lab.finding.measure import derived
from snippets.mlp.findings.fusion import compilations, recompiled
from snippets.mlp.findings.steps import launch_size, matmul_shapes, pointwise


@claim("FC9", at_least(1), source=digest("the compiler might need to rebuild"))
def may_rebuild(device: Device) -> Figure:
    """If the batch size changes, torch.compile might compile again: of three new sizes, at least one compiles."""
    changed = int(recompiled(device, "automatic").split()[0])
    return Figure(changed, origin="mlp/new_shapes", display=recompiled(device, "automatic"))


@claim("FC10", equals("1, then 0 of 3"), source=digest("consistent across changing input sizes without recompiling"))
def liger_never_rebuilds(device: Device) -> Figure:
    """Liger's kernel handles changing batch sizes without a new compilation: the first call compiles once, and calls
    with three new sizes compile nothing."""
    first = compilations(device, "liger")[0]
    return Figure(f"{first}, then {recompiled(device, 'liger')}", origin="mlp/new_shapes")


@claim("FC11", equals(0), source=digest("pre-built package rather than compiled on the user's machine"))
def compiled_for_liger(device: Device) -> Figure:
    """Liger's kernel comes pre-built and is not compiled on the user's machine.

    Liger's package contains Triton source code in a pinned version. Triton compiles this code at the first call, in the
    user's process, and keeps the result. Liger's layer needs no tracing and no guards, so its first call still takes
    less time than that of torch.compile. For a first call without compiling, ship a compiled CUDA kernel or a warm
    cache."""
    return Figure(compilations(device, "liger")[0], origin="mlp/new_shapes, the first call")


@claim(
    "FC53",
    matches(r"(\d+) blocks for \1 rows; (\d+) blocks for \2 rows"),
    source=digest("picking its launch settings from the data it receives", ANYWHERE),
)
def blocks_of_liger(device: Device) -> Figure:
    """Liger's kernel picks its launch settings from the data it receives: for an input of 8192 rows, it starts one
    block per row, with 3072 columns and with 4096."""

    def launch(step: Step) -> str:
        return f"{launch_size(pointwise(step)[0])[0]} blocks for {matmul_shapes(step)[0][0]} rows"

    narrow, wide = (device[name].per_step(launch) for name in ("mlp/liger", "mlp/liger_4096"))
    return derived(f"{narrow.value}; {wide.value}", narrow, wide)


@claim("FC54", equals(0), source=digest("checking guards each time conditions change", ANYWHERE))
def lookups_without_a_change(device: Device) -> Figure:
    """A compiled model checks its guards each time conditions change. Counted here: lookups in Dynamo's cache in a
    compiled step whose input is like the previous input.

    Dynamo has to check the guards at every call to know that nothing changed. So each call looks for a compiled version
    whose guards hold, and a change can also cause a new compilation. Liger's layer has neither guards nor
    recompilations, so what the article says about Liger is right. To see what the checks cost, look for TorchDynamo
    Cache Lookup in a step."""
    lookups = device["mlp/compiled"].per_step(
        lambda step: sum(op.name == "TorchDynamo Cache Lookup" for op in step.ops)
    )
    return derived(lookups.value, lookups, display=f"{lookups.text} in each step")
