"""What a model will take of a GPU's memory, computed before anything is loaded. Pure arithmetic."""

from dataclasses import dataclass

from rosebed.core.errors import ConfigError
from rosebed.core.model_spec import ModelSpec

_FIXED_BYTES = 768 << 20
"""CUDA context, libraries' workspaces, FlashInfer's, and the instantiated graphs themselves."""
_BULK_FIXED_BYTES = 256 << 20
"""What a second slot has again of these, and its static blocks."""

_MARGIN = 1.25
"""Over the tensors alive at once in a layer: allocators round up, and kernels hold temporaries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPlan:
    """Bytes by purpose."""

    weights: int
    graphs: int
    """Activations of the largest captured step; smaller graphs share them."""
    largest_step: int
    """Activations of the longest sequence, when it is too long for a graph; 0 otherwise."""
    bulk_slot: int = 0
    """All of these that the bulk lane has of its own."""
    fixed: int = _FIXED_BYTES

    @property
    def total(self) -> int:
        return self.weights + self.graphs + self.largest_step + self.bulk_slot + self.fixed

    def check(self, free_bytes: int, device: str) -> None:
        """ConfigError if so much is not free on `device`."""
        if self.total > free_bytes:
            raise ConfigError(
                f"--device {device} has {_gigabytes(free_bytes)} free, but this model needs {_gigabytes(self.total)}: "
                f"{self}. Free memory there, or give a smaller --dtype or --max-length"
                f"{', or --no-bulk-slot' if self.bulk_slot else ''}"
            )

    def __str__(self) -> str:
        return (
            f"weights {_gigabytes(self.weights)}, graphs {_gigabytes(self.graphs)}, "
            f"longest step {_gigabytes(self.largest_step)}, bulk lane {_gigabytes(self.bulk_slot)}, "
            f"other {_gigabytes(self.fixed)}"
        )


def plan_memory(
    spec: ModelSpec,
    *,
    num_parameters: int,
    item_bytes: int,
    max_graph_tokens: int,
    is_float8: bool = False,
    bulk_slot: bool = False,
) -> MemoryPlan:
    """The plan for a model of so many parameters in a type of `item_bytes`.

    Weights that become float8 are read as what they were, so that loading takes as much as ever; what products take is
    held a second time, in one byte. With a `bulk_slot`, two steps compute at once, each in memory of its own.
    """
    per_token = _activation_bytes(spec, item_bytes) + (_activation_bytes(spec, 1) if is_float8 else 0)
    graphs = per_token * max_graph_tokens
    largest_step = per_token * spec.max_length if spec.max_length > max_graph_tokens else 0
    return MemoryPlan(
        weights=num_parameters * item_bytes,
        graphs=graphs,
        largest_step=largest_step,
        bulk_slot=graphs + largest_step + _BULK_FIXED_BYTES if bulk_slot else 0,
    )


def _activation_bytes(spec: ModelSpec, item_bytes: int) -> int:
    """Most bytes per token alive at once: some copies of the hidden state, QKV, and the widest product twice."""
    config, hidden = spec.config, spec.hidden_size
    heads = int(config.get("num_attention_heads") or config.get("n_heads") or 1)
    head_dim = int(config.get("head_dim") or hidden // heads)
    kv_heads = int(config.get("num_key_value_heads") or heads)
    wide = int(config.get("intermediate_size") or config.get("hidden_dim") or 4 * hidden)
    values = 6 * hidden + (2 * heads + 2 * kv_heads) * head_dim + 3 * wide
    return int(values * item_bytes * _MARGIN)


def _gigabytes(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.1f} GB"
