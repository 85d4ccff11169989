"""A segment cut into blocks, every other block released: plain PyTorch to paste."""

import torch
from torch.profiler import record_function


# --8<-- [start:fragment]
def block(mib):
    """`mib` MiB of GPU memory."""
    return torch.empty(mib << 20, dtype=torch.uint8, device="cuda")


def lend(mib):
    with record_function("lend"):
        return block(mib)


def keep(mib):
    with record_function("keep"):
        return block(mib)


def interleave(lent, kept):
    """Take blocks from one large segment, and release every other one."""
    whole = block(sum(lent) + len(lent) * kept)
    del whole  # PyTorch keeps the segment
    pairs = [(lend(mib), keep(kept)) for mib in lent]
    return [small for _, small in pairs]


# --8<-- [end:fragment]
# --8<-- [start:limit]
def limit_to(mib):
    """Limit this process to `mib` MiB of GPU memory."""
    all_bytes = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction((mib << 20) / all_bytes)


# --8<-- [end:limit]
