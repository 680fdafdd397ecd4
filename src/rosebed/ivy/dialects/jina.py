"""Jina's embeddings, late chunking included.

Source: the OpenAPI document of api.jina.ai.
"""

from typing import Annotated, Literal

import msgspec
import orjson

from rosebed.core.encodings import Encoding, VectorType
from rosebed.core.errors import InvalidInput, RosebedError
from rosebed.ivy.dialects.base import BodyOperation, Parts
from rosebed.ivy.dialects.openai import Usage, says
from rosebed.ivy.dialects.writing import json_items, listed, truncation_headers
from rosebed.ivy.http.bulk import BulkInputs
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Resource
from rosebed.ivy.http.faults import ErrorShape, Fault
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.request import PLAIN, EmbeddingsAnswer, EmbeddingsRequest
from rosebed.ivy.retelling import of_one_document

Type = Literal["float", "base64", "binary", "ubinary"]

_ENCODINGS: dict[Type, Encoding] = {
    "float": PLAIN,
    "base64": PLAIN,
    "binary": Encoding(type=VectorType.BINARY),
    "ubinary": Encoding(type=VectorType.UBINARY),
}


class JinaText(msgspec.Struct):
    """A text as an object."""

    text: str


Input = str | list[str | JinaText] | JinaText


class JinaEmbeddingsBody(msgspec.Struct):
    """Texts to embed."""

    input: Annotated[Input | None, says("One text or a list of texts, or of objects with a text.")] = None
    model: Annotated[str | None, says("A served name; without one, the only model.")] = None
    task: Annotated[
        str | None,
        says(
            "retrieval.query or retrieval.passage: the model's prompt for that side, if it has one; others have none."
        ),
    ] = None
    dimensions: Annotated[
        int | None, says("Leading components to keep, where the model was trained for fewer than all.")
    ] = None
    embedding_type: Annotated[
        Type | list[Type] | None,
        says(
            "Numbers (float, binary, ubinary; bits are eight to a byte) or base64 of float32; a list gives all of it."
        ),
    ] = None
    normalized: Annotated[bool | None, says("Scale vectors to length 1, or do not; by default as the model does.")] = (
        None
    )
    truncate: Annotated[bool | None, says("Cut inputs that are too long instead of refusing them.")] = None
    late_chunking: Annotated[
        bool | None, says("The inputs are the chunks of one document, each to be embedded in its light.")
    ] = None

    def to_request(self) -> EmbeddingsRequest:
        """The same, in the gateway's words. InvalidInput for what the schema cannot say."""
        texts = _texts(self.input)
        return EmbeddingsRequest(
            texts=() if self.late_chunking else texts,
            documents=(texts,) if self.late_chunking and texts else (),
            model=self.model,
            input_type=_input_type(self.task),
            dimensions=self.dimensions,
            encodings=tuple(_ENCODINGS[kind] for kind in self.types),
            normalize=self.normalized,
            truncate=self.truncate,
        )

    @property
    def types(self) -> list[Type]:
        """The forms wanted of each vector. InvalidInput if there are none."""
        if self.embedding_type == []:
            raise InvalidInput("embedding_type should name at least one type", param="embedding_type")
        kinds = self.embedding_type or "float"
        return [kinds] if isinstance(kinds, str) else list(dict.fromkeys(kinds))


class JinaVectors(msgspec.Struct):
    """One vector in several forms."""

    float_: list[float] | msgspec.UnsetType = msgspec.field(name="float", default=msgspec.UNSET)
    base64: str | msgspec.UnsetType = msgspec.UNSET
    binary: list[int] | msgspec.UnsetType = msgspec.UNSET
    ubinary: list[int] | msgspec.UnsetType = msgspec.UNSET


class JinaEmbedding(msgspec.Struct):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str | JinaVectors
    """Numbers or base64; by type, where several were asked for."""


class JinaList(msgspec.Struct):
    """Vectors, in the order of the inputs."""

    object: Literal["list"]
    data: list[JinaEmbedding]
    model: str
    usage: Usage


class Jina:
    """The dialect's operations."""

    def __init__(self, parts: Parts) -> None:
        self.error_shape = ERRORS
        self._parts = parts
        inputs = BulkInputs("input", max_inputs=parts.max_inputs)
        self._reader = parts.reader(JinaEmbeddingsBody, "input", inputs.reading(Input | None, strings_each=2))

    def operations(self) -> dict[str, BodyOperation]:
        embeddings = BodyOperation(
            handle=self.create_embeddings,
            summary="Embed texts, or the chunks of one document in its light",
            body=JinaEmbeddingsBody,
            answer=JinaList,
            error_shape=self.error_shape,
            names={"encodings": "embedding_type"},
        )
        return {"jina.embeddings": embeddings}

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL."""
        embeddings = self.operations()["jina.embeddings"].operation(self._parts.intake)
        return [Resource(path="/embeddings", operations={"POST": embeddings}, error_shape=self.error_shape)]

    async def create_embeddings(self, _call: Call, raw: bytes) -> Reply:
        body: JinaEmbeddingsBody = await self._reader.read(raw)
        answer = await self._embed(body)
        items = [
            b'{"object":"embedding","index":%d,"embedding":%b}' % (index, vector)
            for index, vector in enumerate(await _vectors(body.types, answer))
        ]
        usage = {"prompt_tokens": answer.num_tokens, "total_tokens": answer.num_tokens}
        return Reply(200, listed(items, model=answer.model, usage=usage), truncation_headers(answer.truncated_from))

    async def _embed(self, body: JinaEmbeddingsBody) -> EmbeddingsAnswer:
        try:
            return await self._parts.service.embed(body.to_request())
        except RosebedError as error:
            if not body.late_chunking:
                raise
            raise of_one_document(error) from error


async def _vectors(types: list[Type], answer: EmbeddingsAnswer) -> list[bytes]:
    """Each vector in the form wanted, or in all of them, by name."""
    forms = {kind: await json_items(answer, _ENCODINGS[kind], as_text=kind == "base64") for kind in types}
    if len(forms) == 1:
        return next(iter(forms.values()))
    return [
        b"{%b}" % b",".join(b'"%b":%b' % (kind.encode(), form) for kind, form in zip(forms, each, strict=True))
        for each in zip(*forms.values(), strict=True)
    ]


def _texts(given: Input | None) -> list[str]:
    if given is None:
        raise InvalidInput("input is missing", param="input")
    items = given if isinstance(given, list) else [given]
    return [item if isinstance(item, str) else item.text for item in items]


def _input_type(task: str | None) -> str | None:
    """The side that a task stands for. Tasks without one get no prompt."""
    if task is None:
        return None
    side = task.rpartition(".")[2]
    return side if side in ("query", "passage") else "none"


def error_body(fault: Fault) -> bytes:
    """What is wrong, as text."""
    return orjson.dumps({"detail": fault.message})


ERRORS = ErrorShape(body=error_body)
