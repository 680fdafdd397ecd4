"""The sentence-transformers library in this process, as its users call it: `encode`, with its own defaults."""

import os
from importlib.metadata import version
from typing import TYPE_CHECKING

import numpy as np

from rosebed.bench.requests import BenchRequest
from rosebed.bench.targets.base import TargetInfo, TargetSettings
from rosebed.bench.targets.in_process import InProcessTarget, Result
from rosebed.core.errors import ConfigError
from rosebed.core.extras import needs_extra

if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


class SentenceTransformersTarget(InProcessTarget):
    """One model, loaded by `describe`. Of the engine's settings, device, dtype and threads hold here too."""

    def __init__(self, settings: TargetSettings) -> None:
        super().__init__()
        self._settings = settings
        self._model: SentenceTransformer | None = None

    @property
    def model(self) -> "SentenceTransformer":
        assert self._model is not None, "describe comes first"
        return self._model

    async def describe(self) -> TargetInfo:
        engine = self._settings.engine
        if engine.num_threads is not None:
            # NOTE: read when torch is first imported, which in a client process nothing has done yet.
            os.environ["OMP_NUM_THREADS"] = str(engine.num_threads)
        with needs_extra("the target st:MODEL", "bench"):
            from sentence_transformers import SentenceTransformer
        location = self._settings.address.location
        try:
            self._model = SentenceTransformer(
                location,
                device=None if engine.device == "auto" else engine.device,
                model_kwargs={} if engine.dtype == "auto" else {"dtype": engine.dtype},
            )
        except (OSError, ValueError) as error:
            raise ConfigError(f"--target st:{location}: {error}") from error
        return TargetInfo(
            server=f"sentence-transformers {version('sentence-transformers')}, in process",
            model=location,
            takes_ids=False,
            takes_text=True,
            max_length=self._model.max_seq_length,
            dtype=str(next(self._model.parameters()).dtype).removeprefix("torch."),
            device=str(self._model.device),
        )

    async def count_tokens(self, text: str) -> int:
        return len(self.model.tokenizer(text)["input_ids"])

    def call(self, payload: list[str]) -> Result:
        return Result(np.asarray(self.model.encode(payload, show_progress_bar=False), np.float32))

    def encode(self, request: BenchRequest) -> list[str]:
        return list(request.texts)

    async def close(self) -> None:
        self._model = None
