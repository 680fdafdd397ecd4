"""Every path there is: each dialect under its own prefix, where nothing is decided, and all of them at the root."""

from collections.abc import Iterable
from dataclasses import replace

from rosebed.core.errors import RouteNotFound
from rosebed.ivy.dialects import cohere, infinity, jina, openai, perplexity, tei, vllm, voyage
from rosebed.ivy.dialects.base import BodyOperation, Parts
from rosebed.ivy.dialects.cohere_rerank import CohereRerank
from rosebed.ivy.dialects.deciding import ROOT, Row
from rosebed.ivy.dialects.infinity_scoring import InfinityScoring
from rosebed.ivy.dialects.jina_rerank import JinaRerank
from rosebed.ivy.dialects.root import decided_resources
from rosebed.ivy.dialects.tei_scoring import TeiScoring
from rosebed.ivy.dialects.tei_tokens import TeiTokens
from rosebed.ivy.dialects.vllm_scoring import VllmScoring
from rosebed.ivy.dialects.voyage_rerank import VoyageRerank
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import ANY_METHOD, Operation, Resource
from rosebed.ivy.http.faults import ErrorShape
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.http.router import path_of
from rosebed.ivy.status import Status

PREFIXES = {
    "/openai/v1": openai.ERRORS,
    "/perplexity": perplexity.ERRORS,
    "/voyage/v1": voyage.ERRORS,
    "/jina/v1": jina.ERRORS,
    "/cohere": cohere.ERRORS,
    "/tei": tei.ERRORS,
    "/vllm": vllm.ERRORS,
    "/infinity": infinity.ERRORS,
}
"""Each dialect's base URL, and how its errors are worded."""


class Routes:
    """The paths of one worker."""

    def __init__(self, parts: Parts, status: Status) -> None:
        self._parts = parts
        self._status = status
        self._openai = openai.OpenAI(parts)
        self._perplexity = perplexity.Perplexity(parts)
        self._voyage = voyage.Voyage(parts)
        self._jina = jina.Jina(parts)
        self._cohere = cohere.Cohere(parts)
        self._tei = tei.Tei(parts)
        self._tei_tokens = TeiTokens(parts)
        self._vllm = vllm.Vllm(parts)
        self._infinity = infinity.Infinity(parts)
        self._voyage_rerank = VoyageRerank(parts)
        self._jina_rerank = JinaRerank(parts)
        self._cohere_rerank = CohereRerank(parts)
        self._tei_scoring = TeiScoring(parts, self._tei)
        self._vllm_scoring = VllmScoring(parts)
        self._infinity_scoring = InfinityScoring(parts)

    def resources(self) -> list[Resource]:
        """All of them, the most asked first, what has no path of its own last."""
        root, own = self._root(), self._prefixed()
        missing = [_nothing(f"{prefix}/{{path:path}}", shape) for prefix, shape in PREFIXES.items()]
        return [*_merged(root), *_merged(own), *missing]

    def unmatched(self) -> Resource:
        """What answers every other path."""
        return _nothing("unmatched", openai.ERRORS)

    def _operations(self) -> dict[str, BodyOperation]:
        """What the root decides about."""
        embedding = (self._openai, self._perplexity, self._voyage, self._jina, self._tei, self._tei_tokens, self._vllm)
        dialects = (*embedding, self._voyage_rerank, self._tei_scoring, self._vllm_scoring)
        return {name: operation for dialect in dialects for name, operation in dialect.operations().items()}

    def _decided(self, row: Row) -> list[Resource]:
        return decided_resources(row, self._operations(), intake=self._parts.intake, workload=self._parts.workload)

    def _root(self) -> list[Resource]:
        models = self._openai.models(openai.ERRORS)
        return [
            *(resource for row in ROOT for resource in self._decided(row)),
            *_under("/v1", models),
            *models,
            *self._tei.resources(),
            *self._tei_tokens.resources(),
            *self._tei_scoring.resources(),
            *self._vllm.resources(),
            *self._vllm_scoring.resources(),
            *self._cohere.resources(),
            *self._cohere_rerank.resources(),
            *self._status.resources(openai.ERRORS),
        ]

    def _prefixed(self) -> list[Resource]:
        health = self._status.health_resources
        return [
            *_under("/openai/v1", self._openai.resources()),
            *_under("/perplexity", self._perplexity.resources()),
            *_under("/voyage/v1", [*self._voyage.resources(), *self._voyage_rerank.resources()]),
            *_under("/jina/v1", [*self._jina.resources(), *self._jina_rerank.resources()]),
            *_under("/cohere", self._cohere_resources()),
            *_under("/tei", self._tei_resources()),
            *_under("/tei", health(("", "/", "/health", "/ping"), tei.ERRORS)),
            *_under("/vllm", self._vllm_resources()),
            *_under("/vllm", health(("/health", "/ping"), vllm.ERRORS)),
            *_under("/infinity", [*self._infinity.resources(), *self._infinity_scoring.resources()]),
            *_under("/infinity", health(("/health",), infinity.ERRORS)),
        ]

    def _cohere_resources(self) -> list[Resource]:
        rerank = self._cohere_rerank
        return [*self._cohere.resources(), *rerank.resources(), *rerank.own_resources()]

    def _tei_resources(self) -> list[Resource]:
        own_root = next(row for row in ROOT if "/invocations" in row.paths)
        return [
            *self._tei.resources(),
            *self._tei.openai_resources(),
            *self._tei_tokens.resources(),
            *self._tei_tokens.decided_resources(),
            *self._tei_scoring.resources(),
            *self._tei_scoring.own_resources(),
            # NOTE: huggingface_hub posts to the base URL itself.
            *self._decided(replace(own_root, paths=("", *own_root.paths))),
        ]

    def _vllm_resources(self) -> list[Resource]:
        return [
            *self._vllm.resources(),
            *self._vllm.own_resources(),
            *self._vllm_scoring.resources(),
            *self._vllm_scoring.own_resources(),
            *_under("/v1", self._openai.models(vllm.ERRORS)),
            self._cohere.embed_resource(vllm.ERRORS),
        ]


def _under(prefix: str, resources: Iterable[Resource]) -> list[Resource]:
    return [replace(resource, path=prefix + resource.path) for resource in resources]


def _merged(resources: Iterable[Resource]) -> list[Resource]:
    """One resource for each path, which answers all the methods that those of its path do."""
    by_path: dict[str, Resource] = {}
    for resource in resources:
        known = by_path.get(resource.path, resource)
        operations = {**known.operations, **resource.operations}
        by_path[resource.path] = replace(known, operations=operations)
    return list(by_path.values())


def _nothing(path: str, error_shape: ErrorShape) -> Resource:
    """A path that there is not."""
    operation = Operation(handler=_not_found, summary="Nothing", is_open=True)
    return Resource(path=path, operations={ANY_METHOD: operation}, error_shape=error_shape)


async def _not_found(call: Call) -> Reply:
    raise RouteNotFound(f"there is nothing at {path_of(call.target)}")
