"""A training step by phase, precision and optimizer."""
