"""Perplexity's embeddings, plain and contextualized: vectors in int8 or bits, always as base64.

Source: docs.perplexity.ai/api-reference/embeddings-post, and the types of its SDK. At the root its own SDK is taken for
OpenAI's: it says nothing of a format where it wants int8, so that it needs this dialect's prefix.
"""

from typing import Annotated, Any, Literal

import msgspec
import orjson

from rosebed.core.encodings import Encoding, VectorType
from rosebed.core.errors import InvalidInput
from rosebed.ivy.dialects.base import BodyOperation, Parts
from rosebed.ivy.dialects.openai import Usage, says
from rosebed.ivy.dialects.writing import grouped, json_items, listed, truncation_headers
from rosebed.ivy.http.bulk import BulkInputs
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Resource
from rosebed.ivy.http.faults import ErrorShape, Fault
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.request import EmbeddingsAnswer, EmbeddingsRequest

MAX_TEXTS = 512
"""Texts, or documents, of one request."""
MAX_INPUT_TOKENS = 32_768
"""Of one text or document."""
MAX_REQUEST_TOKENS = 120_000

Format = Literal["base64_int8", "base64_binary"]
_FORMAT = Annotated[
    Format | None,
    says("Base64 of one signed byte a component (the default), or of one bit, the least significant of a byte first."),
]
_MODEL = Annotated[str | None, says("A served name; without one, the only model.")]
_DIMENSIONS = Annotated[int | None, says("Leading components to keep, where the model was trained for fewer than all.")]


class PerplexityEmbeddingsBody(msgspec.Struct):
    """Texts to embed."""

    input: Annotated[str | list[str] | None, says("One text, or up to 512; none is empty.")] = None
    model: _MODEL = None
    dimensions: _DIMENSIONS = None
    encoding_format: _FORMAT = None


class ContextualizedBody(msgspec.Struct):
    """Documents in chunks to embed, each chunk in the light of its document."""

    input: Annotated[list[list[str]] | None, says("Up to 512 documents, each a list of its chunks; none is empty.")] = (
        None
    )
    model: _MODEL = None
    dimensions: _DIMENSIONS = None
    encoding_format: _FORMAT = None


class QuantizedEmbedding(msgspec.Struct):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: str
    """Base64 of int8[dimensions], or of dimensions / 8 bytes."""


class QuantizedList(msgspec.Struct):
    """Vectors, in the order of what they are of."""

    object: Literal["list"]
    data: list[QuantizedEmbedding]
    model: str
    usage: Usage


class DocumentVectors(msgspec.Struct):
    """The vectors of one document's chunks."""

    object: Literal["list"]
    index: int
    data: list[QuantizedEmbedding]


class DocumentList(msgspec.Struct):
    """Vectors by document, in the order of the request's."""

    object: Literal["list"]
    data: list[DocumentVectors]
    model: str
    usage: Usage


class Perplexity:
    """The dialect's operations."""

    def __init__(self, parts: Parts) -> None:
        self.error_shape = ERRORS
        self._parts = parts
        inputs = BulkInputs("input", max_inputs=parts.max_inputs)
        self._embeddings = parts.reader(PerplexityEmbeddingsBody, "input", inputs.read_texts)
        self._contextualized = parts.reader(ContextualizedBody, "input", inputs.read_documents)

    def operations(self) -> dict[str, BodyOperation]:
        return {
            "perplexity.embeddings": BodyOperation(
                handle=self.create_embeddings,
                summary="Embed texts, in int8 or bits",
                body=PerplexityEmbeddingsBody,
                answer=QuantizedList,
                error_shape=self.error_shape,
                names={"encodings": "encoding_format"},
            ),
            "perplexity.contextualized": BodyOperation(
                handle=self.create_contextualized,
                summary="Embed chunks in the light of their documents, in int8 or bits",
                body=ContextualizedBody,
                answer=DocumentList,
                error_shape=self.error_shape,
                names={"encodings": "encoding_format"},
            ),
        }

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL."""
        operations = self.operations()
        paths = {
            "/v1/embeddings": "perplexity.embeddings",
            "/v1/contextualizedembeddings": "perplexity.contextualized",
        }
        return [
            Resource(
                path=path,
                operations={"POST": operations[name].operation(self._parts.intake)},
                error_shape=self.error_shape,
            )
            for path, name in paths.items()
        ]

    async def create_embeddings(self, _call: Call, raw: bytes) -> Reply:
        body: PerplexityEmbeddingsBody = await self._embeddings.read(raw)
        texts = [body.input] if isinstance(body.input, str) else _given(body.input)
        for index, text in enumerate(texts):
            _refuse_empty(text, f"input[{index}]")
        answer = await self._parts.service.embed(self._request(body, texts=texts))
        items = await json_items(answer, _encoding(body.encoding_format), as_text=True, item=_item)
        return Reply(
            200, listed(items, model=answer.model, usage=_usage(answer)), truncation_headers(answer.truncated_from)
        )

    async def create_contextualized(self, _call: Call, raw: bytes) -> Reply:
        body: ContextualizedBody = await self._contextualized.read(raw)
        documents = _given(body.input)
        for index, chunks in enumerate(documents):
            for place, chunk in enumerate(chunks):
                _refuse_empty(chunk, f"input[{index}][{place}]")
        answer = await self._parts.service.embed(self._request(body, documents=documents))
        return Reply(200, await contextualized_json(answer, _encoding(body.encoding_format), as_text=True))

    def _request(self, body: PerplexityEmbeddingsBody | ContextualizedBody, **inputs: Any) -> EmbeddingsRequest:
        return EmbeddingsRequest(
            **inputs,
            model=body.model,
            dimensions=body.dimensions,
            encodings=(_encoding(body.encoding_format),),
            most_input_tokens=MAX_INPUT_TOKENS,
            most_tokens=MAX_REQUEST_TOKENS,
        )


async def contextualized_json(answer: EmbeddingsAnswer, encoding: Encoding, *, as_text: bool, **usage: int) -> bytes:
    """The vectors by document, as Perplexity and Voyage nest them; `usage` in place of OpenAI's."""
    places = [place for rows in answer.rows for place in range(len(rows))]
    items = await json_items(answer, encoding, as_text=as_text, item=lambda index, value: _item(places[index], value))
    documents = [
        b'{"object":"list","index":%d,"data":%b}' % (index, data) for index, data in enumerate(grouped(items, answer))
    ]
    return listed(documents, model=answer.model, usage=usage or _usage(answer))


def _given(inputs: list[Any] | None) -> list[Any]:
    """What there is to embed. InvalidInput if it is missing, or more than the API takes."""
    if inputs is None:
        raise InvalidInput("input is missing", param="input")
    if len(inputs) > MAX_TEXTS:
        raise InvalidInput(f"input holds {len(inputs)} items, over the limit of {MAX_TEXTS}", param="input")
    return inputs


def _refuse_empty(text: str, name: str) -> None:
    if not text:
        raise InvalidInput(f"{name} is empty", param=name)


def _encoding(encoding_format: Format | None) -> Encoding:
    if encoding_format == "base64_binary":
        return Encoding(type=VectorType.UBINARY, bit_order="little")
    return Encoding(type=VectorType.INT8)


def _item(index: int, value: Any) -> dict[str, Any]:
    return {"object": "embedding", "index": index, "embedding": value}


def _usage(answer: EmbeddingsAnswer) -> dict[str, int]:
    return {"prompt_tokens": answer.num_tokens, "total_tokens": answer.num_tokens}


def error_body(fault: Fault) -> bytes:
    """FastAPI's list of what is wrong."""
    location = ["body", *(_location(fault.param) if fault.param else ())]
    return orjson.dumps({"detail": [{"loc": location, "msg": fault.message, "type": fault.code}]})


def _location(param: str) -> list[str | int]:
    """`input[3][1]` as a path."""
    name, *indices = param.replace("]", "").split("[")
    return [name, *(int(index) if index.isdigit() else index for index in indices)]


ERRORS = ErrorShape(body=error_body, statuses={InvalidInput: 422})
