"""Answers as bytes."""

import time
from email.utils import formatdate
from http import HTTPStatus

from rosebed.ivy.http.reply import Reply

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

_STATUS_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode() for status in HTTPStatus}
_CLOSE = b"connection: close\r\n"
_KEEP_ALIVE = b"connection: keep-alive\r\n"


class Clock:
    """The `date` header, made once a second."""

    def __init__(self) -> None:
        self._second = 0
        self._header = b""

    def header(self) -> bytes:
        second = int(time.time())
        if second != self._second:
            self._second = second
            self._header = b"date: %b\r\n" % formatdate(second, usegmt=True).encode()
        return self._header


def answer_head(reply: Reply, request_id: bytes, *, date: bytes, closes: bool, says_keep_alive: bool) -> bytes:
    """All before the body of `reply`.

    `closes` announces that the connection ends with it; `says_keep_alive` that it does not, to those who expect it to.
    """
    more = b"".join([b"%b: %b\r\n" % header for header in reply.headers]) if reply.headers else b""
    if closes:
        more += _CLOSE
    elif says_keep_alive:
        more += _KEEP_ALIVE
    return b"%bcontent-type: %b\r\ncontent-length: %d\r\nx-request-id: %b\r\n%b%b\r\n" % (
        _status_line(reply.status),
        reply.content_type,
        len(reply.body),
        request_id,
        date,
        more,
    )


def _status_line(status: int) -> bytes:
    return _STATUS_LINES.get(status) or b"HTTP/1.1 %d \r\n" % status
