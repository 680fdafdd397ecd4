"""The link: what gateways on the same machine use in place of a gRPC stream."""

import asyncio
import logging
import struct
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import grpc.aio
import numpy as np
import pytest
from tulip_live import eventually, live

from rosebed.core.errors import ConfigError
from rosebed.core.types import Lane, OutputKind, Sequence
from rosebed.ivy.upstream.link import LinkCall, open_call
from rosebed.ivy.upstream.replica import Replica
from rosebed.ivy.upstream.stream import Stream, running
from rosebed.proto.codec import ReplicaInfo, request_message
from rosebed.proto.link import link_path
from rosebed.proto.rosebed_pb2 import EmbedResponse, StreamRequest
from rosebed.proto.rosebed_pb2_grpc import TulipStub
from rosebed.testing import FakeEngine, expected_rows, fake_sequence
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.server import TulipServer


@asynccontextmanager
async def serving(engine: FakeEngine, path: Path, **settings: int) -> AsyncGenerator[TulipServer]:
    """A server on the Unix socket `path`."""
    server = TulipServer(engine, TulipConfig(host=f"unix:{path}", **settings), on_fatal=pytest.fail)
    await server.start()
    try:
        yield server
    finally:
        engine.by_hand = False
        await server.stop(5)
        engine.close()


class Raw:
    """A connection to a link, by hand."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, request_id: int, sequences: list[Sequence]) -> None:
        message = StreamRequest(embed=request_message(sequences, request_id=request_id))
        self.send_bytes(message.SerializeToString())

    def send_bytes(self, data: bytes) -> None:
        self.writer.write(struct.pack("<I", len(data)) + data)

    async def receive(self) -> EmbedResponse:
        async with asyncio.timeout(10):
            (size,) = struct.unpack("<I", await self.reader.readexactly(4))
            return EmbedResponse.FromString(await self.reader.readexactly(size))

    async def hung_up(self) -> bool:
        async with asyncio.timeout(10):
            return await self.reader.read() == b""


@asynccontextmanager
async def connected(path: Path) -> AsyncGenerator[Raw]:
    reader, writer = await asyncio.open_unix_connection(f"{path}.link")
    yield Raw(reader, writer)
    writer.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tulip.sock"


def test_the_link_lies_beside_the_socket() -> None:
    assert link_path("unix:/run/a,b.sock") == "/run/a,b.sock.link"
    assert link_path("127.0.0.1:50051") is None


async def test_a_request_by_hand(path: Path) -> None:
    engine, sequence = FakeEngine(), fake_sequence([5, 6, 7])
    async with serving(engine, path), connected(path) as link:
        for request_id in (7, 8):
            link.send(request_id, [sequence])
            answer = await link.receive()
            assert (answer.request_id, answer.last) == (request_id, True)
            expected = expected_rows(sequence, OutputKind.DENSE, engine.info)
            assert answer.outputs[0].data == expected.tobytes()


async def test_hundreds_of_requests_through_the_gateways_side(path: Path) -> None:
    engine = FakeEngine()
    async with serving(engine, path), AsyncExitStack() as stack:
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(f"unix:{path}"))
        call = await open_call(f"unix:{path}", TulipStub(channel), stack)
        assert isinstance(call, LinkCall)
        stream = Stream(call, Lane.ONLINE, engine.info.outputs)
        await stack.enter_async_context(running(stream.run()))
        batches = [[fake_sequence([n, k, 5]) for k in range(n % 5 + 1)] for n in range(500)]
        replies = await asyncio.gather(*map(stream.request, batches))
        for sequences, reply in zip(batches, replies, strict=True):
            for index, sequence in enumerate(sequences):
                expected = expected_rows(sequence, OutputKind.DENSE, engine.info)
                assert np.array_equal(reply.rows(OutputKind.DENSE, index), expected)


async def test_a_client_that_hangs_up_wants_nothing_more(path: Path) -> None:
    engine = FakeEngine()
    async with serving(engine, path) as server:
        engine.by_hand = True
        before = len(engine.batches)
        async with connected(path) as link:
            link.send(1, [fake_sequence([1])])
            await eventually(lambda: len(engine.unfinished) == 1)
            link.send(2, [fake_sequence([2])])
            await eventually(lambda: server.step_loop.scheduler.queue.num_requests(Lane.ONLINE) == 1)
        await eventually(lambda: server.step_loop.scheduler.queue.num_requests(Lane.ONLINE) == 0)
        engine.finish_next()
        await eventually(lambda: server.step_loop.scheduler.idle)
        assert len(engine.batches) == before + 1


@pytest.mark.parametrize("data", [b"\xff" * 40, bytes(5000)], ids=["no message", "too large"])
async def test_a_connection_that_sends_nonsense_is_ended_alone(
    path: Path, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(FakeEngine(), path, max_message_bytes=4096), connected(path) as good:
        async with connected(path) as bad:
            bad.send_bytes(data)
            assert await bad.hung_up()
        good.send(1, [fake_sequence([1])])
        assert (await good.receive()).last
    assert [record.levelname for record in caplog.records if "a connection to the link ended" in record.message] == [
        "WARNING"
    ]


async def test_stopping_answers_what_was_taken(path: Path) -> None:
    engine = FakeEngine()
    async with serving(engine, path) as server, connected(path) as link:
        engine.by_hand = True
        link.send(1, [fake_sequence([1])])
        await eventually(lambda: len(engine.unfinished) == 1)
        stopping = asyncio.create_task(server.stop(10))
        await asyncio.sleep(0.05)
        engine.finish_next()
        assert (await link.receive()).request_id == 1
        assert await link.hung_up()
        await stopping
        with pytest.raises(FileNotFoundError):
            await asyncio.open_unix_connection(f"{path}.link")


async def test_a_slow_reader_is_ended_after_the_grace(path: Path) -> None:
    engine = FakeEngine()
    async with serving(engine, path) as server, connected(path) as link:
        engine.by_hand = True
        link.send(1, [fake_sequence([1])])
        await eventually(lambda: len(engine.unfinished) == 1)
        await server.stop(0.05)
        assert await link.hung_up()


async def test_where_there_can_be_no_link_grpc_serves(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / ("x" * (105 - len(str(tmp_path))))
    async with serving(FakeEngine(), path):
        assert "no link at" in caplog.text
        await _ask_as_a_gateway(f"unix:{path}")


async def test_a_server_elsewhere_is_asked_over_grpc() -> None:
    async with live(FakeEngine()) as tulip, AsyncExitStack() as stack:
        assert not isinstance(await open_call("127.0.0.1:1", tulip.stub, stack), LinkCall)


async def test_a_socket_in_use_is_left_alone(path: Path) -> None:
    async with serving(FakeEngine(), path), connected(path) as link:
        second = FakeEngine()
        with pytest.raises(ConfigError, match="another process does"):
            await TulipServer(second, TulipConfig(host=f"unix:{path}")).start()
        second.close()
        link.send(1, [fake_sequence([1])])
        assert (await link.receive()).last
        await _ask_as_a_gateway(f"unix:{path}")


async def test_a_file_left_over_is_replaced(path: Path) -> None:
    link = Path(f"{path}.link")
    async with serving(FakeEngine(), path):
        pass
    left = await asyncio.start_unix_server(lambda _reader, _writer: None, link)
    left.close()
    async with serving(FakeEngine(), path), connected(path) as raw:
        raw.send(1, [fake_sequence([1])])
        assert (await raw.receive()).last


async def test_a_gateway_survives_the_loss_of_its_link(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for _ in range(2):
        async with serving(FakeEngine(), path):
            await _ask_as_a_gateway(f"unix:{path}")
    assert "has no link" not in caplog.text


async def _ask_as_a_gateway(target: str) -> None:
    ready = asyncio.Event()
    replica = Replica(target, _accept, on_ready=ready.set)
    async with running(replica.run()), asyncio.timeout(10):
        await ready.wait()
        sequence = fake_sequence([3, 4])
        reply = await replica.request([sequence], Lane.ONLINE)
        expected = expected_rows(sequence, OutputKind.DENSE, FakeEngine().info)
        assert np.array_equal(reply.rows(OutputKind.DENSE, 0), expected)


async def _accept(_info: ReplicaInfo) -> None:
    """Any replica will do."""
