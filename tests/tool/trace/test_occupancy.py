"""How many blocks fit on a multiprocessor, by numbers computed by hand and by what the profiler estimated."""

import msgspec
import pytest

from kinetoscope.trace.events import GpuActivity, TraceError
from kinetoscope.trace.occupancy import (
    Footprint,
    Stocks,
    estimate_percent,
    fits_by,
    footprint_of,
    kernel_percent,
    occupancy_percent,
    resident_blocks,
    stocks_of,
)
from tests.tool.recorded import recorded

H200 = {
    "regsPerMultiprocessor": 65536,
    "sharedMemPerMultiprocessor": 233472,
    "sharedMemPerBlock": 49152,
    "maxThreadsPerMultiprocessor": 2048,
    "numSms": 132,
}
STOCKS = Stocks(registers=65536, shared_bytes=233472, threads=2048)


def kernel(threads: int, registers: int, shared_bytes: int, blocks: int = 10_000) -> GpuActivity:
    return GpuActivity(
        "kernel", 0.0, 1.0, "kernel", 0, 7, grid=(blocks, 1, 1), block=(threads, 1, 1), registers=registers,
        shared_memory_bytes=shared_bytes,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("threads", "registers", "shared_bytes", "fits", "percent"),
    [
        (128, 255, 49_152, (2, 16, 4), 12.5),
        (384, 168, 134_144, (1, 5, 1), 18.75),
        (256, 240, 100_000, (1, 8, 2), 12.5),
        (128, 48, 0, (10, 16, None), 62.5),
        (32, 16, 0, (128, 64, None), 50.0),  # no more than 32 blocks at a time
        (128, 32, 232_448, (16, 16, 1), 6.25),
        (128, 32, 233_000, (16, 16, 0), 0.0),
        (256, 27, 0, (8, 8, None), 100.0),
        (256, 32, 0, (8, 8, None), 100.0),
        (256, 33, 0, (6, 8, None), 75.0),  # 40 registers: 12 warps of each quarter's 16384
        (256, 159, 180_248, (1, 8, 1), 12.5),
        (384, 168, 229_656, (1, 5, 1), 18.75),
        (128, 32, 115_712, (16, 16, 2), 12.5),  # 115712 + 1024 is half of it
        (128, 32, 115_713, (16, 16, 1), 6.25),
        (100, 32, 0, (16, 16, None), 100.0),  # a warp that is partly empty takes all of its slots
    ],
)
def test_blocks_that_fit_by_hand(
    threads: int, registers: int, shared_bytes: int, fits: tuple[int | None, ...], percent: float
) -> None:
    footprint = Footprint(registers, shared_bytes, threads)
    by_stock = fits_by(footprint, STOCKS)
    assert tuple(by_stock.get(stock) for stock in ("registers", "threads", "shared memory")) == fits
    assert list(by_stock) == ["registers", "threads", "shared memory"][: 3 if shared_bytes else 2]
    assert occupancy_percent(footprint, STOCKS) == percent
    assert kernel_percent(kernel(threads, registers, shared_bytes), H200) == percent


def test_a_number_of_blocks_takes_the_place_of_those_that_fit() -> None:
    footprint = Footprint(registers=32, shared_bytes=0, threads=128)
    assert resident_blocks(footprint, STOCKS) == 16
    assert [occupancy_percent(footprint, STOCKS, blocks) for blocks in (0, 0.5, 8)] == [0, 3.125, 50]


@pytest.mark.parametrize(
    ("taken", "percent"),
    [
        (kernel(128, 255, 49_152), 12.5),
        (kernel(128, 255, 49_153), 0.0),
        (kernel(128, 32, 0, blocks=132), 6.25),
        (kernel(128, 32, 0, blocks=66), 3.125),
    ],
)
def test_the_estimate_counts_on_no_more_shared_memory_than_the_default(taken: GpuActivity, percent: float) -> None:
    assert estimate_percent(taken, H200) == percent


@pytest.mark.parametrize("missing", ["registers", "block", "shared_memory_bytes"])
def test_a_kernel_without_a_footprint_is_an_error(missing: str) -> None:
    with pytest.raises(TraceError, match=r"^the trace lacks the block size, registers or shared memory of kernel"):
        footprint_of(msgspec.structs.replace(kernel(128, 32, 0), **{missing: None}))


def test_the_properties_by_hand_are_those_of_a_trace() -> None:
    properties = recorded("attention/flash").device_properties
    assert {name: properties[name] for name in H200} == H200
    assert stocks_of(properties) == STOCKS
