"""OpenAI's embeddings and models, with the extensions that clients of its imitators send.

Source: platform.openai.com/docs/api-reference/embeddings; extensions as vLLM and sentence-transformers name them.
"""

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
import orjson

from rosebed.core.encodings import to_base64
from rosebed.core.errors import InvalidInput
from rosebed.core.token_ids import packed_ids
from rosebed.core.types import Float32Array, Lane
from rosebed.ivy.dialects.bodies import BodyReader
from rosebed.ivy.directory import ModelDirectory
from rosebed.ivy.embedding import EmbeddingService
from rosebed.ivy.http.bulk import BulkInputs
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Operation, Resource
from rosebed.ivy.http.faults import Fault
from rosebed.ivy.http.intake import BodyIntake
from rosebed.ivy.http.reply import Headers, Reply
from rosebed.ivy.model import ServedModel
from rosebed.ivy.request import EmbeddingsAnswer, EmbeddingsRequest
from rosebed.ivy.workload import Workload

SLICE_FLOATS = 1 << 16
"""Vectors are written out in slices of about so many numbers, between which other requests get their turn."""

MAX_NAMED_IN_HEADER = 1000
"""Clients refuse header lines of more than about 8,000 bytes; another header says how many were cut in all, and the
body names each."""

Input = str | list[str | int | list[int]]


def _says(description: str) -> msgspec.Meta:
    """What the API document says of a field."""
    return msgspec.Meta(description=description)


class EmbeddingsBody(msgspec.Struct):
    """A request. Every field but `input` may be left out or null."""

    input: Annotated[Input | None, _says("One text, a list of texts, one list of token ids, or a list of those.")] = (
        None
    )
    model: Annotated[str | None, _says("A served name; without one, the only model.")] = None
    encoding_format: Annotated[
        Literal["float", "base64"] | None, _says("Numbers (the default), or base64 of little-endian float32.")
    ] = None
    dimensions: Annotated[
        int | None, _says("Leading components to keep, where the model was trained for fewer than all.")
    ] = None
    user: Annotated[str | None, _says("Ignored.")] = None
    truncate: Annotated[bool | None, _says("Cut inputs that are too long instead of refusing them.")] = None
    truncate_prompt_tokens: Annotated[
        int | None, _says("Cut inputs to so many tokens; -1 means the model's own limit.")
    ] = None
    add_special_tokens: Annotated[bool | None, _says("False leaves out [CLS], </s> and the like.")] = None
    normalize: Annotated[bool | None, _says("Scale vectors to length 1, or do not; by default as the model does.")] = (
        None
    )
    prompt: Annotated[str | None, _says("Text to put in front of every input.")] = None
    prompt_name: Annotated[str | None, _says("Name of one of the model's own prompts.")] = None
    input_type: Annotated[str | None, _says("query or document: the model's prompt for that side, if it has one.")] = (
        None
    )
    priority: Annotated[int | None, _says("Above 0, the request gives way to others.")] = None

    def to_request(self) -> EmbeddingsRequest:
        """The same, in the gateway's words. InvalidInput for what the schema cannot say."""
        texts, token_ids, is_flat = _inputs(self.input)
        return EmbeddingsRequest(
            texts=texts,
            token_ids=token_ids,
            is_flat=is_flat,
            model=self.model,
            dimensions=self.dimensions,
            normalize=self.normalize,
            prompt=self.prompt,
            prompt_name=self.prompt_name,
            input_type=self.input_type,
            truncate=self._truncates(),
            truncate_to=_truncate_to(self.truncate_prompt_tokens),
            add_special_tokens=self.add_special_tokens is not False,
            # vLLM's priority: 0 is normal, higher means later.
            lane=Lane.BULK if (self.priority or 0) > 0 else Lane.ONLINE,
        )

    def _truncates(self) -> bool | None:
        if self.truncate is None and self.truncate_prompt_tokens is not None:
            return True
        return self.truncate


class Embedding(msgspec.Struct, kw_only=True):
    """One vector."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str
    """Numbers, or base64 of little-endian float32."""
    truncated_from: int | msgspec.UnsetType = msgspec.UNSET
    """Tokens the input had, or had at least, where it was cut."""


class Usage(msgspec.Struct):
    """Tokens computed."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingsList(msgspec.Struct):
    """A request's vectors, in the order of its inputs."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: Usage


class Model(msgspec.Struct):
    """A served model."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    max_model_len: int
    """Most tokens of one input."""


class ModelList(msgspec.Struct):
    """All served models, by each of their names."""

    object: Literal["list"]
    data: list[Model]


class OpenAI:
    """The dialect's operations."""

    def __init__(
        self,
        service: EmbeddingService,
        directory: ModelDirectory,
        *,
        intake: BodyIntake,
        workload: Workload,
        max_inputs: int,
    ) -> None:
        self._service = service
        self._directory = directory
        inputs = BulkInputs("input", max_inputs=max_inputs)
        self._reader = BodyReader(EmbeddingsBody, "input", inputs.read, intake=intake, workload=workload)

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL."""
        embeddings = Operation(
            handler=self.create_embeddings,
            summary="Embed texts; the headers x-rosebed-truncated and -count say which inputs were cut, and how many",
            body=EmbeddingsBody,
            answer=EmbeddingsList,
        )
        models = Operation(handler=self.list_models, summary="Name the served models", answer=ModelList)
        model = Operation(handler=self.get_model, summary="Describe one model", answer=Model)
        return [
            Resource(path="/embeddings", operations={"POST": embeddings}, error_shape=error_body),
            Resource(path="/models", operations={"GET": models}, error_shape=error_body),
            Resource(path="/models/{id:path}", operations={"GET": model}, error_shape=error_body),
        ]

    async def create_embeddings(self, call: Call) -> Reply:
        body = await self._reader.read(call)
        answer = await self._service.embed(body.to_request())
        return Reply(200, await _encode(answer, as_text=body.encoding_format == "base64"), _headers(answer))

    async def list_models(self, _call: Call) -> Reply:
        models = [_describe(name, model) for model in self._directory.models for name in model.names]
        return Reply(200, msgspec.json.encode(ModelList("list", models)))

    async def get_model(self, call: Call) -> Reply:
        name = call.path_parameters["id"]
        return Reply(200, msgspec.json.encode(_describe(name, self._directory.find(name))))


def error_body(fault: Fault) -> bytes:
    """OpenAI's error object."""
    kind = "server_error" if fault.status >= 500 else "invalid_request_error"
    if fault.status == 429:
        kind = "rate_limit_error"
    error = {"message": fault.message, "type": kind, "param": fault.param, "code": fault.code}
    return orjson.dumps({"error": error})


def _inputs(given: Input | None) -> tuple[Sequence[str], Sequence[Sequence[int]], bool]:
    """The texts, or the token lists, and whether those were one bare list."""
    if given is None:
        raise InvalidInput("input is missing", param="input")
    if isinstance(given, str):
        return [given], [], False
    if given and type(given[0]) is int and (ids := packed_ids(given)) is not None:  # pyright: ignore[reportArgumentType]
        return [], [ids], True
    kinds = {type(item) for item in given}
    if kinds <= {str}:
        return given, [], False  # pyright: ignore[reportReturnType]
    if kinds == {int}:
        return [], [given], True  # pyright: ignore[reportReturnType]
    if kinds == {list}:
        return [], given, False  # pyright: ignore[reportReturnType]
    first = type(given[0])
    odd = next(index for index, item in enumerate(given) if type(item) is not first)
    raise InvalidInput(
        f"input[{odd}]: input should be all texts, all token ids, or all lists of token ids, not a mixture",
        param=f"input[{odd}]",
    )


def _truncate_to(truncate_prompt_tokens: int | None) -> int | None:
    if truncate_prompt_tokens is None or truncate_prompt_tokens == -1:
        return None
    if truncate_prompt_tokens < 1:
        raise InvalidInput(
            f"truncate_prompt_tokens should be at least 1, or -1 for the model's limit, not {truncate_prompt_tokens}",
            param="truncate_prompt_tokens",
        )
    return truncate_prompt_tokens


async def _encode(answer: EmbeddingsAnswer, *, as_text: bool) -> bytes:
    """The whole answer as JSON, giving way to other requests between slices."""
    vectors = answer.vectors
    step = max(1, SLICE_FLOATS // len(vectors[0]))
    slices: list[bytes] = []
    for start in range(0, len(vectors), step):
        if start:
            await asyncio.sleep(0)
        items = [
            _item(index, vectors[index], answer.truncated_from, as_text)
            for index in range(start, min(start + step, len(vectors)))
        ]
        slices.append(orjson.dumps(items, option=orjson.OPT_SERIALIZE_NUMPY)[1:-1])
    usage = {"prompt_tokens": answer.num_tokens, "total_tokens": answer.num_tokens}
    rest = orjson.dumps({"model": answer.model, "usage": usage})
    return b'{"object":"list","data":[' + b",".join(slices) + b"]," + rest[1:]


def _item(index: int, vector: Float32Array, truncated_from: dict[int, int], as_text: bool) -> dict[str, Any]:
    item = {"object": "embedding", "index": index, "embedding": to_base64(vector) if as_text else vector}
    if index in truncated_from:
        item["truncated_from"] = truncated_from[index]
    return item


def _headers(answer: EmbeddingsAnswer) -> Headers:
    if not answer.truncated_from:
        return ()
    named = islice(answer.truncated_from, MAX_NAMED_IN_HEADER)
    return (
        (b"x-rosebed-truncated", ",".join(map(str, named)).encode()),
        (b"x-rosebed-truncated-count", b"%d" % len(answer.truncated_from)),
    )


def _describe(name: str, model: ServedModel) -> Model:
    created = int((model.spec.folder / "config.json").stat().st_mtime)
    return Model(name, "model", created, "rosebed", model.tokenizer.max_length)
