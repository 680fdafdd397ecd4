"""The HTTP gateway: JSON in, JSON out, tokenization between, vectors from replicas. Knows no torch and no GPU."""
