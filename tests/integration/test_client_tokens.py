"""`TokenClient` against a real Tulip over `FakeEngine`."""

import asyncio
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from rosebed import TokenClient
from rosebed.core.errors import ConfigError, ContextLengthExceeded, InvalidInput, NonFiniteOutput, Unavailable
from rosebed.core.types import OutputKind
from rosebed.testing import FakeEngine, Faults, expected_rows, fake_info, fake_sequence
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.server import TulipServer

BAD_ID = 13


@contextmanager
def running_server() -> Generator[str]:
    """A server's address; it runs on an event loop in a thread of its own."""
    started: list[str] = []
    is_started, stopped = threading.Event(), asyncio.Event()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        engine = FakeEngine(faults=Faults(non_finite=frozenset({BAD_ID})))
        server = TulipServer(engine, TulipConfig(port=0))
        await server.start()
        started.append(f"127.0.0.1:{server.port}")
        is_started.set()
        await stopped.wait()
        await server.stop(1)
        engine.close()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert is_started.wait(10)
    try:
        yield started[0]
    finally:
        loop.call_soon_threadsafe(stopped.set)
        thread.join()
        loop.close()


@pytest.fixture(scope="module")
def client() -> Iterator[TokenClient]:
    with running_server() as target, TokenClient(target) as connected:
        yield connected


def test_vectors_are_the_engines_in_order(client: TokenClient) -> None:
    ids = [[5, 6, 7], [8], np.arange(100, 200, dtype=np.int32)]
    expected = [expected_rows(fake_sequence(row), OutputKind.DENSE, fake_info())[0] for row in ids]
    np.testing.assert_array_equal(client.embed(ids), expected)


def test_options_reach_the_engine(client: TokenClient) -> None:
    expected = expected_rows(fake_sequence([5, 6], dimensions=3, normalize=False), OutputKind.DENSE, fake_info())
    np.testing.assert_array_equal(client.embed([[5, 6]], dimensions=3, normalize=False), expected[:, :3])


@pytest.mark.parametrize(
    ("name", "value"),
    [("dimensions", 0), ("dimensions", -1), ("dimensions", 1.5), ("dimensions", True), ("normalize", "x")],
)
def test_a_wrong_option_is_named(client: TokenClient, name: str, value: Any) -> None:
    with pytest.raises(InvalidInput, match=name) as caught:
        client.embed([[5]], **{name: value})
    assert caught.value.param == name


def test_what_is_no_list_of_ids_is_named(client: TokenClient) -> None:
    no_list: Any = 5
    with pytest.raises(InvalidInput, match="token_ids should be a list, not int"):
        client.embed(no_list)


def test_info_says_what_is_loaded(client: TokenClient) -> None:
    assert client.info.engine == fake_info()


@pytest.mark.parametrize(
    ("ids", "error", "param"),
    [
        ([[1], [2, 30_000]], InvalidInput, "sequences[1]"),
        ([[1], []], InvalidInput, "sequences[1]"),
        ([[1] * 513], ContextLengthExceeded, "sequences[0]"),
        ([], InvalidInput, "token_ids"),
    ],
)
def test_refusals_arrive_as_what_they_are(
    client: TokenClient, ids: list[list[int]], error: type[InvalidInput], param: str
) -> None:
    with pytest.raises(error) as caught:
        client.embed(ids)
    assert type(caught.value) is error
    assert caught.value.param == param
    assert len(client.embed([[1]])) == 1


@pytest.mark.parametrize(
    ("ids", "param"),
    [
        ([101], "input[0]"),
        (["a"], "input[0]"),
        ([[1], [1.5]], "input[1]"),
        ([[[1], [2, 3]]], "input[0]"),
        ([[2**31]], "input[0]"),
    ],
)
def test_what_is_no_list_of_ids_is_refused_before_it_is_sent(ids: Any, param: str) -> None:
    with (
        TokenClient("127.0.0.1:1") as nobody,
        pytest.raises(InvalidInput, match="should be a list of token ids") as caught,
    ):
        nobody.embed(ids)
    assert caught.value.param == param


def test_one_bad_sequence_raises_for_it(client: TokenClient) -> None:
    with pytest.raises(NonFiniteOutput):
        client.embed([[1], [BAD_ID], [2]])
    reply = client.request([fake_sequence([1]), fake_sequence([BAD_ID])])
    assert list(reply.errors) == [1]
    assert reply.timings.total_ns > 0


def test_no_server_is_unavailable() -> None:
    with TokenClient("127.0.0.1:1", timeout_s=5) as client, pytest.raises(Unavailable, match=r"127\.0\.0\.1:1"):
        client.embed([[1]])


def test_a_closed_token_client_says_so() -> None:
    client = TokenClient("127.0.0.1:1")
    client.close()
    with pytest.raises(Unavailable, match="closed"):
        client.embed([[1]])
    with pytest.raises(ConfigError, match="timeout_s"):
        TokenClient("127.0.0.1:1", timeout_s=-1)
