"""Infinity's ranking and classifying: documents given back as plain strings, an id and a time of its own.

Source: the OpenAPI document of infinity-emb.
"""

import time
from typing import Annotated, Any, Literal

import msgspec
import orjson

from rosebed.core.activations import Activation
from rosebed.core.scores import Scale
from rosebed.ivy.dialects.base import BodyOperation, Parts
from rosebed.ivy.dialects.infinity import ERRORS
from rosebed.ivy.dialects.openai import Usage, says
from rosebed.ivy.dialects.ranking import best, required
from rosebed.ivy.dialects.tei_scoring import Prediction
from rosebed.ivy.dialects.writing import truncation_headers
from rosebed.ivy.http.bulk import BulkInputs
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Resource
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.scoring_request import ClassificationRequest, ScoringRequest

_MODEL = Annotated[str | None, says("A served name; without one, the only model.")]
_RAW_SCORES = Annotated[bool | None, says("Logits instead of scores.")]


class InfinityRerankBody(msgspec.Struct):
    """Documents to rank by how well they fit a query."""

    query: Annotated[str | None, says("The query.")] = None
    documents: Annotated[list[str] | None, says("The documents.")] = None
    model: _MODEL = None
    return_documents: Annotated[bool | None, says("Give each document beside its score.")] = None
    raw_scores: _RAW_SCORES = None
    top_n: Annotated[int | None, says("How many of the best to give; all by default.")] = None


class InfinityRank(msgspec.Struct):
    """One document in its place."""

    relevance_score: float
    index: int
    document: str | None


class InfinityRanks(msgspec.Struct):
    """Documents, the best first."""

    object: Literal["rerank"]
    results: list[InfinityRank]
    model: str
    usage: Usage
    id: str
    created: int


class InfinityClassifyBody(msgspec.Struct):
    """Texts to classify."""

    input: Annotated[list[str] | None, says("The texts.")] = None
    model: _MODEL = None
    raw_scores: _RAW_SCORES = None


class InfinityClasses(msgspec.Struct):
    """What the labels of each text come to, the likeliest first."""

    object: Literal["classify"]
    data: list[list[Prediction]]
    model: str
    usage: Usage
    id: str
    created: int


class InfinityScoring:
    """The dialect's operations that score."""

    def __init__(self, parts: Parts) -> None:
        self.error_shape = ERRORS
        self._parts = parts
        documents = BulkInputs("documents", max_inputs=parts.max_inputs)
        inputs = BulkInputs("input", max_inputs=parts.max_inputs)
        self._rerank = parts.reader(InfinityRerankBody, "documents", documents.reading(list[str] | None))
        self._classify = parts.reader(InfinityClassifyBody, "input", inputs.reading(list[str] | None))

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL."""
        return [
            self._resource("/rerank", self.rerank, "Rank documents", InfinityRerankBody, InfinityRanks),
            self._resource("/classify", self.classify, "Classify texts", InfinityClassifyBody, InfinityClasses),
        ]

    def _resource(self, path: str, handle: Any, summary: str, body: type[msgspec.Struct], answer: Any) -> Resource:
        operation = BodyOperation(
            handle=handle, summary=summary, body=body, answer=answer, error_shape=self.error_shape
        )
        return Resource(
            path=path, operations={"POST": operation.operation(self._parts.intake)}, error_shape=self.error_shape
        )

    async def rerank(self, call: Call, raw: bytes) -> Reply:
        body: InfinityRerankBody = await self._rerank.read(raw)
        texts = required(body.documents, "documents")
        request = ScoringRequest(
            queries=(required(body.query, "query"),),
            documents=texts,
            model=body.model,
            scale=Scale.RAW if body.raw_scores else Scale.MODEL,
        )
        answer = await self._parts.scoring.score(request)
        results = [
            {"relevance_score": score, "index": index, "document": texts[index] if body.return_documents else None}
            for index, score in best(answer, body.top_n)
        ]
        content = {"object": "rerank", "results": results, **_rest(call, answer.model, answer.num_tokens)}
        return Reply(200, orjson.dumps(content), truncation_headers(answer.truncated_from))

    async def classify(self, call: Call, raw: bytes) -> Reply:
        body: InfinityClassifyBody = await self._classify.read(raw)
        request = ClassificationRequest(
            inputs=[(text,) for text in required(body.input, "input")],
            field="input",
            model=body.model,
            activation=Activation.IDENTITY if body.raw_scores else None,
        )
        answer = await self._parts.scoring.classify(request)
        content = {
            "object": "classify",
            "data": [answer.predictions(index) for index in range(len(answer.scores))],
            **_rest(call, answer.model, answer.num_tokens),
        }
        return Reply(200, orjson.dumps(content), truncation_headers(answer.truncated_from))


def _rest(call: Call, model: str, num_tokens: int) -> dict[str, Any]:
    return {
        "model": model,
        "usage": {"prompt_tokens": num_tokens, "total_tokens": num_tokens},
        "id": f"infinity-{call.request_id.decode()}",
        "created": int(time.time()),
    }
