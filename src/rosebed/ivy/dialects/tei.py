"""Hugging Face TEI: embeddings, vectors of each token, similarities, and its OpenAI route. No route names a model.

Source: the OpenAPI document and router/src/http of text-embeddings-inference 1.9.
"""

import re
import time
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import orjson

from rosebed.core.errors import (
    AuthenticationFailed,
    DeadlineExceeded,
    InvalidInput,
    NonFiniteOutput,
    Overloaded,
    RosebedError,
    ServerError,
    StepFailed,
    Unavailable,
    WrongModelKind,
)
from rosebed.core.model_spec import ModelSpec
from rosebed.core.retelling import retold
from rosebed.core.version import __version__
from rosebed.ivy.dialects.base import BodyOperation, Parts
from rosebed.ivy.dialects.openai import EmbeddingsList, Input, says, texts_or_ids
from rosebed.ivy.dialects.tei_headers import tei_headers
from rosebed.ivy.dialects.writing import array, grouped, json_items, listed
from rosebed.ivy.http.bulk import BulkInputs
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Operation, Resource
from rosebed.ivy.http.faults import ErrorShape, Fault
from rosebed.ivy.http.intake import MAX_OPEN_BODIES
from rosebed.ivy.http.reply import Headers, Reply
from rosebed.ivy.request import PLAIN, EmbeddingsAnswer, EmbeddingsRequest, EmptyInput
from rosebed.text.tokenizer import Side

Direction = Literal["Left", "Right", "left", "right"]
_INDEX = re.compile(r"\binput\[(\d+)\]")
_INPUTS = Annotated[
    Input | None, says("One text, a list of texts, one list of token ids, or a list of those. No text is empty.")
]
_TRUNCATE = Annotated[bool | None, says("Whether to cut inputs that are too long; by default as the server is set.")]
_DIRECTION = Annotated[Direction | None, says("The end that is cut off; right by default.")]
_PROMPT_NAME = Annotated[str | None, says("Name of one of the model's own prompts, put in front of every text.")]


class TeiEmbedBody(msgspec.Struct):
    """Inputs to embed."""

    inputs: _INPUTS = None
    truncate: _TRUNCATE = None
    truncation_direction: _DIRECTION = None
    prompt_name: _PROMPT_NAME = None
    normalize: Annotated[bool | None, says("Scale vectors to length 1 (the default), or do not.")] = None
    dimensions: Annotated[
        int | None, says("Leading components to keep, where the model was trained for fewer than all.")
    ] = None
    encoding_format: Annotated[Literal["float", "base64"] | None, says("Ignored: vectors are numbers.")] = None


class TeiEmbedAllBody(msgspec.Struct):
    """Inputs whose tokens to embed."""

    inputs: _INPUTS = None
    truncate: _TRUNCATE = None
    truncation_direction: _DIRECTION = None
    prompt_name: _PROMPT_NAME = None


class Sentences(msgspec.Struct):
    """A sentence, and others to compare it with."""

    source_sentence: str
    sentences: list[str]


class SimilarityParameters(msgspec.Struct):
    """How sentences become vectors."""

    truncate: _TRUNCATE = None
    truncation_direction: _DIRECTION = None
    prompt_name: _PROMPT_NAME = None


class SimilarityBody(msgspec.Struct):
    """Sentences to compare."""

    inputs: Annotated[Sentences | None, says("The sentence, and those to compare it with.")] = None
    parameters: SimilarityParameters | None = None


class TeiOpenAIBody(msgspec.Struct):
    """Inputs to embed, in OpenAI's words."""

    input: _INPUTS = None
    model: Annotated[str | None, says("Ignored.")] = None
    user: Annotated[str | None, says("Ignored.")] = None
    encoding_format: Annotated[
        Literal["float", "base64"] | None, says("Numbers (the default), or base64 of little-endian float32.")
    ] = None
    dimensions: Annotated[
        int | None, says("Leading components to keep, where the model was trained for fewer than all.")
    ] = None


class EmbeddingKind(msgspec.Struct):
    """How the model pools."""

    pooling: str


class LabelledKind(msgspec.Struct):
    """The labels of a model that scores."""

    id2label: dict[str, str]
    label2id: dict[str, int]


class ModelKind(msgspec.Struct):
    """What the model is for: one of these."""

    embedding: EmbeddingKind | msgspec.UnsetType = msgspec.UNSET
    reranker: LabelledKind | msgspec.UnsetType = msgspec.UNSET
    classifier: LabelledKind | msgspec.UnsetType = msgspec.UNSET


class TeiInfo(msgspec.Struct, omit_defaults=False):
    """The served model and the server's limits."""

    model_id: str
    model_sha: str | None
    model_dtype: str
    model_type: ModelKind
    max_concurrent_requests: int
    max_input_length: int
    max_batch_tokens: int
    max_batch_requests: int | None
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str
    sha: str | None
    docker_label: str | None


class Tei:
    """The dialect's operations, but for those of its tokenizer."""

    def __init__(self, parts: Parts) -> None:
        self.error_shape = ERRORS
        self._parts = parts
        inputs = BulkInputs("inputs", max_inputs=parts.max_inputs)
        self._embed = parts.reader(TeiEmbedBody, "inputs", inputs.read)
        self._embed_all = parts.reader(TeiEmbedAllBody, "inputs", inputs.read)
        self._similarity = parts.reader(SimilarityBody, "inputs", inputs.reading(Sentences | None))
        self._openai = parts.reader(TeiOpenAIBody, "input", BulkInputs("input", max_inputs=parts.max_inputs).read)

    def operations(self) -> dict[str, BodyOperation]:
        """What the root decides about."""
        return {
            "tei.embed": self.operation(self.embed, "Embed inputs", TeiEmbedBody, list[list[float]]),
            "tei.similarity": self.operation(
                self.similarity, "Compare a sentence with others, by the cosine of their vectors",
                SimilarityBody, list[float],
            ),
        }  # fmt: skip

    def operation(self, handle: Any, summary: str, body: type[msgspec.Struct], answer: Any) -> BodyOperation:
        """One of the dialect's, which calls inputs by its own name."""
        return BodyOperation(
            handle=handle,
            summary=summary,
            body=body,
            answer=answer,
            error_shape=self.error_shape,
            names={"input": "inputs"},
        )

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL that mean the same at the root."""
        embed_all = self.operation(
            self.embed_all, "Embed each token of inputs, unpooled", TeiEmbedAllBody, list[list[list[float]]]
        )
        operations = self.operations()
        posts = {
            "/embed": operations["tei.embed"],
            "/embed_all": embed_all,
            "/similarity": operations["tei.similarity"],
        }
        info = Operation(handler=self.info, summary="Describe the served model and its limits", answer=(TeiInfo,))
        return [
            *(
                Resource(
                    path=path,
                    operations={"POST": operation.operation(self._parts.intake)},
                    error_shape=self.error_shape,
                )
                for path, operation in posts.items()
            ),
            Resource(path="/info", operations={"GET": info}, error_shape=self.error_shape),
        ]

    def openai_resources(self) -> list[Resource]:
        """TEI's own form of OpenAI's route, under its base URL."""
        operation = BodyOperation(
            handle=self.create_embeddings,
            summary="Embed inputs, as OpenAI's API does",
            body=TeiOpenAIBody,
            answer=EmbeddingsList,
            error_shape=OPENAI_ERRORS,
        ).operation(self._parts.intake)
        return [
            Resource(path=path, operations={"POST": operation}, error_shape=OPENAI_ERRORS)
            for path in ("/embeddings", "/v1/embeddings")
        ]

    async def embed(self, _call: Call, raw: bytes) -> Reply:
        started_ns = time.perf_counter_ns()
        body: TeiEmbedBody = await self._embed.read(raw)
        request = EmbeddingsRequest(
            **_inputs(body.inputs, "inputs"),
            **_options(body),
            dimensions=body.dimensions,
            normalize=body.normalize is not False,
        )
        answer = await self._parts.service.embed(request)
        body_bytes = array(await json_items(answer, PLAIN, as_text=False))
        return Reply(200, body_bytes, self._headers(request, answer, started_ns))

    async def embed_all(self, _call: Call, raw: bytes) -> Reply:
        started_ns = time.perf_counter_ns()
        body: TeiEmbedAllBody = await self._embed_all.read(raw)
        request = EmbeddingsRequest(
            **_inputs(body.inputs, "inputs"), **_options(body), each_token=True, normalize=False
        )
        answer = await self._parts.service.embed(request)
        vectors = await json_items(answer, PLAIN, as_text=False)
        return Reply(200, array(list(grouped(vectors, answer))), self._headers(request, answer, started_ns))

    async def similarity(self, _call: Call, raw: bytes) -> Reply:
        started_ns = time.perf_counter_ns()
        body: SimilarityBody = await self._similarity.read(raw)
        if body.inputs is None:
            raise InvalidInput("inputs is missing", param="inputs")
        if not body.inputs.sentences:
            raise EmptyInput("inputs.sentences should hold at least one text", param="inputs.sentences")
        request = EmbeddingsRequest(
            texts=[body.inputs.source_sentence, *body.inputs.sentences],
            **_options(body.parameters or SimilarityParameters()),
            normalize=True,
        )
        for index, text in enumerate(request.texts):
            _refuse_empty(text, f"inputs.sentences[{index - 1}]" if index else "inputs.source_sentence")
        try:
            answer = await self._parts.service.embed(request)
        except RosebedError as error:
            raise retold(error, _of_sentences) from error
        source, *others = answer.vectors
        cosines = (np.stack(others) @ source).tolist()
        return Reply(200, orjson.dumps(cosines), self._headers(request, answer, started_ns))

    async def create_embeddings(self, _call: Call, raw: bytes) -> Reply:
        started_ns = time.perf_counter_ns()
        body: TeiOpenAIBody = await self._openai.read(raw)
        request = EmbeddingsRequest(**_inputs(body.input, "input"), dimensions=body.dimensions, normalize=True)
        answer = await self._parts.service.embed(request)
        items = await json_items(
            answer,
            PLAIN,
            as_text=body.encoding_format == "base64",
            item=lambda index, value: {"object": "embedding", "embedding": value, "index": index},
        )
        usage = {"prompt_tokens": answer.num_tokens, "total_tokens": answer.num_tokens}
        return Reply(200, listed(items, model=answer.model, usage=usage), self._headers(request, answer, started_ns))

    async def info(self, _call: Call) -> Reply:
        model = self._parts.directory.find(None)
        engine = self._parts.directory.engine(None)
        return Reply(
            200,
            msgspec.json.encode(
                TeiInfo(
                    model_id=model.names[0],
                    model_sha=None,
                    model_dtype=engine.dtype,
                    model_type=_kind_of(model.spec),
                    max_concurrent_requests=self._parts.num_workers * MAX_OPEN_BODIES,
                    max_input_length=model.tokenizer.max_length,
                    max_batch_tokens=engine.limits.tokens,
                    max_batch_requests=engine.limits.sequences,
                    max_client_batch_size=self._parts.max_inputs,
                    auto_truncate=model.auto_truncate,
                    tokenization_workers=self._parts.num_workers,
                    version=__version__,
                    sha=None,
                    docker_label=None,
                )
            ),
        )

    def _headers(self, request: EmbeddingsRequest, answer: EmbeddingsAnswer, started_ns: int) -> Headers:
        """What the request took, times in ms."""
        num_characters = sum(map(len, request.texts or request.token_ids))
        engine = self._parts.directory.engine(None)
        return tei_headers(engine, answer, num_characters=num_characters, started_ns=started_ns)


def _inputs(given: Input | None, name: str) -> dict[str, Any]:
    """The texts or token lists, as fields of a request. InvalidInput for what is missing, mixed or empty."""
    texts, token_ids, is_flat = texts_or_ids(given, name)
    for index, text in enumerate(texts):
        _refuse_empty(text, f"{name}[{index}]")
    return {"texts": texts, "token_ids": token_ids, "is_flat": is_flat}


def _kind_of(spec: ModelSpec) -> ModelKind:
    if spec.scorer is None:
        return ModelKind(embedding=EmbeddingKind(spec.pooling))
    labels = spec.scorer.labels
    labelled = LabelledKind(
        id2label={str(index): label for index, label in enumerate(labels)},
        label2id={label: index for index, label in enumerate(labels)},
    )
    return ModelKind(reranker=labelled) if len(labels) == 1 else ModelKind(classifier=labelled)


def _options(body: TeiEmbedBody | TeiEmbedAllBody | SimilarityParameters) -> dict[str, Any]:
    return {
        "truncate": body.truncate,
        "side": Side.LEFT if (body.truncation_direction or "").lower() == "left" else Side.RIGHT,
        "prompt_name": body.prompt_name,
    }


def _of_sentences(words: str) -> str:
    """`input[i]` as the sentence it is."""
    return _INDEX.sub(
        lambda found: f"inputs.sentences[{int(found[1]) - 1}]" if int(found[1]) else "inputs.source_sentence", words
    )


def _refuse_empty(text: str, name: str) -> None:
    if not text:
        raise InvalidInput(f"{name} cannot be empty", param=name)


_KINDS: dict[type[Exception], str] = {
    Unavailable: "Unhealthy",
    Overloaded: "Overloaded",
    EmptyInput: "Empty",
    InvalidInput: "Validation",
    WrongModelKind: "Backend",
    DeadlineExceeded: "Backend",
    ServerError: "Backend",
}


def _kind(fault: Fault) -> str:
    """TEI's name for what went wrong."""
    return next((_KINDS[kind] for kind in fault.error_type.__mro__ if kind in _KINDS), "Validation")


def error_body(fault: Fault) -> bytes:
    """TEI's error object; nothing where the key was wrong."""
    if issubclass(fault.error_type, AuthenticationFailed):
        return b""
    return orjson.dumps({"error": fault.message, "error_type": _kind(fault)})


def openai_error_body(fault: Fault) -> bytes:
    """The same, as TEI's OpenAI route words it."""
    if issubclass(fault.error_type, AuthenticationFailed):
        return b""
    return orjson.dumps({"message": fault.message, "code": fault.status, "type": _kind(fault)})


_STATUSES: dict[type[RosebedError], int] = {
    InvalidInput: 422,
    EmptyInput: 400,
    WrongModelKind: 424,
    NonFiniteOutput: 424,
    StepFailed: 424,
}
ERRORS = ErrorShape(body=error_body, statuses=_STATUSES)
OPENAI_ERRORS = ErrorShape(body=openai_error_body, statuses=_STATUSES)
