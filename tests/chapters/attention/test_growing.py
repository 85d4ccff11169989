"""The speed of each variant, and the effect of longer sequences: claims and tables on altered recordings."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from snippets.attention.findings import growing, speed
from snippets.attention.findings.growing import Lengths
from snippets.attention.findings.variants import VARIANTS
from snippets.lab.recording.ceilings import LARGE_MATMUL
from tests.chapters.altered import RECORDED, AlteredDevice, measured, status
from tests.chapters.attention.bench import FIGURES


def time_forwards(device: AlteredDevice, kind: str = "interleaved", **times_us: float) -> None:
    """Give forwards of one session a constant time; `kind` is a field of `Timings`."""
    for name, us in times_us.items():
        device.time(f"attention/{name}", us, kind)


def at_length(device: AlteredDevice, head_dim: int, tokens: int, name: str, **given: Any) -> None:
    """Replace all that a variant gave at a length."""
    data = copy.deepcopy(device[f"attention/lengths_{head_dim}"].data)
    data[str(tokens)]["variants"][name] = given
    device.record(f"attention/lengths_{head_dim}", data=data)


def samples(us: float) -> list[float]:
    return [us, us, us]


def test_cudnn_gains_more_than_flash(device: AlteredDevice) -> None:
    time_forwards(device, cudnn=186.3 / 3, flash=146.8 / 1.5)
    assert measured(device, "O-A31").value == pytest.approx(2)


def test_tables_of_one_length() -> None:
    gpu, cpu = speed.gpu_times(RECORDED), speed.cpu_times(RECORDED)
    assert gpu.count("<tr>") == cpu.count("<tr>") == 1 + len(VARIANTS)
    assert "7.24 ms" in gpu
    not_steady = sum(RECORDED[experiment].timings.steady is None for experiment in VARIANTS.values())
    assert gpu.count('title="none"') == 2 * (len(VARIANTS) - len(speed.SERIES_GPU_US)) + 2 * not_steady
    assert "214 µs" in cpu


def test_lengths_and_variants() -> None:
    for lengths in growing.sweeps(RECORDED):
        assert list(lengths.data) == [128, 256, 512, 1024, 2048, 4096, 8192, 16384]
        assert all(set(each["variants"]) == set(growing.SWEPT.values()) for each in lengths.data.values())
        assert lengths.longest == 16384


def test_growth_by_hand(device: AlteredDevice) -> None:
    at_length(device, 64, 1024, "flash", samples_us=[90, 100, 110])
    at_length(device, 64, 2048, "flash", samples_us=[297, 300, 330])
    growth = Lengths(device, 64).growth("flash", 2048)
    assert (growth.value, growth.text) == (3, "3.00x")
    assert growth.spread == pytest.approx((298.5 / 105, 315 / 95))


def test_any_variant_may_take_the_lead(device: AlteredDevice) -> None:
    at_length(device, 64, 128, "naive", samples_us=samples(1))  # below 256 tokens nothing is claimed
    assert status(device, "O-A35") == "holds"
    cudnn_us = RECORDED["attention/lengths_128"].data["512"]["variants"]["cudnn"]["samples_us"]
    at_length(device, 128, 512, "naive", samples_us=[0.99 * us for us in cudnn_us])
    assert status(device, "O-A35") == "differs"


def test_another_reason_to_stop_is_not_memory(device: AlteredDevice) -> None:
    at_length(device, 64, 16384, "math", stopped="RuntimeError: no kernel")
    with pytest.raises(LookupError, match="not out of memory"):
        FIGURES["length_math_asked"](device)
    assert "RuntimeError: no kernel" in growing.longest_table(device)


@pytest.mark.parametrize(("unit", "scale"), [("GiB", 2**30), ("MiB", 2**20)])
def test_the_bytes_asked_for(device: AlteredDevice, unit: str, scale: int) -> None:
    at_length(device, 64, 16384, "math", stopped=f"out of memory for 1.50 {unit} more at 8192 tokens")
    assert FIGURES["length_math_asked"](device).value == 1.5 * scale
    assert FIGURES["length_math_tokens"](device).text == "8,192"
    asked = growing.format_value(round(1.5 * scale), "bytes")
    assert f"asked for {asked} more at 8,192 tokens" in growing.longest_table(device)


def test_a_matrix_of_scores_by_hand() -> None:
    assert growing.scores_bytes(RECORDED).value == 2 * 8 * 16 * 16384 * 16384


def test_rate_and_share_by_hand(device: AlteredDevice) -> None:
    """Two causal products of 8192 tokens, 2 x 2 x 128 x 8192 x 4096 x 64 FLOP; a product of 8192 cubed as ceiling."""
    at_length(device, 64, 8192, "flash", samples_us=samples(1000))
    point = Lengths(device, 64).point("flash", 8192)
    assert point.flops == 2 * 2 * 128 * 8192 * 4096 * 64
    assert point.bytes == 4 * 2 * 128 * 8192 * 64
    assert point.rate == pytest.approx(point.flops / 1e-3)
    at_length(device, 64, 16384, "flash", samples_us=samples(4000))
    data = copy.deepcopy(device["attention/lengths_64"].data)
    data["16384"]["matmul"] = {"samples_us": samples(1000)}
    device.record("attention/lengths_64", data=data)
    share = Lengths(device, 64).product_share("flash")
    assert share.value == pytest.approx(100 * (point.flops * 4 / 4e-3) / (2 * 8192**3 / 1e-3))


def test_a_variant_that_stopped_has_no_time() -> None:
    with pytest.raises(LookupError, match=r"math has no samples_us at 16384 tokens: out of memory for 128.00 GiB"):
        Lengths(RECORDED, 64).timing("math", 16384)


def test_the_fastest_of_a_row_is_bold(device: AlteredDevice) -> None:
    at_length(device, 64, 128, "naive", samples_us=samples(1.5))
    table = growing.lengths_table(device)
    assert "<strong>1.50 µs</strong>" in table
    assert table.count("<strong>") == 16
    assert table.count(">stopped<") == 6


def test_the_roofline_shows_the_longest_that_ran(device: AlteredDevice) -> None:
    assert "naive, 8,192 tokens" in growing.climbing(device)
    assert "cuDNN, 16,384 tokens" in growing.climbing(device)
    at_length(device, 64, 8192, "naive", stopped="out of memory for 64.00 GiB more at 8192 tokens")
    assert "naive, 4,096 tokens" in growing.climbing(device)


def test_in_the_same_turns_samples_are_paired(device: AlteredDevice) -> None:
    """Every other way takes twice cuDNN's time in each pair; one that crosses it in a third of them decides nothing."""
    data = copy.deepcopy(RECORDED["attention/lengths_64"].data)
    for one in data["16384"]["variants"].values():
        one.pop("samples_us", None)
        one.setdefault("stopped", "not here")
    cudnn, flash = data["16384"]["variants"]["cudnn"], data["16384"]["variants"]["flash"]
    for one, samples_us in ((cudnn, [1000, 2000, 3000]), (flash, [2000, 4000, 6000])):
        del one["stopped"]
        one["samples_us"] = samples_us
    data["16384"]["matmul"] = {"samples_us": [2000, 4000, 6000]}
    device.record("attention/lengths_64", data=data)
    lengths = Lengths(device, 64)
    assert (lengths.over("flash", "cuDNN", 16384).value, lengths.over("flash", "cuDNN", 16384).spread) == (2, (2, 2))
    useful, product = 2 * 2 * 128 * 16384 * 8192 * 64, 2 * 8192**3
    assert lengths.product_share("cuDNN").value == pytest.approx(100 * 2 * useful / product)
    assert status(device, "O-A35") == "holds"
    flash["samples_us"] = [2000, 1900, 6000]
    assert status(device, "O-A35") == "inconclusive"


def test_moving_the_weights_by_hand() -> None:
    """2 x 268 MB at a copy's rate, and 17 GFLOP at that of a product."""
    run = RECORDED["attention/naive"]
    assert FIGURES["moved_us"](RECORDED).value == pytest.approx(2 * 2**28 / run.ceilings["copy"] * 1e6)
    assert FIGURES["computed_us"](RECORDED).value == pytest.approx(2 * 2**27 * 64 / run.ceilings[LARGE_MATMUL] * 1e6)
