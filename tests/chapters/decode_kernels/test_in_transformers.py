"""The probe of transformers' `generate` with the decode kernels: what it compares, counts and refuses, on the CPU."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from snippets.decode_kernels.experiments import in_transformers as probe
from snippets.lab.experiment import Experiment, NeedsGpu

ARGUMENTS: dict[str, Any] = {"size": "tiny", "batch": 1, "prompt": 9, "few": 1, "many": 6, "rounds": 2}
WAYS = "dynamic,static eager"


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """The probe on the CPU, with a function in place of `kernelized`."""

    def run(changed: Callable[[Any], Any], **arguments: Any) -> dict[str, Any]:
        monkeypatch.setattr(probe, "require_gpu", lambda device: None)
        monkeypatch.setattr(probe, "kernelized", changed)
        found: Any = probe.in_transformers(None, "cpu", **{**ARGUMENTS, "ways": WAYS, **arguments})  # type: ignore[arg-type]
        return found

    return run


@pytest.fixture
def needs_transformers() -> None:
    pytest.importorskip("transformers", reason="needs transformers: pip install transformers==5.17.0")


def of_name(name: str) -> Experiment:
    (found,) = [each for each in probe.transformers_probes() if each.name == name]
    return found


def test_it_needs_a_gpu() -> None:
    with pytest.raises(NeedsGpu, match="decoder/static runs here"):
        probe.in_transformers(None, "cpu", **ARGUMENTS, ways=WAYS)  # type: ignore[arg-type]


def test_a_trial_generates_fewer_tokens() -> None:
    for name in ("in_transformers", "in_transformers_compiled"):
        tried = of_name(name).tried().parameters
        assert (tried["many"], tried["rounds"]) == (8, 1)


def test_without_transformers_the_probe_says_so(
    measure: Callable[..., dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    found = measure(lambda model: model)
    assert found == {"missing": "needs transformers: pip install transformers==5.17.0"}


def test_without_kernels_the_probe_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kernels", None)
    monkeypatch.setattr(probe, "as_transformers", lambda _: SimpleNamespace(model=SimpleNamespace(layers=[None])))
    with pytest.raises(ModuleNotFoundError, match=r"^needs kernels: pip install kernels$"):
        probe.models_of(None)


def test_another_missing_module_keeps_its_own_message(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(model: Any) -> Any:
        raise ModuleNotFoundError("No module named 'einops'", name="einops")

    monkeypatch.setattr(probe, "as_transformers", lambda decoder: decoder)
    monkeypatch.setattr(probe, "kernelized", fails)
    with pytest.raises(ModuleNotFoundError, match="einops"):
        probe.models_of(None)


@pytest.mark.usefixtures("needs_transformers")
def test_the_same_layers_give_the_same_answer(measure: Callable[..., dict[str, Any]]) -> None:
    found = measure(lambda model: model)
    assert found["tokens"] == 6
    assert list(found["ways"]) == WAYS.split(",")
    for entry in found["ways"].values():
        assert (entry["equal"], entry["gap"]) == (6, 0.0)
        assert 0 < entry["largest_error"] < 1e-4
        for layers in ("plain", "ours"):
            assert len(entry[layers]["us"]) == len(entry[layers]["first_us"]) == 2
            assert entry[layers]["likely"] == 6
            assert entry[layers]["error"] < 1e-5


@pytest.mark.usefixtures("needs_transformers")
def test_other_tokens_have_a_gap(measure: Callable[..., dict[str, Any]]) -> None:
    """A model whose head prefers other words."""

    def shifted(model: Any) -> Any:
        weight = model.lm_head.weight
        model.lm_head.weight = torch.nn.Parameter(weight.roll(1, 0), requires_grad=False)
        return model

    entry = measure(shifted, ways="dynamic")["ways"]["dynamic"]
    assert entry["equal"] == 0
    assert entry["gap"] > 10 * entry["largest_error"]
    assert entry["plain"]["likely"] == 6
    assert entry["ours"]["likely"] < 6
    assert entry["ours"]["error"] > 0.1


@pytest.mark.usefixtures("needs_transformers")
def test_layers_that_warn_are_not_timed(measure: Callable[..., dict[str, Any]]) -> None:
    text = "a decoder layer runs without the decode kernels: they need an NVIDIA GPU"

    def warns(model: Any) -> Any:
        plain = model.forward

        def forward(*arguments: Any, **options: Any) -> Any:
            warnings.warn(text, stacklevel=2)
            return plain(*arguments, **options)

        model.forward = forward
        return model

    entry = measure(warns, ways="dynamic")["ways"]["dynamic"]
    assert entry["ours"] == {"stopped": text}
    assert len(entry["plain"]["us"]) == 2
    assert "equal" not in entry


def test_kernels_of_a_token_are_those_that_more_tokens_add(monkeypatch: pytest.MonkeyPatch) -> None:
    prompt = [{"name": name} for name in ("gemm", "Memcpy DtoH", "argmax")]
    token = [{"name": name} for name in ("decode_project_kernel", "decode_attend_kernel_1", "gemm", "Memset")]
    asked = []

    def kernels_of(_instruments: Any, step: Any, _device: str) -> list[Any]:
        asked.append(step.args[2])
        return prompt + (step.args[2] - 1) * token

    monkeypatch.setattr(probe, "kernels_of", kernels_of)
    counts = probe.kernel_counts(None, None, None, "cuda", {})  # type: ignore[arg-type]
    assert counts == {"kernels": 3.0, "own": 2.0}
    assert asked == [1, 9]


@pytest.mark.parametrize(("own", "runs"), [(110.0, True), (0.0, False), (105.0, False), (math.nan, False)])
def test_times_without_all_kernels_are_dropped(own: float, runs: bool) -> None:
    entry: dict[str, Any] = {"plain": {"us": [1.0]}, "ours": {"us": [1.0], "own": own}}
    probe.require_kernels(entry, 22, "cuda")
    assert (probe.running(entry) == ["plain", "ours"]) is runs
    if not runs:
        assert entry["ours"] == {"stopped": f"a token ran {own:g} of the decode kernels, not 110"}
