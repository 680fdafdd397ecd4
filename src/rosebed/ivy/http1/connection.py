"""One connection: reads requests, has them answered one after the other, writes the answers."""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable
from typing import Protocol, cast

from rosebed.core.errors import Cancelled, HeadTimeout, RosebedError, Unavailable
from rosebed.ivy.http.body import Body
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.http1.access_log import AccessLog
from rosebed.ivy.http1.answers import CONTINUE, Clock, answer_head
from rosebed.ivy.http1.limits import MAX_WAITING_BYTES, SLICE_BYTES, ConnectionLimits
from rosebed.ivy.http1.parser import Piece, RequestParser

MAX_JOINED_BYTES = 1 << 16
"""Answers up to this size go in one piece with their head; to copy larger ones takes longer than a second write."""

_log = logging.getLogger(__name__)


class Answerer(Protocol):
    """What answers requests."""

    def answer(self, call: Call) -> Awaitable[Reply]:
        """Raises nothing, unless it is cancelled: the client of `call` has left then."""
        ...

    def refuse(self, error: RosebedError) -> Reply:
        """The answer to what is no request."""
        ...


class Owner(Protocol):
    """What a connection shares with the others of its worker."""

    loop: asyncio.AbstractEventLoop
    answerer: Answerer
    limits: ConnectionLimits
    clock: Clock
    access_log: AccessLog | None
    is_draining: bool

    def add(self, connection: "Connection") -> bool:
        """It is open; False if it is one too many."""
        ...

    def discard(self, connection: "Connection") -> None:
        """It is closed."""
        ...


class Connection(asyncio.Protocol):
    """Belongs to one event loop. `Connections` makes it, and lets it know of the time."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._transport: asyncio.Transport | None = None
        self._parser = RequestParser(owner.limits, self._body_wanted)
        self._call: Call | None = None
        """The request being answered, by the task."""
        self._task: asyncio.Task[None] | None = None
        self._unread: Piece = b""
        """What came and is parsed when there is room for what is in it."""
        self._deadline_s = math.inf
        """When patience ends, of the loop's clock; while a request is answered, never."""
        self._reading_paused = self._writing_paused = False
        self._is_ending = False
        """Whether nothing more will be written; what still comes is dropped."""
        self._num_dropped = 0
        self._unsent_bytes = 0
        """At the last look, of a client that is slow to take its answer."""

    # What the transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it
        self._rest()
        if not self._owner.add(self):
            self._write_refusal(Unavailable("this worker has as many connections as it takes"))
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        if self._is_ending:
            self._drop(data)
            return
        if len(data) > SLICE_BYTES or self._unread:
            self._unread = memoryview(bytes(self._unread) + data if self._unread else data)
            self._parse_unread()
        else:
            self._parse(data)
        self._go_on()

    def eof_received(self) -> bool:
        return False  # whoever says no more does not listen either: the transport closes

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._owner.discard(self)
        self._transport = None
        self._is_ending = True
        if self._parser.incoming is not None:
            self._parser.refuse(Cancelled("the client left while sending"))
        if self._call is not None and self._task is not None:
            self._call.disconnected = True
            self._task.cancel()

    def pause_writing(self) -> None:
        self._writing_paused = True
        self._unsent_bytes = 0
        self._deadline_s = self._owner.loop.time() + self._owner.limits.stalled_s

    def resume_writing(self) -> None:
        self._writing_paused = False
        if self._call is not None:
            self._deadline_s = math.inf
        elif not self._is_ending:
            self._rest()
            self._go_on()

    # Reading.

    def _parse(self, piece: Piece) -> None:
        parser = self._parser
        was_in_head = parser.in_head
        parser.feed(piece)
        if parser.in_head and not was_in_head and self._call is None:
            self._rest()

    def _parse_unread(self) -> None:
        """Parse what is there, unless it would pile up."""
        while self._unread and not self._is_full():
            piece, self._unread = self._unread[:SLICE_BYTES], self._unread[SLICE_BYTES:]
            self._parse(piece)
            self._start_next()

    def _is_full(self) -> bool:
        parser = self._parser
        if parser.incoming is not None:
            return parser.incoming.body.num_waiting > MAX_WAITING_BYTES
        return bool(parser.waiting)

    def _go_on(self) -> None:
        """After anything has changed: answer what waits, read if there is room."""
        self._start_next()
        if self._transport is None or self._is_ending:
            return
        if self._unread:
            self._parse_unread()
        is_full = bool(self._unread) or self._is_full()
        if is_full is not self._reading_paused:
            self._reading_paused = is_full
            (self._transport.pause_reading if is_full else self._transport.resume_reading)()

    def _body_wanted(self) -> None:
        """A handler waits for more of a body."""
        call = self._call
        if self._transport is None or call is None:
            return
        if call.headers.get(b"expect", b"").lower() == b"100-continue" and not call.is_continued:
            call.is_continued = True
            self._transport.write(CONTINUE)
        if self._reading_paused:
            self._owner.loop.call_soon(self._go_on)

    # Answering.

    def _start_next(self) -> None:
        waiting = self._parser.waiting
        if not waiting or self._call is not None or self._writing_paused or self._is_ending:
            return
        request = waiting.popleft()
        self._deadline_s = math.inf
        if isinstance(request, RosebedError):
            self._write_refusal(request)
        else:
            self._call = request
            request.started_s = time.perf_counter()
            self._task = self._owner.loop.create_task(self._answer(request))

    async def _answer(self, call: Call) -> None:
        try:
            reply = await self._owner.answerer.answer(call)
            self._call = self._task = None
            self._write_answer(call, reply)
        except asyncio.CancelledError:
            if not call.disconnected:
                raise
        except Exception:
            _log.exception("the answer to request %s could not be written", call.request_id.decode())
            if self._transport is not None:
                self._transport.abort()

    def _write_answer(self, call: Call, reply: Reply) -> None:
        owner, transport = self._owner, self._transport
        if owner.access_log is not None:
            owner.access_log.add(call, reply, transport)
        if transport is None or self._is_ending:
            return
        closes = not call.keeps_alive or not call.body.is_complete or (owner.is_draining and not self._parser.waiting)
        head = answer_head(
            reply,
            call.request_id,
            date=owner.clock.header(),
            closes=closes,
            says_keep_alive=b"connection" in call.headers,
        )
        if call.method == b"HEAD":
            transport.write(head)
        elif len(reply.body) <= MAX_JOINED_BYTES:
            transport.write(head + reply.body)
        else:
            transport.writelines((head, reply.body))
        if closes:
            self._end(is_clean=call.body.is_complete)
        else:
            if not self._writing_paused:
                self._rest()
            if self._parser.waiting or self._unread or self._reading_paused:
                self._go_on()

    def _write_refusal(self, error: RosebedError) -> None:
        if self._transport is not None:
            owner = self._owner
            reply = owner.answerer.refuse(error)
            stand_in = Call(*self._parser.refused_line, {}, Body(), keeps_alive=False)
            if owner.access_log is not None:
                owner.access_log.add(stand_in, reply, self._transport)
            date = owner.clock.header()
            head = answer_head(reply, stand_in.request_id, date=date, closes=True, says_keep_alive=False)
            self._transport.write(head + reply.body)
            self._end(is_clean=False)

    # Time, and the end.

    def _rest(self) -> None:
        """Nothing is being answered: how long that may last."""
        limits = self._owner.limits
        patience_s = limits.head_timeout_s if self._parser.in_head else limits.keep_alive_s
        self._deadline_s = self._owner.loop.time() + patience_s

    def look_at(self, now_s: float) -> None:
        """Called now and then, to end what has lasted too long."""
        transport = self._transport
        if now_s < self._deadline_s or transport is None:
            return
        if self._writing_paused:
            self._look_at_unsent(transport, now_s)
        elif self._is_ending:
            transport.abort()
        elif self._parser.in_head:
            self._parser.refuse(HeadTimeout(f"the headers did not come in {self._owner.limits.head_timeout_s:g} s"))
            self._start_next()
        else:
            self._is_ending = True
            transport.close()

    def _look_at_unsent(self, transport: asyncio.Transport, now_s: float) -> None:
        unsent_bytes = transport.get_write_buffer_size()
        if unsent_bytes == self._unsent_bytes:
            transport.abort()
        self._unsent_bytes = unsent_bytes
        self._deadline_s = now_s + self._owner.limits.stalled_s

    def drain(self) -> None:
        """Close when all that was asked is answered: at once, if nothing was."""
        if self._call is None and not self._parser.waiting and not self._is_ending and self._transport is not None:
            self._is_ending = True
            self._transport.close()

    def _drop(self, data: bytes) -> None:
        self._num_dropped += len(data)
        if self._num_dropped > self._owner.limits.linger_bytes and self._transport is not None:
            self._transport.abort()

    def _end(self, *, is_clean: bool) -> None:
        """All is written. Unless everything was read, stay for a while and drop what comes.

        Closing with something unread resets the connection, and the client might never see its answer.
        """
        transport = self._transport
        if transport is None:
            return
        self._is_ending = True
        limits = self._owner.limits
        is_clean = is_clean and not self._unread
        self._unread = b""
        self._deadline_s = self._owner.loop.time() + (limits.stalled_s if is_clean else limits.linger_s)
        if is_clean:
            transport.close()
            return
        if transport.can_write_eof():
            transport.write_eof()
        if self._reading_paused:
            transport.resume_reading()
