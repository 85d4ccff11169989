"""The processes of several ranks: their environment, their process group, and functions that run in all of them.

torch is imported in functions only, so that a rank's variables are set before it is.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import socket
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

from snippets.lab.experiment import ExperimentError, NeedsGpu, UnknownName, WrongAnswer

NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
"""NVLink multicast stays off: a program that uses it and dies can leave the GPUs of its host out of order."""
KNOWN = (ExperimentError, NeedsGpu, UnknownName, WrongAnswer)
COLLECTIVE_LIMIT = timedelta(minutes=1)
"""A collective that takes longer ends its rank, with the name of the collective."""
GRACE_S = 0.5
"""After a rank's failure, the others may report theirs for this long: the earliest is the cause."""
PRELOADED = ["torch.distributed", "torch._dynamo"]
"""By the server that forks ranks."""


class RankError(RuntimeError):
    """A rank raised, died or ran past the deadline; the message names the rank and has its traceback."""


def run_ranks(
    function: Callable[..., Any],
    world: int,
    *arguments: Any,
    device: str = "cpu",
    limit_s: float = 60.0,
    environment: Mapping[str, str] | None = None,
) -> list[Any]:
    """Call `function(rank, world, *arguments)` in one process a rank and return the results, in the order of ranks.

    Args:
        function: a function of a module; `torch.distributed` is initialized when it is called.
        world: the number of ranks.
        arguments: picklable; so are the results.
        device: `cuda`, with the default group nccl and a GPU a rank, or `cpu`, with gloo and one thread a rank.
        limit_s: all ranks are killed when this has passed.
        environment: variables that each rank sets first.

    Raises the lab's error that the first rank raised, such as `WrongAnswer`, and `RankError` with the traceback of any
    other error; the other ranks are killed.
    """
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # else asking for a GPU spoils CUDA for forked ranks
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    ranks = []
    for variables in rank_environments(world, environment or {}):
        reader, writer = context.Pipe(duplex=False)
        given = (writer, function, arguments, device, variables)
        process = context.Process(target=_run, args=given, daemon=False)
        process.start()
        writer.close()
        ranks.append(_Rank(process, reader))
    try:
        return _results(ranks, limit_s)
    finally:
        for rank in ranks:
            end_process(rank.process)
            rank.reader.close()


def rank_environments(world: int, more: Mapping[str, str]) -> list[dict[str, str]]:
    """The variables of each rank, as torchrun sets them, with a free port."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    common = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world), "MASTER_ADDR": "127.0.0.1"}
    common |= {"MASTER_PORT": str(port), "GLOO_SOCKET_IFNAME": "lo", **NO_MULTICAST, **more}
    return [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(world)]


@contextmanager
def process_group(device: str) -> Iterator[tuple[int, int]]:
    """Join the default process group of this rank's environment; yield rank and number of ranks.

    The end of the process ends a group of nccl: `os._exit` when all ranks have met for the last time.
    """
    import torch
    import torch.distributed as dist

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    if device == "cuda":
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", device_id=torch.device("cuda", rank), timeout=COLLECTIVE_LIMIT)
    else:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", timeout=COLLECTIVE_LIMIT)
    yield rank, world
    if device != "cuda":  # NCCL would wait for a CUDA graph that is left, or for a rank that is gone
        dist.destroy_process_group()


def end_process(process: BaseProcess) -> None:
    """Kill a process that leads its session, and all processes that it started."""
    if process.is_alive() and process.pid is not None:
        with suppress(ProcessLookupError):  # it has not begun its session yet
            os.killpg(process.pid, signal.SIGKILL)
        process.kill()
    process.join()


def death(code: int | None) -> str:
    """How a process with this exit code ended, in words."""
    if code is None:
        return "the process closed its pipe and did not end"
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"the process ended with code {code}"


@dataclass(frozen=True)
class _Rank:
    process: BaseProcess
    reader: Connection


@dataclass(frozen=True)
class _Reply:
    """What a rank sends at its end."""

    result: Any = None
    error: str = ""
    """The traceback, or the message of one of the lab's errors; empty after success."""
    kind: type[Exception] = RankError
    at_s: float = 0.0
    """The monotonic clock, which all processes share."""


def _run(writer: Connection, function: Callable[..., Any], arguments: Any, device: str, variables: Any) -> None:
    os.setsid()
    os.environ.update(variables)
    try:
        with process_group(device) as (rank, world):
            import torch.distributed as dist

            content = pickle.dumps(_Reply(function(rank, world, *arguments)))
            dist.barrier()  # rank 0 has the store, which the others need to the end
    except KNOWN as error:
        content = pickle.dumps(_Reply(error=str(error), kind=type(error), at_s=time.monotonic()))
    except BaseException:  # whatever it is, the parent raises it
        content = pickle.dumps(_Reply(error=traceback.format_exc(), at_s=time.monotonic()))
    writer.send_bytes(content)
    writer.close()
    os._exit(0)  # a rank whose group is broken may hang in the interpreter's own clean-up


def _results(ranks: Sequence[_Rank], limit_s: float) -> list[Any]:
    end = time.monotonic() + limit_s
    replies: dict[int, _Reply | None] = {}
    """None of a rank that died."""
    while len(replies) < len(ranks) and (left_s := end - time.monotonic()) > 0:
        readers = {rank.reader: number for number, rank in enumerate(ranks) if number not in replies}
        for reader in wait(list(readers), left_s):
            replies[readers[reader]] = _reply(reader)  # type: ignore[index]
        if any(reply is None or reply.error for reply in replies.values()):
            end = min(end, time.monotonic() + GRACE_S)
    _raise_first(ranks, replies)
    if missing := sorted({*range(len(ranks))} - replies.keys()):
        names = ", ".join(map(str, missing))
        raise RankError(f"rank {names}: did not end within {limit_s:g} s; does every rank call the same collectives?")
    return [replies[number].result for number in range(len(ranks))]  # type: ignore[union-attr]


def _reply(reader: Any) -> _Reply | None:
    try:
        reply: _Reply = pickle.loads(reader.recv_bytes())
    except EOFError:
        return None
    return reply


def _raise_first(ranks: Sequence[_Rank], replies: Mapping[int, _Reply | None]) -> None:
    """Raise the first rank's failure: a rank that died is the cause of what the others raise."""
    for number, reply in sorted(replies.items()):
        if reply is None:
            ranks[number].process.join(timeout=5)
            raise RankError(f"rank {number}: {death(ranks[number].process.exitcode)}")
    failed = [(reply.at_s, number, reply) for number, reply in replies.items() if reply and reply.error]
    if failed:
        _, number, reply = min(failed, key=lambda each: each[:2])
        raise reply.kind(f"rank {number}: {reply.error.rstrip()}")
