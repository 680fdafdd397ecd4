"""`Client` and `AsyncClient` over a mock transport: the same requests, answers and errors from both shells."""

import json
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest

from rosebed import AsyncClient, Client
from rosebed.core.encodings import to_base64
from rosebed.core.errors import AuthenticationFailed, ConfigError, DeadlineExceeded, Unavailable
from rosebed.core.types import Float32Array

Handler = Callable[[httpx.Request], httpx.Response]
URL = "http://server.test/v1"


def answer(request: httpx.Request) -> httpx.Response:
    """Row i is [length of text i, number of fields asked for]."""
    assert request.url == "http://server.test/v1/embeddings"
    if request.headers.get("authorization") != "Bearer key":
        error = {"message": "no", "type": "t", "param": None, "code": "invalid_api_key"}
        return httpx.Response(401, json={"error": error})
    body = json.loads(request.content)
    rows = [np.array([len(text), len(body)], np.float32) for text in body["input"]]
    data = [{"index": i, "embedding": to_base64(row)} for i, row in enumerate(rows)]
    return httpx.Response(200, json={"data": data})


def embed_sync(handler: Handler, api_key: str | None) -> Float32Array:
    with Client(URL, api_key, transport=httpx.MockTransport(handler)) as client:
        return client.embed(["a", "four"], dimensions=2)


async def embed_async(handler: Handler, api_key: str | None) -> Float32Array:
    async with AsyncClient(URL, api_key, transport=httpx.MockTransport(handler)) as client:
        return await client.embed(["a", "four"], dimensions=2)


def time_out(request: httpx.Request) -> httpx.Response:
    raise httpx.ReadTimeout("too slow", request=request)


def refuse(request: httpx.Request) -> httpx.Response:
    raise httpx.ConnectError("refused", request=request)


async def test_both_return_the_same_rows() -> None:
    expected = np.array([[1, 3], [4, 3]], np.float32)
    np.testing.assert_array_equal(embed_sync(answer, "key"), expected)
    np.testing.assert_array_equal(await embed_async(answer, "key"), expected)


@pytest.mark.parametrize(
    ("handler", "expected"),
    [(answer, AuthenticationFailed), (time_out, DeadlineExceeded), (refuse, Unavailable)],
)
async def test_both_raise_the_same_errors(handler: Handler, expected: type[Exception]) -> None:
    with pytest.raises(expected):
        embed_sync(handler, None)
    with pytest.raises(expected):
        await embed_async(handler, None)


async def test_models() -> None:
    transport = httpx.MockTransport(lambda request: httpx.Response(200, json={"data": [{"id": request.url.path}]}))
    assert Client(URL, transport=transport).models() == ["/v1/models"]
    assert await AsyncClient(URL, transport=transport).models() == ["/v1/models"]


def test_a_closed_client_says_so() -> None:
    client = Client("http://127.0.0.1:1")
    client.close()
    with pytest.raises(Unavailable, match="closed"):
        client.embed(["a"])


async def test_a_closed_async_client_says_so() -> None:
    client = AsyncClient("http://127.0.0.1:1")
    await client.close()
    with pytest.raises(Unavailable, match="closed"):
        await client.embed(["a"])


@pytest.mark.parametrize("timeout_s", [0, -1, "x", None, True, float("inf"), float("nan")])
@pytest.mark.parametrize("client", [Client, AsyncClient])
def test_a_timeout_is_a_number_of_seconds(client: Any, timeout_s: Any) -> None:
    with pytest.raises(ConfigError, match="timeout_s"):
        client("http://127.0.0.1:1", timeout_s=timeout_s)
