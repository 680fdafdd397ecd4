"""Rosebed's `Embedder`: text to vectors in this process, tokenization included."""

from typing import TYPE_CHECKING

from rosebed.bench.requests import BenchRequest
from rosebed.bench.targets.base import TargetInfo, TargetSettings
from rosebed.bench.targets.in_process import CallConnection, Result, ResultReader
from rosebed.core.extras import needs_extra

if TYPE_CHECKING:
    from rosebed.embedder import Embedder


class EmbedderTarget(ResultReader):
    """One embedder, loaded by `describe`."""

    def __init__(self, settings: TargetSettings) -> None:
        self._settings = settings
        self._embedder: Embedder | None = None

    @property
    def embedder(self) -> "Embedder":
        assert self._embedder is not None, "describe comes first"
        return self._embedder

    async def describe(self) -> TargetInfo:
        with needs_extra("Embedder", "serve"):
            from rosebed.embedder import Embedder
        settings = self._settings
        self._embedder = Embedder(settings.address.location, overrides=settings.overrides, config=settings.engine)
        info = self._embedder.info
        return TargetInfo(
            server="rosebed Embedder, in process",
            model=info.model,
            takes_ids=False,
            takes_text=True,
            max_length=info.max_length,
            vocab_size=info.vocab_size,
            dtype=info.dtype,
            device=info.device,
        )

    async def count_tokens(self, text: str) -> int:
        with needs_extra("Embedder", "serve"):
            from rosebed.text.tokenizer import TextTokenizer
        return TextTokenizer.load(self.embedder.spec).tokenize([text])[0].num_tokens

    async def connect(self, stand_in: str | None = None) -> CallConnection:  # noqa: ARG002 - there is no wire
        return CallConnection(lambda texts: Result(self.embedder.embed(texts)))

    def encode(self, request: BenchRequest) -> list[str]:
        return list(request.texts)

    async def close(self) -> None:
        if self._embedder is not None:
            self._embedder.close()
