"""The whole MLP against eager PyTorch: `kernels benchmark .`"""

import torch
from kernels.benchmark import Benchmark
from torch.nn import functional as F


class GatedMLPBenchmark(Benchmark):
    """Without gradients, in bfloat16; a call's time contains its launches."""

    seed = 0

    def setup_mlp(
        self, tokens: int, dim: int, hidden: int, activation: str
    ) -> None:
        """Input and weights from normal distributions, so scaled that results are near 0.1."""
        self.activation = activation
        self.x, self.gate, self.up, self.down = (
            (scale * torch.randn(*shape, device=self.device)).bfloat16()
            for scale, shape in (
                (1, (tokens, dim)),
                (dim**-0.5, (hidden, dim)),
                (dim**-0.5, (hidden, dim)),
                (0.2 * hidden**-0.5, (dim, hidden)),
            )
        )

    def run_mlp(self) -> None:
        """The timed code."""
        self.out = self.kernel.gated_mlp(
            self.x, self.gate, self.up, self.down, self.activation
        )

    def reference(self) -> torch.Tensor:
        """The code to compare with, timed as well."""
        gate = F.linear(self.x, self.gate)
        gate = (
            F.silu(gate)
            if self.activation == "silu"
            else F.gelu(gate, approximate="tanh")
        )
        return F.linear(gate * F.linear(self.x, self.up), self.down)

    def setup_geglu(self) -> None:
        """The block that the book measures."""
        self.setup_mlp(8192, 768, 3072, "gelu_tanh")

    def setup_prefill(self) -> None:
        """A prompt, in a model of eight billion parameters."""
        self.setup_mlp(2048, 4096, 14336, "silu")

    def setup_decode(self) -> None:
        """One token, in the same model."""
        self.setup_mlp(1, 4096, 14336, "silu")

    benchmark_geglu = benchmark_prefill = benchmark_decode = run_mlp
    verify_geglu = verify_prefill = verify_decode = reference
