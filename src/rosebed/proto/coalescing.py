"""Several messages in one write: a write on a stream costs the same for one small message as for fifty."""

from collections.abc import Iterator
from collections.abc import Sequence as AnySequence
from typing import TypeVar

from rosebed.proto.rosebed_pb2 import EmbedResponse, StreamRequest

StreamMessage = TypeVar("StreamMessage", StreamRequest, EmbedResponse)


def joined(messages: AnySequence[StreamMessage]) -> StreamMessage:
    """One message to write for `messages` (at least one, none joined yet); the first of them carries the others."""
    first = messages[0]
    if len(messages) > 1:
        first.also.extend(messages[1:])  # pyright: ignore[reportArgumentType]
    return first


def separated(message: StreamMessage) -> Iterator[StreamMessage]:
    """What `joined` put together, in order. Reads one level deep, as the protocol says: deeper ones are ignored."""
    yield message
    yield from message.also  # pyright: ignore[reportReturnType]
