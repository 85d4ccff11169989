"""transformers' `generate` with the decode kernels in its decoder layers, and
without."""

from __future__ import annotations

import functools
import importlib.metadata
import warnings
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from snippets.decode_kernels.experiments.answers import relative
from snippets.decode_kernels.experiments.variants import require_gpu
from snippets.decode_kernels.kernelize import kernelized
from snippets.decoder.experiments.clocks import kernels_of, stopped
from snippets.decoder.experiments.hub_generate import (
    as_transformers,
    call_s,
    generate,
    way,
)
from snippets.decoder.experiments.token_loops import (
    exact_logits,
    model_of,
    prompt_of,
)
from snippets.lab.experiment import Experiment, Instruments

if TYPE_CHECKING:
    from torch import Tensor

MISSING = "needs kernels: pip install kernels"
PLAIN, OURS = "plain", "ours"
"""Models whose decoder layers run as they are, and by the decode kernels."""
KERNELS_OF_A_LAYER = 5
LAYER_KERNELS = (
    "decode_project_kernel",
    "decode_attend_kernel",
    "decode_residual_kernel",
    "decode_gate_up_kernel",
)
"""The package's kernels."""
TRACED = 8
"""Tokens of a profiled call, besides the first."""


def in_transformers(
    instruments: Instruments,
    device: str,
    size: str,
    batch: int,
    prompt: int,
    few: int,
    many: int,
    rounds: int,
    ways: str,
) -> dict[str, Any]:
    """A token of `generate` with the decode kernels and without, by the kind
    of cache: the ways of the decoder's `generate_times`. Calls for few and for
    many new tokens, A B, B A.

    Returns {"versions": of packages, "tokens": many, "ways": {way: {
    "plain" and "ours": {"us": samples of a token, "first_us": of a call for
    few tokens, "warm_up_s": of the first two calls, "kernels": of a token,
    "own": kernels of the package among these, "error": of the chosen tokens'
    logits, relative, against float32, "likely": tokens that float32 chooses
    too}, "equal": leading tokens that both choose, "gap": between the float32
    logits of the first two tokens that differ, or 0, "largest_error": of the
    plain logits up to this place}}}. A model has {"stopped": why} if it raised
    an error or its layers did not run the kernels. Or {"missing": why}.
    """
    require_gpu(device)
    decoder = model_of(size, device)
    try:
        models = models_of(decoder)
    except ModuleNotFoundError as error:
        return {"missing": str(error)}
    ids = prompt_of(decoder, batch, prompt)
    found: dict[str, Any] = {}
    for name in ways.split(","):
        found[name] = times(models, ids, name, few, many, rounds)
    # last, since launches are timed in a process that has not profiled yet
    for name, entry in found.items():
        options = way(name, prompt + many)[1]
        for each in running(entry):
            counts = kernel_counts(
                instruments, models[each], ids, device, options
            )
            entry[each] |= counts
            if each == OURS:
                require_kernels(entry, decoder.config.layers, device)
        if running(entry) == [PLAIN, OURS]:
            compare(entry, models, decoder, ids, many, options)
    packages = ("transformers", "kernels")
    versions = {each: importlib.metadata.version(each) for each in packages}
    return {"versions": versions, "tokens": many, "ways": found}


def models_of(decoder: Any) -> dict[str, Any]:
    """Two models over the same weights. Raises `ModuleNotFoundError`."""
    models = {each: as_transformers(decoder) for each in (PLAIN, OURS)}
    try:
        models[OURS] = kernelized(models[OURS])
    except ModuleNotFoundError as error:
        if error.name != "kernels":
            raise
        raise ModuleNotFoundError(MISSING) from error
    return models


def running(entry: Mapping[str, Any]) -> list[str]:
    """The models that did not stop."""
    return [each for each in (PLAIN, OURS) if "us" in entry[each]]


def times(
    models: Mapping[str, Any],
    ids: Tensor,
    name: str,
    few: int,
    many: int,
    rounds: int,
) -> dict[str, Any]:
    """Times of one way: {model: {"us", "first_us", "warm_up_s"}}, or
    {"stopped": why} of a model, with the reasons that the package warned of."""
    import torch

    check, options = way(name, ids.shape[1] + many)

    def call(model: Any, new: int) -> float:
        return call_s(model, ids, new, check, **options)

    found: dict[str, Any] = {}
    for each, model in models.items():
        try:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                warm_up_s = [call(model, new) for new in (few, many)]
        except torch.AcceleratorError:  # the GPU is unusable from here
            raise
        except RuntimeError as error:
            found[each] = stopped(error)
            continue
        found[each] = {"us": [], "first_us": [], "warm_up_s": warm_up_s}
        texts = [str(one.message) for one in caught]
        if said := [text for text in texts if "decode kernels" in text]:
            found[each] = {"stopped": said[0]}
    for index in range(rounds):
        for each in running(found)[:: 1 if index % 2 == 0 else -1]:
            few_s, many_s = (call(models[each], n) for n in (few, many))
            of_a_token_s = (many_s - few_s) / (many - few)
            found[each]["us"].append(round(1e6 * of_a_token_s, 3))
            found[each]["first_us"].append(round(1e6 * few_s, 3))
    return found


def kernel_counts(
    instruments: Instruments,
    model: Any,
    ids: Tensor,
    device: str,
    options: Mapping[str, Any],
) -> dict[str, float]:
    """Kernels of a token, of all and of the package: from profiled calls for
    one token and for some more."""
    counts = []
    for new in (1, 1 + TRACED):
        step = functools.partial(generate, model, ids, new, None, **options)
        names = [one["name"] for one in kernels_of(instruments, step, device)]
        kernels = [each for each in names if not each.startswith("Mem")]
        own = [each for each in kernels if each.startswith(LAYER_KERNELS)]
        counts.append((len(kernels), len(own)))
    few, many = counts
    return {
        name: round((more - less) / TRACED, 2)
        for name, less, more in zip(("kernels", "own"), few, many, strict=True)
    }


def require_kernels(entry: dict[str, Any], layers: int, device: str) -> None:
    """Drop the times of a model whose layers did not all run the kernels."""
    own, expected = entry[OURS]["own"], KERNELS_OF_A_LAYER * layers
    if own != expected and device == "cuda":
        why = f"a token ran {own:g} of the decode kernels, not {expected}"
        entry[OURS] = {"stopped": why}


def compare(
    entry: dict[str, Any],
    models: Mapping[str, Any],
    decoder: Any,
    ids: Tensor,
    new: int,
    options: Mapping[str, Any],
) -> None:
    """Add what both models answer to the first text: how exact it is, and how
    many leading tokens are equal."""
    import torch

    ids, end = ids[:1], ids.shape[1]
    tokens, logits, exact = {}, {}, {}
    for each, model in models.items():
        answer = generate(
            model,
            ids,
            new,
            None,
            output_logits=True,
            return_dict_in_generate=True,
            **options,
        )
        text = answer.sequences
        tokens[each] = chosen = text[0, end:]
        logits[each] = torch.cat(answer.logits).float()
        exact[each] = exact_logits(decoder, text[:, :-1])[0, end - 1 :]
        of_chosen = [
            one.gather(1, chosen[:, None])
            for one in (logits[each], exact[each])
        ]
        entry[each]["error"] = relative(*of_chosen)
        likely = exact[each].argmax(1) == chosen
        entry[each]["likely"] = int(likely.sum())
    differs = (tokens[PLAIN] != tokens[OURS]).nonzero()
    equal = int(differs[0]) if len(differs) else new
    upto = slice(0, equal + 1)
    errors = (logits[PLAIN][upto] - exact[PLAIN][upto]).abs()
    entry |= {"equal": equal, "gap": 0.0, "largest_error": errors.max().item()}
    if equal < new:
        place = exact[PLAIN][equal]
        first, second = (place[tokens[each][equal]] for each in (PLAIN, OURS))
        entry["gap"] = (first - second).abs().item()


def transformers_probes() -> Iterator[Experiment]:
    """`generate` as it comes, and with a static cache; compiled apart, since
    compiling takes most of the time."""
    for name, ways in (
        ("in_transformers", "dynamic,static eager"),
        ("in_transformers_compiled", "static"),
    ):
        yield Experiment(
            chapter="decode_kernels",
            name=name,
            probe=in_transformers,
            parameters={
                "size": "1.1b",
                "batch": 1,
                "prompt": 512,
                "few": 1,
                "many": 64,
                "rounds": 5,
                "ways": ways,
            },
            trial={"many": 8, "rounds": 1},
            time_limit_s=120,
        )
