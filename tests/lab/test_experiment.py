"""Valid experiments, and how they are found."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from snippets.lab.experiment import (
    Experiment,
    ExperimentError,
    Instruments,
    Loop,
    Schedule,
    Subject,
    UnknownName,
    Work,
    chapters,
    copy_subject,
    experiments,
    find,
    matmul_subject,
    package_folder,
)
from snippets.lab.recording.device import PROJECT


def make(device: str, size: int) -> Subject:
    raise NotImplementedError


def probe(instruments: Instruments, device: str, size: int) -> dict[str, Any]:
    raise NotImplementedError


def work(size: int) -> Work:
    return Work(bytes=size)


def profiled(**changed: Any) -> Experiment:
    given: dict[str, Any] = {
        "chapter": "mlp",
        "name": "eager",
        "label": "fwd",
        "parameters": {"size": 64},
        "make": make,
        "work": work,
    }
    return Experiment(**given | changed)


def loop(device: str, size: int) -> Loop:
    raise NotImplementedError


def test_exactly_one_of_make_loop_and_probe() -> None:
    for changed in ({"probe": probe}, {"loop": loop}, {"make": None}, {"make": None, "loop": loop, "probe": probe}):
        with pytest.raises(ExperimentError, match=r"^mlp/eager: give exactly one of make, loop and probe$"):
            profiled(**changed)


def test_a_loop_is_traced_and_needs_its_label() -> None:
    looping = profiled(make=None, loop=loop, work=None)
    assert (looping.is_traced, looping.processes) == (True, 3)
    for changed in ({"label": ""}, {"sweep": ({"size": 1},)}):
        with pytest.raises(ExperimentError, match=r"^mlp/eager: a loop needs its label and has no sweep$"):
            profiled(make=None, loop=loop, work=None, **changed)
    with pytest.raises(ExperimentError, match="loop takes no 'sise'; did you mean size"):
        profiled(make=None, loop=loop, work=None, parameters={"sise": 1})


def loop_of_a_rank(device: str, rank: int, world: int, size: int) -> Loop:
    raise NotImplementedError


def probe_of_a_rank(instruments: Instruments, device: str, rank: int, world: int, size: int) -> dict[str, Any]:
    raise NotImplementedError


def test_functions_of_several_gpus_take_rank_and_world() -> None:
    on_two: dict[str, Any] = {"make": None, "work": None, "gpus": 2}
    assert profiled(loop=loop_of_a_rank, **on_two).gpus == 2
    assert profiled(probe=probe_of_a_rank, **on_two, label="").processes == 3
    for changed, message in (
        ({"loop": loop}, "mlp/eager: loop takes no 'rank'; did you mean device or size?"),
        ({"probe": probe}, "mlp/eager: probe takes no 'rank'; did you mean device or instruments or size?"),
    ):
        with pytest.raises(ExperimentError) as raised:
            profiled(**on_two, **changed)
        assert str(raised.value) == message
    with pytest.raises(ExperimentError, match=r"^mlp/eager: loop_of_a_rank needs 'rank', which parameters do not set$"):
        profiled(make=None, work=None, loop=loop_of_a_rank)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"gpus": 0}, "mlp/eager: gpus=0; give 1 or more"),
        ({"gpus": 2}, "mlp/eager: an experiment on 2 GPUs is a loop or a probe; give no make"),
        ({"environment": {"RANK": "0"}}, "mlp/eager: its environment sets RANK, which capture sets; remove it"),
        (
            {"environment": {"NCCL_NVLS_ENABLE": "1"}},
            "mlp/eager: its environment sets NCCL_NVLS_ENABLE, which capture sets; remove it",
        ),
        (
            {"environment": {"CUDA_DEVICE_MAX_CONNECTIONS": 1}},
            "mlp/eager: its environment sets CUDA_DEVICE_MAX_CONNECTIONS to 1; give a text, '1'",
        ),
    ],
)
def test_gpus_and_environment_that_cannot_be(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ExperimentError) as raised:
        profiled(**changed)
    assert str(raised.value) == message


def test_a_probe_is_not_traced() -> None:
    new = Experiment(chapter="mlp", name="new", probe=probe, parameters={"size": 1})
    assert new.points == ({"size": 1},)
    assert not new.is_traced


def test_a_sweep_is_timed_steady_where_it_says_so() -> None:
    sweep: Any = ({"size": 1}, {"size": 2})
    assert (profiled().is_steady, profiled(sweep=sweep).is_steady) == (True, False)
    assert profiled(sweep=sweep, steady_sweep=True).is_steady


@pytest.mark.parametrize("missing", [{"work": None}, {"label": ""}])
def test_a_profiled_experiment_has_its_work_and_its_label(missing: dict[str, Any]) -> None:
    with pytest.raises(ExperimentError, match=r"^mlp/eager: a profiled experiment needs its work and its label$"):
        profiled(**missing)


def any_parameter(device: str, **parameters: int) -> Subject:
    raise NotImplementedError


def without_device(size: int) -> Subject:
    raise NotImplementedError


def without_instruments(device: str, size: int) -> dict[str, Any]:
    raise NotImplementedError


def with_variant(device: str, variant: str, size: int, dtype: str = "bfloat16") -> Subject:
    raise NotImplementedError


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"parameters": {"sise": 64}}, "mlp/eager: make takes no 'sise'; did you mean size?"),
        ({"parameters": {}}, "mlp/eager: make needs 'size', which parameters do not set"),
        ({"make": without_device}, "mlp/eager: without_device takes no 'device'; did you mean size?"),
        (
            {"make": None, "probe": without_instruments},
            "mlp/eager: without_instruments takes no 'instruments'; did you mean device or size?",
        ),
        ({"make": with_variant}, "mlp/eager: with_variant needs 'variant', which parameters do not set"),
        ({"work": lambda rows: Work(bytes=rows)}, "mlp/eager: <lambda> takes no 'size'; did you mean rows?"),
    ],
)
def test_functions_take_the_parameters(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ExperimentError) as raised:
        profiled(**changed)
    assert str(raised.value) == message


@pytest.mark.parametrize("sound", [any_parameter, partial(with_variant, variant="flash")])
def test_functions_may_take_more(sound: Callable[..., Subject]) -> None:
    assert profiled(make=sound).make is sound


def test_a_sweep_sets_parameters_that_exist() -> None:
    with pytest.raises(ExperimentError, match=r"^mlp/eager: the sweep sets 'seq', no parameter; did you mean size\?$"):
        profiled(sweep=({"size": 1}, {"seq": 2}))


def pair(device: str, size: int, seq: int) -> Subject:
    raise NotImplementedError


def test_points_are_the_sweep_over_the_defaults() -> None:
    parameters = {"size": 64, "seq": 8}
    plain = profiled(parameters=parameters, make=pair, work=lambda size, seq: Work(bytes=1))
    swept = profiled(
        parameters=parameters, make=pair, work=lambda size, seq: Work(bytes=1), sweep=({"size": 1}, {"seq": 2})
    )
    assert plain.points == ({"size": 64, "seq": 8},)
    assert swept.points == ({"size": 1, "seq": 8}, {"size": 64, "seq": 2})
    assert (plain.is_traced, swept.is_traced) == (True, False)


def test_at_replaces_parameters_and_nothing_else() -> None:
    one = profiled()
    assert one.at(size=3).parameters == {"size": 3}
    assert one.parameters == {"size": 64}
    assert one.at(size=3).id == "mlp/eager"
    with pytest.raises(UnknownName, match=r"^mlp/eager has no parameter 'sise'; did you mean size\?$"):
        one.at(sise=3)


def test_work_counts_a_multiply_add_as_two() -> None:
    matmuls = ((2, 3, 4), (5, 6, 7))
    assert Work(bytes=1, matmuls=matmuls).flops == 2 * 24 + 2 * 210
    assert Work(bytes=1).flops == 0
    assert Schedule(wait=1, warmup=2, active=4).steps == 7


def test_work_counts_what_is_not_a_matrix_product() -> None:
    assert Work(bytes=1, other_flops=12).flops == 12
    assert Work(bytes=1, matmuls=((2, 3, 4),), other_flops=12).flops == 60


def test_a_copy_returns_its_input() -> None:
    subject = copy_subject("cpu", 1 << 10)
    (source,) = subject.inputs()
    assert source.nbytes == 1 << 10
    assert torch.equal(subject.step(source), source)
    assert (subject.tolerance, subject.in_graph) == (0.0, False)
    assert copy_subject("cpu", 8, in_graph=True).in_graph


def test_a_matmul_agrees_with_its_reference_at_odd_shapes() -> None:
    torch.manual_seed(0)
    subject = matmul_subject("cpu", 7, 33, 5)
    (x,) = subject.inputs()
    product, expected = subject.step(x), subject.reference(x)
    assert (product.shape, product.dtype) == ((7, 5), torch.bfloat16)
    assert ((product.double() - expected).norm() / expected.norm()) < 5e-3


def test_chapters_are_found_by_their_folders() -> None:
    assert {"devices", "linear", "matmul_add", "mlp"} <= set(chapters())
    assert list(chapters()) == sorted(chapters())
    assert "lab" not in chapters()
    assert chapters("tests.lab.broken") == ("faults", "gpu_faults", "hang", "loops", "ranks")
    assert package_folder("tests.lab.broken") == PROJECT / "tests" / "lab" / "broken"


def test_find_a_chapter_or_one_experiment() -> None:
    assert find("mlp") == experiments("mlp")
    assert [one.id for one in find("mlp/eager")] == ["mlp/eager"]
    assert [one.id for one in find("hang/steady", "tests.lab.broken")] == ["hang/steady"]


def test_find_an_experiment_of_a_package() -> None:
    (right,) = find("faults/right", "tests.lab.broken")
    assert getattr(right.make, "__module__", "") == "tests.lab.broken.faults.experiments.makers"


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("mpl", "no chapter 'mpl'; did you mean mlp"),
        ("mlp/eagr", "no experiment 'mlp/eagr'; did you mean mlp/eager or mlp/eager_4096 or mlp/liger?"),
        ("../mlp", f"no chapter '..'; did you mean {' or '.join(chapters())}?"),
        ("", f"no chapter ''; did you mean {' or '.join(chapters())}?"),
        ("lab", "no chapter 'lab'"),
        ("mlp/eager/x", "no experiment 'mlp/eager/x'; did you mean mlp/eager"),
    ],
)
def test_an_unknown_name_comes_with_the_nearest(asked: str, message: str) -> None:
    with pytest.raises(UnknownName) as raised:
        find(asked)
    assert str(raised.value).startswith(message)


EXPERIMENTS_FILE = """\
from snippets.lab.experiment import Experiment, Work

def one(chapter, name, **more):
    return Experiment(
        chapter=chapter, name=name, label="l", parameters={"size": 1},
        **{"make": lambda device, size: None, "work": lambda size: Work(bytes=size), **more}
    )

"""


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        (
            'one("mlp", "a"), one("mlp", "a")',
            "PACKAGE.mlp.experiments lists mlp/a twice; give one of them another name",
        ),
        ('one("linear", "a"),', "PACKAGE.mlp.experiments lists linear/a; write chapter='mlp'"),
        (
            'one("mlp", "a", group="g", sweep=({"size": 1}, {"size": 2})), one("mlp", "b", group="g")',
            "mlp/b: the group 'g' is timed interleaved, so its sweeps are equally long",
        ),
        (
            'one("mlp", "a", group="g"), one("mlp", "b", group="g", make=None, loop=lambda device, size: None)',
            "mlp/b: the group 'g' has loops only, or none",
        ),
        (
            'one("mlp", "a", group="g"), one("mlp", "b", group="g", environment={"A": "1"})',
            "mlp/b: the group 'g' shares processes, so all have the same gpus and environment",
        ),
    ],
    ids=["twice", "elsewhere", "unequal sweeps", "a loop and a step", "another environment"],
)
def test_a_list_that_contradicts_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listed: str, message: str
) -> None:
    package = tmp_path.name
    (tmp_path / package / "mlp").mkdir(parents=True)
    (tmp_path / package / "mlp" / "experiments.py").write_text(f"{EXPERIMENTS_FILE}EXPERIMENTS = ({listed})\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ExperimentError) as raised:
        experiments("mlp", package)
    assert str(raised.value) == message.replace("PACKAGE", package)


def in_a_process(code: str, folder: Path) -> str:
    environment = {"PYTHONPATH": str(PROJECT)}
    command = [sys.executable, "-W", "error", "-c", code]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True).stdout


def test_listing_experiments_needs_neither_torch_nor_triton(tmp_path: Path) -> None:
    code = "import sys; sys.modules['torch'] = sys.modules['triton'] = None; from snippets.lab.experiment import *\n"
    listed = in_a_process(code + "print(*(e.id for c in chapters() for e in experiments(c)))", tmp_path)
    assert {"mlp/eager", "linear/eager", "matmul_add/eager_64"} <= set(listed.split())


def test_chapters_of_an_installed_package_need_no_working_folder(tmp_path: Path) -> None:
    code = "from snippets.lab.experiment import chapters; print(*chapters())"
    assert in_a_process(code, tmp_path).split() == list(chapters())


def test_a_trial_has_its_own_parameters_and_few_steps() -> None:
    (link,) = find("several_gpus/link_2")
    tried = link.tried()
    assert tried.parameters == {**link.parameters, **link.trial}
    assert tried.parameters != link.parameters
    assert (tried.first_steps, replace(link, first_steps=0).tried().first_steps) == (1, 0)
    with pytest.raises(ExperimentError, match=r"^several_gpus/link_2: its trial sets 'call', no parameter; did you"):
        replace(link, trial={"call": "1"})
