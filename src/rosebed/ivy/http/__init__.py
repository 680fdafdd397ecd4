"""One HTTP exchange: reading it, answering it, failing it. Knows no embeddings, no models, no replicas."""
