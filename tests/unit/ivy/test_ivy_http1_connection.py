"""Connections over real sockets: order, limits, times, backpressure, ends."""

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, Callable
from io import StringIO

import pytest
from http1_support import HOST, Echo, Line, listening

from rosebed.ivy.http1.access_log import AccessLog
from rosebed.ivy.http1.connection import Connection
from rosebed.ivy.http1.connections import Connections

GET = b"GET %b HTTP/1.1\r\n" + HOST + b"\r\n"
SLOW = GET % b"/slow"


def post(target: bytes, body: bytes, *headers: bytes) -> bytes:
    lines = b"".join(header + b"\r\n" for header in (b"Content-Length: %d" % len(body), *headers))
    return b"POST %b HTTP/1.1\r\n" % target + HOST + lines + b"\r\n" + body


def code(body: bytes) -> str:
    return json.loads(body)["error"]["code"]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - sockets have no event for it
            await asyncio.sleep(0.005)


@pytest.fixture
async def echo() -> Echo:
    return Echo()


@pytest.fixture
async def served(echo: Echo) -> AsyncGenerator[tuple[Connections, int]]:
    async with listening(echo) as served:
        yield served


@pytest.fixture
def port(served: tuple[Connections, int]) -> int:
    return served[1]


async def test_an_answer(port: int) -> None:
    line = await Line.to(port, post(b"/a", b"hello", b"X-Request-Id: one"))
    answer = await line.answer()
    assert (answer.status, answer.body) == (200, b"POST /a hello")
    assert answer.headers.pop(b"date").endswith(b" GMT")
    assert answer.headers == {b"content-type": b"text/plain", b"content-length": b"13", b"x-request-id": b"one"}
    line.send(GET % b"/b")
    assert (await line.answer()).body == b"GET /b "
    line.close()


async def test_head_has_the_length_and_no_body(port: int) -> None:
    line = await Line.to(port, b"HEAD /a HTTP/1.1\r\n" + HOST + b"\r\n" + GET % b"/b")
    assert (await line.answer(has_body=False)).headers[b"content-length"] == b"8"
    assert (await line.answer()).body == b"GET /b "
    line.close()


async def test_requests_sent_ahead_are_answered_in_order(port: int, echo: Echo) -> None:
    line = await Line.to(port, SLOW + b"".join(GET % b"/%d" % number for number in range(2000)))
    await until(lambda: echo.begun)
    await asyncio.sleep(0.02)
    assert echo.begun == [b"/slow"]  # one at a time
    echo.go.set()
    bodies = [(await line.answer()).body for _ in range(2001)]
    assert bodies == [b"GET /slow ", *(b"GET /%d " % number for number in range(2000))]
    line.close()


async def test_a_refusal_waits_for_the_answers_before_it(port: int, echo: Echo) -> None:
    line = await Line.to(port, SLOW + b"nonsense\r\n\r\n")
    await until(lambda: echo.begun)
    echo.go.set()
    assert (await line.answer()).body == b"GET /slow "
    answer = await line.answer()
    assert (answer.status, code(answer.body), answer.closes) == (400, "malformed_request", True)
    assert await line.is_closed()


@pytest.mark.parametrize(
    ("data", "status", "name"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", 400, "malformed_request"),
        (post(b"/", b"0\r\n\r\n", b"Transfer-Encoding: chunked"), 400, "malformed_request"),
        (b"GET /%b HTTP/1.1\r\n" % (b"a" * 9000), 414, "uri_too_long"),
        (b"GET / HTTP/1.1\r\n" + HOST + b"a: b\r\n" * 200, 431, "headers_too_large"),
        (b"GET / HTTP/1.1\r\n" + HOST + b"a: " + b"b" * 100_000, 431, "headers_too_large"),
    ],
    ids=["no host", "smuggled", "target", "headers", "header"],
)
async def test_a_refusal_ends_the_connection(port: int, data: bytes, status: int, name: str) -> None:
    line = await Line.to(port, data + b"\r\n\r\n" + GET % b"/never")
    answer = await line.answer()
    assert (answer.status, code(answer.body), answer.closes) == (status, name, True)
    assert len(answer.headers[b"x-request-id"]) == 32
    assert await line.is_closed()


async def test_a_body_over_the_limit_is_refused_before_it_comes(port: int) -> None:
    line = await Line.to(port, b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 100001\r\n\r\n")
    answer = await line.answer()
    assert (answer.status, answer.closes) == (413, True)
    assert await line.is_closed()


async def test_a_chunked_body_is_refused_when_it_is_over_the_limit(port: int) -> None:
    chunk = b"4000\r\n" + b"a" * 0x4000 + b"\r\n"
    line = await Line.to(port, b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 6)
    await asyncio.sleep(0.02)
    line.send(chunk)
    answer = await line.answer()
    assert (answer.status, answer.closes) == (413, True)
    line.close()


async def test_a_body_is_read_to_its_limit(port: int) -> None:
    line = await Line.to(port, post(b"/", b"a" * 100_000))
    assert (await line.answer()).body == b"POST / " + b"a" * 100_000
    line.close()


async def test_who_waits_to_be_told_is_told(port: int) -> None:
    head = b"POST /a HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\nExpect: 100-continue\r\n\r\n"
    line = await Line.to(port, head)
    assert await line.reader.readexactly(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    line.send(b"hi")
    assert (await line.answer()).body == b"POST /a hi"
    line.send(head + b"ho")  # who does not wait is not told
    assert (await line.answer()).body == b"POST /a ho"
    line.send(head.replace(b"/a", b"/deaf"))
    answer = await line.answer()  # a final answer at once, without the body
    assert (answer.body, answer.closes) == (b"POST /deaf ", True)
    line.close()


async def test_a_client_of_http_1_0_that_wants_to_stay_is_told_that_it_may(port: int) -> None:
    line = await Line.to(port, b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
    assert (await line.answer()).headers[b"connection"] == b"keep-alive"
    line.send(b"GET /b HTTP/1.0\r\n\r\n")
    assert (await line.answer()).closes
    assert await line.is_closed()


async def test_an_upgrade_is_not_taken_up(port: int) -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABk\r\n\r\n"
    line = await Line.to(port, b"GET /a HTTP/1.1\r\n" + HOST + upgrade + GET % b"/b")
    assert [(await line.answer()).body for _ in range(2)] == [b"GET /a ", b"GET /b "]
    line.close()


async def test_a_body_is_read_though_its_head_asks_for_an_upgrade(port: int) -> None:
    upgrade = (b"Connection: Upgrade", b"Upgrade: h2c")
    inner = GET % b"/smuggled"
    line = await Line.to(port, post(b"/a", inner, *upgrade) + GET % b"/b")
    assert [(await line.answer()).body for _ in range(2)] == [b"POST /a " + inner, b"GET /b "]
    line.send(post(b"/c", b"", *upgrade, b"Expect: 100-continue").replace(b"Length: 0", b"Length: 2"))
    assert await line.reader.readexactly(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
    line.send(b"hi")
    assert (await line.answer()).body == b"POST /c hi"
    line.close()


async def test_a_client_of_http_1_0_is_not_told_to_go_on(port: int) -> None:
    line = await Line.to(port, b"POST /a HTTP/1.0\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n")
    await asyncio.sleep(0.02)
    line.send(b"hi")
    assert (await line.answer()).body == b"POST /a hi"
    line.close()


async def test_a_trailer_that_never_ends_is_refused(port: int) -> None:
    line = await Line.to(port, b"POST / HTTP/1.1\r\n" + HOST + b"Transfer-Encoding: chunked\r\n\r\n0\r\na: ")
    line.send(b"b" * 1_000_000)
    answer = await line.answer()
    assert (answer.status, code(answer.body), answer.closes) == (431, "headers_too_large", True)
    assert await line.is_closed()


async def test_a_body_that_nobody_takes_is_not_piled_up(port: int, echo: Echo) -> None:
    echo.intake.max_bytes = 1 << 30
    line = await Line.to(port, b"POST /slow HTTP/1.1\r\n" + HOST + b"Content-Length: 20000000\r\n\r\n")
    line.send(b"a" * 20_000_000)
    await until(lambda: echo.begun)
    await asyncio.sleep(0.1)
    assert line.writer.transport.get_write_buffer_size() > 5_000_000  # what the sockets do not hold stays here
    echo.go.set()
    assert len((await line.answer()).body) == 20_000_011
    line.close()


async def test_a_client_that_leaves_cancels_its_work(port: int, echo: Echo, served: tuple[Connections, int]) -> None:
    for abruptly in (False, True):
        line = await Line.to(port, SLOW)
        await until(lambda: echo.begun)
        (line.writer.transport.abort if abruptly else line.close)()
        await until(lambda: echo.cancelled)
        assert echo.cancelled == [b"/slow"]
        echo.begun.clear()
        echo.cancelled.clear()
    await until(lambda: not len(served[0]))


async def test_a_client_that_leaves_within_its_body_cancels_it(port: int, echo: Echo) -> None:
    line = await Line.to(port, post(b"/a", b"hello")[:-1])
    await until(lambda: echo.begun)
    line.close()
    await until(lambda: echo.cancelled)


async def test_an_idle_connection_is_closed_in_time(echo: Echo) -> None:
    async with listening(echo, keep_alive_s=0.2) as (connections, port):
        fresh, used, busy = [await Line.to(port) for _ in range(3)]
        busy.send(SLOW)
        await asyncio.sleep(0.1)
        used.send(GET % b"/a")
        assert (await used.answer()).body == b"GET /a "
        assert await fresh.is_closed()
        assert len(connections) == 2
        assert await used.is_closed()
        echo.go.set()
        assert (await busy.answer()).body == b"GET /slow "
        assert await busy.is_closed()


async def test_headers_that_do_not_come_time_out(echo: Echo) -> None:
    async with listening(echo, head_timeout_s=0.1) as (_, port):
        line = await Line.to(port, GET % b"/a" + b"GET / HTTP/1.1\r\nHo")
        assert (await line.answer()).status == 200
        for byte in b"st: x":  # dripping does not help
            await asyncio.sleep(0.03)
            line.send(bytes([byte]))
        answer = await line.answer()
        assert (answer.status, code(answer.body), answer.closes) == (408, "headers_timeout", True)
        assert await line.is_closed()


async def test_a_slow_reader_gets_all_of_it_and_nothing_is_begun_meanwhile(port: int, echo: Echo) -> None:
    line = await Line.to(port, GET % b"/long" + GET % b"/next" + GET % b"/last")
    await asyncio.sleep(0.1)
    assert b"/last" not in echo.begun  # uvloop finds out late that a write is too much: one may slip through
    assert len((await line.answer()).body) == 20_000_000
    assert [(await line.answer()).body for _ in range(2)] == [b"GET /next ", b"GET /last "]
    line.close()


async def test_a_reader_that_was_slow_is_not_left_later(echo: Echo) -> None:
    async with listening(echo, stalled_s=0.3) as (_, port):
        line = await Line.to(port, GET % b"/long" + SLOW)
        await asyncio.sleep(0.05)
        assert len((await line.answer()).body) == 20_000_000
        await asyncio.sleep(0.5)
        echo.go.set()
        assert (await line.answer()).body == b"GET /slow "
        line.close()


async def test_a_client_that_takes_nothing_is_left(echo: Echo) -> None:
    async with listening(echo, stalled_s=0.1) as (connections, port):
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.sendall(GET % b"/long")
            await until(lambda: echo.begun)
            await until(lambda: not len(connections))


async def test_a_refused_client_that_goes_on_sending_reads_its_answer(port: int) -> None:
    line = await Line.to(port, b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 2000000\r\n\r\n" + b"a" * 2_000_000)
    await line.writer.drain()
    assert (await line.answer()).status == 413
    line.close()


async def test_one_that_sends_for_ever_is_left(echo: Echo) -> None:
    async with listening(echo, linger_bytes=100_000, linger_s=60) as (connections, port):
        line = await Line.to(port, b"POST / HTTP/1.1\r\n" + HOST + b"Content-Length: 200000000\r\n\r\n")
        assert (await line.answer()).status == 413
        line.send(b"a" * 1_000_000)
        await until(lambda: not len(connections))
        line.close()


async def test_one_connection_too_many_is_told_so(echo: Echo) -> None:
    async with listening(echo, max_connections=1) as (_, port):
        first = await Line.to(port, GET % b"/a")
        assert (await first.answer()).status == 200
        second = await Line.to(port)
        answer = await second.answer()
        assert (answer.status, answer.headers[b"retry-after"], answer.closes) == (503, b"1", True)
        first.send(GET % b"/b")
        assert (await first.answer()).body == b"GET /b "
        first.close()


async def test_one_that_comes_while_others_end_is_told_why_it_is_refused(echo: Echo) -> None:
    async with listening(echo) as (connections, port):
        busy = await Line.to(port, SLOW)
        await until(lambda: echo.begun)
        draining = asyncio.create_task(connections.drain())
        await until(lambda: connections.is_draining)
        late = await Line.to(port)
        answer = await late.answer()
        assert (answer.status, answer.headers[b"retry-after"], answer.closes) == (503, b"1", True)
        assert json.loads(answer.body)["error"]["message"] == "this server is shutting down"
        assert await late.is_closed()
        echo.go.set()
        assert (await busy.answer()).body == b"GET /slow "
        await draining


async def test_draining_answers_what_was_asked_and_closes(echo: Echo) -> None:
    async with listening(echo) as (connections, port):
        idle, busy = await Line.to(port), await Line.to(port, SLOW + GET % b"/ahead")
        await until(lambda: echo.begun and len(connections) == 2)
        draining = asyncio.create_task(connections.drain())
        assert await idle.is_closed()
        assert not draining.done()
        echo.go.set()
        assert (await busy.answer()).body == b"GET /slow "
        last = await busy.answer()
        assert (last.body, last.closes) == (b"GET /ahead ", True)
        assert await busy.is_closed()
        await draining
        assert len(connections) == 0


async def test_thousands_of_idle_connections(port: int, served: tuple[Connections, int]) -> None:
    lines = [await Line.to(port) for _ in range(300)]
    assert len(served[0]) == 300
    lines[-1].send(GET % b"/a")
    assert (await lines[-1].answer()).body == b"GET /a "
    for line in lines:
        line.close()
    await until(lambda: not len(served[0]))


async def test_no_delay(served: tuple[Connections, int]) -> None:
    sockets: list[socket.socket] = []

    class Noted(Connection):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            sockets.append(transport.get_extra_info("socket"))
            super().connection_made(transport)

    server = await asyncio.get_running_loop().create_server(lambda: Noted(served[0]), "127.0.0.1", 0)
    line = await Line.to(server.sockets[0].getsockname()[1])
    await until(lambda: sockets)
    assert sockets[0].getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
    line.close()
    server.close()


async def test_access_log(echo: Echo) -> None:
    stream = StringIO()
    async with listening(echo) as (connections, port):
        connections.access_log = AccessLog(asyncio.get_running_loop(), stream)
        line = await Line.to(port, post(b"/a?b", b"hi", b"X-Request-Id: one"))
        await line.answer()
        address = line.writer.get_extra_info("sockname")
        line.close()
    time, client, method, target, status, size, took_ms, request_id = stream.getvalue().split()
    assert (client, method, target) == (f"127.0.0.1:{address[1]}", '"POST', '/a?b"')
    assert (status, size, request_id) == ("200", "12", "one")
    assert 0 < float(took_ms) < 10_000
    assert len(time) == len("2026-11-30T00:00:00+0000")


async def test_access_log_of_refusals(echo: Echo) -> None:
    stream = StringIO()
    async with listening(echo, head_timeout_s=0.1, max_connections=1) as (connections, port):
        connections.access_log = AccessLog(asyncio.get_running_loop(), stream)
        for data in (
            b"nonsense\r\n\r\n",
            b"PUT /a HTTP/1.1\r\n\r\n",
            b"GET /slow HTTP/1.1\r\nHo",
            b"GET /%b HTTP/1.1\r\n" % (b"a" * 9000),
            b"GET /b HTTP/1.1\r\n" + HOST + b"a: b\r\n" * 200,
            b"HEAD /c HTTP/1.1\r\n" + HOST + b"\r\n",
        ):
            line = await Line.to(port, data)
            answer = await line.answer(has_body=not data.startswith(b"HEAD"))
            if answer.status == 200:
                assert (await (await Line.to(port)).answer()).status == 503
            line.close()
            await until(lambda: not len(connections))
    lines = [line.split()[2:6] for line in stream.getvalue().splitlines()]
    assert [(method[1:], target[:4].rstrip('"'), status) for method, target, status, _ in lines] == [
        ("-", "-", "400"),
        ("PUT", "/a", "400"),
        ("GET", "/slo", "408"),
        ("GET", "/aaa", "414"),
        ("GET", "/b", "431"),
        ("HEAD", "/c", "200"),
        ("-", "-", "503"),
    ]
    assert [int(size) > 0 for *_, size in lines] == [True, True, True, True, True, False, True]
