"""What every architecture provides. Knows neither files nor devices: parameters are filled in from outside."""

from collections.abc import Mapping
from typing import ClassVar

from torch import Tensor, nn

from rosebed.core.checkpoint import Json
from rosebed.core.types import Int32Array, SequenceLayout
from rosebed.rose.attention.base import Attention, AttentionSpec
from rosebed.rose.ops.base import Ops


class Loadable(nn.Module):
    """A module that `weights.load_weights` can fill: its parameters carry the checkpoint's names, but for `FUSED`."""

    PREFIXES: ClassVar[tuple[str, ...]] = ("",)
    """What checkpoints put before every name, depending on which class saved them."""
    FUSED: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Name of a `FusedLinear` → the checkpoint's modules stacked in it, in order, along the output axis."""
    IGNORABLE: ClassVar[frozenset[str]] = frozenset()
    """Tensors that checkpoints may hold and the computation does without, by exact name, prefix included."""


class EncoderModel(Loadable):
    """Packed token ids in, hidden states out. Constructed under `torch.device("meta")`."""

    attention_spec: AttentionSpec

    def __init__(self, config: Json, ops: Ops) -> None:  # noqa: ARG002  (the signature that subclasses share)
        super().__init__()

    def positions(self, layout: SequenceLayout, token_ids: Int32Array) -> Int32Array:  # noqa: ARG002  (some do look)
        """int32[T], on the host: the position of each token as `forward` wants it; 0…n-1 in each sequence."""
        return layout.positions

    def forward(
        self,
        input_ids: Tensor,  # int32[T]
        positions: Tensor,  # int32[T], what `positions` gave
        token_type_ids: Tensor | None,  # int32[T]; None means all zero
        attention: Attention,  # planned for this batch
    ) -> Tensor:
        """Hidden states of the last layer, [T, hidden]. Only enqueues work: a CUDA graph can capture it."""
        raise NotImplementedError
