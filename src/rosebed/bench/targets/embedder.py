"""Rosebed's `Embedder`: text to vectors in this process, tokenization included."""

from functools import cached_property
from typing import TYPE_CHECKING

from rosebed.bench.requests import BenchRequest
from rosebed.bench.targets.base import TargetInfo, TargetSettings
from rosebed.bench.targets.in_process import InProcessTarget, Result
from rosebed.core.extras import needs_extra

if TYPE_CHECKING:
    from rosebed.embedder import Embedder
    from rosebed.text.tokenizer import TextTokenizer


class EmbedderTarget(InProcessTarget):
    """One embedder, loaded by `describe`."""

    def __init__(self, settings: TargetSettings) -> None:
        super().__init__()
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
        return self._tokenizer.tokenize([text])[0].num_tokens

    @cached_property
    def _tokenizer(self) -> "TextTokenizer":
        """The embedder keeps its own to itself."""
        from rosebed.text.tokenizer import TextTokenizer

        return TextTokenizer.load(self.embedder.spec)

    def call(self, payload: list[str]) -> Result:
        return Result(self.embedder.embed(payload))

    def encode(self, request: BenchRequest) -> list[str]:
        return list(request.texts)

    async def close(self) -> None:
        if self._embedder is not None:
            self._embedder.close()
