"""The one place where errors become HTTP: status, headers and words. Bodies are the dialects' business."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from rosebed.core.errors import (
    AuthenticationFailed,
    MethodNotAllowed,
    Overloaded,
    RosebedError,
    ServerError,
    Unavailable,
    mapping_of,
)
from rosebed.ivy.http.reply import Headers, Reply

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """An error as HTTP needs it, before a dialect gives it a body."""

    status: int
    code: str
    """Stable name, the same in every dialect."""
    message: str
    param: str | None
    """What is at fault, e.g. `input[3]`."""
    headers: Headers = ()


ErrorShape = Callable[[Fault], bytes]
"""A dialect's error body."""


def fault_of(error: Exception, request_id: bytes) -> Fault:
    """What `error` becomes. One that nobody raised on purpose is logged, and its text kept from the client."""
    if not isinstance(error, RosebedError):
        _log.error("request %s failed", request_id.decode(), exc_info=error)
        error = ServerError(f"internal error; the log has it under request {request_id.decode()}")
    mapping = mapping_of(error)
    return Fault(
        status=mapping.http_status,
        code=mapping.code,
        message=error.message,
        param=error.param,
        headers=_headers(error),
    )


def error_reply(error: Exception, shape: ErrorShape, request_id: bytes) -> Reply:
    """The answer to a request that failed."""
    fault = fault_of(error, request_id)
    return Reply(fault.status, shape(fault), fault.headers)


def _headers(error: RosebedError) -> Headers:
    if isinstance(error, Overloaded | Unavailable):
        return ((b"retry-after", b"%d" % error.retry_after_s),)
    if isinstance(error, AuthenticationFailed):
        return ((b"www-authenticate", b"Bearer"),)
    if isinstance(error, MethodNotAllowed):
        return ((b"allow", ", ".join(error.allowed).encode()),)
    return ()
