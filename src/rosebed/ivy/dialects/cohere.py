"""Cohere's v2 embeddings: several forms of each vector at once.

Source: docs.cohere.com/reference/embed, and the types of its SDK.
"""

from typing import Annotated, Any, Literal

import msgspec
import orjson

from rosebed.core.encodings import Encoding, VectorType
from rosebed.core.errors import InvalidInput
from rosebed.core.types import Lane
from rosebed.ivy.dialects.base import BodyOperation, Parts
from rosebed.ivy.dialects.openai import says
from rosebed.ivy.dialects.writing import array, json_items, truncation_headers
from rosebed.ivy.http.bulk import BulkInputs
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Resource
from rosebed.ivy.http.faults import ErrorShape, Fault
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.request import PLAIN, EmbeddingsRequest
from rosebed.text.tokenizer import Side

Type = Literal["float", "int8", "uint8", "binary", "ubinary", "base64"]

_ENCODINGS: dict[Type, Encoding] = {
    "float": PLAIN,
    "int8": Encoding(type=VectorType.INT8),
    "uint8": Encoding(type=VectorType.UINT8),
    "binary": Encoding(type=VectorType.BINARY),
    "ubinary": Encoding(type=VectorType.UBINARY),
    "base64": PLAIN,
}


class CohereText(msgspec.Struct):
    """A part of an input."""

    type: Literal["text"]
    text: str


class CohereInput(msgspec.Struct):
    """An input in parts, of which there is one here."""

    content: list[CohereText]


class CohereEmbedBody(msgspec.Struct):
    """Texts to embed."""

    texts: Annotated[list[str] | None, says("The texts.")] = None
    inputs: Annotated[list[CohereInput] | None, says("The same as objects with one text each, instead of texts.")] = (
        None
    )
    images: Annotated[list[Any] | None, says("Refused: only texts are embedded.")] = None
    model: Annotated[str | None, says("A served name; without one, the only model.")] = None
    input_type: Annotated[
        Literal["search_query", "search_document", "classification", "clustering", "image"] | None,
        says("The model's prompt for that use, if it has one."),
    ] = None
    embedding_types: Annotated[
        list[Type] | None, says("Forms to give of each vector; float by default. Bits are eight to a byte.")
    ] = None
    output_dimension: Annotated[
        int | None, says("Leading components to keep, where the model was trained for fewer than all.")
    ] = None
    max_tokens: Annotated[int | None, says("A limit tighter than the model's, in tokens.")] = None
    truncate: Annotated[
        Literal["NONE", "START", "END"] | None,
        says("The end that is cut off inputs that are too long, END by default; NONE refuses them."),
    ] = None
    priority: Annotated[int | None, says("Above 0, the request gives way to others.")] = None

    def to_request(self) -> EmbeddingsRequest:
        """The same, in the gateway's words. InvalidInput for what the schema cannot say."""
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidInput(f"max_tokens should be at least 1, not {self.max_tokens}", param="max_tokens")
        return EmbeddingsRequest(
            texts=self.given_texts,
            model=self.model,
            input_type="none" if self.input_type == "image" else self.input_type,
            dimensions=self.output_dimension,
            encodings=tuple(_ENCODINGS[kind] for kind in self.types),
            truncate=self.truncate != "NONE",
            truncate_to=self.max_tokens,
            side=Side.LEFT if self.truncate == "START" else Side.RIGHT,
            lane=Lane.BULK if (self.priority or 0) > 0 else Lane.ONLINE,
        )

    @property
    def given_texts(self) -> list[str]:
        """What to embed. InvalidInput unless it is texts, given one way."""
        if self.images:
            raise InvalidInput("images are not embedded here, only texts are", param="images")
        if self.texts is not None and self.inputs is not None:
            raise InvalidInput(
                "texts and inputs are two ways to give the same: only one should be there", param="texts"
            )
        if self.texts is not None:
            return self.texts
        if self.inputs is None:
            raise InvalidInput("texts is missing", param="texts")
        return [_text(given, f"inputs[{index}]") for index, given in enumerate(self.inputs)]

    @property
    def types(self) -> list[Type]:
        """The forms wanted of each vector."""
        return list(dict.fromkeys(self.embedding_types or ["float"]))


class CohereEmbeddings(msgspec.Struct):
    """The vectors in each form that was asked for, in the order of the texts."""

    float_: list[list[float]] | msgspec.UnsetType = msgspec.field(name="float", default=msgspec.UNSET)
    int8: list[list[int]] | msgspec.UnsetType = msgspec.UNSET
    uint8: list[list[int]] | msgspec.UnsetType = msgspec.UNSET
    binary: list[list[int]] | msgspec.UnsetType = msgspec.UNSET
    ubinary: list[list[int]] | msgspec.UnsetType = msgspec.UNSET
    base64: list[str] | msgspec.UnsetType = msgspec.UNSET


class CohereUnits(msgspec.Struct):
    """Tokens computed."""

    input_tokens: int


class CohereVersion(msgspec.Struct):
    """Version of the API."""

    version: Literal["2"]


class CohereMeta(msgspec.Struct):
    """About the request."""

    api_version: CohereVersion
    billed_units: CohereUnits


class CohereEmbedAnswer(msgspec.Struct):
    """A request's vectors."""

    id: str
    embeddings: CohereEmbeddings
    texts: list[str]
    meta: CohereMeta


class Cohere:
    """The dialect's operations."""

    def __init__(self, parts: Parts) -> None:
        self.error_shape = ERRORS
        self._parts = parts
        inputs = BulkInputs("texts", max_inputs=parts.max_inputs)
        self._reader = parts.reader(CohereEmbedBody, "texts", inputs.reading(list[str] | None))

    def embed_resource(self, error_shape: ErrorShape) -> Resource:
        """Its one path, with errors in the words of whoever has the path."""
        embed = BodyOperation(
            handle=self.embed,
            summary="Embed texts, in several forms at once, cutting those that are too long",
            body=CohereEmbedBody,
            answer=CohereEmbedAnswer,
            error_shape=error_shape,
            names={"input": "texts", "dimensions": "output_dimension", "encodings": "embedding_types"},
        )
        return Resource(
            path="/v2/embed", operations={"POST": embed.operation(self._parts.intake)}, error_shape=error_shape
        )

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL."""
        return [self.embed_resource(self.error_shape)]

    async def embed(self, call: Call, raw: bytes) -> Reply:
        body: CohereEmbedBody = await self._reader.read(raw)
        answer = await self._parts.service.embed(body.to_request())
        forms = [
            b'"%b":%b' % (kind.encode(), array(await json_items(answer, _ENCODINGS[kind], as_text=kind == "base64")))
            for kind in body.types
        ]
        rest = {
            "id": call.request_id.decode(),
            "texts": body.given_texts,
            "meta": {"api_version": {"version": "2"}, "billed_units": {"input_tokens": answer.num_tokens}},
        }
        return Reply(
            200,
            b'{"embeddings":{%b},%b' % (b",".join(forms), orjson.dumps(rest)[1:]),
            truncation_headers(answer.truncated_from),
        )


def _text(given: CohereInput, name: str) -> str:
    if len(given.content) != 1:
        raise InvalidInput(f"{name} should hold one text, not {len(given.content)} parts", param=name)
    return given.content[0].text


def error_body(fault: Fault) -> bytes:
    """What is wrong, as text."""
    return orjson.dumps({"message": fault.message})


ERRORS = ErrorShape(body=error_body)
