"""The request for weights ahead, as in the fused MLP."""

from snippets.fused_mlp.geglu.ahead import fetch_ahead as fetch_ahead
