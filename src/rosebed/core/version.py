"""The version, where every layer may read it, installed or not."""

__version__ = "0.1.0"


def are_compatible(one: str, other: str) -> bool:
    """Whether processes of these versions speak one protocol: it may change between minor versions."""
    return bool(one) and one.split(".")[:2] == other.split(".")[:2]
