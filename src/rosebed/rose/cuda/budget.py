"""How many tokens a batch should hold, from measured step times. Pure arithmetic."""

from collections.abc import Mapping

GOOD_ENOUGH = 0.97
"""Share of the best throughput that the smallest acceptable budget reaches: beyond it, batches only wait longer."""
CANDIDATES = (256, 512, 1024, 2048, 3072, 4096, 6144, 8192)


def choose_budget(step_ms: Mapping[int, float]) -> int:
    """The smallest token count whose tokens per second are within `GOOD_ENOUGH` of the best; from tokens → ms."""
    rates = {tokens: tokens / ms for tokens, ms in step_ms.items()}
    best = max(rates.values())
    return min(tokens for tokens, rate in rates.items() if rate >= GOOD_ENOUGH * best)
