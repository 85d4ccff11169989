"""Kernels of a gated MLP for NVIDIA Hopper: the chapter's own sources, in the form that `kernels` loads."""

from . import layers
from .model import gate_up, gated_activation, gated_mlp, linear

__all__ = ["gate_up", "gated_activation", "gated_mlp", "layers", "linear"]
