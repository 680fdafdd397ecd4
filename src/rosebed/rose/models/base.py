"""What every architecture provides. Knows neither files nor devices: parameters are filled in from outside."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from rosebed.rose.attention.base import AttentionBackend, AttentionSpec


class EncoderModel(nn.Module):
    """Packed token ids in, hidden states out.

    Subclasses are constructed as `Model(config, ops)` under `torch.device("meta")`; their parameters carry the
    checkpoint's own names, but for the fused products listed in `FUSED`.
    """

    PREFIXES: ClassVar[tuple[str, ...]] = ("",)
    """What checkpoints put before every name of this architecture, depending on which class saved them."""
    FUSED: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Name of a fused module → the checkpoint's modules stacked in it, in order, along the output axis."""
    IGNORABLE: ClassVar[frozenset[str]] = frozenset()
    """Tensors that checkpoints may hold and hidden states do not need, by exact name, prefix included."""

    attention_spec: AttentionSpec

    def forward(
        self,
        input_ids: Tensor,  # int32[T]
        positions: Tensor,  # int32[T], 0…n-1 in each sequence
        token_type_ids: Tensor | None,  # int32[T]; None means all zero
        attention: AttentionBackend,  # planned for this batch
    ) -> Tensor:
        """Hidden states of the last layer, [T, hidden]. Only enqueues work: a CUDA graph can capture it."""
        raise NotImplementedError
