"""The native routes of text-embeddings-inference: `/embed`, numbers as JSON."""

from typing import Any

import numpy as np

from rosebed.bench.requests import BenchRequest
from rosebed.bench.targets.base import TargetInfo
from rosebed.bench.targets.http import HttpTarget, decoded
from rosebed.bench.targets.http_answer import HttpAnswer
from rosebed.core.errors import ServerError
from rosebed.core.types import Float32Array


class TeiTarget(HttpTarget):
    """One server. It serves one model, so that none is named."""

    async def describe(self) -> TargetInfo:
        answer = await self.ask("/info")
        info: Any = decoded(answer) if answer.status == 200 else {}
        if not isinstance(info, dict):
            raise ServerError(f"{self._url.geturl()}/info is not an object")
        version = info.get("version")
        return TargetInfo(
            server=f"tei routes, version {version}" if version else "tei routes",
            model=str(info.get("model_id", "unknown")),
            takes_ids=True,
            takes_text=True,
            max_length=info.get("max_input_length"),
            max_inputs=info.get("max_client_batch_size"),
            dtype=info.get("model_dtype"),
        )

    async def count_tokens(self, text: str) -> int:
        try:
            return len((await self.ask_json("/tokenize", {"inputs": text}))[0])
        except (TypeError, KeyError, IndexError) as error:
            raise ServerError(f"the answer of /tokenize is not a list of tokens: {error!r}") from error

    def encode(self, request: BenchRequest) -> bytes:
        inputs = list(request.texts) if request.texts else [ids.tolist() for ids in request.token_ids]
        return self.post("/embed", {"inputs": inputs})

    def vectors(self, answer: HttpAnswer) -> Float32Array:
        self.check(answer)
        return np.array(decoded(answer), np.float32)
