"""One inference server: connected to, checked, used until it goes, connected to again."""

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from collections.abc import Sequence as AnySequence
from contextlib import AsyncExitStack
from typing import NoReturn

import grpc

from rosebed.core.errors import FingerprintMismatch, RosebedError, SetupError, Unavailable
from rosebed.core.types import Lane, Sequence
from rosebed.ivy.upstream.link import open_call
from rosebed.ivy.upstream.liveness import until_silent
from rosebed.ivy.upstream.shares import MessageLimits
from rosebed.ivy.upstream.stream import ReplicaLost, Stream, running
from rosebed.proto.codec import ReplicaInfo, ReplyRows, info_of
from rosebed.proto.rosebed_pb2 import InfoRequest
from rosebed.proto.rosebed_pb2_grpc import TulipStub
from rosebed.proto.sizes import check_message_bytes

Accept = Callable[[ReplicaInfo], Awaitable[None]]
"""Decides whether a replica serves the right model; raises to refuse it."""

FIRST_BACKOFF_S = 0.05
LONGEST_BACKOFF_S = 1.0
INFO_TIMEOUT_S = 10.0
SETTLE_S = 0.1
DEFAULT_MESSAGE_BYTES = 4 << 20
"""What a replica takes that does not say: gRPC's own limit."""

_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    # Each attempt connects anew: the process-wide pool would keep an old attempt's growing backoff.
    ("grpc.use_local_subchannel_pool", 1),
)

_WAITING = "waiting"

_log = logging.getLogger(__name__)


class Replica:
    """A connection that heals itself, and the tokens in flight over it."""

    def __init__(
        self, target: str, accept: Accept, on_ready: Callable[[], None], on_lost: Callable[[], None] = lambda: None
    ) -> None:
        """`on_ready` is called each time it becomes ready, `on_lost` each time a connection fails or ends."""
        self.target = target
        """HOST:PORT or unix:PATH."""
        self.outstanding_tokens = 0
        """Tokens this worker asked for and has not got back."""
        self.limits = MessageLimits()
        """What one message to it may hold."""
        self.ready = False
        """Whether it is connected, and said that it serves: no Tulip does before a real inference succeeded."""
        self._accept = accept
        self._on_ready = on_ready
        self._on_lost = on_lost
        self._streams: Mapping[Lane, Stream] = {}
        self._last_reason = ""
        self._backoff_s = FIRST_BACKOFF_S
        self._was_ready = False
        self._answered = asyncio.Event()

    async def request(self, sequences: AnySequence[Sequence], lane: Lane) -> ReplyRows:
        """The rows of `sequences`; ReplicaLost if the connection is or goes away."""
        stream = self._streams.get(lane)
        if stream is None:
            raise ReplicaLost(f"{self.target} is not connected")
        num_tokens = sum([len(sequence.token_ids) for sequence in sequences])
        self.outstanding_tokens += num_tokens
        try:
            return await stream.request(sequences)
        finally:
            self.outstanding_tokens -= num_tokens
            self._answered.set()

    async def idle(self) -> None:
        """Return once nothing is in flight; for one that nothing new is asked of."""
        while True:
            await asyncio.sleep(SETTLE_S)  # a large request's next share takes its turn
            if not self.outstanding_tokens:
                return
            self._answered.clear()
            await self._answered.wait()

    async def run(self) -> None:
        """Stay connected until cancelled."""
        while True:
            try:
                await self._connect_and_serve()
            except Exception as error:  # whatever it was, trying again is all there is to do
                self._log_once(error)
                self._on_lost()
            # Jitter, so that the workers of many gateways do not come back in step.
            await asyncio.sleep(self._backoff_s * random.uniform(0.5, 1.0))  # noqa: S311
            self._backoff_s = min(2 * self._backoff_s, LONGEST_BACKOFF_S)

    async def _connect_and_serve(self) -> None:
        async with AsyncExitStack() as stack:
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(self.target, _CHANNEL_OPTIONS))
            stub = TulipStub(channel)
            info = info_of(await stub.Info(InfoRequest(), timeout=INFO_TIMEOUT_S))
            await self._accept(info)
            max_bytes = info.max_message_bytes or DEFAULT_MESSAGE_BYTES
            check_message_bytes(max_bytes, info.engine.max_length)
            self.limits = MessageLimits(sequences=info.max_request_sequences, num_bytes=max_bytes)
            streams = {
                lane: Stream(
                    await open_call(self.target, stub, stack, max_message_bytes=max_bytes), lane, info.engine.outputs
                )
                for lane in Lane
            }
            # NOTE: no request is sent to try it: on a busy replica that would wait behind all queued work.
            works = [*(stream.run() for stream in streams.values()), until_silent(stub)]
            tasks = [await stack.enter_async_context(running(work)) for work in works]
            _log.info("%s is ready: %s on %s", self.target, info.engine.model, info.engine.device)
            await self._use(streams, until=tasks)

    async def _use(self, streams: Mapping[Lane, Stream], until: AnySequence[asyncio.Task[None]]) -> NoReturn:
        """Take requests until one of the tasks ends; raises why."""
        self._streams, self._last_reason, self.ready, self._was_ready = streams, "", True, True
        self._on_ready()
        started_s = time.monotonic()
        try:
            ended, _ = await asyncio.wait(until, return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._streams, self.ready = {}, False
            if time.monotonic() - started_s > LONGEST_BACKOFF_S:  # not one that comes only to go
                self._backoff_s = FIRST_BACKOFF_S
        ended.pop().result()
        raise Unavailable("it ended the connection")

    def _log_once(self, error: Exception) -> None:
        """Say why it is not connected, unless that was said before."""
        reason = _WAITING if self._is_awaited(error) else _reason(error)
        if reason == self._last_reason:
            return
        self._last_reason = reason
        if reason == _WAITING:
            _log.info("waiting for %s", self.target)
            _log.debug("%s: %s", self.target, _reason(error))
        else:
            expected = isinstance(error, grpc.aio.AioRpcError | RosebedError)
            _log.log(
                self._severity(error), "%s is not in use: %s", self.target, reason, exc_info=None if expected else error
            )

    def _is_awaited(self, error: Exception) -> bool:
        """Whether nothing is wrong yet: servers start in any order, and loading a model takes a while."""
        is_absent = isinstance(error, grpc.aio.AioRpcError) and error.code() == grpc.StatusCode.UNAVAILABLE
        return is_absent and not self._was_ready

    def _severity(self, error: Exception) -> int:
        if isinstance(error, FingerprintMismatch | SetupError):
            return logging.ERROR  # somebody has to change something
        return logging.WARNING if self._was_ready else logging.INFO  # on starting up, waiting is no news


def _reason(error: Exception) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name}: {error.details()}"
    return error.message if isinstance(error, RosebedError) else repr(error)
