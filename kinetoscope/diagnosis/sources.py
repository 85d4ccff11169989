"""The origins of rules, and the profiler options that record what a rule needs."""

from __future__ import annotations

NSIGHT = "Nsight Systems, expert systems rules: https://docs.nvidia.com/nsight-systems/AnalysisGuide/index.html"
TENSORBOARD = (
    "TensorBoard's profiler plugin, removed in 2026: https://github.com/pytorch/kineto/blob/"
    "041e7ce99f15/tb_plugin/torch_tb_profiler/profiler/data.py"
)
GPUPROF = "gpuprof 0.7.1, insights.py: https://pypi.org/project/gpuprof/0.7.1/"
NSYS_AI = "nsys-ai: https://github.com/GindaChen/nsys-ai/blob/main/src/nsys_ai/data/book.md"
PERFESSOR = "Perfessor: https://github.com/kapilsh/perfessor/blob/main/src/utils/recommendationsEngine.js"
TRACELENS = "TraceLens: https://github.com/AMD-AGI/TraceLens/tree/main/TraceLens/Agent/Analysis/category_analyses"
MSPROF = "msprof-analyze 26.2.0, advisor/rules: https://gitcode.com/Ascend/msprof-analyze"
DYNAMIC_CACHE = "transformers 5.17, cache_utils.py (DynamicLayer.update): https://pypi.org/project/transformers/5.17.0/"
STATIC_CACHE = "transformers 5.17, cache_utils.py (StaticLayer): https://pypi.org/project/transformers/5.17.0/"
REPEAT_KV = "transformers 5.17, sdpa_attention.py (repeat_kv): https://pypi.org/project/transformers/5.17.0/"
LOGITS_TO_KEEP = "transformers, logits_to_keep: https://pypi.org/project/transformers/5.17.0/"
GENERATE_SYNCS = "transformers#43089 (3.25 waits per token): https://github.com/huggingface/transformers/issues/43089"
MEMORY_RATE = (
    "How to scale your model, inference (bytes over bandwidth bound a token): "
    "https://jax-ml.github.io/scaling-book/inference/; the factor is this book's"
)
OWN = "this book's own rule"

CPU_AND_GPU = "activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]"
STACKS = "with_stack=True"
SHAPES = "record_shapes=True"
COLLECTOR = "with_stack=True, experimental_config=torch._C._profiler._ExperimentalConfig(record_python_gc_info=True)"
STEPS = "schedule=torch.profiler.schedule(wait=1, warmup=1, active=3), and prof.step() after each iteration"
