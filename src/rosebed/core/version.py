"""The version, where every layer may read it, installed or not."""

__version__ = "0.1.0"
