"""Errors as gRPC statuses. The stable code and the rest travel in trailing metadata, for clients of unary calls."""

from typing import Any, NoReturn

import grpc

from rosebed.core.errors import RosebedError, mapping_of
from rosebed.proto.codec import failure_metadata


async def abort(context: Any, error: RosebedError) -> NoReturn:
    """End the call on this `grpc.aio.ServicerContext` with the status of `error`."""
    mapping = mapping_of(error)
    await context.abort(grpc.StatusCode[mapping.grpc_status], error.message, failure_metadata(error))
    raise AssertionError("abort returned")
