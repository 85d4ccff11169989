"""Data of probes, and of experiments that only Hopper runs."""

from typing import Any

from snippets.lab.finding import Figure, NotRecorded, NotTimed, Run, ratio_of_pairs
from snippets.lab.recording.schema import Timing

HOPPER = "9.0"
"""Its compute capability."""


def on_hopper(run: Run) -> Run:
    """A run of kernels that are written for Hopper. Raises `NotTimed` on another GPU."""
    environment = (run if run.is_recorded else run.device["fused_mlp/eager"]).environment
    if environment.compute_capability != HOPPER:
        raise NotTimed(
            f"these kernels need Hopper (compute capability {HOPPER}); the {run.device.short_name} has "
            f"{environment.compute_capability} and takes the portable ones"
        )
    return run


def probed(run: Run, *keys: str) -> Any:
    """The value that a probe returned below these keys. Raises `NotTimed` if a key is missing."""
    value: Any = run.data
    for key in keys:
        if key not in value:
            raise NotTimed(f"{run.id} has no {key!r}; make record CHAPTER=fused_mlp")
        value = value[key]
    return value


def probe_timing(run: Run, *keys: str) -> Timing:
    """The samples that a probe returned. Raises `NotRecorded` if the machine lacked a required package."""
    require_packages(run)
    return Timing.from_samples(probed(run, *keys))


def require_packages(run: Run) -> None:
    """Raise `NotRecorded` if the machine lacked a package that the probe compares with."""
    if "missing" in run.data:
        raise NotRecorded(f"{run.id} was recorded without a package that it compares with: {run.data['missing']}")


def probe_ratio(run: Run, *keys: str) -> Figure:
    """Ratio of two variants that a probe timed interleaved, in pairs: the last two keys, below the others."""
    *part, upper, lower = keys
    origin = f"{run.id}, {', '.join(part)}: {upper} over {lower}, interleaved, in pairs"
    return ratio_of_pairs(probe_timing(run, *part, upper), probe_timing(run, *part, lower), origin)
