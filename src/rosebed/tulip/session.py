"""One `EmbedStream`: many requests at once, answered as they finish. A bad request is refused, the stream lives on."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from rosebed.core.errors import InvalidInput, RosebedError
from rosebed.proto.codec import separated
from rosebed.proto.rosebed_pb2 import EmbedRequest, EmbedResponse, StreamRequest
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.intake import Intake, Ticket
from rosebed.tulip.readiness import Gate, Readiness
from rosebed.tulip.replies import refusal, responses
from rosebed.tulip.request import RequestState
from rosebed.tulip.writer import Reply, ReplyWriter


@dataclass(slots=True, eq=False)
class OpenRequest:
    """A request of this stream whose answer is not yet written."""

    ticket: Ticket
    reply: Reply | None = None

    def cancel(self) -> None:
        self.ticket.cancel()
        if self.reply is not None:
            self.reply.wanted = False


class StreamSession:
    """Reads requests, and writes answers from one task."""

    def __init__(
        self,
        intake: Intake,
        gate: Gate,
        config: TulipConfig,
        *,
        write: Callable[[EmbedResponse], Awaitable[None]],
    ) -> None:
        self._intake = intake
        self._gate = gate
        self._chunk_bytes = config.chunk_bytes
        self._writer = ReplyWriter(write, chunk_bytes=config.chunk_bytes, max_unsent_bytes=config.max_unsent_bytes)
        self._open: dict[int, OpenRequest] = {}
        self._ending = False

    async def run(self, messages: AsyncIterator[StreamRequest]) -> None:
        """Serve until the client ends the stream or the server stops, and everything taken is answered.

        Raises what reading raised. Cancelled (the client is gone), it abandons what is open.
        """
        reader = asyncio.ensure_future(self._read(messages))
        self._gate.add_listener(self._on_phase)
        try:
            await self._writer.run()
            if reader.done():
                reader.result()
        finally:
            self._gate.remove_listener(self._on_phase)
            reader.cancel()
            for request in self._open.values():
                request.cancel()

    async def _read(self, messages: AsyncIterator[StreamRequest]) -> None:
        try:
            async for message in messages:
                for part in separated(message):
                    self._receive(part)
                await self._writer.wait_for_room()
        finally:
            self._end()

    def _receive(self, message: StreamRequest) -> None:
        match message.WhichOneof("message"):
            case "embed":
                self._submit(message.embed)
            case "cancel":
                self._cancel(message.cancel)
            case _:
                self._refuse(0, InvalidInput("a message should hold embed or cancel", param="message"))

    def _submit(self, request: EmbedRequest) -> None:
        request_id = request.request_id
        try:
            if request_id in self._open:
                raise InvalidInput(f"request_id {request_id} is in use on this stream", param="request_id")
            ticket = self._intake.submit(request, partial(self._finish, request_id))
        except RosebedError as error:
            self._refuse(request_id, error)
        else:
            self._open[request_id] = OpenRequest(ticket)

    def _refuse(self, request_id: int, error: RosebedError) -> None:
        self._writer.send(Reply(iter((refusal(request_id, error),)), 0, _nothing))

    def _finish(self, request_id: int, state: RequestState) -> None:
        reply = Reply(
            responses(request_id, state, chunk_bytes=self._chunk_bytes),
            num_bytes=sum(rows.nbytes for rows in state.rows.values()),
            on_written=partial(self._forget, request_id),
        )
        self._open[request_id].reply = reply
        self._writer.send(reply)

    def _cancel(self, request_id: int) -> None:
        if request_id in self._open:
            self._open[request_id].cancel()
            self._forget(request_id)

    def _forget(self, request_id: int) -> None:
        del self._open[request_id]
        self._close_if_over()

    def _on_phase(self, readiness: Readiness) -> None:
        if readiness is Readiness.STOPPING:
            self._end()

    def _end(self) -> None:
        """Take nothing more; the stream closes when what is open is answered."""
        self._ending = True
        self._close_if_over()

    def _close_if_over(self) -> None:
        if self._ending and not self._open:
            self._writer.close()


def _nothing() -> None:
    """A refusal is no open request, so there is nothing to forget."""
