"""Infinity's embeddings and models: OpenAI's, with an id and a time of its own.

Source: the OpenAPI document of infinity-emb.
"""

import time
from typing import Annotated, Any, Literal

import msgspec
import orjson

from rosebed.core.errors import InvalidInput
from rosebed.ivy.dialects.base import BodyOperation, Parts
from rosebed.ivy.dialects.openai import Embedding, Usage, says
from rosebed.ivy.dialects.writing import json_items, listed, truncation_headers
from rosebed.ivy.http.bulk import BulkInputs
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Operation, Resource
from rosebed.ivy.http.faults import ErrorShape, Fault
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.model import ServedModel
from rosebed.ivy.request import PLAIN, EmbeddingsRequest


class InfinityEmbeddingsBody(msgspec.Struct):
    """Texts to embed."""

    input: Annotated[str | list[str] | None, says("One text or a list of texts.")] = None
    model: Annotated[str | None, says("A served name; without one, the only model.")] = None
    encoding_format: Annotated[
        Literal["float", "base64"] | None, says("Numbers (the default), or base64 of little-endian float32.")
    ] = None
    dimensions: Annotated[
        int | None, says("Leading components to keep, where the model was trained for fewer than all.")
    ] = None
    user: Annotated[str | None, says("Ignored.")] = None
    modality: Annotated[Literal["text"] | None, says("Only text.")] = None


class InfinityList(msgspec.Struct):
    """Vectors, in the order of the inputs."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage
    id: str
    created: int


class InfinityModel(msgspec.Struct):
    """A served model."""

    id: str
    stats: dict[str, int]
    object: Literal["model"]
    owned_by: Literal["infinity"]
    created: int
    backend: str
    capabilities: list[str]


class InfinityModels(msgspec.Struct):
    """All served models, by each of their names."""

    data: list[InfinityModel]
    object: Literal["list"]


class Infinity:
    """The dialect's operations."""

    def __init__(self, parts: Parts) -> None:
        self.error_shape = ERRORS
        self._parts = parts
        self._started = int(time.time())
        inputs = BulkInputs("input", max_inputs=parts.max_inputs)
        self._reader = parts.reader(InfinityEmbeddingsBody, "input", inputs.read_texts)

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL."""
        embeddings = BodyOperation(
            handle=self.create_embeddings,
            summary="Embed texts",
            body=InfinityEmbeddingsBody,
            answer=InfinityList,
            error_shape=self.error_shape,
        ).operation(self._parts.intake)
        models = Operation(handler=self.list_models, summary="Name the served models", answer=(InfinityModels,))
        return [
            Resource(path="/embeddings", operations={"POST": embeddings}, error_shape=self.error_shape),
            Resource(path="/models", operations={"GET": models}, error_shape=self.error_shape),
        ]

    async def create_embeddings(self, call: Call, raw: bytes) -> Reply:
        body: InfinityEmbeddingsBody = await self._reader.read(raw)
        if body.input is None:
            raise InvalidInput("input is missing", param="input")
        texts = [body.input] if isinstance(body.input, str) else body.input
        request = EmbeddingsRequest(texts=texts, model=body.model, dimensions=body.dimensions)
        answer = await self._parts.service.embed(request)
        as_text = body.encoding_format == "base64"
        items = await json_items(answer, PLAIN, as_text=as_text, item=_item)
        rest = {
            "model": answer.model,
            "usage": {"prompt_tokens": answer.num_tokens, "total_tokens": answer.num_tokens},
            "id": f"infinity-{call.request_id.decode()}",
            "created": int(time.time()),
        }
        return Reply(200, listed(items, **rest), truncation_headers(answer.truncated_from))

    async def list_models(self, _call: Call) -> Reply:
        models = [
            InfinityModel(
                id=name,
                stats={},
                object="model",
                owned_by="infinity",
                created=self._started,
                backend="rosebed",
                capabilities=_capabilities(model),
            )
            for model in self._parts.directory.models
            for name in model.names
        ]
        return Reply(200, msgspec.json.encode(InfinityModels(models, "list")))


def _capabilities(model: ServedModel) -> list[str]:
    scorer = model.spec.scorer
    if scorer is None:
        return ["embed"]
    return ["rerank", "classify"] if scorer.num_labels == 1 else ["classify"]


def _item(index: int, value: Any) -> dict[str, Any]:
    return {"object": "embedding", "index": index, "embedding": value}


def error_body(fault: Fault) -> bytes:
    """OpenAI's error object, its code being the status."""
    error = {"message": fault.message, "type": fault.code, "param": fault.param, "code": fault.status}
    return orjson.dumps({"error": error})


ERRORS = ErrorShape(body=error_body, statuses={InvalidInput: 422})
