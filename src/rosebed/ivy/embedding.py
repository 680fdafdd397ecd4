"""The walk of an embeddings request: model, tokens, sequences, replicas, answer. Knows no dialect and no HTTP."""

from functools import partial

from rosebed.core.errors import InvalidInput
from rosebed.ivy.directory import ModelDirectory
from rosebed.ivy.model import ServedModel
from rosebed.ivy.request import EmbeddingsAnswer, EmbeddingsRequest
from rosebed.ivy.workload import Workload
from rosebed.text.tokenizer import TokenizedInput, TokenizeOptions

MAX_INLINE_CHARACTERS = 2048
"""More text than this is tokenized off the event loop: about a millisecond's worth, well above a thread's hand-over."""
MAX_INLINE_TOKEN_IDS = 16_384
"""The same for ids that only need checking."""


class EmbeddingService:
    """Texts in, vectors out. One per worker."""

    def __init__(self, directory: ModelDirectory, workload: Workload, *, max_inputs: int) -> None:
        self._directory = directory
        self._max_inputs = max_inputs
        self._workload = workload

    async def embed(self, request: EmbeddingsRequest) -> EmbeddingsAnswer:
        """The vectors of all inputs, or the error of the first that failed."""
        backend = await self._directory.connected(request.model)
        model = backend.model
        self._check_count(request.num_inputs)
        model.check(request)
        tokenized = await self._tokenize(model, request)
        rows = await backend.balancer.embed(model.sequences(tokenized, request), request.lane)
        answer = EmbeddingsAnswer(
            vectors=[spans[0] for spans in rows],
            model=request.model or model.names[0],
            num_tokens=sum(item.num_tokens for item in tokenized),
            truncated_from={i: item.num_tokens_before for i, item in enumerate(tokenized) if item.num_tokens_before},
        )
        backend.count("inputs", len(rows))
        backend.count("tokens", answer.num_tokens)
        backend.count("truncated_inputs", len(answer.truncated_from))
        return answer

    def _check_count(self, num_inputs: int) -> None:
        if num_inputs == 0:
            raise InvalidInput("input should hold at least one text or token list", param="input")
        if num_inputs > self._max_inputs:
            raise InvalidInput(
                f"input holds {num_inputs} inputs, over the limit of {self._max_inputs} (--max-inputs)", param="input"
            )

    async def _tokenize(self, model: ServedModel, request: EmbeddingsRequest) -> list[TokenizedInput]:
        options = model.tokenize_options(request, auto_truncate=model.auto_truncate)
        work = partial(model.tokenize, request, options)
        size = _size(request, options)
        if size <= (MAX_INLINE_TOKEN_IDS if request.token_ids else MAX_INLINE_CHARACTERS):
            return work()
        return await self._workload.run(size, work)


def _size(request: EmbeddingsRequest, options: TokenizeOptions) -> int:
    """Ids or characters to go through."""
    if request.token_ids:
        return sum(map(len, request.token_ids))
    return sum(map(len, request.texts)) + len(request.texts) * len(options.prompt)
