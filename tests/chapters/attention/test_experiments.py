"""The experiments, their work counted by hand, and a sweep whose variant stops."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

from snippets.attention import model
from snippets.attention.experiments import growing, others, steps
from snippets.lab.capture.checking import relative_error
from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.experiment import Experiment, Instruments, NeedsGpu, StepTimes, Subject, find
from snippets.lab.recording.schema import Timing

VARIANTS = ("naive", "in_place", "math", "efficient", "flash", "cudnn", "compiled", "flex")
SMALL = {"batch": 1, "heads": 2, "head_dim": 64}
NO_CPU = ("efficient", "cudnn")


def small(experiment: Experiment) -> Experiment:
    """With 65 tokens or keys, or 128 at most."""
    length = {"tokens": 65, "keys": 65, "longest": 128}
    return experiment.at(**SMALL, **{name: value for name, value in length.items() if name in experiment.parameters})


def test_what_is_measured() -> None:
    groups: dict[str, list[str]] = {}
    for one in find("attention"):
        groups.setdefault(f"{one.group} {one.label}".strip(), []).append(one.name)
    assert groups == {
        "forward attn_fwd": ["naive", "in_place", "math", "efficient", "flash", "cudnn", "auto", "compiled", "flex"],
        "training attn_train": [f"training_{name}" for name in VARIANTS],
        "decode attn_decode": [f"decode_{name}" for name in VARIANTS if name != "in_place"],
        "": ["lengths_64", "lengths_128", "hub_flash", "compiled_code"],
    }


def test_the_shapes() -> None:
    """Those of the series; a decode step with a long cache; the sweep up to 16384 tokens at both head dims."""
    series = {"batch": 8, "heads": 16, "tokens": 1024, "head_dim": 64}
    sweep = {"batch": 8, "heads": 16, "longest": 16384}
    expected: dict[str, dict[str, int]] = {
        "decode": {"batch": 8, "heads": 16, "keys": 8192, "head_dim": 64},
        "lengths_64": {**sweep, "head_dim": 64},
        "lengths_128": {**sweep, "head_dim": 128},
    }
    for one in find("attention"):
        assert one.parameters == expected.get(one.group or one.name, series), one.id


def test_the_work_of_a_forward() -> None:
    """2 sequences, 3 heads, 8 tokens, head_dim 4: four tensors of 192 numbers; half of 8 keys for each of 48 rows."""
    work = steps.forward_work(2, 3, 8, 4)
    assert work.bytes == 4 * 192 * 2
    assert work.flops == 2 * (2 * 2 * 3 * 8 * 8 * 4) // 2
    assert work.matmuls == ()  # batched products: no bare matmul is their ceiling


def test_the_work_of_a_forward_at_the_series_shape() -> None:
    work = steps.forward_work(**steps.SHAPE)
    assert work.bytes == 67_108_864
    assert work.flops == 17_179_869_184


def test_the_work_of_one_token() -> None:
    """One query and one key: nothing to halve."""
    assert steps.forward_work(1, 1, 1, 4).flops == 2 * (2 * 4)


def test_the_work_of_training() -> None:
    work = steps.training_work(2, 3, 8, 4)
    assert work.bytes == 7 * 192 * 2
    assert work.flops == 3 * steps.forward_work(2, 3, 8, 4).flops


def test_the_work_of_a_decode_step() -> None:
    """Keys and values of 2 * 3 heads of 8 tokens, 192 numbers each; a query and a result of 24 numbers."""
    work = steps.decode_work(2, 3, 8, 4)
    assert work.bytes == 2 * (192 + 192 + 24 + 24)
    assert work.flops == 2 * (2 * 6 * 4 * 8)


def runs_the_compiler(experiment: Experiment) -> bool:
    """Tested in tests/processes."""
    return experiment.name.endswith(("compiled", "flex"))


@pytest.mark.parametrize(
    "experiment",
    [one for one in find("attention") if one.make and not runs_the_compiler(one)],
    ids=lambda one: one.name,
)
def test_it_is_right_here_or_says_why_it_cannot_run(experiment: Experiment) -> None:
    assert experiment.make is not None
    variant = experiment.name.rpartition("_")[2] if experiment.group != "forward" else experiment.name
    if variant in NO_CPU:
        with pytest.raises(NeedsGpu, match=r"attention/\w+ run"):
            experiment.make("cpu", **small(experiment).parameters)
        return
    subject = experiment.make("cpu", **small(experiment).parameters)
    error, dtype, _ = relative_error(subject, "cpu")
    assert 0 < error < 7e-3
    assert dtype == "float64"
    assert subject.in_graph
    assert subject.notes == ({"picked": "flash"} if variant == "auto" else {})


def test_flex_has_no_backward_on_a_cpu() -> None:
    with pytest.raises(NeedsGpu, match=r"attention/\w+ and attention/training_flash run here"):
        steps.training("cpu", "flex", 1, 2, 65, 64)


def test_a_wrong_gradient_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """That of v too, which the step does not return."""
    naive = model.naive
    monkeypatch.setattr(model, "in_place", lambda q, k, v, hidden: naive(q, k, (v + v.detach()) / 2, hidden))
    with pytest.raises(ArithmeticError, match=r"relative error 5\.\d+e-01 in the gradient of v"):
        steps.training("cpu", "in_place", 1, 2, 65, 64)


@pytest.fixture
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Nothing is timed, and what is compiled is run as it is; returns the variants that were to be timed."""
    timed: list[list[str]] = []

    def noting(_: Instruments, subjects: Mapping[str, Subject], found: dict[str, dict[str, Any]], tokens: int) -> None:
        timed.append(list(subjects))
        for name in subjects:
            found[name]["samples_us"] = [1.0, 2.0, float(tokens)]

    monkeypatch.setattr(growing, "PRODUCT", (8, 8, 8))
    monkeypatch.setattr(growing, "_time", noting)
    monkeypatch.setattr(growing, "_free_memory", lambda: None)  # there is none; a collection takes half a second here
    monkeypatch.setattr(torch, "compile", lambda function, dynamic: function)
    monkeypatch.setattr(model, "flex", lambda q, k, v, blocks: model.sdpa(q, k, v, "math"))
    return timed


def at_length(tokens: int, out_of_memory: dict[str, str]) -> dict[str, Any]:
    found = growing._at_length(TorchInstruments(), "cpu", (1, 2, tokens, 64), out_of_memory)
    assert list(found["variants"]) == list(VARIANTS)
    return found


RUNS_HERE = ("naive", "in_place", "math", "flash", "compiled", "flex")


def test_a_length(on_cpu: list[list[str]]) -> None:
    out_of_memory: dict[str, str] = {}
    found = at_length(65, out_of_memory)
    assert found["auto"] == "flash"
    for name in RUNS_HERE:
        one = found["variants"][name]
        assert 0 < one.pop("error") < 7e-3
        assert one == {"peak_bytes": 0, "samples_us": [1.0, 2.0, 65.0]}
    for name in NO_CPU:
        why = f"NeedsGpu: the backend {name!r} has no kernel for a CPU: attention/math and attention/flash run here"
        assert found["variants"][name] == {"stopped": why}
    assert on_cpu == [["matmul", *RUNS_HERE]]
    assert found["matmul"] == {"samples_us": [1.0, 2.0, 65.0]}
    assert out_of_memory == {}


def raising(error: Exception) -> Callable[..., Any]:
    def step(*inputs: object) -> None:
        raise error

    return step


FULL = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 64.00 GiB. GPU 0 has 1.00 GiB free.\nMore.")


def test_what_ran_out_of_memory_stays_out(on_cpu: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "in_place", raising(FULL))
    out_of_memory: dict[str, str] = {}
    first = at_length(7, out_of_memory)
    monkeypatch.undo()
    why = "out of memory for 64.00 GiB more at 7 tokens"
    assert first["variants"]["in_place"] == {"stopped": why}
    assert out_of_memory == {"in_place": why}
    assert on_cpu == [["matmul", *(name for name in RUNS_HERE if name != "in_place")]]


def test_it_is_not_tried_again(on_cpu: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "in_place", raising(AssertionError("tried again")))
    out_of_memory = {"in_place": "out of memory at 7 tokens"}
    assert at_length(14, out_of_memory)["variants"]["in_place"] == {"stopped": "out of memory at 7 tokens"}
    assert out_of_memory == {"in_place": "out of memory at 7 tokens"}


def test_out_of_memory_in_timing(monkeypatch: pytest.MonkeyPatch, on_cpu: list[list[str]]) -> None:
    """What was found before is gone with it: no time, no claim."""

    def full(_: Instruments, subjects: Mapping[str, Subject], found: dict[str, dict[str, Any]], tokens: int) -> None:
        with growing._noting("naive", found):
            raise FULL

    monkeypatch.setattr(growing, "_time", full)
    out_of_memory: dict[str, str] = {}
    why = "out of memory for 64.00 GiB more at 7 tokens"
    assert at_length(7, out_of_memory)["variants"]["naive"] == {"stopped": why}
    assert out_of_memory == {"naive": why}


def test_a_wrong_answer_is_not_timed(on_cpu: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    """And is tried again at the next length."""
    monkeypatch.setattr(model, "in_place", lambda q, k, v, hidden: v)
    out_of_memory: dict[str, str] = {}
    why = at_length(65, out_of_memory)["variants"]["in_place"]["stopped"]
    assert why.startswith("WrongAnswer: relative error ")
    assert "in_place" not in on_cpu[0]
    assert out_of_memory == {}


def test_an_unusable_gpu_ends_the_sweep(on_cpu: list[list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "in_place", raising(torch.AcceleratorError("an illegal memory access", 700)))
    with pytest.raises(torch.AcceleratorError):
        at_length(7, {})
    assert on_cpu == []


class Bench(TorchInstruments):
    """Instruments that note the rounds instead of timing; `math` does not fit when it is prepared."""

    rounds = 41

    def __init__(self) -> None:
        self.asked: list[tuple[tuple[str, ...], int]] = []

    def prepare(self, subject: Subject) -> Subject:  # type: ignore[override]
        if subject.notes["name"] == "math":
            raise FULL
        return subject

    def time_prepared(self, variants: Mapping[str, Subject], rounds: int) -> dict[str, StepTimes]:  # type: ignore[override]
        self.asked.append((tuple(variants), rounds))
        return {name: Timing.from_samples([1.0, 2.0, 4.0]) for name in variants}


@pytest.mark.parametrize(("tokens", "rounds"), [(128, 41), (2048, 20), (8192, 5), (16384, 3), (32768, 3)])
def test_fewer_rounds_of_longer_sequences(tokens: int, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """What does not fit when it is prepared is left out, the others keep their turns."""
    monkeypatch.setattr(growing, "_free_memory", lambda: None)
    bench = Bench()
    subjects = {name: Subject(torch.clone, tuple, torch.clone, notes={"name": name}) for name in ("a", "math", "b")}
    found: dict[str, dict[str, Any]] = {name: {"error": 0.1} for name in subjects}
    growing._time(bench, subjects, found, tokens)
    assert found["math"] == {"stopped": "out of memory for 64.00 GiB more"}
    assert bench.asked == [(("a", "b"), rounds)]
    assert [found[name]["samples_us"] for name in ("a", "b")] == [[1.0, 2.0, 4.0]] * 2


def test_the_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    monkeypatch.setattr(growing, "_at_length", lambda _, device, shape, why: shapes.append((device, shape)))
    assert growing.lengths(TorchInstruments(), "cuda", 8, 16, 64, 1000) == {"128": None, "256": None, "512": None}
    assert shapes == [("cuda", (8, 16, tokens, 64)) for tokens in (128, 256, 512)]


def test_a_dropped_result() -> None:
    """The step runs, and what comes back was there before."""
    ran = []
    subject = Subject(step=lambda x: ran.append(x) or x + 1, inputs=tuple, reference=torch.clone)
    x = torch.ones(2)
    assert growing._forgetting(subject).step(x) is x
    assert ran == [x]


def test_without_the_hub_it_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """LOCAL_KERNELS that name another kernel: the network is not asked."""
    asked: list[object] = []
    monkeypatch.setattr(socket, "create_connection", lambda *arguments, **options: asked.append(arguments))
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("LOCAL_KERNELS", "someone/else=folder")
    assert others.hub_kernel() == "the Hugging Face Hub cannot be reached from here"
    assert asked == []


def test_a_local_kernel_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("kernels")
    monkeypatch.setenv("LOCAL_KERNELS", f"{others.HUB_KERNELS}=no_such_folder")
    assert others.hub_kernel().startswith("FileNotFoundError: Cannot find a build variant")


@pytest.mark.gpu
@pytest.mark.filterwarnings("default")
def test_the_sweep_on_the_gpu() -> None:
    """In graphs and in the stream; every variant has a time."""
    for tokens in (128, 2 * growing.LONGEST_IN_GRAPH):
        found = growing._at_length(TorchInstruments(), "cuda", (1, 2, tokens, 64), {})
        for name, one in found["variants"].items():
            assert list(one) == ["peak_bytes", "error", "samples_us"], (name, one)
            assert len(found["matmul"]["samples_us"]) == len(one["samples_us"])
            assert len(one["samples_us"]) >= 3
            assert min(one["samples_us"]) > 0
        assert found["variants"]["naive"]["peak_bytes"] > found["variants"]["flash"]["peak_bytes"]
