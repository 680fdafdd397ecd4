"""The `rosebed.v1.Tulip` service on grpc.aio."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from google.protobuf.message import DecodeError

from rosebed import __version__
from rosebed.core.engine import Engine
from rosebed.core.errors import InvalidInput, RosebedError, Unavailable
from rosebed.proto.codec import info_message
from rosebed.proto.rosebed_pb2 import EmbedRequest, EmbedResponse, InfoRequest, InfoResponse, StreamRequest
from rosebed.proto.rosebed_pb2_grpc import TulipServicer as TulipServicerBase
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.intake import Intake
from rosebed.tulip.readiness import Gate, Readiness
from rosebed.tulip.replies import responses
from rosebed.tulip.request import RequestState
from rosebed.tulip.session import StreamSession
from rosebed.tulip.statuses import abort

Context = Any
"""A grpc.aio.ServicerContext; the library's own annotations leave it untyped."""


class TulipServicer(TulipServicerBase):
    """Answers the three calls; everything of substance is the intake's and the session's."""

    def __init__(self, engine: Engine, config: TulipConfig, *, intake: Intake, gate: Gate) -> None:
        self._engine = engine
        self._config = config
        self._intake = intake
        self._gate = gate

    async def Embed(self, request: EmbedRequest, context: Context) -> EmbedResponse:  # noqa: N802
        done: asyncio.Future[RequestState] = asyncio.get_running_loop().create_future()

        def finish(state: RequestState) -> None:
            # The call may have been cancelled in this very iteration of the loop.
            if not done.done():
                done.set_result(state)

        try:
            ticket = self._intake.submit(request, finish, time_remaining_s=context.time_remaining())
        except RosebedError as error:
            await abort(context, error)
        try:
            state = await done
        except asyncio.CancelledError:
            ticket.cancel()
            raise
        if state.failure is not None:
            await abort(context, state.failure)
        return next(responses(request.request_id, state))

    async def EmbedStream(self, request_iterator: AsyncIterator[StreamRequest], context: Context) -> None:  # noqa: N802
        session = StreamSession(self._intake, self._gate, self._config, write=context.write)
        try:
            await session.run(request_iterator)
        except DecodeError as error:
            await abort(context, InvalidInput(f"not a StreamRequest: {error}", param="message"))
        if self._gate.readiness is Readiness.STOPPING:
            await abort(context, Unavailable(Readiness.STOPPING.value))

    async def Info(self, request: InfoRequest, context: Context) -> InfoResponse:  # noqa: ARG002, N802
        try:
            self._gate.require_open()
        except Unavailable as error:
            await abort(context, error)
        # Not kept: warming up decides the batch limits.
        return info_message(
            self._engine.info,
            version=__version__,
            max_request_sequences=self._config.max_request_sequences,
            max_message_bytes=self._config.max_message_bytes,
        )
