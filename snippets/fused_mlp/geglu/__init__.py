"""A gated MLP whose two pre-activations never reach device memory: kernels,
operators, a module. It imports nothing of the book."""

from . import layers
from .model import gate_up, gated_activation, gated_mlp, linear

__all__ = ["gate_up", "gated_activation", "gated_mlp", "layers", "linear"]
