"""Jina's ranking.

Source: the OpenAPI document of api.jina.ai.
"""

from typing import Annotated, Any, Literal

import msgspec
import orjson

from rosebed.ivy.dialects.base import BodyOperation, Parts
from rosebed.ivy.dialects.jina import ERRORS
from rosebed.ivy.dialects.openai import Usage, says
from rosebed.ivy.dialects.ranking import Documents, TextObject, best, documents_reader, required, text_of, texts_of
from rosebed.ivy.dialects.writing import truncation_headers
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Resource
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.scoring_request import ScoringRequest


class JinaRerankBody(msgspec.Struct):
    """Documents to rank by how well they fit a query."""

    query: Annotated[str | TextObject | None, says("The query: a text, or an object with one.")] = None
    documents: Annotated[Documents | None, says("Texts, or objects with a text.")] = None
    model: Annotated[str | None, says("A served name; without one, the only model.")] = None
    top_n: Annotated[int | None, says("How many of the best to give; all by default.")] = None
    return_documents: Annotated[bool | None, says("False leaves the documents out of the answer.")] = None
    truncate: Annotated[bool | None, says("Whether to cut what is too long; by default as the server is set.")] = None


class JinaRank(msgspec.Struct):
    """One document in its place."""

    index: int
    relevance_score: float
    document: TextObject | msgspec.UnsetType = msgspec.UNSET


class JinaRanks(msgspec.Struct):
    """Documents, the best first."""

    model: str
    object: Literal["list"]
    usage: Usage
    results: list[JinaRank]


class JinaRerank:
    """The dialect's operations that rank."""

    def __init__(self, parts: Parts) -> None:
        self.error_shape = ERRORS
        self._parts = parts
        self._reader = parts.reader(JinaRerankBody, "documents", documents_reader("documents", parts.max_inputs))

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL."""
        rerank = BodyOperation(
            handle=self.rerank,
            summary="Rank documents",
            body=JinaRerankBody,
            answer=JinaRanks,
            error_shape=self.error_shape,
        )
        return [
            Resource(
                path="/rerank",
                operations={"POST": rerank.operation(self._parts.intake)},
                error_shape=self.error_shape,
            )
        ]

    async def rerank(self, _call: Call, raw: bytes) -> Reply:
        body: JinaRerankBody = await self._reader.read(raw)
        texts = texts_of(body.documents)
        request = ScoringRequest(
            queries=(text_of(required(body.query, "query")),),
            documents=texts,
            model=body.model,
            truncate=body.truncate,
        )
        answer = await self._parts.scoring.score(request)
        results: list[dict[str, Any]] = [
            {"index": index, "relevance_score": score} for index, score in best(answer, body.top_n)
        ]
        if body.return_documents is not False:
            for result in results:
                result["document"] = {"text": texts[result["index"]]}
        usage = {"prompt_tokens": answer.num_tokens, "total_tokens": answer.num_tokens}
        content = {"model": answer.model, "object": "list", "usage": usage, "results": results}
        return Reply(200, orjson.dumps(content), truncation_headers(answer.truncated_from))
