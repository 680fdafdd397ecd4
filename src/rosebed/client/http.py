"""`Client` and `AsyncClient`: texts in, vectors out. Two thin shells; `client.messages` knows what is said."""

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Self, Unpack

import httpx

from rosebed.client import messages
from rosebed.client.messages import EmbedOptions
from rosebed.core.errors import DeadlineExceeded, Unavailable
from rosebed.core.options import as_timeout_s
from rosebed.core.types import Float32Array


class Client:
    """A connection pool to one server. Usable from several threads.

    >>> with Client("http://127.0.0.1:8080") as client:
    ...     vectors = client.embed(["a text", "another"])
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        timeout_s: float = 60.0,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`base_url` begins with http:// or https://, else ConfigError.

        `timeout_s`, above 0, bounds connecting, sending and waiting for data, each. `transport` replaces the network,
        e.g. by `httpx.MockTransport` in a test.
        """
        self._http = httpx.Client(
            base_url=messages.server_root(base_url),
            headers=messages.headers(api_key),
            timeout=as_timeout_s(timeout_s),
            transport=transport,
        )

    def embed(self, texts: Sequence[str], **options: Unpack[EmbedOptions]) -> Float32Array:
        """One vector per text, in order: float32[n, dim]. One call is one request.

        InvalidInput names `input[i]`, or `texts` where there are none: unlike `Embedder`, a client does not know `dim`.
        Raises what the server answered, as an error of `rosebed.core.errors`; `Unavailable` where none answers.
        """
        with _translated(self._http.base_url):
            response = self._http.post(messages.EMBEDDINGS_PATH, json=messages.embeddings_body(texts, options))
        return messages.parse_embeddings(_content(response))

    def models(self) -> list[str]:
        """Names that the server answers to."""
        with _translated(self._http.base_url):
            response = self._http.get(messages.MODELS_PATH)
        return messages.parse_models(_content(response))

    def close(self) -> None:
        """Close the pooled connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


class AsyncClient:
    """`Client` for asyncio.

    >>> async with AsyncClient("http://127.0.0.1:8080") as client:
    ...     vectors = await client.embed(["a text", "another"])
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        timeout_s: float = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`base_url` begins with http:// or https://, else ConfigError.

        `timeout_s`, above 0, bounds connecting, sending and waiting for data, each. `transport` replaces the network,
        e.g. by `httpx.MockTransport` in a test.
        """
        self._http = httpx.AsyncClient(
            base_url=messages.server_root(base_url),
            headers=messages.headers(api_key),
            timeout=as_timeout_s(timeout_s),
            transport=transport,
        )

    async def embed(self, texts: Sequence[str], **options: Unpack[EmbedOptions]) -> Float32Array:
        """One vector per text, in order: float32[n, dim]. As `Client.embed`."""
        with _translated(self._http.base_url):
            response = await self._http.post(messages.EMBEDDINGS_PATH, json=messages.embeddings_body(texts, options))
        return messages.parse_embeddings(_content(response))

    async def models(self) -> list[str]:
        """Names that the server answers to."""
        with _translated(self._http.base_url):
            response = await self._http.get(messages.MODELS_PATH)
        return messages.parse_models(_content(response))

    async def close(self) -> None:
        """Close the pooled connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_exception: object) -> None:
        await self.close()


@contextmanager
def _translated(base_url: httpx.URL) -> Generator[None]:
    try:
        yield
    except httpx.TimeoutException as error:
        raise DeadlineExceeded(f"{base_url} did not answer in time") from error
    except httpx.TransportError as error:
        raise Unavailable(f"{base_url} cannot be reached: {error}") from error
    except RuntimeError as error:  # all that httpx says of a closed client
        raise Unavailable(f"{base_url} cannot be asked: {error}") from error


def _content(response: httpx.Response) -> bytes:
    if response.status_code != 200:
        raise messages.parse_error(response.status_code, response.headers, response.content)
    return response.content
