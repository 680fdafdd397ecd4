"""What every embedding dialect is translated into and out of. Knows no JSON and no HTTP."""

from collections.abc import Sequence

import msgspec

from rosebed.core.types import Float32Array, Lane
from rosebed.text.tokenized import Side


class EmbeddingsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs to embed and how; None does what the server and the checkpoint say.

    A struct, as it is made ten times as fast as a frozen dataclass, once for each request.
    """

    texts: Sequence[str] = ()
    """The inputs, unless `token_ids` holds them."""
    token_ids: Sequence[Sequence[int]] = ()
    """Inputs that the caller tokenized: used as given, without prompt or special tokens."""
    is_flat: bool = False
    """Whether `token_ids` came as one bare list: its numbers are `input[j]` to the caller then."""
    model: str | None = None
    """The served name asked for."""
    dimensions: int | None = None
    normalize: bool | None = None
    prompt: str | None = None
    prompt_name: str | None = None
    input_type: str | None = None
    truncate: bool | None = None
    truncate_to: int | None = None
    """A limit tighter than the model's, in tokens; asking for one also asks to truncate."""
    side: Side = Side.RIGHT
    add_special_tokens: bool = True
    lane: Lane = Lane.ONLINE

    @property
    def num_inputs(self) -> int:
        return len(self.token_ids or self.texts)


class EmbeddingsAnswer(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The vectors of one request, in the order of its inputs."""

    vectors: Sequence[Float32Array]
    """One float32[dim] per input."""
    model: str
    """The name asked for, or the model's first."""
    num_tokens: int
    """Tokens computed, special tokens and prompts included."""
    truncated_from: dict[int, int]
    """Input → tokens it had, or had at least, for those that were cut."""
