"""The walk of an embeddings request: model, tokens, sequences, replicas, answer. Knows no dialect and no HTTP."""

import time
from collections.abc import Awaitable
from functools import partial

from rosebed.core.errors import InvalidInput, RosebedError
from rosebed.core.types import Lane, Sequence
from rosebed.ivy.backend import Backend
from rosebed.ivy.directory import ModelDirectory
from rosebed.ivy.model import ServedModel
from rosebed.ivy.request import EmbeddingsAnswer, EmbeddingsRequest, EmptyInput, Timings
from rosebed.ivy.retelling import renumbered
from rosebed.ivy.token_spans import Pieces
from rosebed.ivy.upstream.balancer import JoinedRows
from rosebed.ivy.workload import Workload
from rosebed.text.tokenizer import TokenizedInput, TokenizeOptions

MAX_INLINE_CHARACTERS = 2048
"""More text than this is tokenized off the event loop: about a millisecond's worth, well above a thread's hand-over."""
MAX_INLINE_TOKEN_IDS = 16_384
"""The same for ids that only need checking."""

MAX_CHUNKS = 16_000
"""Of all documents of one request."""


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
        self._check_count(request)
        model.check(request)
        started_ns = time.perf_counter_ns()
        tokenized = await self._tokenize(model, request)
        tokenization_ns = time.perf_counter_ns() - started_ns
        num_tokens = sum([len(item.token_ids) for item in tokenized])
        _check_tokens(num_tokens, request.most_tokens)
        sequences = model.sequences(tokenized, request)
        compute = _compute_each_token if request.each_token else _compute
        joined = await compute(backend, sequences, request.lane)
        answer = EmbeddingsAnswer(
            rows=joined.rows,
            model=request.model or model.names[0],
            architecture=model.spec.architecture,
            int8_ranges=model.int8_ranges,
            num_tokens=num_tokens,
            truncated_from={i: item.num_tokens_before for i, item in enumerate(tokenized) if item.num_tokens_before},
            timings=Timings(tokenization_ns=tokenization_ns, queue_ns=joined.queue_ns, compute_ns=joined.compute_ns),
        )
        backend.count("inputs", len(tokenized))
        backend.count("tokens", answer.num_tokens)
        if answer.truncated_from:
            backend.count("truncated_inputs", len(answer.truncated_from))
        return answer

    def _check_count(self, request: EmbeddingsRequest) -> None:
        num_inputs = request.num_inputs
        if num_inputs == 0:
            raise EmptyInput("input should hold at least one item", param="input")
        if num_inputs > self._max_inputs:
            raise InvalidInput(
                f"input holds {num_inputs} inputs, over the limit of {self._max_inputs} (--max-inputs)",
                param="input",
            )
        if request.documents and (num_chunks := sum(map(len, request.documents))) > MAX_CHUNKS:
            raise InvalidInput(f"input holds {num_chunks} chunks, over the limit of {MAX_CHUNKS}", param="input")

    async def _tokenize(self, model: ServedModel, request: EmbeddingsRequest) -> list[TokenizedInput]:
        options = model.tokenize_options(request, auto_truncate=model.auto_truncate)
        size = _size(request, options)
        if size <= (MAX_INLINE_TOKEN_IDS if request.token_ids else MAX_INLINE_CHARACTERS):
            return model.tokenize(request, options)
        return await self._workload.run(size, partial(model.tokenize, request, options))


def _compute(backend: Backend, sequences: list[Sequence], lane: Lane) -> Awaitable[JoinedRows]:
    return backend.balancer.compute(sequences, lane)


async def _compute_each_token(backend: Backend, sequences: list[Sequence], lane: Lane) -> JoinedRows:
    pieces = Pieces.cut(sequences, backend.engine.limits.spans)
    try:
        joined = await backend.balancer.compute(pieces.sequences, lane)
    except RosebedError as error:
        raise renumbered(error, pieces.owners) from error
    return joined._replace(rows=pieces.join(joined.rows))


def _check_tokens(num_tokens: int, most_tokens: int | None) -> None:
    if most_tokens is not None and num_tokens > most_tokens:
        raise InvalidInput(f"input holds {num_tokens} tokens in all, over the limit of {most_tokens}", param="input")


def _size(request: EmbeddingsRequest, options: TokenizeOptions) -> int:
    """Ids or characters to go through."""
    if request.documents:
        return sum(len(chunk) for chunks in request.documents for chunk in chunks)
    if request.token_ids:
        return sum(map(len, request.token_ids))
    return sum(map(len, request.texts)) + len(request.texts) * len(options.prompt)
