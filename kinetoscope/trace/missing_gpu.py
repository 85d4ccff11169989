"""Why a trace has no kernels, as far as the rest of the trace tells."""

from __future__ import annotations

from functools import lru_cache

from kinetoscope.trace.events import Trace

_ACTIVITY = "ProfilerActivity.CUDA among the activities"
_DOCTOR = "the command doctor names the cause on the machine that recorded"


def why_no_kernels(trace: Trace) -> str:
    """A sentence for a trace without kernels: the likely reasons, and what to check."""
    launches = sum(is_launch(call.name) for call in trace.calls)
    if launches:
        return (
            f"no GPU kernels, though the trace has {launches:,} launch{'es' * (launches != 1)}: the GPU's events are "
            "lost. Maybe the driver lets no user profile (CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: load it with "
            "NVreg_RestrictProfilingToAdminUsers=0), another profiler has the GPU, or the profile ended before the GPU "
            f"did (torch.cuda.synchronize() first); {_DOCTOR}"
        )
    if trace.activities:
        return "no kernels: the GPU only copied and filled memory"
    if trace.unread:
        return "no GPU kernels that are read: a trace of another accelerator?"
    if trace.calls or trace.devices:
        known = f"the trace names {trace.device}" if trace.device else "the trace has CUDA calls"
        return (
            f"no GPU kernels and no launch, though {known}; check: {_ACTIVITY}; that warm-up did not swallow the "
            f"steps; that model and data are on the GPU; {_DOCTOR}"
        )
    return (
        "no GPU kernels, no CUDA call and no GPU in this trace: from a machine without a GPU, from a PyTorch without "
        f"CUDA, or only the CPU was recorded; on a GPU check: {_ACTIVITY}; that warm-up did not swallow the steps; "
        f"{_DOCTOR}"
    )


@lru_cache(maxsize=4096)
def is_launch(call_name: str) -> bool:
    """Whether a call puts kernels on the GPU: `cudaLaunchKernelExC`, `hipExtModuleLaunchKernel`, `cuGraphLaunch`."""
    if not call_name.startswith(("cu", "hip")):
        return False
    return "GraphLaunch" in call_name or ("Launch" in call_name and "Kernel" in call_name)
