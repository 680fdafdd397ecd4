"""OpenAI's embeddings and models, with the extensions that clients of its imitators send.

Source: platform.openai.com/docs/api-reference/embeddings; extensions as vLLM and sentence-transformers name them.
"""

import time
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
import orjson

from rosebed.core.encodings import Encoding, VectorType
from rosebed.core.errors import InvalidInput
from rosebed.core.token_ids import packed_ids
from rosebed.core.types import Lane
from rosebed.ivy.dialects.base import BodyOperation, Parts
from rosebed.ivy.dialects.writing import json_items, listed, raw_items, truncation_headers
from rosebed.ivy.http.bulk import BulkInputs
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Operation, Resource
from rosebed.ivy.http.faults import ErrorShape, Fault
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.model import ServedModel
from rosebed.ivy.request import PLAIN, EmbeddingsAnswer, EmbeddingsRequest
from rosebed.text.tokenizer import ForeignTokenId, Side

MAX_METADATA_BYTES = 32 << 10
"""Of a header: clients read lines of up to 64 KiB."""

Input = str | list[str | int | list[int]]


def says(description: str) -> msgspec.Meta:
    """What the API document says of a field."""
    return msgspec.Meta(description=description)


class EmbeddingsBody(msgspec.Struct):
    """A request. Every field but `input` may be left out or null."""

    input: Annotated[Input | None, says("One text, a list of texts, one list of token ids, or a list of those.")] = None
    model: Annotated[str | None, says("A served name; without one, the only model.")] = None
    encoding_format: Annotated[
        Literal["float", "base64", "bytes", "bytes_only"] | None,
        says(
            "Numbers (the default), base64 of the bytes of embed_dtype, or those bytes themselves, all vectors end to "
            "end as application/octet-stream; with `bytes`, the header `metadata` says which are whose."
        ),
    ] = None
    embed_dtype: Annotated[
        VectorType | None,
        says("What components are sent as, by default float32; binary and ubinary are eight to a byte."),
    ] = None
    endianness: Annotated[
        Literal["native", "little", "big"] | None, says("Order of bytes within a component; little by default.")
    ] = None
    dimensions: Annotated[
        int | None, says("Leading components to keep, where the model was trained for fewer than all.")
    ] = None
    user: Annotated[str | None, says("Ignored.")] = None
    truncate: Annotated[bool | None, says("Cut inputs that are too long instead of refusing them.")] = None
    truncate_prompt_tokens: Annotated[
        int | None, says("Cut inputs to so many tokens; -1 means the model's own limit.")
    ] = None
    truncation_side: Annotated[
        Literal["left", "right"] | None, says("The end that is cut off inputs that are too long; right by default.")
    ] = None
    add_special_tokens: Annotated[bool | None, says("False leaves out [CLS], </s> and the like.")] = None
    normalize: Annotated[bool | None, says("Scale vectors to length 1, or do not; by default as the model does.")] = (
        None
    )
    prompt: Annotated[str | None, says("Text to put in front of every input.")] = None
    prompt_name: Annotated[str | None, says("Name of one of the model's own prompts.")] = None
    input_type: Annotated[str | None, says("query or document: the model's prompt for that side, if it has one.")] = (
        None
    )
    priority: Annotated[int | None, says("Above 0, the request gives way to others.")] = None

    def to_request(self) -> EmbeddingsRequest:
        """The same, in the gateway's words. InvalidInput for what the schema cannot say."""
        texts, token_ids, is_flat = texts_or_ids(self.input)
        return EmbeddingsRequest(
            texts=texts,
            token_ids=token_ids,
            is_flat=is_flat,
            model=self.model,
            encodings=(self.encoding,),
            dimensions=self.dimensions,
            normalize=self.normalize,
            prompt=self.prompt,
            prompt_name=self.prompt_name,
            input_type=self.input_type,
            truncate=self._truncates(),
            truncate_to=_truncate_to(self.truncate_prompt_tokens),
            side=Side.LEFT if self.truncation_side == "left" else Side.RIGHT,
            add_special_tokens=self.add_special_tokens is not False,
            # vLLM's priority: 0 is normal, higher means later.
            lane=Lane.BULK if (self.priority or 0) > 0 else Lane.ONLINE,
        )

    @property
    def encoding(self) -> Encoding:
        """What vectors are sent as."""
        if self.embed_dtype is None and self.endianness is None:
            return PLAIN
        return Encoding(
            type=self.embed_dtype or VectorType.FLOAT32, byte_order="big" if self.endianness == "big" else "little"
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
    """Numbers, or base64 of their bytes."""
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

    def __init__(self, parts: Parts) -> None:
        self.error_shape = ERRORS
        self._parts = parts
        inputs = BulkInputs("input", max_inputs=parts.max_inputs)
        self._reader = parts.reader(EmbeddingsBody, "input", inputs.read)

    def operations(self) -> dict[str, BodyOperation]:
        """What the root decides about."""
        embeddings = BodyOperation(
            handle=self.create_embeddings,
            summary="Embed texts; the headers x-rosebed-truncated and -count say which inputs were cut, and how many",
            body=EmbeddingsBody,
            answer=EmbeddingsList,
            error_shape=self.error_shape,
            names={"encodings": "embed_dtype"},
        )
        return {"openai.embeddings": embeddings}

    def models(self, error_shape: ErrorShape) -> list[Resource]:
        """The served models, under the dialect's base URL."""
        models = Operation(handler=self.list_models, summary="Name the served models", answer=(ModelList,))
        model = Operation(handler=self.get_model, summary="Describe one model", answer=(Model,))
        return [
            Resource(path="/models", operations={"GET": models}, error_shape=error_shape),
            Resource(path="/models/{id:path}", operations={"GET": model}, error_shape=error_shape),
        ]

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL."""
        embeddings = self.operations()["openai.embeddings"].operation(self._parts.intake)
        return [
            Resource(path="/embeddings", operations={"POST": embeddings}, error_shape=self.error_shape),
            *self.models(self.error_shape),
        ]

    async def create_embeddings(self, _call: Call, raw: bytes) -> Reply:
        body: EmbeddingsBody = await self._reader.read(raw)
        return await embeddings_reply(body, await embed(self._parts, body))

    async def list_models(self, _call: Call) -> Reply:
        models = [_describe(name, model) for model in self._parts.directory.models for name in model.names]
        return Reply(200, msgspec.json.encode(ModelList("list", models)))

    async def get_model(self, call: Call) -> Reply:
        name = call.path_parameters["id"]
        return Reply(200, msgspec.json.encode(_describe(name, self._parts.directory.find(name))))


async def embed(parts: Parts, body: EmbeddingsBody, *, each_token: bool = False) -> EmbeddingsAnswer:
    """The vectors that `body` asks for: of its inputs, or of each of their tokens."""
    request = body.to_request()
    try:
        return await parts.service.embed(msgspec.structs.replace(request, each_token=True) if each_token else request)
    except ForeignTokenId as error:
        hint = "LangChain sends another tokenizer's ids unless told check_embedding_ctx_length=False"
        raise ForeignTokenId(f"{error.message}; {hint}", param=error.param) from error


async def embeddings_reply(body: EmbeddingsBody, answer: EmbeddingsAnswer) -> Reply:
    """The answer in the form that `body` asks for."""
    if body.encoding_format in ("bytes", "bytes_only"):
        return await _bytes_reply(body, answer)

    def item(index: int, value: object) -> dict[str, object]:
        made = {"object": "embedding", "index": index, "embedding": value}
        if index in answer.truncated_from:
            made["truncated_from"] = answer.truncated_from[index]
        return made

    items = await json_items(answer, body.encoding, as_text=body.encoding_format == "base64", item=item)
    return Reply(
        200, listed(items, model=answer.model, usage=_usage(answer)), truncation_headers(answer.truncated_from)
    )


async def _bytes_reply(body: EmbeddingsBody, answer: EmbeddingsAnswer) -> Reply:
    """All vectors end to end, and where each lies in vLLM's words."""
    items = await raw_items(answer, body.encoding)
    headers = truncation_headers(answer.truncated_from)
    if body.encoding_format == "bytes":
        headers += ((b"metadata", _metadata(body, answer, len(items[0]))),)
    return Reply(200, b"".join(items), headers, content_type=b"application/octet-stream")


def _metadata(body: EmbeddingsBody, answer: EmbeddingsAnswer, num_bytes: int) -> bytes:
    shape = [num_bytes // _ITEM_BYTES.get(body.encoding.type, 1)]
    data = [
        {
            "index": index,
            "embed_dtype": body.encoding.type,
            "endianness": body.encoding.byte_order,
            "start": num_bytes * index,
            "end": num_bytes * (index + 1),
            "shape": shape,
        }
        for index in range(len(answer.rows))
    ]
    metadata = orjson.dumps({"created": int(time.time()), "model": answer.model, "data": data, "usage": _usage(answer)})
    if len(metadata) > MAX_METADATA_BYTES:
        raise InvalidInput(
            f"encoding_format 'bytes' describes {len(data)} vectors in a header, which takes {len(metadata)} bytes of "
            f"at most {MAX_METADATA_BYTES}; 'bytes_only' describes none",
            param="encoding_format",
        )
    return metadata


_ITEM_BYTES = {VectorType.FLOAT32: 4, VectorType.FLOAT16: 2, VectorType.BFLOAT16: 2}


def _usage(answer: EmbeddingsAnswer) -> dict[str, int]:
    return {"prompt_tokens": answer.num_tokens, "total_tokens": answer.num_tokens}


def error_body(fault: Fault) -> bytes:
    """OpenAI's error object."""
    kind = "server_error" if fault.status >= 500 else "invalid_request_error"
    if fault.status == 429:
        kind = "rate_limit_error"
    error = {"message": fault.message, "type": kind, "param": fault.param, "code": fault.code}
    return orjson.dumps({"error": error})


ERRORS = ErrorShape(body=error_body)


def texts_or_ids(given: Input | None, name: str = "input") -> tuple[Sequence[str], Sequence[Sequence[int]], bool]:
    """The texts, or the token lists, of what the client calls `name`, and whether those were one bare list.

    InvalidInput if it is a mixture or missing.
    """
    if given is None:
        raise InvalidInput(f"{name} is missing", param=name)
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
        f"{name}[{odd}]: {name} should be all texts, all token ids, or all lists of token ids, not a mixture",
        param=f"{name}[{odd}]",
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


def _describe(name: str, model: ServedModel) -> Model:
    created = int((model.spec.folder / "config.json").stat().st_mtime)
    return Model(name, "model", created, "rosebed", model.tokenizer.max_length)
