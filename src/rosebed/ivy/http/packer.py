"""Packs answers with gzip, for clients that take them so and where it is worth its time."""

from collections.abc import Awaitable
from functools import partial

from rosebed.ivy.http.call import Call
from rosebed.ivy.http.packing import accepts_gzip, packed
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.workload import Workload

MAX_INLINE_BYTES = 1 << 15
"""More than this, about half a millisecond's worth, is packed off the event loop."""
_CODING = (b"content-encoding", b"gzip")
_VARY = (b"vary", b"accept-encoding")


class Packer:
    """Packs answers of at least so many bytes."""

    def __init__(self, min_bytes: int, workload: Workload) -> None:
        self._min_bytes = min_bytes
        self._workload = workload

    async def packed(self, call: Call, answer: Awaitable[Reply]) -> Reply:
        """The answer to `call`, packed if that is wanted; as it is where packing makes it no smaller.

        Caches are told that it depends on the client wherever it is long enough to be packed for any.
        """
        reply = await answer
        size = len(reply.body)
        if size < self._min_bytes:
            return reply
        body, headers = reply.body, (*reply.headers, _VARY)
        if accepts_gzip(call.headers.get(b"accept-encoding", b"")):
            pack = partial(packed, reply.body)
            smaller = pack() if size <= MAX_INLINE_BYTES else await self._workload.run(size, pack)
            if len(smaller) < size:
                body, headers = smaller, (*headers, _CODING)
        return Reply(reply.status, body, headers, reply.content_type)
