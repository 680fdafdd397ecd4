"""A Rosebed inference server over gRPC: token ids on a bidirectional stream, as the gateway sends them."""

from collections.abc import Sequence as AnySequence
from functools import cached_property
from typing import Any, cast

import grpc
import grpc.aio
import numpy as np

from rosebed.bench.requests import BenchRequest
from rosebed.bench.targets.base import Canned, Stages, TargetInfo, TargetSettings
from rosebed.core.errors import InvalidInput, ServerError, Unavailable
from rosebed.core.types import Float32Array, Sequence, whole_span
from rosebed.proto.codec import error_of, info_of, request_message, separated
from rosebed.proto.rosebed_pb2 import EmbedResponse, InfoRequest, StreamRequest
from rosebed.proto.rosebed_pb2_grpc import TulipStub

REQUEST_ID = 1
"""A stream carries one request at a time."""

_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))

Responses = AnySequence[EmbedResponse]


class StreamConnection:
    """One stream; those to the same place share a channel, unless they own theirs."""

    def __init__(self, channel: grpc.aio.Channel, place: str, *, owns_channel: bool) -> None:
        self._place = place
        self._channel = channel if owns_channel else None
        self._stream = cast(Any, TulipStub(channel).EmbedStream())

    async def exchange(self, payload: StreamRequest) -> Responses:
        """Send a request and read its responses up to the last. Unavailable if the stream breaks."""
        responses: list[EmbedResponse] = []
        try:
            await self._stream.write(payload)
            while not responses or not responses[-1].last:
                message = await self._stream.read()
                if not isinstance(message, EmbedResponse):  # it is grpc.aio.EOF
                    raise Unavailable(f"{self._place} closed the stream")
                responses += separated(message)
        except grpc.aio.AioRpcError as error:
            raise _unavailable(self._place, error) from error
        return responses

    async def close(self) -> None:
        self._stream.cancel()
        if self._channel is not None:
            await self._channel.close()


class TulipTarget:
    """One inference server."""

    def __init__(self, settings: TargetSettings) -> None:
        self._place = settings.address.location
        self._timeout_s = settings.timeout_s

    @cached_property
    def _channel(self) -> grpc.aio.Channel:
        """Made on the event loop that uses it."""
        return grpc.aio.insecure_channel(self._place, _OPTIONS)

    async def describe(self) -> TargetInfo:
        try:
            message = await cast(Any, TulipStub(self._channel)).Info(InfoRequest(), timeout=self._timeout_s)
        except grpc.aio.AioRpcError as error:
            raise _unavailable(self._place, error) from error
        info = info_of(message)
        return TargetInfo(
            server=f"rosebed tulip {info.version}",
            model=info.engine.model,
            takes_ids=True,
            takes_text=False,
            max_length=info.engine.max_length,
            max_inputs=info.max_request_sequences,
            vocab_size=info.engine.vocab_size,
            dtype=info.engine.dtype,
            device=info.engine.device,
            has_lanes=True,
        )

    async def count_tokens(self, text: str) -> int:  # noqa: ARG002 - the protocol's name
        raise InvalidInput("an inference server takes no text")

    async def connect(self, stand_in: str | None = None) -> StreamConnection:
        if stand_in is None:
            return StreamConnection(self._channel, self._place, owns_channel=False)
        return StreamConnection(grpc.aio.insecure_channel(stand_in, _OPTIONS), stand_in, owns_channel=True)

    def encode(self, request: BenchRequest) -> StreamRequest:
        sequences = [Sequence(token_ids=ids, pool_spans=whole_span(len(ids))) for ids in request.token_ids]
        return StreamRequest(embed=request_message(sequences, request_id=REQUEST_ID, lane=request.shape.lane))

    def check(self, answer: Responses) -> Stages:
        """Raises the error of the request, or of the first sequence that failed."""
        last = answer[-1]
        if last.HasField("refused"):
            raise error_of(last.refused)
        for item in last.errors:
            raise error_of(item)
        timings = last.timings
        return Stages(
            queue_ns=timings.queue_ns,
            compute_ns=timings.compute_ns,
            total_ns=timings.total_ns,
            device_ns=timings.device_ns,
            num_steps=timings.steps,
        )

    def vectors(self, answer: Responses) -> Float32Array:
        self.check(answer)
        outputs = [output for response in answer for output in response.outputs]
        if not outputs:
            raise ServerError(f"{self._place} answered without vectors")
        return np.concatenate([np.frombuffer(o.data, "<f4").reshape(o.rows, o.dim) for o in outputs])

    def canned(self, answer: Responses) -> Canned:
        return Canned("grpc", tuple(response.SerializeToString() for response in answer))

    async def close(self) -> None:
        await self._channel.close()


def _unavailable(place: str, error: grpc.aio.AioRpcError) -> Unavailable:
    return Unavailable(f"{place}: {error.details() or error.code().name}")
