"""What the HTTP dialects have in common: one URL, JSON bodies, status codes, TEI's headers of times."""

import json
from typing import Any
from urllib.parse import urlsplit

from rosebed.bench.targets.base import Canned, Stages, TargetSettings
from rosebed.bench.targets.http_answer import HttpAnswer
from rosebed.bench.targets.http_connection import HttpConnection, request_bytes
from rosebed.client.messages import parse_error
from rosebed.core.errors import RosebedError, ServerError

_STAGE_HEADERS = (b"x-tokenization-time", b"x-queue-time", b"x-inference-time", b"x-total-time")
"""In ms; sent by TEI, and by others for its sake."""


class HttpTarget:
    """One server's URL. A dialect adds paths and bodies."""

    def __init__(self, settings: TargetSettings) -> None:
        self._settings = settings
        self._url = urlsplit(settings.address.location)
        self._own: HttpConnection | None = None

    async def connect(self, stand_in: str | None = None) -> HttpConnection:
        """A connection; its socket is opened by the first exchange."""
        return HttpConnection(self._url, stand_in)

    def check(self, answer: HttpAnswer) -> Stages:
        """Raises the error of an answer other than 200."""
        if answer.status != 200:
            raise error_of(answer)
        return _stages(answer)

    def canned(self, answer: HttpAnswer) -> Canned:
        """The same answer with a length, since chunks were joined."""
        head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(answer.body)
        return Canned("http", (head + answer.body,))

    async def close(self) -> None:
        if self._own is not None:
            await self._own.close()

    def post(self, path: str, body: Any) -> bytes:
        """A POST of `body` as compact JSON."""
        content = json.dumps(body, separators=(",", ":")).encode()
        return request_bytes(self._url, self._url.path + path, content, self._settings.api_key)

    async def ask(self, path: str, body: Any = None) -> HttpAnswer:
        """One exchange outside of any measurement: a GET, or a POST of `body`."""
        if self._own is None:
            self._own = await self.connect()
        if body is not None:
            return await self._own.exchange(self.post(path, body))
        return await self._own.exchange(request_bytes(self._url, self._url.path + path, None, self._settings.api_key))

    async def ask_json(self, path: str, body: Any = None) -> Any:
        """The decoded body of a 200 answer; its error for any other."""
        answer = await self.ask(path, body)
        self.check(answer)
        return decoded(answer)


def decoded(answer: HttpAnswer) -> Any:
    """The answer's JSON. ServerError if it is none."""
    try:
        return json.loads(answer.body)
    except ValueError as error:
        raise ServerError(f"the answer is not JSON: {error}") from error


def error_of(answer: HttpAnswer) -> RosebedError:
    """What an answer other than 200 means."""
    return parse_error(answer.status, {"retry-after": answer.header(b"retry-after").decode("latin-1")}, answer.body)


def _stages(answer: HttpAnswer) -> Stages:
    if b"x-total-time" not in answer.head.lower():
        return Stages()
    try:
        tokenize, queue, compute, total = (float(answer.header(name) or 0) for name in _STAGE_HEADERS)
    except ValueError:
        return Stages()
    return Stages(*(round(ms * 1e6) for ms in (tokenize, queue, compute, total)))
