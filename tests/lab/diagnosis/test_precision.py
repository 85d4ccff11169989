"""What is right and what is false of all that the rules find in our recordings and in the public traces: counted."""

from __future__ import annotations

from collections import Counter
from functools import cache
from statistics import median, quantiles

import pytest

from kinetoscope.diagnosis.facts import SLOWDOWN
from kinetoscope.diagnosis.rules import RULES
from snippets.lab.recording.loading import load_recording
from tests.tool.diagnosis.recorded import DEVICES, found_in
from tests.tool.recorded import RECORDINGS, experiments
from tests.tool.trace.public import needs_public_traces

LAUNCHES, FIRST, WAITS, SLOW_CPU = "launch-bound", "first-step", "sync-in-step", "slow-cpu-code"
ATTENTION, COPIES, FUSING = "unfused-attention", "needless-copies", "unfused-elementwise"
UNITS, PRODUCTS, LAYOUT, TINY = "no-tensor-cores", "slow-products", "layout-conversions", "tiny-kernels"
EXPOSED, ALLOCATOR, ALONE = "exposed-communication", "allocator-in-step", "exposed-copies"
LOADER, PAGEABLE, OPTIMIZER, RECOMPILES = "loader-stall", "pageable-copies", "optimizer-loop", "recompiles"
BREAKS = "graph-breaks"
PROFILER, TYPES = "profiler-overhead", "type-round-trips"
CACHE, MAXIMUM, READS = "growing-cache", "cache-maximum", "host-reads"
LOGITS, HEADS, RATE = "prompt-logits", "repeated-heads", "memory-rate"
LATE, SMALL_COPIES = "stragglers", "small-copies"
IDLE = 0.15
"""The GPU waits for launches if, without the profiler, it idles for this share of a step."""
FAULTS = {
    "attention/compiled": {ATTENTION},
    "attention/decode_math": {ATTENTION, FUSING, PRODUCTS},
    "attention/decode_naive": {ATTENTION},
    "attention/in_place": {ATTENTION, FUSING},
    "attention/math": {ATTENTION, FUSING, UNITS},
    "attention/naive": {ATTENTION, COPIES},
    "attention/training_compiled": {ATTENTION},
    "attention/training_efficient": {COPIES},
    "attention/training_flash": {COPIES},
    "attention/training_in_place": {ATTENTION, COPIES, FUSING},
    "attention/training_math": {ATTENTION, FUSING, UNITS},
    "attention/training_naive": {ATTENTION, COPIES, FUSING},
    "decoder/cat_before": {CACHE},
    "decoder/compiled": {TINY},
    "decoder/eager": {FUSING, TINY},
    "decoder/generate": {FUSING, TINY, TYPES},
    "decoder/generate_late": {FUSING, TINY, TYPES},
    "decoder/generate_never": {FUSING, TINY, TYPES},
    "decoder/graph": {FUSING},
    "decoder/int4_after": {FUSING},
    "decoder/item_after": {FUSING},
    "decoder/item_before": {FUSING, READS},
    "decoder/long_cache_after": {FUSING},
    "decoder/long_cache_before": {FUSING, MAXIMUM},
    "decoder/mask_after": {FUSING},
    "decoder/mask_before": {FUSING},
    "decoder/padded_after": {FUSING},
    "decoder/padded_before": {FUSING},
    "decoder/prompt_logits_after": {FUSING},
    "decoder/prompt_logits_before": {FUSING, LOGITS},
    "decoder/repeat_kv_before": {HEADS, RATE},
    "decoder/sampling_after": {FUSING},
    "decoder/sampling_before": {FUSING, PAGEABLE, READS, SLOW_CPU},
    "decoder/static": {FUSING, TINY},
    "fact_check/article_linear": {UNITS},
    "fused_mlp/eager": {FUSING},
    "fused_mlp/pointwise_copy": {COPIES},
    "fused_mlp/pointwise_eager": {FUSING},
    "fused_mlp/training_eager": {FUSING},
    "matmul_add/item_4096": {WAITS},
    "matmul_add/unscheduled": {FIRST},
    "matmul_add/unscheduled_20": {FIRST},
    "mlp/eager": {FUSING},
    "mlp/eager_4096": {FUSING},
    "several_gpus/afterwards_before": {EXPOSED},
    "several_gpus/ddp": {SMALL_COPIES},
    "several_gpus/each_parameter": {EXPOSED},
    "several_gpus/fsdp_ahead": {FUSING},
    "several_gpus/fsdp_kept": {FUSING},
    "several_gpus/fsdp_per_block": {FUSING},
    "several_gpus/fsdp_root_only": {EXPOSED, LATE},
    "several_gpus/item_after": {EXPOSED, SMALL_COPIES},
    "several_gpus/item_before": {EXPOSED, SMALL_COPIES, WAITS},
    "several_gpus/late_small_before": {LATE, SLOW_CPU},
    "several_gpus/mesh_even": {EXPOSED, FUSING, PROFILER},
    "several_gpus/mesh_late": {LATE},
    "several_gpus/no_sync_backward": {EXPOSED},
    "several_gpus/no_sync_before": {EXPOSED},
    "several_gpus/one_bucket": {EXPOSED},
    "several_gpus/one_bucket_before": {EXPOSED},
    "several_gpus/one_queue_before": {EXPOSED},
    "several_gpus/pipeline_2_on_2": {FUSING},
    "several_gpus/pipeline_8_on_2": {FUSING},
    "several_gpus/pipeline_8_on_4": {FUSING},
    "several_gpus/root_only_before": {EXPOSED},
    "several_gpus/tensor_overlapped": {FUSING},
    "several_gpus/tensor_reduced": {EXPOSED, LATE},
    "several_gpus/tensor_sequence": {EXPOSED, LATE},
    "several_gpus/uneven_before": {LATE},
    "trace_rows/copies": {ALONE, COPIES, FUSING, PAGEABLE},
    "trace_rows/first": {FIRST},
    "trace_rows/full_queue": {FUSING, TINY},
    "trace_rows/item": {WAITS},
    "training_memory/autocast": {FUSING},
    "training_memory/bfloat16": {FUSING},
    "training_memory/fp32": {FUSING, UNITS},
    "training_memory/optimizer_foreach": {FUSING},
    "training_memory/optimizer_loop": {FUSING, OPTIMIZER},
    "training_memory/tf32": {FUSING, PRODUCTS},
    "training_step/allocator_before": {ALLOCATOR},
    "training_step/attention_before": {ATTENTION, COPIES, FUSING, TYPES},
    "training_step/cold_after": {FUSING},
    "training_step/cold_before": {FIRST},
    "training_step/breaks_after": {TINY},
    "training_step/breaks_before": {BREAKS, TINY},
    "training_step/healthy": {FUSING},
    "training_step/healthy_stacks": {FUSING},
    "training_step/item_before": {WAITS},
    "training_step/layout_after": {FUSING},
    "training_step/layout_before": {COPIES},
    "training_step/loader_after": {FUSING, PAGEABLE},
    "training_step/loader_before": {LOADER, PAGEABLE},
    "training_step/optimizer_before": {OPTIMIZER, TINY},
    "training_step/pageable_before": {PAGEABLE},
    "training_step/pageable_pinned": {ALONE},
    "training_step/recompile_after": {PAGEABLE},
    "training_step/recompile_before": {PAGEABLE, RECOMPILES},
    "training_step/tensor_cores_before": {UNITS},
    "training_step/tiny_after": {SLOW_CPU},
    "training_step/tiny_before": {TINY},
    "training_step/tiny_compiled": {TINY},
    "training_step/vocabulary_after": {PAGEABLE},
    "training_step/vocabulary_before": {PAGEABLE, PRODUCTS},
}
"""Recording -> the faults in it but slow launching, decided by what it does; no other recording has any.

Of several ranks: communication is exposed if transfers alone, with nothing beside them, take 10 % of an iteration,
without waiting for a rank; a rank is late if it has more work, a late CPU, or a GPU whose same products take longer
(rank 0 of `fsdp_root_only`, `tensor_reduced` and `tensor_sequence`). Views of buckets make `small-copies` of DDP
needless: `ddp_views` is faster than `ddp`. `late_before` delays a CPU, which costs nothing there.
"""
UNTIMED = {
    "decoder/generate",
    "decoder/generate_late",
    "decoder/generate_never",
    "fact_check/article_linear",
    "matmul_add/compiled_64_cold",
    "matmul_add/eager_64_cold",
    "matmul_add/unscheduled",
    "matmul_add/unscheduled_20",
    "regimes/bias_compiled_64",
    "regimes/bias_eager_64",
    "regimes/bias_written_out_64",
    "regimes/overhead_bound",
    "regimes/small_compiled",
    "regimes/small_eager",
    "regimes/small_fused",
    "trace_rows/compiled",
    "trace_rows/first",
    "trace_rows/train",
    "training_step/breaks_after",
    "training_step/breaks_before",
    "training_step/tiny_after",
    "training_step/tiny_before",
    "training_step/tiny_compiled",
}
"""Recordings without times of their GPU work, which is at most a quarter of a step: launching takes longer."""
PUBLIC_FAULTS = {
    "astra_megatron_tp8_rank0": {ATTENTION, EXPOSED, SLOW_CPU},
    "astra_megatron_tp8_rank1": {ATTENTION, EXPOSED},
    "hta_alexnet": {FIRST},
    "hta_cpu_only_rank34": set(),
    "hta_cupti_counters": set(),
    "hta_event_sync_multi_stream": {UNITS, SLOW_CPU},
    "hta_mtia_inference_rank0": set(),
    "hta_nccl_data": {LAUNCHES, SLOW_CPU, SMALL_COPIES, LAYOUT},
    "hta_simple_add": {FIRST},
    "hta_triton_example": set(),
    "kineto_tb_resnet50_workers0": {"loader-stall", UNITS, FUSING, "pageable-copies"},
    "tracelens_b200_eager_trace": {LAUNCHES, TINY, SLOW_CPU},
    "tracelens_h100_Qwen_Qwen1.5-0.5B-Chat": {FUSING, WAITS, COPIES, "type-round-trips"},
    "tracelens_h100_gaunernst_bert-small-uncased": {LAUNCHES},
    "tracelens_inference_sglang_decode_sglang_Qwen3-8B_decode": set(),
    "tracelens_inference_vllm_decode_full_graph_execution": set(),
    "tracelens_mi210_gpu_only_trace_gpu_only_trace": {TINY, LAYOUT},
    "tracelens_mi300_Falconsai_nsfw_image_detection": {LAUNCHES},
    "tracelens_mi300_gaunernst_bert-small-uncased": {LAUNCHES},
    "tracelens_torch_compile_triton_trace": set(),
}
"""Public trace -> the faults in it, by reading it."""
PUBLIC_FALSE = {"hta_event_sync_multi_stream": {ALLOCATOR}}
"""First allocations of a benchmark that nothing marks as warm-up."""


LOOPS = {
    "decoder/cat_after",
    "decoder/cat_before",
    "decoder/compiled",
    "decoder/eager",
    "decoder/graph",
    "decoder/int4_after",
    "decoder/int4_before",
    "decoder/item_after",
    "decoder/joined",
    "decoder/layers",
    "decoder/long_cache_after",
    "decoder/long_cache_before",
    "decoder/mask_after",
    "decoder/mask_before",
    "decoder/max_autotune",
    "decoder/padded_after",
    "decoder/padded_before",
    "decoder/prompt_logits_after",
    "decoder/prompt_logits_before",
    "decoder/reduce_overhead",
    "decoder/repeat_kv_after",
    "decoder/repeat_kv_before",
    "decoder/sampling_after",
    "decoder/static",
    "several_gpus/item_after",
    "several_gpus/item_before",
    "several_gpus/late_small_before",
    "training_memory/autocast",
    "training_memory/autocast_compiled",
    "training_memory/bfloat16",
    "training_memory/bfloat16_compiled",
    "training_memory/fp32",
    "training_memory/optimizer_foreach",
    "training_memory/optimizer_loop",
    "training_memory/tf32",
    "training_step/optimizer_after",
    "training_step/optimizer_before",
    "training_step/optimizer_foreach",
}
"""Loops in which the GPU waits for launches, or for nothing; in `late_small_before` also for a delay of the CPU."""


@cache
def _waits_for_launches(device: str, experiment: str) -> bool | None:
    """Whether the GPU idles without the profiler, by the recorded times; None without times."""
    point = load_recording(RECORDINGS, device, experiment).points[0]
    if point.iteration is not None and experiment in LOOPS:
        return 1 - found_in(device, experiment).gpu_us / point.iteration.median_us >= IDLE
    times = point.timings
    return None if times is None else 1 - times.interleaved.median_us / times.from_python.median_us >= IDLE


@pytest.mark.slow
def test_how_much_the_profiler_lengthens_launching() -> None:
    """Wall time of a step under the profiler over the time of launching it without, where the profiler runs."""
    ratios = []
    for device in DEVICES:
        for experiment in experiments(device):
            times = load_recording(RECORDINGS, device, experiment).points[0].timings
            if times is not None:
                ratios.append(found_in(device, experiment).step_us / times.enqueue.median_us)
    low, *_, high = quantiles(ratios, n=20)
    assert (len(ratios), round(low, 1), round(median(ratios), 1), round(high, 1)) == (166, 1.6, 2.9, 6.7)
    assert sum(ratio >= SLOWDOWN for ratio in ratios) / len(ratios) == pytest.approx(0.80, abs=0.005)


@pytest.mark.slow
def test_the_table() -> None:
    """Of each rule: how often it fired, was right, was false; and what it missed."""
    right: Counter[str] = Counter()
    false: Counter[str] = Counter()
    alarms: list[str] = []
    missed: Counter[str] = Counter()
    for device in DEVICES:
        for experiment in experiments(device):
            faults = set(FAULTS.get(experiment, ()))
            slow = _waits_for_launches(device, experiment)
            faults |= {LAUNCHES} if slow or (slow is None and experiment in UNTIMED) else set()
            fired = set(found_in(device, experiment).savings)
            right.update(fired & faults)
            false.update(fired - faults)
            alarms += [f"{device}/{experiment}" for _ in fired - faults]
            missed.update(faults - fired)
    rows = {
        name: (right[name] + false[name], right[name], false[name], missed[name]) for name in right | false | missed
    }
    for name, counts in sorted(rows.items()):
        print(name, *counts)
    print("false:", *alarms)
    assert rows == ROWS
    assert alarms == FALSE


ROWS = {
    ALLOCATOR: (2, 2, 0, 0),
    ALONE: (3, 3, 0, 1),
    EXPOSED: (21, 14, 7, 0),
    FIRST: (8, 8, 0, 0),
    BREAKS: (2, 2, 0, 0),
    CACHE: (2, 2, 0, 0),
    HEADS: (2, 2, 0, 0),
    LATE: (6, 6, 0, 0),
    LAUNCHES: (126, 106, 20, 9),
    LOADER: (8, 2, 6, 0),
    LOGITS: (0, 0, 0, 2),
    MAXIMUM: (0, 0, 0, 2),
    RATE: (2, 1, 1, 1),
    COPIES: (18, 18, 0, 0),
    UNITS: (10, 10, 0, 0),
    OPTIMIZER: (4, 4, 0, 0),
    PAGEABLE: (8, 8, 0, 10),
    RECOMPILES: (2, 2, 0, 0),
    PROFILER: (1, 1, 0, 0),
    SLOW_CPU: (12, 3, 9, 2),
    SMALL_COPIES: (3, 3, 0, 0),
    PRODUCTS: (6, 6, 0, 0),
    READS: (4, 4, 0, 0),
    WAITS: (7, 7, 0, 0),
    TINY: (24, 24, 0, 0),
    TYPES: (2, 2, 0, 6),
    ATTENTION: (22, 22, 0, 0),
    FUSING: (73, 73, 0, 23),
}
"""Rule -> fired, right, false, missed in our recordings. A rule that is not here never fired, and had no fault to find.

`launch-bound` sees a trace, in which the profiler lengthens launching by a factor that it does not show: taken as 2,
it was 1.6 to 7. The copies that `pageable-copies` missed take 4 to 8 us of a step. What `unfused-elementwise`,
`exposed-copies` and `type-round-trips` missed is below their thresholds, of some token loops only because the profiler
lengthens their steps; or a CUDA graph replays it, and a replay names no operators: `unfused-elementwise` says so for
token loops, and `cache-maximum` finds nothing in two. `prompt-logits` compares a prompt with the tokens after it,
and the loop with this fault reads nothing but prompts. `memory-rate` leaves out 256 sequences on an H200, whose memory
is so fast that FLOPs bound their products; on an H100 it compares reading with attention that runs as a fault's mend.
"""

FALSE = [
    "nvidia-h100-80gb-hbm3/attention/auto",
    "nvidia-h100-80gb-hbm3/attention/cudnn",
    "nvidia-h100-80gb-hbm3/attention/decode_flash",
    "nvidia-h100-80gb-hbm3/attention/decode_naive",
    "nvidia-h100-80gb-hbm3/decoder/repeat_kv_after",
    "nvidia-h100-80gb-hbm3/decoder/sampling_before",
    "nvidia-h100-80gb-hbm3/fused_mlp/fused_compiled",
    "nvidia-h100-80gb-hbm3/fused_mlp/fused_reduce_overhead",
    "nvidia-h100-80gb-hbm3/fused_mlp/pointwise_fused",
    "nvidia-h100-80gb-hbm3/mlp/liger",
    "nvidia-h100-80gb-hbm3/regimes/small_reduce_overhead",
    "nvidia-h100-80gb-hbm3/training_memory/autocast",
    "nvidia-h100-80gb-hbm3/training_memory/autocast_compiled",
    "nvidia-h100-80gb-hbm3/training_step/breaks_after",
    "nvidia-h100-80gb-hbm3/training_step/breaks_before",
    "nvidia-h100-80gb-hbm3/training_step/cold_before",
    "nvidia-h100-80gb-hbm3/training_step/pageable_after",
    "nvidia-h100-80gb-hbm3/training_step/pageable_after",
    "nvidia-h100-80gb-hbm3/training_step/pageable_pinned",
    "nvidia-h100-80gb-hbm3/training_step/pageable_pinned",
    "nvidia-h100-80gb-hbm3/training_step/recompile_after",
    "nvidia-h100-80gb-hbm3/training_step/recompile_after",
    "nvidia-h100-80gb-hbm3/training_step/tiny_compiled",
    "nvidia-h200/attention/cudnn",
    "nvidia-h200/attention/decode_cudnn",
    "nvidia-h200/attention/decode_flash",
    "nvidia-h200/attention/decode_naive",
    "nvidia-h200/decoder/sampling_before",
    "nvidia-h200/fused_mlp/pointwise_fused",
    "nvidia-h200/several_gpus/buckets_in_backward",
    "nvidia-h200/several_gpus/buckets_in_backward",
    "nvidia-h200/several_gpus/late_small_before",
    "nvidia-h200/several_gpus/mesh_late",
    "nvidia-h200/several_gpus/pipeline_2_on_2",
    "nvidia-h200/several_gpus/pipeline_8_on_2",
    "nvidia-h200/several_gpus/pipeline_8_on_4",
    "nvidia-h200/several_gpus/uneven_before",
    "nvidia-h200/training_memory/optimizer_loop",
    "nvidia-h200/training_step/breaks_after",
    "nvidia-h200/training_step/optimizer_after",
    "nvidia-h200/training_step/pageable_after",
    "nvidia-h200/training_step/recompile_after",
    "nvidia-h200/training_step/tiny_compiled",
]
"""False alarms.

Of `launch-bound`: the profiler lengthens these launches 2.7 times or more (in one loop twice: its GPU idles for just
under `IDLE` of an iteration; one loop, with lengths that vary, was not timed without it; in another, the GPU waits
while the CPU draws a token, and hardly for launches), and nothing in a trace says so. We found no other measure that
tells them apart: not GPU work over the median, the shortest or the last step, nor over the time from first to last
launch. Of `memory-rate`: attention reads at 61 % of the datasheet's rate. Of `loader-stall`: two traces have one step,
and not the GPU work of the step before, behind which the loader hides; in three the profiler slows the loader; in one
its workers are still starting. Of `slow-cpu-code`: the profiler, stacks most of all, slows the CPU until the GPU waits
for the wrappers of compiled code, for clipping, for the start of the backward pass, or for the optimizer of one rank.
Of `exposed-communication`: most of it is waiting for a rank that is late or launches slowly, or the bubble of a
pipeline, and transfers alone take less than 10 % of an iteration. One rank's trace cannot tell; a report of all ranks
says so, and gives such a finding the severity of the transfers alone.
"""


@needs_public_traces
@pytest.mark.parametrize("name", PUBLIC_FAULTS)
def test_public_traces(name: str) -> None:
    found = found_in("public", name)
    assert set(found.savings) == PUBLIC_FAULTS[name] | PUBLIC_FALSE.get(name, set())
    assert all(0 < us <= max(found.step_us, found.gpu_us) for us in found.savings.values())


@needs_public_traces
def test_a_trace_of_the_cpu_alone_tells_nothing_of_the_gpu() -> None:
    unknown = found_in("public", "hta_cpu_only_rank34").unknown
    about_tokens = {"cache-maximum", "growing-cache", "host-reads", "memory-rate", "prompt-logits", "repeated-heads"}
    known = {"graph-breaks", "loader-stall", "recompiles"} | about_tokens  # it is no token loop
    assert {rule.name for rule in RULES} - set(unknown) == known


def test_the_trace_that_a_graph_replays_cannot_tell() -> None:
    unknown = found_in("nvidia-h200", "fused_mlp/reduce_overhead").unknown
    assert unknown[PRODUCTS] == ""
