"""Fused operations that models are written in. `base` says what they are, `reference` is torch."""
