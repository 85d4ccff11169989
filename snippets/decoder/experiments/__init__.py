"""What the chapter decoder measures: loops of tokens, and what limits them."""

from __future__ import annotations

from snippets.decoder.experiments.first_tokens import compile_probes
from snippets.decoder.experiments.growing import growth_probes
from snippets.decoder.experiments.hub_generate import generate_experiments
from snippets.decoder.experiments.limits import limit_probes
from snippets.decoder.experiments.token_loops import ladder, pairs
from snippets.decoder.experiments.weights import weight_probes

EXPERIMENTS = (
    *ladder(),
    *generate_experiments(),
    *pairs(),
    *limit_probes(),
    *compile_probes(),
    *growth_probes(),
    *weight_probes(),
)
