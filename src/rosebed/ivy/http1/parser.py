"""Bytes to requests, strictly: one meaning or a refusal. Knows no sockets; llhttp does the reading."""

from collections import deque
from collections.abc import Callable

import httptools

from rosebed.core.errors import (
    HeadTooLarge,
    InvalidInput,
    MalformedRequest,
    RosebedError,
    TargetTooLong,
)
from rosebed.ivy.http.body import Body
from rosebed.ivy.http.call import Call
from rosebed.ivy.http1.limits import ConnectionLimits

Piece = bytes | memoryview

_HEADER_BYTES = 4
"""A header's colon, blank and line end."""
_LISTS = frozenset({b"accept", b"accept-encoding", b"connection", b"expect", b"te", b"via", b"x-forwarded-for"})
"""Headers that mean the same in several lines as in one."""
_UNIQUE = frozenset({b"host", b"content-length", b"transfer-encoding", b"content-encoding", b"content-type"})
"""Headers of which a second would be understood by some and not by others."""
_MAX_LENGTH_DIGITS = 20
"""Of a content-length, leading zeros included."""
_NO_LINE = (b"-", b"-")


class RequestParser:
    """The requests of one connection, in order."""

    def __init__(self, limits: ConnectionLimits, on_body_wanted: Callable[[], None]) -> None:
        """`on_body_wanted` is called when a handler waits for more of a body."""
        self.waiting: deque[Call | RosebedError] = deque()
        """What to answer next: requests whose head is complete, and at most one refusal, at the end."""
        self.incoming: Call | None = None
        """The request whose body is on its way."""
        self.in_head = False
        """Whether a head has begun and not ended."""
        self.is_over = False
        """Whether nothing that comes will be read as a request."""
        self.refused_line = _NO_LINE
        """Method and target of what was refused before its head was complete, as far as they came."""
        self._limits = limits
        self._on_body_wanted = on_body_wanted
        self._parser = httptools.HttpRequestParser(self)
        self._target = b""
        self._headers: dict[bytes, bytes] = {}
        self._num_headers = 0
        self._room = 0
        self._partial = 0
        """Bytes since anything was made of them: of an unfinished header, of trailers, of a chunk's extensions."""

    def feed(self, piece: Piece) -> None:
        """Read on. Requests, parts of bodies and refusals go where they belong."""
        while len(piece) and not self.is_over:
            piece = self._feed(piece)

    def refuse(self, error: RosebedError) -> None:
        """Read nothing more, and say why: whoever waits for a body, or else the client, when its turn has come."""
        if self.in_head and self._target:
            self.refused_line = (self._parser.get_method(), self._target)
        self.is_over = True
        self.in_head = False
        if self.incoming is None:
            self.waiting.append(error)
        else:
            self.incoming.body.break_off(error)
            self.incoming = None

    def _feed(self, piece: Piece) -> Piece:
        """Returns what is still to be read."""
        self._partial += len(piece)
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade as upgrade:  # which we do not offer: go on as if nobody had asked
            rest = piece[upgrade.args[0] :]
            if not self.in_head:
                return rest
            head = self._head_without_upgrade()
            self._parser = httptools.HttpRequestParser(self)
            return head + rest
        except httptools.HttpParserInvalidMethodError:
            self.refuse(MalformedRequest("the request is malformed: it begins with no method known here"))
        except httptools.HttpParserCallbackError as error:
            cause = error.__context__
            if not isinstance(cause, RosebedError):
                raise
            self.refuse(cause)
        except httptools.HttpParserError as error:
            if not self.is_over:
                self._refuse_syntax(str(error))
        if self._partial > self._limits.max_head_bytes and not self.is_over:
            self.refuse(self._too_large())
        return b""

    def _head_without_upgrade(self) -> bytes:
        """The head just read, so that llhttp reads the body too: of a request for an upgrade, it leaves that out."""
        lines = [b"%b: %b\r\n" % header for header in self._headers.items() if header[0] != b"upgrade"]
        version = self._parser.get_http_version().encode()
        return b"%b %b HTTP/%b\r\n%b\r\n" % (self._parser.get_method(), self._target, version, b"".join(lines))

    def _refuse_syntax(self, problem: str) -> None:
        if self.incoming is None:
            self.refuse(MalformedRequest(f"the request is malformed: {problem}"))
        else:
            self.refuse(InvalidInput(f"the body's chunks are malformed: {problem}"))

    def _too_large(self) -> HeadTooLarge:
        limits = self._limits
        return HeadTooLarge(f"the headers are over {limits.max_head_bytes} bytes, or over {limits.max_headers}")

    # What llhttp calls.

    def on_message_begin(self) -> None:
        self.in_head = True
        self._target = b""
        self._headers = {}
        self._num_headers = self._partial = 0
        self._room = self._limits.max_head_bytes

    def on_url(self, target: bytes) -> None:
        self._target += target
        if len(self._target) > self._limits.max_target_bytes:
            raise TargetTooLong(f"the path and query are over {self._limits.max_target_bytes} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._num_headers += 1
        self._room -= len(name) + len(value) + _HEADER_BYTES
        if self._room < 0 or self._num_headers > self._limits.max_headers:
            raise self._too_large()
        if not self.in_head:
            return  # behind the chunks of a body: nobody asked for them
        name = name.lower()
        headers = self._headers
        if name in headers:
            value = _joined(name, headers[name], value)
        headers[name] = value

    def on_headers_complete(self) -> None:
        parser, headers = self._parser, self._headers
        method = parser.get_method()
        is_chunked = b"transfer-encoding" in headers
        if method == b"CONNECT":
            raise MalformedRequest("CONNECT is not answered here: this is no proxy")
        if parser.should_upgrade() and (is_chunked or b"content-length" in headers):
            return  # to be read again
        version = parser.get_http_version()
        _check_version(version, headers)
        if version == "1.0":
            headers.pop(b"expect", None)  # whoever speaks it knows no answer before the answer
        body = Body(announced=_length(headers), is_chunked=is_chunked, on_wanted=self._on_body_wanted)
        self.in_head = False
        self._partial = 0
        keeps_alive = parser.should_keep_alive()
        self.incoming = call = Call(method, self._target, headers, body, keeps_alive=keeps_alive)
        self.waiting.append(call)

    def on_body(self, part: bytes) -> None:
        self._partial = 0
        if self.incoming is not None:
            self.incoming.body.feed(part)

    def on_message_complete(self) -> None:
        call, self.incoming = self.incoming, None
        self._partial = 0
        if call is not None:
            call.body.finish()
            self.is_over = not call.keeps_alive


def _joined(name: bytes, first: bytes, second: bytes) -> bytes:
    if name in _UNIQUE:
        raise MalformedRequest(f"the header {name.decode('latin-1')} came twice")
    return first + b", " + second if name in _LISTS else second


def _length(headers: dict[bytes, bytes]) -> int:
    length = headers.get(b"content-length", b"0").strip()
    if len(length) > _MAX_LENGTH_DIGITS:
        raise MalformedRequest(f"the content-length has over {_MAX_LENGTH_DIGITS} digits")
    return int(length)


def _check_version(version: str, headers: dict[bytes, bytes]) -> None:
    if version not in ("1.0", "1.1"):
        raise MalformedRequest(f"HTTP/{version} is not spoken here; HTTP/1.1 is")
    if version == "1.1" and b"host" not in headers:
        raise MalformedRequest("HTTP/1.1 requests have a host header")
    encoding = headers.get(b"transfer-encoding", b"chunked")
    if encoding.lower() != b"chunked":
        raise MalformedRequest(f"transfer-encoding {encoding[:100].decode('latin-1')!r} is not read here; chunked is")
    if version == "1.0" and b"transfer-encoding" in headers:
        raise MalformedRequest("HTTP/1.0 knows no transfer-encoding")
