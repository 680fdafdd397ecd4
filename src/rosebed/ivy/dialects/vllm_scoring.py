"""vLLM's routes for models that score: scores, ranks and classes.

Source: vllm/entrypoints/pooling of vLLM 0.22.
"""

import time
from typing import Annotated, Any, Literal

import msgspec
import orjson

from rosebed.core.activations import Activation
from rosebed.core.errors import InvalidInput
from rosebed.core.scores import Scale
from rosebed.core.types import Lane
from rosebed.ivy.dialects.base import BodyOperation, Parts
from rosebed.ivy.dialects.openai import Usage, says
from rosebed.ivy.dialects.ranking import Documents, TextObject, best, documents_reader, required, texts_of
from rosebed.ivy.dialects.vllm import ERRORS
from rosebed.ivy.dialects.writing import truncation_headers
from rosebed.ivy.http.bulk import BulkInputs
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Resource
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.scoring_request import ClassificationRequest, ScoringRequest
from rosebed.text.tokenizer import Side

Texts = str | list[str]

_MODEL = Annotated[str | None, says("A served name; without one, the only model.")]
_TRUNCATE_TO = Annotated[int | None, says("Cut what is too long to so many tokens; -1 means the model's own limit.")]
_SIDE = Annotated[Literal["left", "right"] | None, says("The end that is cut off; right by default.")]
_USE_ACTIVATION = Annotated[bool | None, says("False gives logits instead of scores.")]
_ACTIVATION = Annotated[bool | None, says("The older name of use_activation.")]
_INSTRUCTION = Annotated[str | None, says("Qwen3-Reranker's instruction; of other models, text before each query.")]
_PRIORITY = Annotated[int | None, says("Above 0, the request gives way to others.")]


class _Options(msgspec.Struct, kw_only=True):
    """What all of these routes take."""

    model: _MODEL = None
    truncate_prompt_tokens: _TRUNCATE_TO = None
    truncation_side: _SIDE = None
    use_activation: _USE_ACTIVATION = None
    activation: _ACTIVATION = None
    priority: _PRIORITY = None

    @property
    def is_raw(self) -> bool:
        """Whether logits are wanted."""
        return (self.activation if self.use_activation is None else self.use_activation) is False

    def cutting(self) -> dict[str, Any]:
        """The fields of a request that say how to cut, and its lane. InvalidInput for a limit that is none."""
        limit = self.truncate_prompt_tokens
        if limit is not None and limit != -1 and limit < 1:
            raise InvalidInput(
                f"truncate_prompt_tokens should be at least 1, or -1 for the model's limit, not {limit}",
                param="truncate_prompt_tokens",
            )
        return {
            "truncate": None if limit is None else True,
            "truncate_to": None if limit == -1 else limit,
            "side": Side.LEFT if self.truncation_side == "left" else Side.RIGHT,
            "lane": Lane.BULK if (self.priority or 0) > 0 else Lane.ONLINE,
        }


class ScoreBody(_Options, kw_only=True):
    """Pairs of texts to score: one with each of many, or as many with as many."""

    text_1: Annotated[Texts | None, says("One text, or as many as text_2 holds.")] = None
    text_2: Annotated[Texts | None, says("One text or a list of texts.")] = None
    queries: Annotated[Texts | None, says("The same as text_1.")] = None
    documents: Annotated[Texts | None, says("The same as text_2.")] = None
    instruction: _INSTRUCTION = None


class Score(msgspec.Struct):
    """One pair's."""

    index: int
    object: Literal["score"]
    score: float


class ScoreList(msgspec.Struct):
    """Scores, in the order of the pairs."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Score]
    usage: Usage


class VllmRerankBody(_Options, kw_only=True):
    """Documents to rank by how well they fit a query."""

    query: Annotated[str | None, says("The query.")] = None
    documents: Annotated[Documents | None, says("Texts, or objects with a text.")] = None
    top_n: Annotated[int | None, says("How many of the best to give; 0, as by default, gives all.")] = None
    return_documents: Annotated[bool | None, says("False leaves the documents out of the answer.")] = None
    max_tokens_per_doc: Annotated[
        int | None, says("Cut each document to so many tokens; 0, as by default, does not.")
    ] = None
    instruction: _INSTRUCTION = None


class RerankResult(msgspec.Struct):
    """One document in its place."""

    index: int
    relevance_score: float
    document: TextObject | msgspec.UnsetType = msgspec.UNSET


class RerankAnswer(msgspec.Struct):
    """Documents, the best first."""

    id: str
    model: str
    usage: Usage
    results: list[RerankResult]


class ClassifyBody(_Options, kw_only=True):
    """Texts to classify."""

    input: Annotated[Texts | None, says("One text or a list of texts.")] = None
    add_special_tokens: Annotated[bool | None, says("False leaves out [CLS], </s> and the like.")] = None


class Classified(msgspec.Struct):
    """What the labels of one input come to."""

    index: int
    label: str
    probs: list[float]
    num_classes: int


class ClassifyList(msgspec.Struct):
    """Classes, in the order of the inputs."""

    id: str
    object: Literal["list"]
    created: int
    model: str
    data: list[Classified]
    usage: Usage


class VllmScoring:
    """The dialect's operations that score."""

    def __init__(self, parts: Parts) -> None:
        self.error_shape = ERRORS
        self._parts = parts
        second = BulkInputs("text_2", max_inputs=parts.max_inputs)
        inputs = BulkInputs("input", max_inputs=parts.max_inputs)
        self._score = parts.reader(ScoreBody, "text_2", second.reading(Texts | None))
        self._rerank = parts.reader(VllmRerankBody, "documents", documents_reader("documents", parts.max_inputs))
        self._classify = parts.reader(ClassifyBody, "input", inputs.reading(Texts | None))

    def operations(self) -> dict[str, BodyOperation]:
        """What the root decides about."""
        return {"vllm.rerank": self._operation(self.rerank, "Rank documents", VllmRerankBody, RerankAnswer)}

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL that mean the same at the root."""
        score = self._operation(self.score, "Score pairs of texts", ScoreBody, ScoreList)
        classify = self._operation(self.classify, "Classify texts", ClassifyBody, ClassifyList)
        return [
            self._resource("/score", score),
            self._resource("/v1/score", score),
            self._resource("/classify", classify),
        ]

    def own_resources(self) -> list[Resource]:
        """Paths under the dialect's base URL that at the root are others', or shared."""
        rerank = self.operations()["vllm.rerank"]
        return [self._resource(path, rerank) for path in ("/rerank", "/v1/rerank", "/v2/rerank")]

    async def score(self, call: Call, raw: bytes) -> Reply:
        body: ScoreBody = await self._score.read(raw)
        (query_field, queries), (document_field, documents) = _two_sides(body)
        request = ScoringRequest(
            queries=_listed(queries),
            documents=_listed(documents),
            query_field=query_field,
            document_field=document_field,
            model=body.model,
            scale=Scale.RAW if body.is_raw else Scale.MODEL,
            prompt=body.instruction,
            **body.cutting(),
        )
        answer = await self._parts.scoring.score(request)
        data = [
            {"index": index, "object": "score", "score": score} for index, score in enumerate(answer.scores.tolist())
        ]
        return Reply(
            200, _list("score", call, answer.model, data, answer.num_tokens), truncation_headers(answer.truncated_from)
        )

    async def rerank(self, call: Call, raw: bytes) -> Reply:
        body: VllmRerankBody = await self._rerank.read(raw)
        texts = texts_of(body.documents)
        request = ScoringRequest(
            queries=(required(body.query, "query"),),
            documents=texts,
            model=body.model,
            scale=Scale.RAW if body.is_raw else Scale.MODEL,
            prompt=body.instruction,
            document_tokens=_unless_zero(body.max_tokens_per_doc, "max_tokens_per_doc"),
            **body.cutting(),
        )
        top_n = _unless_zero(body.top_n, "top_n")
        answer = await self._parts.scoring.score(request)
        results: list[dict[str, Any]] = [
            {"index": index, "relevance_score": score} for index, score in best(answer, top_n)
        ]
        if body.return_documents is not False:
            for result in results:
                result["document"] = {"text": texts[result["index"]]}
        content = {
            "id": f"rerank-{call.request_id.decode()}",
            "model": answer.model,
            "usage": _usage(answer.num_tokens),
            "results": results,
        }
        return Reply(200, orjson.dumps(content), truncation_headers(answer.truncated_from))

    async def classify(self, call: Call, raw: bytes) -> Reply:
        body: ClassifyBody = await self._classify.read(raw)
        request = ClassificationRequest(
            inputs=[(text,) for text in _listed(required(body.input, "input"))],
            field="input",
            is_alone=isinstance(body.input, str),
            model=body.model,
            activation=Activation.IDENTITY if body.is_raw else None,
            add_special_tokens=body.add_special_tokens is not False,
            **body.cutting(),
        )
        answer = await self._parts.scoring.classify(request)
        likeliest = answer.scores.argmax(axis=1).tolist()
        data = [
            {"index": index, "label": answer.labels[label], "probs": probs, "num_classes": len(answer.labels)}
            for index, (label, probs) in enumerate(zip(likeliest, answer.scores.tolist(), strict=True))
        ]
        return Reply(
            200,
            _list("classify", call, answer.model, data, answer.num_tokens),
            truncation_headers(answer.truncated_from),
        )

    def _operation(self, handle: Any, summary: str, body: type[msgspec.Struct], answer: Any) -> BodyOperation:
        return BodyOperation(handle=handle, summary=summary, body=body, answer=answer, error_shape=self.error_shape)

    def _resource(self, path: str, operation: BodyOperation) -> Resource:
        return Resource(
            path=path, operations={"POST": operation.operation(self._parts.intake)}, error_shape=self.error_shape
        )


def _two_sides(body: ScoreBody) -> tuple[tuple[str, Texts], tuple[str, Texts]]:
    """Both sides with their names. InvalidInput unless they are given, and one way only."""
    by_number = {"text_1": body.text_1, "text_2": body.text_2}
    by_role = {"queries": body.queries, "documents": body.documents}
    given = [names for names in (by_number, by_role) if any(value is not None for value in names.values())]
    if len(given) > 1:
        raise InvalidInput("text_1 and text_2, or queries and documents, should be there, not both", param="text_1")
    names = given[0] if given else by_number
    first, second = ((name, required(value, name)) for name, value in names.items())
    return first, second


def _listed(texts: Texts) -> list[str]:
    return [texts] if isinstance(texts, str) else texts


def _unless_zero(value: int | None, name: str) -> int | None:
    """None for 0, which stands for no bound."""
    if value is not None and value < 0:
        raise InvalidInput(f"{name} should be at least 0, not {value}", param=name)
    return value or None


def _usage(num_tokens: int) -> dict[str, int]:
    return {"prompt_tokens": num_tokens, "total_tokens": num_tokens}


def _list(kind: str, call: Call, model: str, data: list[dict[str, Any]], num_tokens: int) -> bytes:
    return orjson.dumps(
        {
            "id": f"{kind}-{call.request_id.decode()}",
            "object": "list",
            "created": int(time.time()),
            "model": model,
            "data": data,
            "usage": _usage(num_tokens),
        }
    )
