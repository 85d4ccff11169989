"""Values derived from datasheets, against numbers computed by hand."""

from __future__ import annotations

import msgspec
import pytest

from snippets.fact_check.findings import datasheet
from snippets.lab.finding import NotTimed
from snippets.lab.finding.book import judge
from tests.chapters.altered import AlteredDevice
from tests.chapters.fact_check.samples import GELU_US, LINEAR_US, recordings
from tests.lab.samples import cells

FLOPS = 16_777_216
"""2 products x 2 x 1024 x 4096 for each token."""


def on(name: str) -> AlteredDevice:
    """The samples of the block on a GPU of this name."""
    device = AlteredDevice()
    (recording,) = (each for each, _ in recordings() if each.experiment == "block")
    environment = msgspec.structs.replace(recording.environment, device=name)
    device.recordings[recording.id] = msgspec.structs.replace(recording, environment=environment)
    return device


@pytest.mark.parametrize(
    ("arithmetic", "first", "second"),
    [
        ("bfloat16", 39_100, 27_900),  # 2.1 ms x 312 TFLOP/s are 655.2 GFLOP: 39,053 tokens
        ("tf32", 19_500, 13_900),
        ("float32", 2_400, 1_700),
    ],
)
def test_the_most_tokens_of_an_a100(arithmetic: str, first: int, second: int) -> None:
    assert datasheet.a100_tokens(arithmetic, 2100.0).value == first
    assert datasheet.a100_tokens(arithmetic, 1500.0).value == second
    tflops = {"bfloat16": 312, "tf32": 156, "float32": 19.5}[arithmetic]
    assert datasheet.a_token_us("NVIDIA A100", arithmetic) == pytest.approx(FLOPS / tflops / 1e6)


@pytest.mark.parametrize(("arithmetic", "peak"), [("bfloat16", 989), ("tf32", 494), ("float32", 67)])
def test_the_share_of_a_peak(arithmetic: str, peak: float) -> None:
    """The block's time of the samples is proportional to its tokens, so its rate is the same at each size."""
    us_per_token = 2 * LINEAR_US[arithmetic] + GELU_US[arithmetic]
    share = datasheet.share_of_peak(on("NVIDIA H200"), arithmetic)
    assert share.number == pytest.approx(100 * FLOPS / us_per_token / 1e6 / peak, rel=1e-3)


@pytest.mark.parametrize(("arithmetic", "tokens"), [("bfloat16", 19_400), ("tf32", 9_500), ("float32", 2_000)])
def test_an_a100_at_the_same_share(arithmetic: str, tokens: int) -> None:
    """In bf16 the samples take 2.1 ms at 61,440 tokens; times 312 over 989, that makes 19,382."""
    assert datasheet.a100_tokens_at_share(on("NVIDIA H200"), arithmetic).value == tokens


def test_what_is_left_for_gelu() -> None:
    """27,895 tokens of 16,384 bytes take 293.9 us at 1,555 GB/s, of 600; of float32, a sixteenth as many of twice."""
    assert datasheet.left_for_gelu().text == "600 µs"
    share = 100 * (1500 * 312e6 / FLOPS) * 16_384 / 1_555e3 / 600
    assert share == pytest.approx(48.985, abs=1e-3)
    assert datasheet.a100_gelu_rate().number == pytest.approx(share)
    assert datasheet.a100_gelu_rate("tf32").number == pytest.approx(share)
    assert datasheet.a100_gelu_rate("float32").number == pytest.approx(share / 8)


def test_the_rate_of_gelu() -> None:
    """In bf16 16,384 bytes take 40 / 8192 us: 3,355 GB/s of 4,800. In the others 32,768 bytes take 0.01 us."""
    device = on("NVIDIA H200")
    assert datasheet.gelu_rate(device, "bfloat16").number == pytest.approx(69.905, rel=1e-3)
    assert datasheet.gelu_rate(device, "tf32").number == pytest.approx(68.267, rel=1e-3)
    assert datasheet.least_gelu_rate(device).number == pytest.approx(68.267, rel=1e-3)


def test_a_gpu_whose_datasheet_is_not_listed() -> None:
    device = on("NVIDIA Sample")
    with pytest.raises(NotTimed, match="no datasheet of an NVIDIA Sample"):
        datasheet.share_of_peak(device, "bfloat16")
    with pytest.raises(NotTimed, match="no peak of TF32"):
        datasheet.a_token_us("Tesla V100-SXM2-16GB", "tf32")
    assert judge(datasheet.least_gelu_rate, "fact_check", device).status == "not measured"
    assert cells(datasheet.by_datasheet(device))[1][:3] == ["bf16", "312 TFLOP/s", "39,100"]


def test_the_table() -> None:
    head, *rows = cells(datasheet.by_datasheet(on("NVIDIA H200")))
    assert [row[0] for row in rows] == ["bf16", "TF32", "float32"]
    assert rows[0] == ["bf16", "312 TFLOP/s", "39,100", "49.6 %", "19,400", "27,900"]
    assert "tokens that take 2.10 ms at the peak" in head
