"""vLLM's routes for pooling models: OpenAI's embeddings in its own error words, pooling, tokens, and its state.

Source: vllm/entrypoints of vLLM 0.22.
"""

import base64
import time
from functools import partial
from itertools import islice
from typing import Annotated, Any, Literal

import msgspec
import orjson

from rosebed.core.encodings import Encoding
from rosebed.core.errors import InvalidInput
from rosebed.core.version import __version__
from rosebed.ivy.dialects.base import BodyOperation, Parts
from rosebed.ivy.dialects.openai import (
    EmbeddingsBody,
    EmbeddingsList,
    Usage,
    embed,
    embeddings_reply,
    says,
)
from rosebed.ivy.dialects.tei_tokens import MAX_CHARACTERS, MAX_IDS
from rosebed.ivy.dialects.writing import grouped, json_items, listed, raw_items, truncation_headers
from rosebed.ivy.http.bulk import BulkInputs
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Operation, Resource
from rosebed.ivy.http.faults import ErrorShape, Fault
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.request import EmbeddingsAnswer
from rosebed.text.tokenizer import TextTokenizer, TokenizeOptions

Task = Literal["embed", "token_embed"]


class PoolingBody(EmbeddingsBody):
    """Inputs to embed as wholes, or token by token."""

    task: Annotated[
        Task | None, says("One vector for an input (embed, the default), or one for each token (token_embed).")
    ] = None


class Pooled(msgspec.Struct):
    """What came of one input."""

    object: Literal["pooling"]
    index: int
    data: list[float | list[float]] | str


class PoolingList(msgspec.Struct):
    """What came of a request's inputs, in order."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Pooled]
    usage: Usage


class VllmTokenizeBody(msgspec.Struct):
    """A text to see as token ids."""

    prompt: Annotated[str | None, says("The text.")] = None
    messages: Annotated[list[Any] | None, says("Refused: embedding models have no chat template.")] = None
    model: Annotated[str | None, says("A served name; without one, the only model.")] = None
    add_special_tokens: Annotated[bool | None, says("False leaves out [CLS], </s> and the like.")] = None
    return_token_strs: Annotated[bool | None, says("Give the tokens as they are in the vocabulary too.")] = None


class VllmTokens(msgspec.Struct):
    """A text as token ids."""

    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizeBody(msgspec.Struct):
    """Token ids to see as a text."""

    tokens: Annotated[list[int] | None, says("The ids.")] = None
    model: Annotated[str | None, says("A served name; without one, the only model.")] = None


class DetokenizedText(msgspec.Struct):
    """The text of token ids."""

    prompt: str


class Version(msgspec.Struct):
    """Of the server."""

    version: str


class Load(msgspec.Struct):
    """What this worker is at."""

    server_load: int
    """Requests being answered, this one left out."""


class Vllm:
    """The dialect's operations."""

    def __init__(self, parts: Parts) -> None:
        self.error_shape = ERRORS
        self._parts = parts
        inputs = BulkInputs("input", max_inputs=parts.max_inputs)
        ids = BulkInputs("tokens", max_inputs=parts.max_inputs)
        self._embeddings = parts.reader(EmbeddingsBody, "input", inputs.read)
        self._pooling = parts.reader(PoolingBody, "input", inputs.read)
        self._tokenize = parts.reader(
            VllmTokenizeBody, "prompt", BulkInputs("prompt", max_inputs=1).reading(str | None)
        )
        self._detokenize = parts.reader(DetokenizeBody, "tokens", ids.read_ids)

    def operations(self) -> dict[str, BodyOperation]:
        """What the root decides about."""
        return {
            "vllm.tokenize": self._operation(self.tokenize, "Show a text as token ids", VllmTokenizeBody, VllmTokens)
        }

    def _operation(self, handle: Any, summary: str, body: type[msgspec.Struct], answer: Any) -> BodyOperation:
        return BodyOperation(
            handle=handle,
            summary=summary,
            body=body,
            answer=answer,
            error_shape=self.error_shape,
            names={"encodings": "embed_dtype"},
        )

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL that mean the same at the root."""
        pooling = self._operation(
            self.create_pooling, "Embed inputs as wholes, or token by token", PoolingBody, PoolingList
        )
        detokenize = self._operation(self.detokenize, "Show token ids as a text", DetokenizeBody, DetokenizedText)
        version = Operation(handler=self.version, summary="Name this server's version", answer=(Version,))
        load = Operation(handler=self.load, summary="Count the requests being answered", answer=(Load,))
        return [
            self._resource("/pooling", pooling),
            self._resource("/detokenize", detokenize),
            Resource(path="/version", operations={"GET": version}, error_shape=self.error_shape),
            Resource(path="/load", operations={"GET": load}, error_shape=self.error_shape),
        ]

    def own_resources(self) -> list[Resource]:
        """Paths under the dialect's base URL that at the root are others', or shared."""
        embeddings = self._operation(self.create_embeddings, "Embed inputs", EmbeddingsBody, EmbeddingsList)
        return [
            self._resource("/v1/embeddings", embeddings),
            self._resource("/tokenize", self.operations()["vllm.tokenize"]),
        ]

    def _resource(self, path: str, operation: BodyOperation) -> Resource:
        return Resource(
            path=path, operations={"POST": operation.operation(self._parts.intake)}, error_shape=self.error_shape
        )

    async def create_embeddings(self, _call: Call, raw: bytes) -> Reply:
        body: EmbeddingsBody = await self._embeddings.read(raw)
        return await embeddings_reply(body, await embed(self._parts, body))

    async def create_pooling(self, call: Call, raw: bytes) -> Reply:
        body: PoolingBody = await self._pooling.read(raw)
        each_token = body.task == "token_embed"
        answer = await embed(self._parts, body, each_token=each_token)
        if body.encoding_format in ("bytes", "bytes_only"):
            if each_token:
                raise InvalidInput(
                    f"encoding_format {body.encoding_format!r} is for one vector an input, not for token_embed",
                    param="encoding_format",
                )
            return await embeddings_reply(body, answer)
        data = await _pooled(answer, body.encoding, as_text=body.encoding_format == "base64", each_token=each_token)
        rest = {
            "id": f"pool-{call.request_id.decode()}",
            "created": int(time.time()),
            "model": answer.model,
            "usage": {"prompt_tokens": answer.num_tokens, "total_tokens": answer.num_tokens},
        }
        return Reply(200, listed(data, **rest), truncation_headers(answer.truncated_from))

    async def tokenize(self, _call: Call, raw: bytes) -> Reply:
        body: VllmTokenizeBody = await self._tokenize.read(raw)
        if body.messages is not None:
            raise InvalidInput("messages need a chat template, which embedding models have none of", param="messages")
        if body.prompt is None:
            raise InvalidInput("prompt is missing", param="prompt")
        if len(body.prompt) > MAX_CHARACTERS:
            raise InvalidInput(
                f"prompt has {len(body.prompt)} characters, over the limit of {MAX_CHARACTERS}", param="prompt"
            )
        tokenizer = self._parts.directory.find(body.model).tokenizer
        work = partial(
            _tokens,
            tokenizer,
            body.prompt,
            add_special_tokens=body.add_special_tokens is not False,
            with_strings=body.return_token_strs is True,
        )
        return Reply(200, await self._parts.workload.run(len(body.prompt), work))

    async def detokenize(self, _call: Call, raw: bytes) -> Reply:
        body: DetokenizeBody = await self._detokenize.read(raw)
        if body.tokens is None:
            raise InvalidInput("tokens is missing", param="tokens")
        if len(body.tokens) > MAX_IDS:
            raise InvalidInput(f"tokens holds {len(body.tokens)} ids, over the limit of {MAX_IDS}", param="tokens")
        tokenizer = self._parts.directory.find(body.model).tokenizer
        work = partial(tokenizer.decode, body.tokens, skip_special_tokens=False, name="tokens")
        return Reply(200, orjson.dumps({"prompt": await self._parts.workload.run(len(body.tokens), work)}))

    async def version(self, _call: Call) -> Reply:
        return Reply(200, orjson.dumps({"version": __version__}))

    async def load(self, _call: Call) -> Reply:
        return Reply(200, orjson.dumps({"server_load": self._parts.num_in_progress() - 1}))


async def _pooled(answer: EmbeddingsAnswer, encoding: Encoding, *, as_text: bool, each_token: bool) -> list[bytes]:
    """Each input's item: its vector, its vectors, or base64 of the one or, end to end, of the others."""
    if as_text and each_token:
        remaining = iter(await raw_items(answer, encoding))
        joined = (b"".join(islice(remaining, len(rows))) for rows in answer.rows)
        found = [b'"%b"' % base64.b64encode(data) for data in joined]
    else:
        items = await json_items(answer, encoding, as_text=as_text)
        found = list(grouped(items, answer)) if each_token else items
    return [b'{"object":"pooling","index":%d,"data":%b}' % (index, data) for index, data in enumerate(found)]


def _tokens(tokenizer: TextTokenizer, text: str, *, add_special_tokens: bool, with_strings: bool) -> bytes:
    ids, strings = tokenizer.token_strings(text, TokenizeOptions(add_special_tokens=add_special_tokens))
    return orjson.dumps(
        {
            "count": len(ids),
            "max_model_len": tokenizer.max_length,
            "tokens": ids,
            "token_strs": strings if with_strings else None,
        }
    )


_TYPES = {
    400: "BadRequestError",
    401: "AuthenticationError",
    404: "NotFoundError",
    429: "RateLimitError",
    503: "ServiceUnavailableError",
}


def error_body(fault: Fault) -> bytes:
    """OpenAI's error object with vLLM's types, its code being the status."""
    kind = _TYPES.get(fault.status, "InternalServerError" if fault.status >= 500 else "BadRequestError")
    error = {"message": fault.message, "type": kind, "param": fault.param, "code": fault.status}
    return orjson.dumps({"error": error})


ERRORS = ErrorShape(body=error_body)
