"""OpenAI's embeddings route, as Rosebed, vLLM, TEI, Infinity and SGLang serve it: base64 answers."""

from typing import Any

import numpy as np

from rosebed.bench.requests import BenchRequest
from rosebed.bench.targets.base import TargetInfo, TargetSettings
from rosebed.bench.targets.http import HttpTarget, decoded
from rosebed.bench.targets.http_answer import HttpAnswer
from rosebed.client.messages import parse_embeddings
from rosebed.core.errors import ServerError
from rosebed.core.types import Float32Array, Lane

ROSEBED = "rosebed"
"""What Rosebed's list of models names as their owner."""


class OpenAITarget(HttpTarget):
    """One server. A URL without a path gets `/v1`; one with a path is the base URL that OpenAI's client is given."""

    def __init__(self, settings: TargetSettings) -> None:
        super().__init__(settings)
        self._prefix = "" if self._url.path else "/v1"
        self._model = settings.model_name or ""
        self._has_lanes = False

    async def describe(self) -> TargetInfo:
        model = await self._listed_model()
        self._model = str(model.get("id", self._model))
        owner = str(model.get("owned_by") or "unknown server")
        self._has_lanes = owner == ROSEBED
        return TargetInfo(
            server=f"{owner} {await self._version()}".strip(),
            model=self._model,
            takes_ids=True,
            takes_text=True,
            max_length=_positive(model.get("max_model_len")),
            has_lanes=self._has_lanes,
        )

    async def _listed_model(self) -> dict[str, Any]:
        """What the server says of the model to ask for: nothing, where it does not list its models."""
        answer = await self.ask(f"{self._prefix}/models")
        if answer.status == 404:
            return {}
        self.check(answer)
        listed = decoded(answer)
        try:
            models = {str(model["id"]): model for model in listed["data"]}
        except (TypeError, KeyError) as error:
            raise ServerError(f"{self._url.geturl()} does not list its models: {error!r}") from error
        name = self._model or next(iter(models), "")
        if name not in models:
            raise ServerError(f"{self._url.geturl()} serves {', '.join(models) or 'no model'}, not {name!r}")
        return models[name]

    async def _version(self) -> str:
        """vLLM's and SGLang's answer to GET /version; empty where there is none."""
        answer = await self.ask("/version")
        if answer.status != 200:
            return ""
        version = decoded(answer)
        return str(version.get("version", "")) if isinstance(version, dict) else ""

    async def count_tokens(self, text: str) -> int:
        answer = await self.ask_json(f"{self._prefix}/embeddings", self._body([text], Lane.ONLINE))
        try:
            return int(answer["usage"]["prompt_tokens"])
        except (TypeError, KeyError) as error:
            raise ServerError(f"the answer has no usage.prompt_tokens: {error!r}") from error

    def encode(self, request: BenchRequest) -> bytes:
        inputs = list(request.texts) if request.texts else [ids.tolist() for ids in request.token_ids]
        return self.post(f"{self._prefix}/embeddings", self._body(inputs, request.shape.lane))

    def _body(self, inputs: list[Any], lane: Lane) -> dict[str, Any]:
        body = {"model": self._model, "input": inputs, "encoding_format": "base64"}
        return {**body, "priority": 1} if self._has_lanes and lane is Lane.BULK else body

    def vectors(self, answer: HttpAnswer) -> Float32Array:
        self.check(answer)
        return parse_embeddings(answer.body).astype(np.float32, copy=False)


def _positive(value: object) -> int | None:
    return value if isinstance(value, int) and value > 0 else None
