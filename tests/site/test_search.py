"""The search: the right page first, nothing before it is asked for, and a way on for who does not find."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from playwright.sync_api import expect

from tests.site.conftest import Opened
from tests.site.serving import PAGES, Site

FIRST = {
    "synchronize": "training_step_faults",
    "recompile": "training_step_faults",
    "cudaLaunchKernel": "trace_rows",
    "GELU": "mlp",
    "flash attention": "attention",
    "memory": "training_memory_peak",
    "occupancy": "attention",
    "nvjet": "kernel_names",
    "triton_poi_fused__unsafe_view_gelu_mul_0": "kernel_names",
    "roofline": "linear",
    "cuda graph": "regimes",
    "perfetto": "reading_a_trace",
    "kernel fusion": "mlp",
    # In other words.
    "sync": "training_step_faults",
    ".item()": "training_step_faults",
    "recompilation": "training_step_faults",
    "graph break": "training_step_faults",
    "dataloader": "training_step_faults",
    "out of memory": "training_memory_peak",
    "OOM": "training_memory_peak",
    "gpu utilization": "index",
    "elementwise": "mlp",
    "sdpa": "attention",
    "launch overhead": "regimes",
    "NCCL overlap": "several_gpus",
    "torch.compile": "regimes_compiling",
    "bfloat16": "linear",
    "generate slow": "decoder",
    "kv cache": "decoder_growing",
    "tokens per second": "decoder",
    "mfu": "decoder",
    "paged attention": "decoder_growing",
    "int4 slow": "decoder_faults",
    "ddp": "several_gpus",
    "nccl slow": "several_gpus",
    "fsdp overlap": "several_gpus_sharding",
    "tensor parallel": "several_gpus_sharding",
    "straggler": "several_gpus_faults",
}
"""What people type -> the page that comes first."""
PLACES = {
    "cudaStreamSynchronize": "trace_rows/#cudastreamsynchronize",
    "aten::copy_": "trace_rows/#aten-copy",
    "memory snapshot": "training_memory_peak/#memory-summary",
    "cuda out of memory": "training_memory_peak/",
    "oom": "training_memory_peak/#fragmentation",
    "cuda oom": "training_memory_peak/#fragmentation",
    "num_workers": "training_step_faults/#a-loader-that-stalls",
    "key_averages": "training_step/#ten-lines",
    "vllm": "kernel_names/#vllm-sglang-megatron-whose-kernel-is-it",
    "gradient checkpointing": "training_memory_peak/#recomputing",
    "cuda graph": "regimes/#what-removes-it",
    "compare two traces": "your_trace/#did-a-change-make-it-faster",
    "torch.compile slow first call": "regimes_compiling/#break-even",
    "training is slow": "#what-do-you-see",
    "recompile": "training_step_faults/#recompilation",
    "dataloader slow": "training_step_faults/#a-loader-that-stalls",
    "profile one layer": "training_step/#ten-lines",
    "gpu utilization low": "#what-do-you-see",
    "flash attention not used": "attention/#what-does-pytorchs-own-launch",
    "tensor cores not used": "training_step_faults/#no-tensor-cores",
    "kv cache": "decoder_growing/#caches",
    "generate slow": "decoder/#ladder",
    "nsys": "your_trace/#what-cant-a-trace-tell",
    "mfu": "decoder/#prefill",
    "why is my attention slow": "training_step_faults/#attention-written-out",
    "slow attention": "training_step_faults/#attention-written-out",
    "attention isn't fused": "training_step_faults/#attention-written-out",
    # Fourteen more.
    "loss.item()": "training_step_faults/#item-in-every-step",
    "gpu idle": "#what-do-you-see",
    "too many small kernels": "training_step_faults/#thousands-of-tiny-kernels",
    "optimizer step slow": "training_step_faults/#optimizer-as-a-loop",
    "first iteration slow": "training_step_faults/#cold-measurements",
    "memory fragmentation": "training_memory_peak/#fragmentation",
    "graph break": "training_step_faults/#graph-breaks",
    "int4 slow": "decoder_faults/#int4",
    "profiler schedule": "training_step/#ten-lines",
    "install kinetoscope": "your_trace/#five-lines",
    "empty_cache": "training_step_faults/#allocator-in-the-step",
    "kernel launch overhead": "regimes/#launch-overhead",
    "pin_memory": "training_step_faults/#pageable-copies",
    "static cache": "decoder_growing/#caches",
}
"""What people type -> the section that comes first. Queries about several GPUs are not here: ddp, nccl, fsdp."""
ROWS = {
    "self cpu cpu total": "self-cpu",
    "self cuda wall clock": "self-cuda",
    "ProfilerStep*": "annotations",
    "as_strided": "no-gpu-time",
    "negative memory": "negative-memory",
    "autograd::engine::evaluate_function": "backward",
    "cudaLaunchKernel so long": "cudalaunchkernel",
    "Command Buffer Full": "command-buffer-full",
    "cudaDeviceSynchronize": "cudadevicesynchronize",
    "cudaStreamSynchronize": "cudastreamsynchronize",
    "Memset": "memset",
    "cudaGraphLaunch": "cudagraphlaunch",
    "aten::copy_": "aten-copy",
    "nccl:all_reduce": "nccl",
    "record_param_comms": "nccl",
    "Memcpy HtoD Pageable": "pageable",
    "Torch-Compiled Region": "torch-compiled-region",
    "Call CompiledFxGraph": "call-compiledfxgraph",
    "TorchDynamo Cache Lookup": "dynamo-cache-lookup",
    "Activity Buffer Request": "activity-buffer-request",
    "no GPU events": "no-gpu-events",
    "profiler time.time()": "stopwatch",
}
"""What people ask about a row -> the section of the page of rows that answers, among the first three."""
ASKED = {
    "CUDA time is 0": "trace_rows/#no-gpu-events",
    "cuda kernels not recorded": "trace_rows/#no-gpu-events",
    "no cuda kernels in trace": "trace_rows/#no-gpu-events",
    "profiler does not show CUDA": "trace_rows/#no-gpu-events",
    "gpu kernels missing": "trace_rows/#no-gpu-events",
    "profiler double counting": "trace_rows/#self-cuda",
    "Self CUDA time larger than total time": "trace_rows/#self-cuda",
    "which line of code launched the kernel": "trace_rows/#which-line",
    "where in my code is this kernel called": "trace_rows/#which-line",
    "aten::to slow": "trace_rows/#aten-copy",
    "CUDA graphs kernels missing": "trace_rows/#cudagraphlaunch",
    "tensorboard": "trace_rows/#tensorboard",
    "torch_tb_profiler": "trace_rows/#tensorboard",
    "item() slow": "trace_rows/#cudastreamsynchronize",
    "with_stack overhead": "capture_faults/#overhead",
    "chrome tracing crashes": "capture_faults/#huge-traces",
    "torch.compile slower than eager": "regimes_compiling/#break-even",
    "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES": "trace_rows/#no-gpu-events",
    "empty trace": "capture_faults/#forgotten-step",
    "ProfilerStep missing": "capture_faults/#forgotten-step",
    "compare two traces": "your_trace/#did-a-change-make-it-faster",
    "performance regression CI": "your_trace/#did-a-change-make-it-faster",
    "prefetch_factor": "training_step_faults/#a-loader-that-stalls",
}
"""What people ask in their own words -> the section that answers, among the first three."""
FIRST_RESULTS = 3
ASK = """async ([worker, index, queries]) => {
  const asked = new Worker(worker);
  const ask = (message) => new Promise((resolve) => {
    asked.onmessage = ({ data }) => resolve(data);
    asked.postMessage(message);
  });
  const { config, docs } = await (await fetch(index)).json();
  await ask({ type: 0, data: { config, docs, options: {} } });
  const first = {};
  for (const query of queries) {
    const { data: { items } } = await ask({ type: 2, data: query });
    const all = items.flat().sort((a, b) => b.score - a.score);
    first[query] = all.map(({ location }) => location);
  }
  return first;
}"""


@pytest.fixture(scope="module")
def index(site: Site) -> list[dict[str, Any]]:
    """The sections that a search looks through."""
    found: list[dict[str, Any]] = json.loads((site.folder / "search/search_index.json").read_text("utf-8"))["docs"]
    return found


def locations(opened: Opened, site: Site, queries: Iterable[str]) -> dict[str, list[str]]:
    """The results of a search, the best first, by the theme's own worker, without its window."""
    (worker,) = (site.folder / "assets/javascripts/workers").glob("search.*.js")
    addresses = [f"{site.url}{worker.relative_to(site.folder)}", f"{site.url}search/search_index.json"]
    found: dict[str, list[str]] = opened("glossary/").page.evaluate(ASK, [*addresses, [*queries]])
    return found


def test_the_right_page_comes_first(opened: Opened, site: Site) -> None:
    found = locations(opened, site, FIRST)
    assert {query: (places or [""])[0].partition("#")[0] for query, places in found.items()} == {
        query: PAGES[name] for query, name in FIRST.items()
    }


def test_the_right_section_comes_first(opened: Opened, site: Site) -> None:
    found = locations(opened, site, PLACES)
    assert {query: places[0] for query, places in found.items()} == PLACES


def test_a_question_finds_its_answer(opened: Opened, site: Site) -> None:
    answers = ASKED | {query: f"trace_rows/#{section}" for query, section in ROWS.items()}
    first = {query: places[:FIRST_RESULTS] for query, places in locations(opened, site, answers).items()}
    assert {query: places for query, places in first.items() if answers[query] not in places} == {}


@pytest.mark.parametrize(("width", "scripts"), [(1280, True), (360, True), (360, False)])
def test_an_answer_is_at_the_top_of_the_window(opened: Opened, width: int, scripts: bool) -> None:
    """Parts out of sight have typical heights until they come near: a link must not miss its section by them.

    Every section in a narrow window, where heights differ most from what is typical; else one of each page.
    """
    tops = {}
    by_page = {answer.partition("#")[0]: answer for answer in ASKED.values()}
    for answer in sorted({*(ASKED if width == 360 and scripts else by_page).values()}):
        page = opened(answer, width=width, scripts=scripts).page
        page.wait_for_function("() => document.readyState === 'complete'")
        tops[answer] = page.evaluate("() => document.querySelector(':target').getBoundingClientRect().top")
    assert {answer: top for answer, top in tops.items() if not 40 <= top <= 200} == {}


def test_the_index_has_no_buttons_and_no_answers(index: list[dict[str, Any]]) -> None:
    texts = {entry["location"]: f"{entry['title']} {entry['text']}" for entry in index}
    for word in ("Copied!", "¶", "Measured: ", "Guess: "):
        assert {where for where, text in texts.items() if word in text} <= {"contributing/#what-can-a-page-show"}


@pytest.mark.parametrize("way", ["keyboard", "pointer"])
def test_the_index_is_loaded_when_someone_turns_to_the_search(opened: Opened, way: str) -> None:
    tab = opened("glossary/")
    tab.settle()
    loaded = [response.url for response in tab.responses]
    assert loaded
    assert not any("search_index" in url for url in loaded)
    if way == "keyboard":
        tab.page.keyboard.press("/")
        tab.page.keyboard.type("occupancy")
    else:
        tab.page.get_by_role("textbox", name="Search").click()
        tab.page.get_by_role("textbox", name="Search").press_sequentially("occupancy")
    expect(tab.page.locator(".md-search-result__link[href$='#occupancy']")).to_be_visible()


def test_who_finds_nothing_is_led_on(opened: Opened) -> None:
    page = opened("glossary/").page
    page.keyboard.press("/")
    page.keyboard.type("zzzz")
    expect(page.get_by_text("No matching documents")).to_be_visible()
    page.get_by_role("link", name="Start from what you see").click()
    page.wait_for_url(f"**{PAGES['index']}/#what-do-you-see")
