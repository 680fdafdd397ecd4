"""What every embedding dialect is translated into and out of. Knows no JSON and no HTTP."""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from rosebed.core.encodings import Encoding
from rosebed.core.errors import InvalidInput
from rosebed.core.int8_ranges import Int8Ranges
from rosebed.core.types import Float32Array, Lane
from rosebed.text.tokenized import Side

PLAIN = Encoding()
"""Vectors as they are."""


class EmptyInput(InvalidInput):
    """There is nothing to embed."""


class EmbeddingsRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Inputs to embed and how; None does what the server and the checkpoint say.

    A struct, as it is made ten times as fast as a frozen dataclass, once for each request.
    """

    texts: Sequence[str] = ()
    """The inputs, unless `token_ids` or `documents` holds them."""
    token_ids: Sequence[Sequence[int]] = ()
    """Inputs that the caller tokenized: used as given, without prompt or special tokens."""
    is_flat: bool = False
    """Whether `token_ids` came as one bare list: its numbers are `input[j]` to the caller then."""
    documents: Sequence[Sequence[str]] = ()
    """Documents in chunks, each of which is embedded in the light of its document (late chunking)."""
    each_token: bool = False
    """One vector for each token of an input, as the transformer gives it, instead of one for the whole."""
    model: str | None = None
    """The served name asked for."""
    encodings: tuple[Encoding, ...] = (PLAIN,)
    """Forms that the vectors are wanted in."""
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
    most_input_tokens: int | None = None
    """A limit tighter than the model's, which by itself does not ask to truncate."""
    most_tokens: int | None = None
    """Of all inputs together."""
    lane: Lane = Lane.ONLINE

    @property
    def num_inputs(self) -> int:
        return len(self.documents or self.token_ids or self.texts)


class Timings(NamedTuple):
    """Where a request's time went, in nanoseconds. What several replicas did at once is that of the slowest."""

    tokenization_ns: int
    queue_ns: int
    """From its arrival at a replica until the last sequence left the queue."""
    compute_ns: int
    """From then until the last result was there."""


class EmbeddingsAnswer(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The vectors of one request, in the order of its inputs."""

    rows: Sequence[Float32Array]
    """Of each input float32[num_vectors, dim]: one vector, or one for each of its chunks or tokens."""
    model: str
    """The name asked for, or the model's first."""
    architecture: str
    """The model's class name, which decides how its vectors are quantised."""
    int8_ranges: Int8Ranges | None
    """The operator's, where int8 and uint8 are not each vector's own."""
    num_tokens: int
    """Tokens computed, special tokens and prompts included."""
    truncated_from: dict[int, int]
    """Input → tokens it had, or had at least, for those that were cut."""
    timings: Timings

    @property
    def vectors(self) -> list[Float32Array]:
        """float32[dim] of each input, chunk or token, all in order."""
        return [vector for rows in self.rows for vector in rows]
