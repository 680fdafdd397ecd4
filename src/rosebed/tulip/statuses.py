"""Errors as gRPC statuses. The stable code and the rest travel in trailing metadata, for clients of unary calls."""

from typing import Any, NoReturn

import grpc

from rosebed.core.errors import Overloaded, RequestError, RosebedError, Unavailable, mapping_of

CODE_KEY = "rosebed-code"
PARAM_KEY = "rosebed-param"
RETRY_AFTER_KEY = "rosebed-retry-after-s"


async def abort(context: Any, error: RosebedError) -> NoReturn:
    """End the call on this `grpc.aio.ServicerContext` with the status of `error`."""
    mapping = mapping_of(error)
    await context.abort(grpc.StatusCode[mapping.grpc_status], error.message, trailing_metadata(error))
    raise AssertionError("abort returned")


def trailing_metadata(error: RosebedError) -> tuple[tuple[str, str], ...]:
    """What a client needs to rebuild `error`."""
    pairs = [(CODE_KEY, mapping_of(error).code)]
    if isinstance(error, RequestError) and error.param:
        pairs.append((PARAM_KEY, error.param))
    if isinstance(error, Overloaded | Unavailable):
        pairs.append((RETRY_AFTER_KEY, str(error.retry_after_s)))
    return tuple(pairs)
