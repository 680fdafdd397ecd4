"""From hidden states to what a caller asked for, always in float32. Knows no architecture and no batching."""
