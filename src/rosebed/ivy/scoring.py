"""The walk of a request for scores: model, pairs, tokens, replicas, answer. Knows no dialect and no HTTP."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from rosebed.core.activations import Activation, activate
from rosebed.core.errors import InvalidInput, WrongModelKind
from rosebed.core.retelling import naming
from rosebed.core.scorer import ScorerKind, ScorerSpec
from rosebed.core.scores import check_one_label, cosines_of, scores_of
from rosebed.ivy.directory import ModelDirectory
from rosebed.ivy.embedding import MAX_INLINE_CHARACTERS, Count
from rosebed.ivy.model import ServedModel
from rosebed.ivy.pairs import Distinct, logit_sequences, unit_sequences
from rosebed.ivy.scoring_request import ClassificationAnswer, ClassificationRequest, ScoringAnswer, ScoringRequest
from rosebed.ivy.upstream.balancer import Balancer
from rosebed.ivy.workload import Workload
from rosebed.text.prompts import resolve_prompt
from rosebed.text.tokenizer import TokenizedInput, TokenizeOptions


class ScoringService:
    """Pairs in, scores out; texts in, labels out. One per worker."""

    def __init__(
        self,
        directory: ModelDirectory,
        balancer: Balancer,
        count: Count,
        workload: Workload,
        *,
        max_inputs: int,
        auto_truncate: bool,
    ) -> None:
        self._directory = directory
        self._balancer = balancer
        self._count = count
        self._workload = workload
        self._max_inputs = max_inputs
        self._auto_truncate = auto_truncate

    async def score(self, request: ScoringRequest) -> ScoringAnswer:
        """The score of each pair: by a model that scores, else by the cosine of both texts' vectors.

        InvalidInput, ContextLengthExceeded and what else befalls one input name it as the caller does. WrongModelKind
        if the model has several labels, or embeds where that is not wanted.
        """
        await self._balancer.await_first()
        model = self._directory.find(request.model)
        self._check(request)
        scorer = model.spec.scorer
        if scorer is not None:
            check_one_label(scorer)
            answer = await self._score_together(model, scorer, request)
        elif request.only_scorers:
            raise WrongModelKind("this model embeds texts, and has no head that scores pairs")
        else:
            answer = await self._score_apart(model, request)
        self._count("truncated_inputs", len(answer.truncated_from))
        return answer

    async def classify(self, request: ClassificationRequest) -> ClassificationAnswer:
        """What the labels of each input come to. Raises as `score` does."""
        await self._balancer.await_first()
        model = self._directory.find(request.model)
        self._check_count(len(request.inputs), request.field)
        scorer = model.spec.scorer
        if scorer is None:
            raise WrongModelKind("this model embeds texts, and has no labels")
        if scorer.kind is ScorerKind.YES_NO and (single := _first_single(request.inputs)) is not None:
            raise WrongModelKind(f"this model judges pairs, but {request.field}[{single}] is one text")
        with naming(lambda index: f"{request.field}[{index}]"):
            tokenized = await self._run(
                request.inputs, partial(_tokenize_mixed, model, request, self._options(request))
            )
            rows = await self._balancer.embed(logit_sequences(tokenized), request.lane)
        activation = request.activation or _activation_of(scorer)
        self._count_done(tokenized)
        return ClassificationAnswer(
            scores=activate(np.concatenate(rows), activation),
            labels=scorer.labels,
            model=request.model or model.names[0],
            num_tokens=sum(item.num_tokens for item in tokenized),
        )

    async def _score_together(self, model: ServedModel, scorer: ScorerSpec, request: ScoringRequest) -> ScoringAnswer:
        """Query and document in one sequence."""
        pairs = Distinct.of(request.pair(index) for index in range(len(request.documents)))
        options = replace(
            self._options(request),
            prompt=resolve_prompt(model.spec, prompt=request.prompt),
            second_to=request.document_tokens,
        )
        with naming(lambda index: request.document_name(pairs.first[index])):
            tokenized = await self._run(pairs.items, partial(model.tokenizer.tokenize_pairs, pairs.items, options))
            rows = await self._balancer.embed(logit_sequences(tokenized), request.lane)
        self._count_done(tokenized)
        return ScoringAnswer(
            scores=scores_of(np.concatenate(rows), scorer, request.scale)[pairs.places],
            model=request.model or model.names[0],
            num_tokens=sum(item.num_tokens for item in tokenized),
            truncated_from=pairs.spread([item.num_tokens_before for item in tokenized]),
        )

    async def _score_apart(self, model: ServedModel, request: ScoringRequest) -> ScoringAnswer:
        """Query and document as a vector each."""
        options = self._options(request)
        query = replace(options, prompt=resolve_prompt(model.spec, prompt=request.prompt, input_type="query"))
        document = replace(options, prompt=resolve_prompt(model.spec, input_type="document"))
        if request.document_tokens is not None:
            document = _cut_to(document, request.document_tokens + model.tokenizer.num_special_tokens)
        num_queries = len(request.queries)
        texts = Distinct.of(
            [(query, text) for text in request.queries] + [(document, text) for text in request.documents]
        )

        def name(index: int) -> str:
            place = texts.first[index]
            return request.query_name(place) if place < num_queries else request.document_name(place - num_queries)

        with naming(name):
            tokenized = await self._run(texts.items, partial(_tokenize_apart, model, texts.items))
            rows = await self._balancer.embed(unit_sequences(tokenized), request.lane)
        self._count_done(tokenized)
        vectors = np.concatenate(rows)[texts.places]
        cut = texts.spread([item.num_tokens_before for item in tokenized])
        return ScoringAnswer(
            scores=cosines_of(
                np.broadcast_to(vectors[:num_queries], vectors[num_queries:].shape),
                vectors[num_queries:],
                request.scale,
            ),
            model=request.model or model.names[0],
            num_tokens=sum(item.num_tokens for item in tokenized),
            truncated_from={place - num_queries: length for place, length in cut.items() if place >= num_queries},
        )

    def _options(self, request: ScoringRequest | ClassificationRequest) -> TokenizeOptions:
        wants_cut = request.truncate_to is not None or self._auto_truncate
        return TokenizeOptions(
            truncate=wants_cut if request.truncate is None else request.truncate,
            truncate_to=request.truncate_to,
            side=request.side,
        )

    async def _run(
        self, inputs: Sequence[tuple[object, ...]], work: Callable[[], list[TokenizedInput]]
    ) -> list[TokenizedInput]:
        """What `work` makes of `inputs`, in a thread where they hold much text."""
        size = sum(len(part) for parts in inputs for part in parts if isinstance(part, str))
        return work() if size <= MAX_INLINE_CHARACTERS else await self._workload.run(size, work)

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
            raise InvalidInput(f"{field} should hold at least one text", param=field)
        if num_inputs > self._max_inputs:
            raise InvalidInput(
                f"{field} holds {num_inputs} texts, over the limit of {self._max_inputs} (--max-inputs)", param=field
            )

    def _count_done(self, tokenized: Sequence[TokenizedInput]) -> None:
        self._count("inputs", len(tokenized))
        self._count("tokens", sum(item.num_tokens for item in tokenized))


def _tokenize_apart(model: ServedModel, texts: Sequence[tuple[TokenizeOptions, str]]) -> list[TokenizedInput]:
    """Each text with its own options; those of one kind, which are neighbours, together."""
    done: list[TokenizedInput] = []
    for options in dict.fromkeys(options for options, _ in texts):
        start = len(done)
        chosen = [text for own, text in texts if own == options]
        with naming(lambda index, start=start: f"input[{start + index}]"):
            done += model.tokenizer.tokenize(chosen, options)
    return done


def _tokenize_mixed(
    model: ServedModel, request: ClassificationRequest, options: TokenizeOptions
) -> list[TokenizedInput]:
    """Single texts and pairs, in order."""
    options = replace(options, add_special_tokens=request.add_special_tokens)
    singles = [index for index, texts in enumerate(request.inputs) if len(texts) == 1]
    pairs = [index for index, texts in enumerate(request.inputs) if len(texts) == 2]
    with naming(lambda index: f"input[{singles[index]}]"):
        found = dict(
            zip(singles, model.tokenizer.tokenize([request.inputs[i][0] for i in singles], options), strict=True)
        )
    with naming(lambda index: f"input[{pairs[index]}]"):
        chosen = [(request.inputs[i][0], request.inputs[i][1]) for i in pairs]
        found |= zip(pairs, model.tokenizer.tokenize_pairs(chosen, options), strict=True)
    return [found[index] for index in range(len(request.inputs))]


def _first_single(inputs: Sequence[tuple[str, ...]]) -> int | None:
    return next((index for index, texts in enumerate(inputs) if len(texts) == 1), None)


def _cut_to(options: TokenizeOptions, num_tokens: int) -> TokenizeOptions:
    """Cutting to so many tokens, or to the limit there is, where that is tighter."""
    limit = num_tokens if options.truncate_to is None else min(num_tokens, options.truncate_to)
    return replace(options, truncate=True, truncate_to=limit)


def _activation_of(scorer: ScorerSpec) -> Activation:
    """By transformers' problem types."""
    if scorer.problem_type == "regression":
        return Activation.IDENTITY
    if scorer.num_labels == 1 or scorer.problem_type == "multi_label_classification":
        return Activation.SIGMOID
    return Activation.SOFTMAX
