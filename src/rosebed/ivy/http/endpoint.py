"""The one ASGI layer between the router and the handlers: key, errors, request id, metrics. Knows no route by name."""

import hmac
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import msgspec

from rosebed.core.errors import ERROR_TABLE, AuthenticationFailed, Cancelled, MethodNotAllowed
from rosebed.ivy.http.call import Call, new_request_id
from rosebed.ivy.http.faults import ErrorShape, error_reply
from rosebed.ivy.http.reply import Reply

CLIENT_LEFT = ERROR_TABLE[Cancelled].http_status
"""What a request counts as whose client did not wait; nobody reads this status."""

ANY_METHOD = "*"
"""Key of an operation that answers whatever method has none of its own."""

Handler = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What answers one method of one path, and what the API document says of it."""

    handler: Handler
    summary: str
    body: tuple[type[msgspec.Struct], ...] = ()
    """Schemas of the request body, one of which it has."""
    answer: tuple[Any, ...] = ()
    """Schemas of a 200 answer that is JSON: any types msgspec knows."""
    is_open: bool = False
    """Answers without the API key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One path, and what answers each method there."""

    path: str
    """As the router reads it, e.g. `/v1/models/{id:path}`."""
    operations: Mapping[str, Operation]
    """Method → what answers it."""
    error_shape: ErrorShape
    """How failures are worded here."""


class Observer(Protocol):
    """Hears of each request of one resource."""

    def began(self) -> None: ...

    def finished(self, status: int, seconds: float) -> None: ...


class Endpoint:
    """Answers the requests for one resource: every answer, also to a failure, leaves through here."""

    def __init__(self, resource: Resource, *, api_key: str | None, observer: Observer) -> None:
        self._resource = resource
        self._operations = {method.encode(): operation for method, operation in resource.operations.items()}
        if "GET" in resource.operations:
            self._operations.setdefault(b"HEAD", resource.operations["GET"])
        self._any_method = self._operations.get(ANY_METHOD.encode())
        self._allowed = tuple(sorted(resource.operations))
        self._api_key = api_key.encode() if api_key is not None else None
        self._observer = observer

    async def answer(self, call: Call) -> Reply:
        """The answer to `call`. Raises nothing, unless it is cancelled."""
        status = CLIENT_LEFT
        self._observer.began()
        try:
            operation = self._operations.get(call.method, self._any_method) or self._refuse_method(call.method)
            if self._api_key is not None and not operation.is_open:
                self._authenticate(self._api_key, call.authorization)
            reply = await operation.handler(call)
            status = reply.status
            return reply
        except Exception as error:
            reply = self.refuse(error, call.request_id)
            status = reply.status
            return reply
        finally:
            self._observer.finished(status, time.perf_counter() - call.started_s)

    def refuse(self, error: Exception, request_id: bytes) -> Reply:
        """`error` in the words of this resource."""
        return error_reply(error, self._resource.error_shape, request_id)

    def refuse_uncalled(self, error: Exception) -> Reply:
        """The same for what never became a call; it counts as one."""
        self._observer.began()
        reply = self.refuse(error, new_request_id())
        self._observer.finished(reply.status, 0.0)
        return reply

    def _refuse_method(self, method: bytes) -> NoReturn:
        raise MethodNotAllowed(
            f"{method.decode('latin-1')} is not answered here; {', '.join(self._allowed)} is", allowed=self._allowed
        )

    @staticmethod
    def _authenticate(api_key: bytes, authorization: bytes) -> None:
        scheme, _, key = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            raise AuthenticationFailed("an API key is needed: send it as 'Authorization: Bearer KEY'")
        # NOTE: compare_digest takes the same time wherever the first difference is.
        if not hmac.compare_digest(key.strip(), api_key):
            raise AuthenticationFailed("the API key is wrong")
