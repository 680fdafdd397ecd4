"""The one ASGI layer between the router and the handlers: key, errors, request id, metrics. Knows no route by name."""

import asyncio
import hmac
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

import msgspec
from starlette.types import Receive, Scope, Send

from rosebed.core.errors import ERROR_TABLE, AuthenticationFailed, Cancelled, MethodNotAllowed, RouteNotFound
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.disconnects import DisconnectWatch
from rosebed.ivy.http.faults import ErrorShape, error_reply
from rosebed.ivy.http.reply import Reply

CLIENT_LEFT = ERROR_TABLE[Cancelled].http_status
"""What a request counts as whose client did not wait; nobody reads this status."""

CLOSE = (b"connection", b"close")

ANY_METHOD = "*"
"""Key of an operation that answers whatever method has none of its own."""

Handler = Callable[[Call], Awaitable[Reply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """What answers one method of one path, and what the API document says of it."""

    handler: Handler
    summary: str
    body: type[msgspec.Struct] | None = None
    """Schema of the request body."""
    answer: Any = None
    """Schema of a 200 answer that is JSON: any type msgspec knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """One path, and what answers each method there."""

    path: str
    """As Starlette's router reads it, e.g. `/v1/models/{id:path}`."""
    operations: Mapping[str, Operation]
    """Method → what answers it."""
    error_shape: ErrorShape
    """How failures are worded here."""
    is_open: bool = False
    """Answers without the API key."""


class Observer(Protocol):
    """Hears of each finished request of one resource."""

    def finished(self, status: int, seconds: float) -> None: ...


class Endpoint:
    """A resource as an ASGI application: every answer, also to a failure, leaves through here."""

    def __init__(
        self, resource: Resource, *, api_key: str | None, observer: Observer, disconnects: DisconnectWatch
    ) -> None:
        self._resource = resource
        self._allowed = tuple(sorted(resource.operations))
        self._api_key = api_key.encode() if api_key is not None and not resource.is_open else None
        self._observer = observer
        self._disconnects = disconnects

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        started = time.perf_counter()
        call = Call(scope, receive)
        status = CLIENT_LEFT
        self._disconnects.add(call, started)
        try:
            reply = await self._answer(call)
            await reply.send(send, call.request_id)
            status = reply.status
        except asyncio.CancelledError:
            if not call.disconnected:
                raise
        finally:
            self._disconnects.discard(call)
            self._observer.finished(status, time.perf_counter() - started)

    async def _answer(self, call: Call) -> Reply:
        try:
            handler = self._handler(call.scope["method"])
            self._authenticate(call.authorization)
            return await handler(call)
        except Exception as error:
            reply = error_reply(error, self._resource.error_shape, call.request_id)
            # What is left of a body cannot be told from the next request, so that the connection ends here.
            return replace(reply, headers=(*reply.headers, CLOSE)) if call.leaves_unread else reply

    def _handler(self, method: str) -> Handler:
        operations = self._resource.operations
        operation = operations.get("GET" if method == "HEAD" else method) or operations.get(ANY_METHOD)
        if operation is None:
            raise MethodNotAllowed(
                f"{method} is not answered here; {', '.join(self._allowed)} is", allowed=self._allowed
            )
        return operation.handler

    def _authenticate(self, authorization: bytes) -> None:
        if self._api_key is None:
            return
        scheme, _, key = authorization.partition(b" ")
        if scheme.lower() != b"bearer":
            raise AuthenticationFailed("an API key is needed: send it as 'Authorization: Bearer KEY'")
        # NOTE: compare_digest takes the same time wherever the first difference is.
        if not hmac.compare_digest(key.strip(), self._api_key):
            raise AuthenticationFailed("the API key is wrong")


async def not_found(call: Call) -> Reply:
    """The handler of every path that has none."""
    raise RouteNotFound(f"there is nothing at {call.scope['path']}")
