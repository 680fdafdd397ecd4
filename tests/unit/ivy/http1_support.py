"""Connections before an answerer that the test commands, over real sockets."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from rosebed.core.errors import RosebedError
from rosebed.ivy.dialects.openai import ERRORS
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.faults import error_reply
from rosebed.ivy.http.intake import BodyIntake
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.http1.connections import Connections
from rosebed.ivy.http1.limits import ConnectionLimits
from rosebed.ivy.workload import Workload

HOST = b"host: x\r\n"


class Echo:
    """Answers with what a request was: method, target, body.

    `/slow` waits for `go`, `/deaf` takes no body, `/long` has a long answer.
    """

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.cancelled: list[bytes] = []
        """Targets of requests whose client left."""
        self.begun: list[bytes] = []
        """Targets of all requests."""
        self.intake = BodyIntake(max_bytes=100_000, timeout_s=5, workload=Workload())

    async def answer(self, call: Call) -> Reply:
        self.begun.append(call.target)
        try:
            return await self._answer(call)
        except RosebedError as error:
            return self.refuse(error)
        except asyncio.CancelledError:
            self.cancelled.append(call.target)
            raise

    async def _answer(self, call: Call) -> Reply:
        if call.target == b"/slow":
            await self.go.wait()
        if call.target == b"/long":
            return Reply(200, b"x" * 20_000_000)
        body = b"" if call.target == b"/deaf" else await self.intake.read(call.body)
        return Reply(200, b"%b %b %b" % (call.method, call.target, body), content_type=b"text/plain")

    def refuse(self, error: RosebedError) -> Reply:
        return error_reply(error, ERRORS, b"-")


@asynccontextmanager
async def listening(echo: Echo, *, look_s: float = 0.02, **limits: Any) -> AsyncGenerator[tuple[Connections, int]]:
    """The connections, and the port they come in by."""
    connections = Connections(echo, replace(ConnectionLimits(linger_s=0.2), **limits), look_s=look_s)
    server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
    watch = asyncio.create_task(connections.run())
    try:
        yield connections, server.sockets[0].getsockname()[1]
    finally:
        server.close()
        echo.go.set()
        await connections.drain()
        watch.cancel()


class Line:
    """A client's socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def to(cls, port: int, data: bytes = b"") -> "Line":
        """Reads no more than about 100 kB ahead."""
        line = cls(*await asyncio.open_connection("127.0.0.1", port))
        line.send(data)
        return line

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def answer(self, *, has_body: bool = True) -> "Answer":
        """The next answer; IncompleteReadError if the connection ends before."""
        async with asyncio.timeout(10):
            head = await self.reader.readuntil(b"\r\n\r\n")
            status_line, *lines = head[:-4].split(b"\r\n")
            headers = dict(line.split(b": ", 1) for line in lines)
            body = await self.reader.readexactly(int(headers.get(b"content-length", 0))) if has_body else b""
            return Answer(int(status_line.split(b" ")[1]), headers, body)

    async def is_closed(self) -> bool:
        """Whether the server ends the connection without another word."""
        async with asyncio.timeout(10):
            try:
                return await self.reader.read() == b""
            except ConnectionResetError:
                return True

    def close(self) -> None:
        self.writer.close()


class Answer:
    """What came back."""

    def __init__(self, status: int, headers: dict[bytes, bytes], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def closes(self) -> bool:
        return self.headers.get(b"connection") == b"close"
