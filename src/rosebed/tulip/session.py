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

Write = Callable[[EmbedResponse], Awaitable[None]]
"""Sends one message, and waits while the client is slow to read."""

PARTS_PER_TURN = 32
"""Of the messages that one joins; taking these keeps the event loop busy for about a millisecond."""


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
        write: Write,
    ) -> None:
        self._intake = intake
        self._gate = gate
        self._chunk_bytes = config.chunk_bytes
        self._writer = ReplyWriter(write, chunk_bytes=config.chunk_bytes, max_unsent_bytes=config.max_unsent_bytes)
        self._open: dict[int, OpenRequest] = {}
        self._ending = False

    async def run(self, messages: AsyncIterator[StreamRequest | InvalidInput]) -> None:
        """Serve until the client ends the stream or the server stops, and everything taken is answered.

        A message that could not be read ends the stream, and is raised then, as is what reading raised. Cancelled (the
        client is gone), it abandons what is open.
        """
        reader = asyncio.ensure_future(self._read(messages))
        reader.add_done_callback(_retrieve)
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

    async def _read(self, messages: AsyncIterator[StreamRequest | InvalidInput]) -> None:
        try:
            async for message in messages:
                if isinstance(message, InvalidInput):
                    raise message
                await self._receive_all(message)
        finally:
            self._end()

    async def _receive_all(self, message: StreamRequest) -> None:
        """Take what `message` joins, with a pause after each few, in which the other streams have their turn."""
        for number, part in enumerate(separated(message), start=1):
            self._receive(part)
            if number % PARTS_PER_TURN == 0:
                await asyncio.sleep(0)
                await self._writer.wait_for_room()
        await self._writer.wait_for_room()

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
        response = refusal(request_id, error)
        self._writer.send(Reply(iter((response,)), response.ByteSize(), _nothing))

    def _finish(self, request_id: int, state: RequestState) -> None:
        reply = Reply(
            responses(request_id, state, chunk_bytes=self._chunk_bytes),
            num_bytes=state.held_bytes,
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


def _retrieve(task: asyncio.Task[None]) -> None:
    """Its failure is either raised by `run`, or of no interest: then it should not be logged as forgotten."""
    if not task.cancelled():
        task.exception()
