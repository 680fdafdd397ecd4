"""Replicas: connecting to them, streaming requests, choosing between them. Knows no HTTP and no text."""
