"""Whether a replica still answers: asked now and then, since a frozen one keeps its connections without a word."""

import asyncio
from typing import NoReturn

import grpc

from rosebed.core.errors import Unavailable
from rosebed.proto.rosebed_pb2 import InfoRequest
from rosebed.proto.rosebed_pb2_grpc import TulipStub

ASK_EVERY_S = 5.0
ANSWER_WITHIN_S = 10.0
"""A call as small as this waits in no queue: later than that, the process is frozen or its host is gone."""


async def until_silent(stub: TulipStub) -> NoReturn:
    """Ask until an answer does not come in time; raises Unavailable then.

    A refusal is an answer too, and a broken connection is for the streams over it to report.
    NOTE: HTTP/2 pings would not do: grpc gives up on a peer that answers none only after a minute.
    """
    while True:
        await asyncio.sleep(ASK_EVERY_S)
        try:
            await stub.Info(InfoRequest(), timeout=ANSWER_WITHIN_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                raise Unavailable(f"it has answered nothing for {ANSWER_WITHIN_S:g} s") from error
