"""The inference server: queue, token-budget batching, deadlines, completion. Knows no text, JSON, HTTP or torch."""
