"""The `rosebed.v1.Tulip` service on grpc.aio."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio

from rosebed import __version__
from rosebed.core.engine import Engine
from rosebed.core.errors import InvalidInput, RosebedError, Unavailable
from rosebed.proto.codec import embed_request, info_message, stream_request
from rosebed.proto.rosebed_pb2 import DESCRIPTOR, EmbedRequest, EmbedResponse, InfoResponse, StreamRequest
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.intake import Intake
from rosebed.tulip.readiness import Gate, Readiness
from rosebed.tulip.replies import responses
from rosebed.tulip.request import RequestState
from rosebed.tulip.session import StreamSession
from rosebed.tulip.statuses import abort

SERVICE_NAME: str = DESCRIPTOR.services_by_name["Tulip"].full_name
Context = Any
"""A grpc.aio.ServicerContext; the library's own annotations leave it untyped."""


class TulipServicer:
    """Answers the three calls; everything of substance is the intake's and the session's."""

    def __init__(self, engine: Engine, config: TulipConfig, *, intake: Intake, gate: Gate) -> None:
        self._engine = engine
        self._config = config
        self._intake = intake
        self._gate = gate

    def add_to(self, server: grpc.aio.Server) -> None:
        """Serve the calls: as generated code would, but with deserializers that do not raise."""
        embed = grpc.unary_unary_rpc_method_handler(
            self.Embed, request_deserializer=embed_request, response_serializer=EmbedResponse.SerializeToString
        )
        stream = grpc.stream_stream_rpc_method_handler(
            self.EmbedStream, request_deserializer=stream_request, response_serializer=EmbedResponse.SerializeToString
        )
        info = grpc.unary_unary_rpc_method_handler(
            self.Info, request_deserializer=bytes, response_serializer=InfoResponse.SerializeToString
        )
        handlers = {"Embed": embed, "EmbedStream": stream, "Info": info}
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE_NAME, handlers),))

    async def Embed(self, request: EmbedRequest | InvalidInput, context: Context) -> EmbedResponse:  # noqa: N802
        if isinstance(request, InvalidInput):
            await abort(context, request)
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

    async def EmbedStream(  # noqa: N802
        self, request_iterator: AsyncIterator[StreamRequest | InvalidInput], context: Context
    ) -> None:
        session = StreamSession(self._intake, self._gate, self._config, write=context.write)
        try:
            await session.run(request_iterator)
        except InvalidInput as error:
            await abort(context, error)
        except grpc.aio.InternalError as error:
            # A write failed since the client is gone; grpc logs all but a cancellation as our fault.
            raise asyncio.CancelledError from error
        if self._gate.readiness is Readiness.STOPPING:
            await abort(context, Unavailable(Readiness.STOPPING.value))

    async def Info(self, request: bytes, context: Context) -> InfoResponse:  # noqa: ARG002, N802
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
