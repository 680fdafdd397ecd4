"""Reads one HTTP/1.1 answer out of a stream of bytes, whatever the pieces. Knows no sockets."""

from typing import NamedTuple

from rosebed.core.errors import ServerError

_MAX_HEAD_BYTES = 1 << 16
_NO_BODY = frozenset({204, 304})


class HttpAnswer(NamedTuple):
    """A whole answer."""

    status: int
    head: bytes
    """Status line and headers, as they came."""
    body: bytes

    def header(self, name: bytes) -> bytes:
        """The value of the header `name` (lower case); empty if there is none."""
        return _header(self.head, name)


class AnswerReader:
    """Takes the bytes of one answer as they come: with a length, in chunks, or up to the end of the stream."""

    def __init__(self) -> None:
        self._head = b""
        self._status = 0
        self._parts: list[bytes] = []
        self._missing: int | None = None
        """Bytes of the body still to come; None if only the end of the stream will tell."""
        self._chunks: _Chunks | None = None

    def feed(self, data: bytes) -> HttpAnswer | None:
        """Take the next bytes; the answer, if they are its last. ServerError for what is no HTTP."""
        if not self._status:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                if len(self._head) > _MAX_HEAD_BYTES:
                    raise ServerError("the answer's headers do not end")
                return None
            data = self._head[end + 4 :]
            self._begin(self._head[: end + 4])
        return self._take(data)

    def end(self) -> HttpAnswer | None:
        """The stream is over; the answer, if that is how it ends."""
        return self._finish() if self._status and self._missing is None and self._chunks is None else None

    def _begin(self, head: bytes) -> None:
        version, _, rest = head.partition(b" ")
        status = rest[:3]
        if not version.startswith(b"HTTP/1.") or not status.isdigit():
            raise ServerError(f"not an HTTP answer: {head[:80]!r}")
        self._head, self._status = head, int(status)
        length = _header(head, b"content-length")
        if b"chunked" in _header(head, b"transfer-encoding").lower():
            self._chunks = _Chunks()
        elif self._status in _NO_BODY:
            self._missing = 0
        elif length:
            if not length.isdigit():
                raise ServerError(f"content-length is {length!r}")
            self._missing = int(length)

    def _take(self, data: bytes) -> HttpAnswer | None:
        if self._chunks is not None:
            return self._finish() if self._chunks.feed(data, self._parts) else None
        self._parts.append(data)
        if self._missing is None:
            return None
        self._missing -= len(data)
        if self._missing < 0:
            raise ServerError("the answer is longer than its content-length")
        return self._finish() if not self._missing else None

    def _finish(self) -> HttpAnswer:
        return HttpAnswer(self._status, self._head, b"".join(self._parts))


class _Chunks:
    """The chunked transfer coding (RFC 9112, section 7.1)."""

    def __init__(self) -> None:
        self._pending = b""
        self._in_trailer = False

    def feed(self, data: bytes, parts: list[bytes]) -> bool:
        """Add whole chunks to `parts`; whether the last was among them."""
        self._pending += data
        while True:
            line, end, rest = self._pending.partition(b"\r\n")
            if not end:
                return False
            if self._in_trailer:
                self._pending = rest
                if not line:
                    return True
                continue
            size = _chunk_size(line)
            if size == 0:
                self._in_trailer, self._pending = True, rest
                continue
            if len(rest) < size + 2:
                return False
            parts.append(rest[:size])
            self._pending = rest[size + 2 :]


def _chunk_size(line: bytes) -> int:
    try:
        return int(line.partition(b";")[0], 16)
    except ValueError:
        raise ServerError(f"not a chunk of an HTTP answer: {line[:80]!r}") from None


def _header(head: bytes, name: bytes) -> bytes:
    at = head.lower().find(b"\r\n" + name + b":")
    if at < 0:
        return b""
    start = at + len(name) + 3
    return head[start : head.find(b"\r\n", start)].strip()
