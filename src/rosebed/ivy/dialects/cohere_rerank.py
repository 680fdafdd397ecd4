"""Cohere's ranking, v2 and v1: scores always between 0 and 1, and documents cut to so many tokens.

Source: docs.cohere.com/reference/rerank, and the types of its SDK.
"""

from functools import partial
from typing import Annotated, Any, Literal

import msgspec
import orjson

from rosebed.core.errors import InvalidInput
from rosebed.core.scores import Scale
from rosebed.core.types import Lane
from rosebed.ivy.dialects.base import BodyOperation, Parts
from rosebed.ivy.dialects.cohere import ERRORS
from rosebed.ivy.dialects.openai import says
from rosebed.ivy.dialects.ranking import Documents, TextObject, best, documents_reader, required, texts_of
from rosebed.ivy.dialects.writing import truncation_headers
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Resource
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.scoring_request import ScoringRequest

TOKENS_PER_DOCUMENT = 4096
"""What the hosted API cuts documents to."""

Version = Literal["1", "2"]


class CohereRerankBody(msgspec.Struct):
    """Documents to rank by how well they fit a query."""

    query: Annotated[str | None, says("The query.")] = None
    documents: Annotated[Documents | None, says("Texts, or objects with a text.")] = None
    model: Annotated[str | None, says("A served name; without one, the only model.")] = None
    top_n: Annotated[int | None, says("How many of the best to give; all by default.")] = None
    max_tokens_per_doc: Annotated[
        int | None, says("Tokens that each document is cut to, 4096 by default; what is still too long is cut too.")
    ] = None
    return_documents: Annotated[bool | None, says("Give each document beside its score.")] = None
    priority: Annotated[int | None, says("Above 0, the request gives way to others.")] = None


class CohereRank(msgspec.Struct):
    """One document in its place."""

    index: int
    relevance_score: float
    document: TextObject | msgspec.UnsetType = msgspec.UNSET


class SearchUnits(msgspec.Struct):
    """Searches and tokens computed."""

    search_units: int
    input_tokens: int


class RerankVersion(msgspec.Struct):
    """Version of the API."""

    version: Version


class RerankMeta(msgspec.Struct):
    """About the request."""

    api_version: RerankVersion
    billed_units: SearchUnits


class CohereRerankAnswer(msgspec.Struct):
    """Documents, the best first."""

    id: str
    results: list[CohereRank]
    meta: RerankMeta


class CohereRerank:
    """The dialect's operations that rank."""

    def __init__(self, parts: Parts) -> None:
        self.error_shape = ERRORS
        self._parts = parts
        self._reader = parts.reader(CohereRerankBody, "documents", documents_reader("documents", parts.max_inputs))

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL that mean the same at the root."""
        return [self._resource("2")]

    def own_resources(self) -> list[Resource]:
        """Paths under the dialect's base URL that at the root are others'."""
        return [self._resource("1")]

    def _resource(self, version: Version) -> Resource:
        rerank = BodyOperation(
            handle=partial(self.rerank, version),
            summary="Rank documents, cutting those that are too long",
            body=CohereRerankBody,
            answer=CohereRerankAnswer,
            error_shape=self.error_shape,
        )
        return Resource(
            path=f"/v{version}/rerank",
            operations={"POST": rerank.operation(self._parts.intake)},
            error_shape=self.error_shape,
        )

    async def rerank(self, version: Version, call: Call, raw: bytes) -> Reply:
        body: CohereRerankBody = await self._reader.read(raw)
        texts = texts_of(body.documents)
        if body.max_tokens_per_doc is not None and body.max_tokens_per_doc < 1:
            raise InvalidInput(
                f"max_tokens_per_doc should be at least 1, not {body.max_tokens_per_doc}", param="max_tokens_per_doc"
            )
        request = ScoringRequest(
            queries=(required(body.query, "query"),),
            documents=texts,
            model=body.model,
            scale=Scale.UNIT,
            truncate=True,
            document_tokens=body.max_tokens_per_doc or TOKENS_PER_DOCUMENT,
            lane=Lane.BULK if (body.priority or 0) > 0 else Lane.ONLINE,
        )
        answer = await self._parts.scoring.score(request)
        results: list[dict[str, Any]] = [
            {"index": index, "relevance_score": score} for index, score in best(answer, body.top_n)
        ]
        if body.return_documents:
            for result in results:
                result["document"] = {"text": texts[result["index"]]}
        content = {
            "id": call.request_id.decode(),
            "results": results,
            "meta": {
                "api_version": {"version": version},
                "billed_units": {"search_units": 1, "input_tokens": answer.num_tokens},
            },
        }
        return Reply(200, orjson.dumps(content), truncation_headers(answer.truncated_from))
