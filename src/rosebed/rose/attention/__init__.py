"""Ragged attention over packed sequences, by name. Backends differ in speed and reach, never in meaning."""
