"""The link: collectives by size, copies between two GPUs, and all-reduce in symmetric memory."""

from __future__ import annotations
