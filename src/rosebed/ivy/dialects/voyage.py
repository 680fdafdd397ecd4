"""Voyage's embeddings, plain and contextualized.

Source: docs.voyageai.com/reference, and its SDK, which asks for base64 and decodes it by `output_dtype`.
"""

from typing import Annotated, Any, Literal

import msgspec
import orjson

from rosebed.core.encodings import Encoding, VectorType
from rosebed.core.errors import InvalidInput
from rosebed.ivy.dialects.base import BodyOperation, Parts
from rosebed.ivy.dialects.openai import says
from rosebed.ivy.dialects.perplexity import contextualized_json
from rosebed.ivy.dialects.writing import json_items, listed, truncation_headers
from rosebed.ivy.http.bulk import BulkInputs
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Resource
from rosebed.ivy.http.faults import ErrorShape, Fault
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.request import EmbeddingsRequest

_TYPES = {"float": VectorType.FLOAT32}

OutputType = Literal["float", "int8", "uint8", "binary", "ubinary"]
_MODEL = Annotated[str | None, says("A served name; without one, the only model.")]
_INPUT_TYPE = Annotated[Literal["query", "document"] | None, says("The model's prompt for that side, if it has one.")]
_OUTPUT_DTYPE = Annotated[OutputType | None, says("What components are sent as; bits are eight to a byte.")]
_OUTPUT_DIMENSION = Annotated[
    int | None, says("Leading components to keep, where the model was trained for fewer than all.")
]
_ENCODING_FORMAT = Annotated[Literal["base64"] | None, says("Base64 of the bytes of output_dtype instead of numbers.")]


class VoyageEmbeddingsBody(msgspec.Struct):
    """Texts to embed."""

    input: Annotated[str | list[str] | None, says("One text or a list of texts.")] = None
    model: _MODEL = None
    input_type: _INPUT_TYPE = None
    truncation: Annotated[
        bool | None, says("Whether to cut inputs that are too long, as by default, or to refuse them.")
    ] = None
    output_dimension: _OUTPUT_DIMENSION = None
    output_dtype: _OUTPUT_DTYPE = None
    encoding_format: _ENCODING_FORMAT = None


class VoyageContextualizedBody(msgspec.Struct):
    """Documents in chunks to embed, each chunk in the light of its document."""

    inputs: Annotated[
        list[list[str]] | None, says("Documents, or queries, each a list of its chunks; one over the limit is refused.")
    ] = None
    model: _MODEL = None
    input_type: _INPUT_TYPE = None
    output_dimension: _OUTPUT_DIMENSION = None
    output_dtype: _OUTPUT_DTYPE = None
    encoding_format: _ENCODING_FORMAT = None
    enable_auto_chunking: Annotated[bool | None, says("Only false: documents come in chunks.")] = None


class VoyageEmbedding(msgspec.Struct):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class VoyageUsage(msgspec.Struct):
    """Tokens computed."""

    total_tokens: int


class VoyageList(msgspec.Struct):
    """Vectors, in the order of the inputs."""

    object: Literal["list"]
    data: list[VoyageEmbedding]
    model: str
    usage: VoyageUsage


class VoyageDocument(msgspec.Struct):
    """The vectors of one document's chunks."""

    object: Literal["list"]
    index: int
    data: list[VoyageEmbedding]


class VoyageDocumentList(msgspec.Struct):
    """Vectors by document."""

    object: Literal["list"]
    data: list[VoyageDocument]
    model: str
    usage: VoyageUsage


class Voyage:
    """The dialect's operations."""

    def __init__(self, parts: Parts) -> None:
        self.error_shape = ERRORS
        self._parts = parts
        texts = BulkInputs("input", max_inputs=parts.max_inputs)
        documents = BulkInputs("inputs", max_inputs=parts.max_inputs)
        self._embeddings = parts.reader(VoyageEmbeddingsBody, "input", texts.read_texts)
        self._contextualized = parts.reader(VoyageContextualizedBody, "inputs", documents.read_documents)

    def operations(self) -> dict[str, BodyOperation]:
        return {
            "voyage.embeddings": BodyOperation(
                handle=self.create_embeddings,
                summary="Embed texts, cutting those that are too long",
                body=VoyageEmbeddingsBody,
                answer=VoyageList,
                error_shape=self.error_shape,
                names={"dimensions": "output_dimension", "encodings": "output_dtype"},
            ),
            "voyage.contextualized": BodyOperation(
                handle=self.create_contextualized,
                summary="Embed chunks in the light of their documents",
                body=VoyageContextualizedBody,
                answer=VoyageDocumentList,
                error_shape=self.error_shape,
                names={"input": "inputs", "dimensions": "output_dimension", "encodings": "output_dtype"},
            ),
        }

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL."""
        operations = self.operations()
        paths = {"/embeddings": "voyage.embeddings", "/contextualizedembeddings": "voyage.contextualized"}
        return [
            Resource(
                path=path,
                operations={"POST": operations[name].operation(self._parts.intake)},
                error_shape=self.error_shape,
            )
            for path, name in paths.items()
        ]

    async def create_embeddings(self, _call: Call, raw: bytes) -> Reply:
        body: VoyageEmbeddingsBody = await self._embeddings.read(raw)
        if body.input is None:
            raise InvalidInput("input is missing", param="input")
        request = EmbeddingsRequest(
            texts=[body.input] if isinstance(body.input, str) else body.input,
            truncate=body.truncation is not False,
            **_shared(body),
        )
        answer = await self._parts.service.embed(request)
        items = await json_items(answer, request.encodings[0], as_text=body.encoding_format == "base64", item=_item)
        usage = {"total_tokens": answer.num_tokens}
        return Reply(200, listed(items, model=answer.model, usage=usage), truncation_headers(answer.truncated_from))

    async def create_contextualized(self, _call: Call, raw: bytes) -> Reply:
        body: VoyageContextualizedBody = await self._contextualized.read(raw)
        if body.enable_auto_chunking:
            raise InvalidInput(
                "enable_auto_chunking is not done here: send each document as the list of its chunks",
                param="enable_auto_chunking",
            )
        if body.inputs is None:
            raise InvalidInput("inputs is missing", param="inputs")
        request = EmbeddingsRequest(documents=body.inputs, **_shared(body))
        answer = await self._parts.service.embed(request)
        as_text = body.encoding_format == "base64"
        nested = contextualized_json(answer, request.encodings[0], as_text=as_text, total_tokens=answer.num_tokens)
        return Reply(200, await nested)


def _shared(body: VoyageEmbeddingsBody | VoyageContextualizedBody) -> dict[str, Any]:
    """What both kinds of request have, in the gateway's words."""
    kind = body.output_dtype or "float"
    return {
        "model": body.model,
        "input_type": body.input_type,
        "dimensions": body.output_dimension,
        "encodings": (Encoding(type=_TYPES.get(kind) or VectorType(kind)),),
    }


def _item(index: int, value: Any) -> dict[str, Any]:
    return {"object": "embedding", "index": index, "embedding": value}


def error_body(fault: Fault) -> bytes:
    """What is wrong, as text."""
    return orjson.dumps({"detail": fault.message})


ERRORS = ErrorShape(body=error_body)
