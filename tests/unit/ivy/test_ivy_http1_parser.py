"""What is a request and what is refused, whichever way its bytes come apart."""

import asyncio
from itertools import pairwise

import pytest
from http1_support import HOST
from hypothesis import given
from hypothesis import strategies as st

from rosebed.core.errors import HeadTooLarge, MalformedRequest, RosebedError, TargetTooLong
from rosebed.ivy.http.call import Call
from rosebed.ivy.http1.limits import ConnectionLimits
from rosebed.ivy.http1.parser import RequestParser

Seen = tuple[bytes, bytes, bytes | str]
"""Method, target and body of a request, or why its body broke off."""


def parser(**limits: int) -> RequestParser:
    return RequestParser(ConnectionLimits(**limits), lambda: None)  # pyright: ignore[reportArgumentType]


def read(*pieces: bytes, **limits: int) -> RequestParser:
    fed = parser(**limits)
    for piece in pieces:
        fed.feed(piece)
    return fed


def only_call(fed: RequestParser) -> Call:
    (call,) = fed.waiting
    assert isinstance(call, Call)
    return call


def refusal(*pieces: bytes, **limits: int) -> RosebedError:
    """The last thing in line."""
    fed = read(*pieces, **limits)
    assert fed.is_over
    error = fed.waiting[-1]
    assert isinstance(error, RosebedError)
    return error


async def seen(fed: RequestParser) -> list[Seen | str]:
    """Each request, or its refusal."""
    return [await _seen(item) if isinstance(item, Call) else item.message for item in fed.waiting]


async def _seen(call: Call) -> Seen:
    body = b""
    try:
        async with asyncio.timeout(10):
            while part := await call.body.next_part():
                body += part
    except RosebedError as error:
        return call.method, call.target, error.message
    return call.method, call.target, body


PIPELINE = (
    b"GET /a?b=c HTTP/1.1\r\n" + HOST + b"\r\n"
    b"POST /b HTTP/1.1\r\n" + HOST + b"Content-Length: 5\r\n\r\nhello"
    b"\r\nPOST /c HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    b"3;ext=1\r\nabc\r\nA\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n"
    b"HEAD /d HTTP/1.1\r\n" + HOST + b"Connection: Upgrade\r\nUpgrade: h2c\r\n\r\n"
    b"POST /e HTTP/1.0\r\nContent-Length: 0\r\n\r\nGET /never HTTP/1.1\r\n" + HOST + b"\r\n"
)
REQUESTS = [
    (b"GET", b"/a?b=c", b""),
    (b"POST", b"/b", b"hello"),
    (b"POST", b"/c", b"abc0123456789"),
    (b"HEAD", b"/d", b""),
    (b"POST", b"/e", b""),
]


async def test_requests_sent_ahead_are_told_apart() -> None:
    fed = read(PIPELINE)
    assert await seen(fed) == REQUESTS
    assert fed.is_over  # the last client spoke HTTP/1.0


@given(st.lists(st.integers(1, len(PIPELINE) - 1), unique=True, max_size=8))
async def test_they_are_the_same_however_they_come_apart(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(PIPELINE)]
    fed = read(*(PIPELINE[start:stop] for start, stop in pairwise(bounds)))
    assert await seen(fed) == REQUESTS


async def test_byte_by_byte() -> None:
    assert await seen(read(*(bytes([byte]) for byte in PIPELINE))) == REQUESTS


MALFORMED = {
    "both lengths": (b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding"),
    "both lengths, other order": (b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n", "Content-Length"),
    "length twice": (b"Content-Length: 2\r\nContent-Length: 2\r\n", "Duplicate Content-Length"),
    "two lengths in one": (b"Content-Length: 2, 2\r\n", "Content-Length"),
    "negative length": (b"Content-Length: -2\r\n", "Content-Length"),
    "signed length": (b"Content-Length: +2\r\n", "Content-Length"),
    "length in hexadecimal": (b"Content-Length: 0x2\r\n", "Content-Length"),
    "empty length": (b"Content-Length:\r\n", "Content-Length"),
    "huge length": (b"Content-Length: 99999999999999999999\r\n", "Content-Length overflow"),
    "length of many digits": (b"Content-Length: %b53\r\n" % (b"0" * 5000), "over 20 digits"),
    "encoding twice": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding"),
    "chunked is not last": (b"Transfer-Encoding: chunked, identity\r\n", "Transfer-Encoding"),
    "packed and chunked": (b"Transfer-Encoding: gzip, chunked\r\n", "'gzip, chunked' is not read here"),
    "not chunked": (b"Transfer-Encoding: identity\r\n", "is not read here"),
    "nearly chunked": (b"Transfer-Encoding: xchunked\r\n", "is not read here"),
    "blank before the colon": (b"Transfer-Encoding : chunked\r\n", "Invalid header"),
    "folded": (b"A: b\r\n c\r\n", "Unexpected whitespace"),
    "NUL in a value": (b"A: b\x00c\r\n", "Invalid header value"),
    "bare CR": (b"A: b\rc\r\n", "malformed"),
    "bare LF": (b"A: b\nHost: y\r\n", "malformed"),
    "host twice": (b"Host: y\r\n", "the header host came twice"),
    "coding twice": (b"Content-Encoding: gzip\r\ncontent-encoding: gzip\r\n", "content-encoding came twice"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_two_readers_might_read_differently_is_refused(name: str) -> None:
    headers, says = MALFORMED[name]
    error = refusal(b"POST / HTTP/1.1\r\n" + HOST + headers + b"\r\n0\r\n\r\n")
    assert type(error) is MalformedRequest
    assert says in error.message


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "have a host header"),
        (b"GET /\r\n\r\n", "HTTP/0.9 is not spoken here"),
        (b"GET / HTTP/2.0\r\n" + HOST + b"\r\n", "HTTP/2.0 is not spoken here"),
        (b"GET / HTTP/0.9\r\n" + HOST + b"Connection: keep-alive\r\n\r\n", "HTTP/0.9 is not spoken here"),
        (b"GET / HTTP/2.0\r\n" + HOST + b"Connection: keep-alive\r\n\r\n", "HTTP/2.0 is not spoken here"),
        (b"CONNECT a:1 HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\nhi", "CONNECT is not answered here"),
        (b"BREW /pot HTTP/1.1\r\n" + HOST + b"\r\n", "no method known here"),
        (b"GET / HTTP/1.2\r\n" + HOST + b"\r\n", "malformed"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "malformed"),
        (b"GET /a b HTTP/1.1\r\n" + HOST + b"\r\n", "malformed"),
        (b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n", "malformed"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc", "no method known here"),
        (b"hello\r\n\r\n", "no method known here"),
        (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "HTTP/1.0 knows no transfer-encoding"),
    ],
)
def test_what_is_no_request_is_refused(data: bytes, says: str) -> None:
    error = refusal(data)
    assert type(error) is MalformedRequest
    assert says in error.message


async def test_chunks_that_are_malformed_break_the_body_off() -> None:
    head = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    for chunks in (b"zz\r\nab\r\n", b"2\r\nabc\r\n", b"-2\r\nab\r\n", b"2 \r\nab\r\n", b"2\nab\r\n", b"\r\n"):
        ((_, _, problem),) = await seen(read(head + chunks))
        assert "the body's chunks are malformed" in str(problem), chunks


def test_a_refusal_comes_after_what_was_asked_before() -> None:
    fed = read(b"GET /first HTTP/1.1\r\n" + HOST + b"\r\n" + b"nonsense\r\n\r\n" + b"GET /never HTTP/1.1\r\n\r\n")
    first, error = fed.waiting
    assert isinstance(first, Call)
    assert first.target == b"/first"
    assert isinstance(error, MalformedRequest)


def test_limits_on_heads() -> None:
    start = b"GET / HTTP/1.1\r\n" + HOST
    many = [b"a%d: b\r\n" % number for number in range(20)]
    assert type(refusal(start, *many, b"\r\n", max_headers=20)) is HeadTooLarge
    assert len(read(start, *many, b"\r\n", max_headers=21).waiting) == 1
    assert type(refusal(start + b"a: %b\r\n\r\n" % (b"b" * 100), max_head_bytes=100)) is HeadTooLarge
    assert len(read(start + b"a: %b\r\n\r\n" % (b"b" * 80), max_head_bytes=100).waiting) == 1
    assert type(refusal(b"GET /%b HTTP/1.1\r\n" % (b"a" * 100), max_target_bytes=100)) is TargetTooLong
    assert len(read(b"GET /%b HTTP/1.1\r\n" % (b"a" * 99), HOST, b"\r\n", max_target_bytes=100).waiting) == 1


def test_a_header_that_never_ends_is_refused() -> None:
    fed = read(b"GET / HTTP/1.1\r\n" + HOST + b"a: ", *[b"b" * 10] * 9, max_head_bytes=100)
    assert not fed.is_over
    fed.feed(b"b" * 20)
    (error,) = fed.waiting
    assert type(error) is HeadTooLarge


def test_trailers_count_too() -> None:
    chunked = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\n"
    fed = read(chunked, *[b"a%d: b\r\n" % number for number in range(200)], b"\r\n", max_headers=20)
    assert fed.is_over
    assert not only_call(fed).body.is_complete


@pytest.mark.parametrize("start", [b"", b"a: "], ids=["name", "value"])
def test_a_trailer_that_never_ends_is_refused(start: bytes) -> None:
    chunked = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n"
    fed = read(chunked, b"1\r\na\r\n" * 100, b"0\r\n" + start, *[b"b" * 10] * 9, max_head_bytes=100)
    assert not fed.is_over
    fed.feed(b"b" * 20)
    assert fed.is_over


async def test_a_trailer_that_never_ends_is_answered_so() -> None:
    chunked = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\na: "
    ((_, _, problem),) = await seen(read(chunked, *[b"b" * 1000] * 70))
    assert "the headers are over 65536 bytes" in str(problem)


def test_a_chunk_whose_extensions_never_end_is_refused() -> None:
    chunked = b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n1;a="
    assert read(chunked, *[b"b" * 1000] * 70).is_over


UPGRADE = b"Connection: keep-alive, Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n"
UPGRADES = (
    b"POST /a?b HTTP/1.1\r\n" + HOST + UPGRADE + b"Content-Length: 30\r\n\r\n"
    b"GET /smuggled HTTP/1.1\r\nA: b\r\n"
    b"PUT /b HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n" + UPGRADE + b"\r\n2\r\nhi\r\n0\r\nA: b\r\n\r\n"
    b"POST /c HTTP/1.1\r\n" + HOST + UPGRADE + b"Content-Length: 0\r\n\r\n"
    b"GET /d HTTP/1.1\r\n" + HOST + UPGRADE + b"\r\n"
    b"POST /e HTTP/1.0\r\nContent-Length: 2\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhoGET /never HTTP/1.1\r\n\r\n"
)


@given(st.lists(st.integers(1, len(UPGRADES) - 1), unique=True, max_size=8))
async def test_requests_for_an_upgrade_have_their_bodies(cuts: list[int]) -> None:
    bounds = [0, *sorted(cuts), len(UPGRADES)]
    fed = read(*(UPGRADES[start:stop] for start, stop in pairwise(bounds)))
    assert await seen(fed) == [
        (b"POST", b"/a?b", b"GET /smuggled HTTP/1.1\r\nA: b\r\n"),
        (b"PUT", b"/b", b"hi"),
        (b"POST", b"/c", b""),
        (b"GET", b"/d", b""),
        (b"POST", b"/e", b"ho"),
    ]
    assert fed.is_over


@pytest.mark.parametrize("headers", [b"Content-Length: 2, 2\r\n", b"Transfer-Encoding: gzip, chunked\r\n"])
def test_requests_for_an_upgrade_are_refused_as_others_are(headers: bytes) -> None:
    error = refusal(b"POST / HTTP/1.1\r\n" + HOST + UPGRADE + headers + b"\r\n0\r\n\r\n")
    assert type(error) is MalformedRequest


def test_unknown_methods_are_refused_however_they_come() -> None:
    unknown = b"FOO /health HTTP/1.1\r\n" + HOST + b"\r\n"
    pipelined = b"GET / HTTP/1.1\r\n" + HOST + b"\r\n" + unknown
    for pieces in ((unknown,), (unknown[:1], unknown[1:]), (unknown[:2], unknown[2:]), (pipelined,)):
        error = refusal(*pieces)
        assert type(error) is MalformedRequest
        assert "no method known here" in error.message


def test_how_far_a_refused_head_had_come() -> None:
    for data, line in (
        (b"nonsense\r\n\r\n", (b"-", b"-")),
        (b"PUT /a HTTP/1.1\r\n\r\n", (b"PUT", b"/a")),
        (b"PUT /a HTTP/1.1\r\nA : b\r\n", (b"PUT", b"/a")),
        (b"GET /b HTTP/1.1\r\n" + HOST + b"\r\nnonsense\r\n", (b"-", b"-")),
    ):
        fed = read(data)
        assert fed.is_over
        assert fed.refused_line == line


def test_headers_come_by_lower_case_names_and_lists_are_joined() -> None:
    call = only_call(
        read(b"GET / HTTP/1.1\r\nHOST: x\r\nAccept-Encoding: gzip\r\nX-a:  1 \r\naccept-encoding: br\r\nx-A: 2\r\n\r\n")
    )
    assert call.headers == {b"host": b"x", b"accept-encoding": b"gzip, br", b"x-a": b"2"}


@pytest.mark.parametrize(
    ("request_line", "headers", "keeps_alive"),
    [
        (b"GET / HTTP/1.1", HOST, True),
        (b"GET / HTTP/1.1", HOST + b"Connection: close\r\n", False),
        (b"GET / HTTP/1.0", b"", False),
        (b"GET / HTTP/1.0", b"Connection: keep-alive\r\n", True),
    ],
)
def test_who_may_ask_again(request_line: bytes, headers: bytes, keeps_alive: bool) -> None:
    fed = read(request_line + b"\r\n" + headers + b"\r\n")
    assert only_call(fed).keeps_alive is keeps_alive
    assert fed.is_over is not keeps_alive


@given(st.binary(max_size=80))
def test_any_bytes_are_requests_or_refused(data: bytes) -> None:
    fed = read(data, b"\r\n\r\n")
    assert all(isinstance(item, Call | RosebedError) for item in fed.waiting)
