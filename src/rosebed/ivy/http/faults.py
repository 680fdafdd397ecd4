"""The one place where errors become HTTP: status, headers and words. Bodies are the dialects' business."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

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
    error_type: type[RosebedError]
    headers: Headers = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorShape:
    """A dialect's errors."""

    body: Callable[[Fault], bytes]
    statuses: Mapping[type[RosebedError], int] = field(default_factory=dict[type[RosebedError], int])
    """Where they differ from `ERROR_TABLE`; a type stands for its descendants too."""

    def status_of(self, error_type: type[RosebedError]) -> int | None:
        """The dialect's own status, of the type or of its nearest ancestor that has one."""
        return next((self.statuses[kind] for kind in error_type.__mro__ if kind in self.statuses), None)


def fault_of(error: Exception, request_id: bytes, shape: ErrorShape) -> Fault:
    """What `error` becomes. One that nobody raised on purpose is logged, and its text kept from the client."""
    if not isinstance(error, RosebedError):
        _log.error("request %s failed", request_id.decode(), exc_info=error)
        error = ServerError(f"internal error; the log has it under request {request_id.decode()}")
    mapping = mapping_of(error)
    return Fault(
        status=shape.status_of(type(error)) or mapping.http_status,
        code=mapping.code,
        message=error.message,
        param=error.param,
        error_type=type(error),
        headers=_headers(error),
    )


def error_reply(error: Exception, shape: ErrorShape, request_id: bytes) -> Reply:
    """The answer to a request that failed."""
    fault = fault_of(error, request_id, shape)
    return Reply(fault.status, shape.body(fault), fault.headers)


def _headers(error: RosebedError) -> Headers:
    if isinstance(error, Overloaded | Unavailable):
        return ((b"retry-after", b"%d" % error.retry_after_s),)
    if isinstance(error, AuthenticationFailed):
        return ((b"www-authenticate", b"Bearer"),)
    if isinstance(error, MethodNotAllowed):
        return ((b"allow", ", ".join(error.allowed).encode()),)
    return ()
