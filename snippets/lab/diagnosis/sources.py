"""Whose rules these are, and the options that record what a rule needs."""

from __future__ import annotations

NSIGHT = "Nsight Systems, expert systems rules: https://docs.nvidia.com/nsight-systems/AnalysisGuide/index.html"
TENSORBOARD = (
    "TensorBoard's profiler plugin: https://github.com/pytorch/kineto, tb_plugin/torch_tb_profiler/profiler/data.py "
    "before commit 94979607"
)
GPUPROF = "gpuprof 0.7.1: https://pypi.org/project/gpuprof/"
NSYS_AI = "nsys-ai: https://github.com/GindaChen/nsys-ai"
TRACELENS = "TraceLens: https://github.com/AMD-AGI/TraceLens"
MSPROF = "msprof-analyze advisor: https://gitee.com/ascend/mstt, profiler/msprof_analyze"

CPU_AND_GPU = "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
STACKS = "with_stack=True"
SHAPES = "record_shapes=True"
COLLECTOR = "with_stack=True, experimental_config=torch._C._profiler._ExperimentalConfig(record_python_gc_info=True)"
STEPS = "schedule=torch.profiler.schedule(wait=1, warmup=1, active=3), and prof.step() after each iteration"
