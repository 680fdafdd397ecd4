"""The walk of a request for scores: model, pairs, tokens, replicas, answer. Knows no dialect and no HTTP."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from rosebed.core.activations import Activation, activate
from rosebed.core.errors import InvalidInput, WrongModelKind
from rosebed.core.retelling import naming
from rosebed.core.scorer import ScorerKind, ScorerSpec
from rosebed.core.scores import Scale, check_one_label, cosines_of, scores_of
from rosebed.core.types import Float32Array, Lane
from rosebed.core.types import Sequence as TokenSequence
from rosebed.ivy.backend import Backend
from rosebed.ivy.directory import ModelDirectory
from rosebed.ivy.embedding import MAX_INLINE_CHARACTERS
from rosebed.ivy.model import ServedModel
from rosebed.ivy.pairs import Distinct, logit_sequences, same_tokens, tokenize_each, tokenize_mixed, unit_sequences
from rosebed.ivy.request import EmptyInput, Timings
from rosebed.ivy.scoring_request import ClassificationAnswer, ClassificationRequest, ScoringAnswer, ScoringRequest
from rosebed.ivy.workload import Workload
from rosebed.text.prompts import resolve_prompt
from rosebed.text.tokenizer import TokenizedInput, TokenizeOptions


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class _Computed:
    """What became of some inputs."""

    rows: Float32Array
    """float32[num_inputs, dim]"""
    num_tokens: int
    lengths_before: list[int]
    """Tokens that each had before it was cut; 0 for those that were not."""
    timings: Timings


class ScoringService:
    """Pairs in, scores out; texts in, labels out. One per worker."""

    def __init__(self, directory: ModelDirectory, workload: Workload, *, max_inputs: int) -> None:
        self._directory = directory
        self._workload = workload
        self._max_inputs = max_inputs

    async def find(self, name: str | None) -> ServedModel:
        """The model called `name`, or the only one; waits for the first replica. Raises as `ModelDirectory.find`."""
        return (await self._directory.connected(name)).model

    async def score(self, request: ScoringRequest) -> ScoringAnswer:
        """The score of each pair: by a model that scores, else by the cosine of both texts' vectors.

        InvalidInput, ContextLengthExceeded and what else befalls one input name it as the caller does. WrongModelKind
        if the model has several labels, or embeds where that is not wanted.
        """
        backend = await self._directory.connected(request.model)
        self._check(request)
        scorer = backend.model.spec.scorer
        if scorer is not None:
            check_one_label(scorer)
            answer = await self._score_together(backend, scorer, request)
        elif request.only_scorers:
            raise WrongModelKind("this model embeds texts, and has no head that scores pairs")
        else:
            answer = await self._score_apart(backend, request)
        backend.count("truncated_inputs", len(answer.truncated_from))
        return answer

    async def classify(self, request: ClassificationRequest) -> ClassificationAnswer:
        """What the labels of each input come to. Raises as `score` does."""
        backend = await self._directory.connected(request.model)
        model = backend.model
        self._check_count(len(request.inputs), request.field)
        scorer = model.spec.scorer
        if scorer is None:
            raise WrongModelKind("this model embeds texts, and has no labels")
        single = next((index for index, texts in enumerate(request.inputs) if len(texts) == 1), None)
        if scorer.kind is ScorerKind.YES_NO and single is not None:
            raise WrongModelKind(f"this model judges pairs, but {request.name(single)} is one text")
        options = replace(_options(model, request), add_special_tokens=request.add_special_tokens)
        with naming(request.name):
            work = partial(tokenize_mixed, model.tokenizer, request.inputs, options)
            computed = await self._compute(backend, request.inputs, work, logit_sequences, request.lane)
        cut = {index: length for index, length in enumerate(computed.lengths_before) if length}
        backend.count("truncated_inputs", len(cut))
        return ClassificationAnswer(
            scores=activate(computed.rows, request.activation or _activation_of(scorer)),
            labels=scorer.labels,
            model=request.model or model.names[0],
            num_tokens=computed.num_tokens,
            truncated_from=cut,
            timings=computed.timings,
        )

    async def _score_together(self, backend: Backend, scorer: ScorerSpec, request: ScoringRequest) -> ScoringAnswer:
        """Query and document in one sequence."""
        model = backend.model
        pairs = Distinct.of(request.pair(index) for index in range(len(request.documents)))
        options = replace(
            _options(model, request),
            prompt=resolve_prompt(model.spec, prompt=request.prompt),
            second_to=request.document_tokens,
        )
        with naming(
            lambda index: request.document_name(pairs.first[index]),
            lambda index, place: request.text_name(pairs.first[index], place),
        ):
            work = partial(model.tokenizer.tokenize_pairs, pairs.items, options)
            computed = await self._compute(backend, pairs.items, work, logit_sequences, request.lane)
        return ScoringAnswer(
            scores=scores_of(computed.rows, scorer, request.scale)[pairs.places],
            order=computed.rows[pairs.places, 0],
            model=request.model or model.names[0],
            num_tokens=computed.num_tokens,
            truncated_from=pairs.spread(computed.lengths_before),
            timings=computed.timings,
        )

    async def _score_apart(self, backend: Backend, request: ScoringRequest) -> ScoringAnswer:
        """Query and document as a vector each."""
        model = backend.model
        num_queries = len(request.queries)
        query, document = _sides(model, request)
        texts = Distinct.of(
            [(query, text) for text in request.queries] + [(document, text) for text in request.documents]
        )

        def name(index: int) -> str:
            place = texts.first[index]
            return request.query_name(place) if place < num_queries else request.document_name(place - num_queries)

        with naming(name):
            work = partial(tokenize_each, model.tokenizer, texts.items)
            computed = await self._compute(backend, texts.items, work, unit_sequences, request.lane)
        vectors = computed.rows[texts.places]
        queries, documents = vectors[:num_queries], vectors[num_queries:]
        cut = texts.spread(computed.lengths_before)
        queries = np.broadcast_to(queries, documents.shape)
        return ScoringAnswer(
            scores=cosines_of(queries, documents, request.scale),
            order=cosines_of(queries, documents, Scale.RAW),
            model=request.model or model.names[0],
            num_tokens=computed.num_tokens,
            truncated_from={place - num_queries: length for place, length in cut.items() if place >= num_queries},
            timings=computed.timings,
        )

    async def _compute(
        self,
        backend: Backend,
        inputs: Sequence[tuple[object, ...]],
        tokenize: Callable[[], list[TokenizedInput]],
        to_sequences: Callable[[list[TokenizedInput]], list[TokenSequence]],
        lane: Lane,
    ) -> _Computed:
        """`tokenize`, which goes through `inputs`, in a thread where they hold much text; then replicas.

        What has become the same tokens is computed once.
        """
        started_ns = time.perf_counter_ns()
        size = sum(len(part) for parts in inputs for part in parts if isinstance(part, str))
        tokenized = tokenize() if size <= MAX_INLINE_CHARACTERS else await self._workload.run(size, tokenize)
        tokenization_ns = time.perf_counter_ns() - started_ns
        same = same_tokens(tokenized)
        computed = [tokenized[index] for index in same.first]
        with naming(lambda index: f"input[{same.first[index]}]"):
            joined = await backend.balancer.compute(to_sequences(computed), lane)
        num_tokens = sum(item.num_tokens for item in computed)
        backend.count("inputs", len(computed))
        backend.count("tokens", num_tokens)
        return _Computed(
            rows=np.concatenate(joined.rows)[same.places],
            num_tokens=num_tokens,
            lengths_before=[item.num_tokens_before for item in tokenized],
            timings=Timings(tokenization_ns=tokenization_ns, queue_ns=joined.queue_ns, compute_ns=joined.compute_ns),
        )

    def _check(self, request: ScoringRequest) -> None:
        num_queries, num_documents = len(request.queries), len(request.documents)
        self._check_count(num_documents, request.document_field)
        if num_queries not in (1, num_documents):
            raise InvalidInput(
                f"{request.query_field} holds {num_queries} texts and {request.document_field} {num_documents}: there "
                "should be one of the former, or as many",
                param=request.query_field,
            )

    def _check_count(self, num_inputs: int, field: str) -> None:
        if num_inputs == 0:
            raise EmptyInput(f"{field} should hold at least one text", param=field)
        if num_inputs > self._max_inputs:
            raise InvalidInput(
                f"{field} holds {num_inputs} texts, over the limit of {self._max_inputs} (--max-inputs)", param=field
            )


def _activation_of(scorer: ScorerSpec) -> Activation:
    """By transformers' problem types."""
    if scorer.problem_type == "regression":
        return Activation.IDENTITY
    if scorer.num_labels == 1 or scorer.problem_type == "multi_label_classification":
        return Activation.SIGMOID
    return Activation.SOFTMAX


def _sides(model: ServedModel, request: ScoringRequest) -> tuple[TokenizeOptions, TokenizeOptions]:
    """How queries become tokens, and how documents do."""
    options = _options(model, request)
    query = replace(options, prompt=resolve_prompt(model.spec, prompt=request.prompt, input_type="query"))
    document = replace(options, prompt=resolve_prompt(model.spec, input_type="document"))
    if request.document_tokens is not None:
        limit = request.document_tokens + model.tokenizer.num_special_tokens
        limit = limit if document.truncate_to is None else min(limit, document.truncate_to)
        document = replace(document, truncate=True, truncate_to=limit)
    return query, document


def _options(model: ServedModel, request: ScoringRequest | ClassificationRequest) -> TokenizeOptions:
    wants_cut = request.truncate_to is not None or model.auto_truncate
    return TokenizeOptions(
        truncate=wants_cut if request.truncate is None else request.truncate,
        truncate_to=request.truncate_to,
        side=request.side,
    )
