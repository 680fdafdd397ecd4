"""One keep-alive HTTP/1.1 connection that costs its client as little as can be: no objects per header, no copies.

A general client spends about half a millisecond of processor time on a request, as much as a small model.
"""

import asyncio
import ssl
from typing import cast
from urllib.parse import SplitResult

from rosebed.bench.targets.http_answer import AnswerReader, HttpAnswer
from rosebed.core.errors import ServerError, Unavailable

_DEFAULT_PORTS = {"http": 80, "https": 443}


def request_bytes(url: SplitResult, path: str, body: bytes | None, api_key: str | None) -> bytes:
    """A whole request: POST of JSON, or GET for no body."""
    lines = [f"{'GET' if body is None else 'POST'} {path} HTTP/1.1", f"Host: {url.netloc}", "Accept: application/json"]
    if api_key is not None:
        lines.append(f"Authorization: Bearer {api_key}")
    if body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


class HttpConnection:
    """A `Connection`. Opens its socket again if the server closed it between requests."""

    def __init__(self, url: SplitResult, stand_in: str | None = None) -> None:
        """To the host of `url`, or to `stand_in`, which is HOST:PORT without TLS."""
        self._host = url.hostname or ""
        self._port = url.port or _DEFAULT_PORTS[url.scheme]
        self._tls = ssl.create_default_context() if url.scheme == "https" and stand_in is None else None
        if stand_in is not None:
            self._host, _, port = stand_in.rpartition(":")
            self._port = int(port)
        self._line: _Line | None = None

    async def exchange(self, payload: bytes) -> HttpAnswer:
        """Send `request_bytes`, read the whole answer. Unavailable if the connection fails, ServerError for no HTTP."""
        if self._line is None or self._line.is_over:
            self._line = await self._open()
        return await self._line.exchange(payload)

    async def _open(self) -> "_Line":
        try:
            loop = asyncio.get_running_loop()
            _, line = await loop.create_connection(_Line, self._host, self._port, ssl=self._tls)
        except OSError as error:
            raise Unavailable(f"{self._host}:{self._port} cannot be reached: {error}") from error
        return line

    async def close(self) -> None:
        if self._line is not None:
            self._line.close()


class _Line(asyncio.Protocol):
    """One socket."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._reader = AnswerReader()
        self._answer: asyncio.Future[HttpAnswer] | None = None

    @property
    def is_over(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def exchange(self, payload: bytes) -> "asyncio.Future[HttpAnswer]":
        assert self._transport is not None
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(payload)
        return self._answer

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from it

    def data_received(self, data: bytes) -> None:
        try:
            self._settle(self._reader.feed(data))
        except ServerError as error:
            self._fail(error)

    def eof_received(self) -> None:
        self._settle(self._reader.end())

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(Unavailable(f"the server closed the connection before it had answered{f': {exc}' if exc else ''}"))

    def _settle(self, answer: HttpAnswer | None) -> None:
        if answer is None:
            return
        self._reader = AnswerReader()
        if answer.header(b"connection").lower() == b"close":
            self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _fail(self, error: Exception) -> None:
        self.close()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
