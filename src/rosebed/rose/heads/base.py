"""What every output beside the dense vector has: which hidden states it reads, and what it makes of them."""

from torch import Tensor

from rosebed.core.outputs import OutputSpec
from rosebed.core.types import Batch, Int32Array
from rosebed.rose.models.base import Loadable


class TailHead(Loadable):
    """Computed behind the encoder, on hidden states gathered by place: float32 in weights and results."""

    @property
    def output_spec(self) -> OutputSpec:
        """Shape of its rows."""
        raise NotImplementedError

    def rows(self, batch: Batch) -> tuple[Int32Array, Int32Array]:
        """What it reads for the sequences that want it.

        int32[num_rows] places on the packed token axis, int32[num_rows] owning sequences.
        """
        raise NotImplementedError

    def forward(self, hidden_states: Tensor) -> Tensor:
        """float32[num_rows, dim] from [num_rows, hidden], the states at those places."""
        raise NotImplementedError
