"""The chapter matmul_add's model and experiments, run on the CPU at small and odd sizes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kinetoscope.trace.kineto import read_trace
from snippets.lab.capture.instruments import TorchInstruments
from snippets.lab.experiment import Experiment, Schedule
from snippets.matmul_add import experiments, model
from snippets.matmul_add.experiments import probes, steps
from snippets.matmul_add.record import record

BY_NAME = {experiment.name: experiment for experiment in experiments.EXPERIMENTS}
TOLERANCES = {torch.float64: 1e-15, torch.float32: 1e-6, torch.bfloat16: 1e-2}


def relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    return float((found.double() - expected.double()).norm() / expected.double().norm())


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize(
    ("x", "w", "b"),
    [
        ((5, 3), (3, 7), (5, 7)),
        ((1, 1), (1, 1), (1, 1)),
        ((2, 5, 3), (2, 3, 7), (2, 5, 7)),
        ((2, 5, 3), (3, 7), (2, 5, 7)),
    ],
)
def test_matmul_add_is_the_product_and_the_sum(
    dtype: torch.dtype, x: tuple[int, ...], w: tuple[int, ...], b: tuple[int, ...]
) -> None:
    given = [torch.randn(shape, dtype=dtype) for shape in (x, w, b)]
    expected = given[0].double() @ given[1].double() + given[2].double()
    found = model.matmul_add(*given)
    assert found.dtype == dtype
    assert relative(found, expected) < TOLERANCES[dtype]


@pytest.mark.parametrize("bias", [(5, 7), (7,)])
def test_addmm_takes_its_tensors_in_our_order(bias: tuple[int, ...]) -> None:
    x, w, b = torch.randn(5, 3), torch.randn(3, 7), torch.randn(bias)
    assert relative(model.addmm(x, w, b), x.double() @ w.double() + b.double()) < 1e-6


@pytest.mark.parametrize(
    ("name", "parameters", "shapes"),
    [
        ("eager_64", {"size": 5}, [(5, 5)] * 3),
        ("item_4096", {"size": 5}, [(5, 5)] * 3),
        ("stacked", {"size": 5, "stack": 3}, [(3, 5, 5)] * 3),
        ("stacked_input", {"size": 5, "stack": 3}, [(3, 5, 5), (5, 5), (3, 5, 5)]),
        ("matrix_bias_64", {"size": 5}, [(5, 5)] * 3),
        ("row_bias_64", {"size": 5}, [(5, 5), (5, 5), (5,)]),
    ],
)
def test_makers_draw_the_shapes_they_say_and_agree_with_their_reference(
    name: str, parameters: dict[str, int], shapes: list[tuple[int, ...]]
) -> None:
    make = BY_NAME[name].make
    assert make is not None
    subject = make("cpu", **parameters)
    inputs = subject.inputs()
    assert [(tuple(one.shape), one.dtype) for one in inputs] == [(shape, torch.bfloat16) for shape in shapes]
    expected = subject.reference(*inputs)
    assert expected.dtype == torch.float64
    assert 0 < relative(subject.step(*inputs), expected) < subject.tolerance
    assert not torch.equal(inputs[0], subject.inputs()[0]), "drawn anew each time"


def test_the_reference_sees_every_input() -> None:
    make = BY_NAME["eager_64"].make
    assert make is not None
    subject = make("cpu", size=5)
    x, w, b = subject.inputs()
    for place in range(3):
        doubled = [2 * one if at == place else one for at, one in enumerate((x, w, b))]
        assert relative(subject.reference(*doubled), subject.reference(x, w, b)) > 0.1


def test_work_is_every_tensor_once_and_one_product() -> None:
    work = steps.product_work(4096)
    assert (work.bytes, work.flops) == (4 * 2 * 4096**2, 2 * 4096**3)
    assert work.matmuls == ((4096, 4096, 4096),)
    assert work.layout == "x @ w", "what model.matmul_add computes"


def test_work_of_stacks_counts_w_as_often_as_it_is_there() -> None:
    matrix = 2 * 64 * 64
    assert steps.stacked_work(64, 8).bytes == (8 + 8 + 8 + 8) * matrix
    assert steps.stacked_input_work(64, 8).bytes == (8 + 1 + 8 + 8) * matrix
    assert steps.stacked_work(64, 8).matmuls == steps.stacked_input_work(64, 8).matmuls == ((512, 64, 64),)


def test_work_of_a_row_bias_is_a_row() -> None:
    matrix, row = 2 * 64 * 64, 2 * 64
    assert steps.row_bias_work(64).bytes == 3 * matrix + row
    assert steps.product_work(64).bytes == 4 * matrix


def test_cold_experiments_run_nothing_before_the_profiler() -> None:
    cold = [one for one in experiments.EXPERIMENTS if one.name.endswith("_cold")]
    assert [(one.name, one.first_steps, one.timed) for one in cold] == [
        (f"{way}_{size}_cold", 0, False) for size in (64, 4096) for way in ("eager", "compiled")
    ]


def test_variants_that_are_compared_share_a_session() -> None:
    def groups(*names: str) -> set[str]:
        return {BY_NAME[name].group for name in names}

    assert groups("eager_64", "compiled_64") == {"warm_64"}
    assert groups("eager_4096", "compiled_4096") == {"warm_4096"}
    assert groups("matrix_bias_4096", "row_bias_4096") == {"addmm_4096"}
    assert groups("sweep_eager", "sweep_compiled") == {"sweep"}


def test_unscheduled_experiments_keep_every_step() -> None:
    def plan(experiment: Experiment) -> tuple[Schedule, int]:
        return experiment.schedule, experiment.first_steps

    assert plan(BY_NAME["unscheduled"]) == (Schedule(0, 0, 5), 0)
    assert plan(BY_NAME["unscheduled_20"]) == (Schedule(0, 0, 20), 0)


def test_the_sweeps_have_the_same_sizes() -> None:
    sizes = [[point["size"] for point in BY_NAME[name].points] for name in ("sweep_eager", "sweep_compiled")]
    assert sizes[0] == sizes[1] == [64, 128, 256, 512, 1024, 2048, 4096, 8192]


def test_a_result_that_is_not_a_number_is_noticed() -> None:
    x, w, b = torch.full((2, 2), float("nan")), torch.ones(2, 2), torch.ones(2, 2)
    with pytest.raises(ArithmeticError, match="not a number"):
        model.checked(x, w, b)


def test_the_first_gap_is_measured_without_a_gpu() -> None:
    data = probes.first_gap(TorchInstruments(), "cpu", 8, 2)
    given = [(variant["warmup"], variant["shapes"]) for variant in data["variants"]]
    assert given == [(1, True), (1, False), (50, True), (50, False)]
    for variant in data["variants"]:
        assert [len(variant[key]) for key in ("first_us", "next_us")] == [2, 2]
        assert all(us > 0 for us in variant["first_us"] + variant["next_us"])


def test_the_lines_of_the_page_print_a_table_and_keep_three_steps(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    record(5, "cpu")
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    calls = {row[0]: row[-1] for row in rows if len(row) > 1}
    assert (calls["matmul_add"], calls["aten::mm"], calls["aten::add"]) == ("3", "3", "3")
    trace = read_trace(tmp_path / "trace.json.gz")
    assert [step.name for step in trace.steps] == ["ProfilerStep#2", "ProfilerStep#3", "ProfilerStep#4"]
