"""Functions that run in two processes on a CPU, with gloo: their results, and the first failure."""

from __future__ import annotations

import os
import re
import signal
import time

import pytest
import torch
import torch.distributed as dist

from snippets.lab.capture.ranks import RankError, rank_environments, run_ranks


def summed(rank: int, world: int, offset: int) -> tuple[torch.Tensor, str]:
    values = torch.full((2,), float(rank + offset))
    dist.all_reduce(values)
    return values, f"{rank} of {world}: {os.environ['LOCAL_RANK']}{os.environ.get('EXTRA', '')}"


def raises(rank: int, world: int) -> None:
    if rank == 1:
        raise ValueError("the first line")
    dist.barrier()


def dies(rank: int, world: int) -> None:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.barrier()


def hangs(rank: int, world: int) -> None:
    if rank == 1:
        time.sleep(600)
    dist.barrier()


def test_results_are_in_the_order_of_ranks() -> None:
    (first, first_place), (second, second_place) = run_ranks(summed, 2, 10, environment={"EXTRA": "x"})
    assert (first.tolist(), second.tolist()) == ([21.0, 21.0], [21.0, 21.0])
    assert (first_place, second_place) == ("0 of 2: 0x", "1 of 2: 1x")


def test_the_error_of_a_rank_comes_first() -> None:
    with pytest.raises(RankError, match=r"(?s)^rank 1: Traceback.*ValueError: the first line$"):
        run_ranks(raises, 2)


def test_a_rank_that_dies_is_the_cause() -> None:
    with pytest.raises(RankError, match=r"^rank 1: killed by SIGKILL$"):
        run_ranks(dies, 2)


def test_ranks_have_a_deadline() -> None:
    begin = time.monotonic()
    message = "rank 0, 1: did not end within 1 s; does every rank call the same collectives?"
    with pytest.raises(RankError, match=f"^{re.escape(message)}$"):
        run_ranks(hangs, 2, limit_s=1)
    assert time.monotonic() - begin < 300


def test_a_rank_has_the_variables_of_torchrun_and_no_multicast() -> None:
    first, second = rank_environments(2, {"CUDA_DEVICE_MAX_CONNECTIONS": "1"})
    assert (first.pop("RANK"), first.pop("LOCAL_RANK")) == ("0", "0")
    assert (second.pop("RANK"), second.pop("LOCAL_RANK")) == ("1", "1")
    assert first == second
    assert 1024 <= int(first.pop("MASTER_PORT")) < 65536
    assert first == {
        "WORLD_SIZE": "2",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_NVLS_ENABLE": "0",
        "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
        "NVSHMEM_DISABLE_NVLS": "1",
        "CUDA_DEVICE_MAX_CONNECTIONS": "1",
    }
