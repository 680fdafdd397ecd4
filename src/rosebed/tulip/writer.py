"""The one writer of a stream. Answers wait here; a write takes as many small ones as fit, large ones take turns."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass

from rosebed.proto.codec import joined
from rosebed.proto.rosebed_pb2 import EmbedResponse

REPLY_BYTES = 1024
"""Memory of a reply's own objects, about: small answers, and refusals, are limited by this."""

MAX_JOINED = 64
"""Responses that share a write: more hardly make it cheaper, and the event loop would be busy with them for long."""


@dataclass(slots=True, eq=False)
class Reply:
    """An answer on its way out."""

    responses: Iterator[EmbedResponse]
    """What is still to be written; ends with the one that has `last` set."""
    num_bytes: int
    """Memory it holds until it is written, `REPLY_BYTES` aside."""
    on_written: Callable[[], None]
    """Called when the last response is written."""
    wanted: bool = True
    """Set to False, nothing more of it is written."""


class ReplyWriter:
    """Writes replies until it is closed and all are written. gRPC allows one write at a time on a stream."""

    def __init__(
        self, write: Callable[[EmbedResponse], Awaitable[None]], *, chunk_bytes: int, max_unsent_bytes: int
    ) -> None:
        self._write = write
        self._chunk_bytes = chunk_bytes
        self._max_unsent_bytes = max_unsent_bytes
        self._replies: deque[Reply] = deque()
        self._unsent_bytes = 0
        self._work = asyncio.Event()
        self._room = asyncio.Event()
        self._room.set()
        self._closed = False

    def send(self, reply: Reply) -> None:
        """Queue a reply: it goes out in the next iteration of the loop at the earliest, with what else is queued."""
        self._replies.append(reply)
        self._change_unsent(REPLY_BYTES + reply.num_bytes)
        self._work.set()

    async def wait_for_room(self) -> None:
        """Return once no more than `max_unsent_bytes` wait for a slow reader."""
        if not self._room.is_set():
            await self._room.wait()

    def close(self) -> None:
        """Let `run` return when all replies are written."""
        self._closed = True
        self._work.set()

    async def run(self) -> None:
        """Write until closed."""
        while True:
            while responses := self._next_responses():
                await self._write(joined(responses))
            if self._closed:
                return
            self._work.clear()
            await self._work.wait()

    def _next_responses(self) -> list[EmbedResponse]:
        """One response of each waiting reply in turn, until they fill a chunk or are `MAX_JOINED`."""
        taken: list[EmbedResponse] = []
        num_bytes = 0
        while self._replies and num_bytes < self._chunk_bytes and len(taken) < MAX_JOINED:
            reply = self._replies.popleft()
            if not reply.wanted:
                self._change_unsent(-REPLY_BYTES - reply.num_bytes)
                continue
            response = next(reply.responses)
            taken.append(response)
            num_bytes += response.ByteSize()
            if response.last:
                self._change_unsent(-REPLY_BYTES - reply.num_bytes)
                reply.on_written()
            else:
                self._replies.append(reply)
        return taken

    def _change_unsent(self, num_bytes: int) -> None:
        self._unsent_bytes += num_bytes
        if self._unsent_bytes > self._max_unsent_bytes:
            self._room.clear()
        else:
            self._room.set()
