"""Voyage's ranking: scores always between 0 and 1, documents given back as plain strings.

Source: docs.voyageai.com/reference/reranker-api.
"""

from typing import Annotated, Any, Literal

import msgspec
import orjson

from rosebed.core.scores import Scale
from rosebed.ivy.dialects.base import BodyOperation, Parts
from rosebed.ivy.dialects.openai import says
from rosebed.ivy.dialects.ranking import best, required
from rosebed.ivy.dialects.voyage import ERRORS, VoyageUsage
from rosebed.ivy.dialects.writing import truncation_headers
from rosebed.ivy.http.bulk import BulkInputs
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Resource
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.scoring_request import ScoringRequest


class VoyageRerankBody(msgspec.Struct):
    """Documents to rank by how well they fit a query."""

    query: Annotated[str | None, says("The query.")] = None
    documents: Annotated[list[str] | None, says("The documents.")] = None
    model: Annotated[str | None, says("A served name; without one, the only model.")] = None
    top_k: Annotated[int | None, says("How many of the best to give; all by default.")] = None
    return_documents: Annotated[bool | None, says("Give each document beside its score.")] = None
    truncation: Annotated[bool | None, says("Whether to cut what is too long, as by default, or to refuse it.")] = None


class VoyageRank(msgspec.Struct):
    """One document in its place."""

    index: int
    relevance_score: float
    document: str | msgspec.UnsetType = msgspec.UNSET


class VoyageRanks(msgspec.Struct):
    """Documents, the best first."""

    object: Literal["list"]
    data: list[VoyageRank]
    model: str
    usage: VoyageUsage


class VoyageRerank:
    """The dialect's operations that rank."""

    def __init__(self, parts: Parts) -> None:
        self.error_shape = ERRORS
        self._parts = parts
        documents = BulkInputs("documents", max_inputs=parts.max_inputs)
        self._reader = parts.reader(VoyageRerankBody, "documents", documents.reading(list[str] | None))

    def operations(self) -> dict[str, BodyOperation]:
        """What the root decides about."""
        return {
            "voyage.rerank": BodyOperation(
                handle=self.rerank,
                summary="Rank documents, cutting those that are too long",
                body=VoyageRerankBody,
                answer=VoyageRanks,
                error_shape=self.error_shape,
            )
        }

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL."""
        rerank = self.operations()["voyage.rerank"].operation(self._parts.intake)
        return [Resource(path="/rerank", operations={"POST": rerank}, error_shape=self.error_shape)]

    async def rerank(self, _call: Call, raw: bytes) -> Reply:
        body: VoyageRerankBody = await self._reader.read(raw)
        texts = required(body.documents, "documents")
        request = ScoringRequest(
            queries=(required(body.query, "query"),),
            documents=texts,
            model=body.model,
            scale=Scale.UNIT,
            truncate=body.truncation is not False,
        )
        answer = await self._parts.scoring.score(request)
        data: list[dict[str, Any]] = [
            {"relevance_score": score, "index": index} for index, score in best(answer, body.top_k, "top_k")
        ]
        if body.return_documents:
            for item in data:
                item["document"] = texts[item["index"]]
        usage = {"total_tokens": answer.num_tokens}
        content = {"object": "list", "data": data, "model": answer.model, "usage": usage}
        return Reply(200, orjson.dumps(content), truncation_headers(answer.truncated_from))
