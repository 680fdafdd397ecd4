"""One HTTP request as the edge has read it so far: headers first, the body when a handler asks."""

import asyncio
import os
import re
from typing import Any

from starlette.types import Receive, Scope

from rosebed.core.errors import Cancelled, InvalidInput, PayloadTooLarge, RequestError, UnsupportedMediaType
from rosebed.ivy.http.intake import BodyIntake

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_JSON_TYPE = re.compile(rb"\s*application/([\w.-]+\+)?json\s*(;|$)", re.IGNORECASE)


class Call:
    """An HTTP request in progress. Made once per request, used by its own task only."""

    __slots__ = (
        "_content_encoding",
        "_content_length",
        "_content_type",
        "_is_chunked",
        "_receive",
        "authorization",
        "body_was_read",
        "disconnected",
        "request_id",
        "scope",
        "task",
    )

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self.scope = scope
        self.authorization = b""
        self.request_id = b""
        self.body_was_read = False
        self.disconnected = False
        """Whether the client went away before the answer."""
        self.task: asyncio.Task[Any] | None = asyncio.current_task()
        """The task that answers, which a disconnect cancels."""
        self._receive = receive
        self._is_chunked = False
        self._content_type = self._content_encoding = self._content_length = b""
        self._read_headers()
        if not _REQUEST_ID.fullmatch(self.request_id):
            self.request_id = os.urandom(16).hex().encode()

    def _read_headers(self) -> None:
        for name, value in self.scope["headers"]:
            if name == b"content-type":
                self._content_type = value
            elif name == b"content-length":
                self._content_length = value
            elif name == b"authorization":
                self.authorization = value
            elif name == b"x-request-id":
                self.request_id = value
            elif name == b"content-encoding":
                self._content_encoding = value
            elif name == b"transfer-encoding":
                self._is_chunked = True

    @property
    def leaves_unread(self) -> bool:
        """Whether some of the body is still on its way."""
        return not self.body_was_read and (self._is_chunked or self._content_length not in (b"", b"0"))

    async def read_json(self, intake: BodyIntake) -> bytes:
        """The body, announced as JSON or not announced at all.

        UnsupportedMediaType for another type, InvalidInput if it is empty; PayloadTooLarge, BodyTimeout and Overloaded
        as `intake` has its limits.
        """
        if self._content_type and not _JSON_TYPE.match(self._content_type):
            raise UnsupportedMediaType(f"the body should be application/json, not {_printable(self._content_type)}")
        if self._content_encoding and self._content_encoding.lower() != b"identity":
            raise UnsupportedMediaType(f"content-encoding {_printable(self._content_encoding)} is not read here")
        if self._content_length.isdigit() and int(self._content_length) > intake.max_bytes:
            raise _too_large(intake.max_bytes)
        with intake.open():
            body = await self._read_body(intake)
        if not body:
            raise InvalidInput("the body is empty; it should be a JSON object")
        return body

    async def _read_body(self, intake: BodyIntake) -> bytes:
        chunks: list[bytes] = []
        room = intake.max_bytes
        since_s = asyncio.get_running_loop().time()
        while True:
            message = await intake.next_part(self._receive, since_s, intake.max_bytes - room)
            if message["type"] == "http.disconnect":
                raise self._broken_off()
            chunk: bytes = message.get("body", b"")
            room -= len(chunk)
            if room < 0:
                raise _too_large(intake.max_bytes)
            chunks.append(chunk)
            if not message.get("more_body", False):
                self.body_was_read = True
                return chunk if len(chunks) == 1 else b"".join(chunks)

    def _broken_off(self) -> RequestError:
        """Why a body ended early: the server says no more than that, also where a chunk has no proper length."""
        if self._is_chunked:
            return InvalidInput("the body broke off, or its chunks are malformed")
        return Cancelled("the client left while sending")

    async def wait_disconnect(self) -> None:
        """Return once the client is gone. Only after the body was read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass


def _too_large(max_bytes: int) -> PayloadTooLarge:
    return PayloadTooLarge(f"the body is over the limit of {max_bytes} bytes (--max-body-bytes)")


def _printable(value: bytes) -> str:
    return repr(value[:100].decode("latin-1"))
