"""A decode step as a CUDA graph, recorded and replayed by hand."""

import torch
from torch import Tensor

from .model import choose, decode_one


# --8<-- [start:graph]
class DecodeGraph:
    """One decode step whose kernels are recorded once and replayed as a whole.

    A replay reads and writes the addresses of the recording: the token and the
    position go in and come out through the same tensors, and the weights and
    the cache must live as long as the graph.
    """

    def __init__(self, model, cache, token, position, pick=choose):
        # token: (batch, 1); position: (1,)
        self.token, self.position = token.clone(), position.clone()
        self.model, self.cache = model, cache
        self.logit: Tensor

        def step() -> None:
            self.logit, following = decode_one(
                model, self.token, self.position, cache, pick
            )
            self.token.copy_(following)
            self.position += 1

        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):  # allocate, tune and compile first
                step()
                self.restart(token, position)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        own = torch.cuda.Stream()  # graphs of one stream share a workspace
        with torch.cuda.graph(self.graph, stream=own):
            step()

    def restart(self, token: Tensor, position: Tensor) -> None:
        self.token.copy_(token)
        self.position.copy_(position)

    def __call__(self) -> tuple[Tensor, Tensor]:
        """Decode a token: its logit and itself, until the next call."""
        self.graph.replay()
        return self.logit, self.token


# --8<-- [end:graph]
