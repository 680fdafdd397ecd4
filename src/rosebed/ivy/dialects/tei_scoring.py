"""Hugging Face TEI: ranking and classifying. No route names a model.

Source: the OpenAPI document and router/src/http of text-embeddings-inference 1.9.
"""

import time
from typing import Annotated, Any, Literal

import msgspec
import orjson

from rosebed.core.activations import Activation
from rosebed.core.errors import InvalidInput
from rosebed.core.scores import Scale
from rosebed.ivy.dialects.base import BodyOperation, Parts
from rosebed.ivy.dialects.openai import says
from rosebed.ivy.dialects.ranking import best, required
from rosebed.ivy.dialects.tei import ERRORS, Tei, TeiEmbedBody
from rosebed.ivy.dialects.tei_headers import tei_headers
from rosebed.ivy.http.bulk import BulkInputs
from rosebed.ivy.http.call import Call
from rosebed.ivy.http.endpoint import Resource
from rosebed.ivy.http.reply import Reply
from rosebed.ivy.request import EmptyInput
from rosebed.ivy.scoring_request import ClassificationRequest, ScoringRequest
from rosebed.text.tokenizer import Side

Direction = Literal["Left", "Right", "left", "right"]
Inputs = str | list[str | list[str]]

_TRUNCATE = Annotated[bool | None, says("Whether to cut what is too long; by default as the server is set.")]
_DIRECTION = Annotated[Direction | None, says("The end that is cut off; right by default.")]
_RAW_SCORES = Annotated[bool | None, says("Logits instead of scores between 0 and 1.")]


class TeiRerankBody(msgspec.Struct):
    """Texts to rank by how well they fit a query."""

    query: Annotated[str | None, says("The query.")] = None
    texts: Annotated[list[str] | None, says("The texts.")] = None
    truncate: _TRUNCATE = None
    truncation_direction: _DIRECTION = None
    raw_scores: _RAW_SCORES = None
    return_text: Annotated[bool | None, says("Give each text beside its score.")] = None


class TeiRank(msgspec.Struct):
    """One text in its place."""

    index: int
    text: str | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET)
    score: float = 0.0


class TeiPredictBody(msgspec.Struct):
    """Texts and pairs of texts to classify."""

    inputs: Annotated[
        Inputs | None,
        says("One text; one text or one pair in a list; or a list of such lists."),
    ] = None
    truncate: _TRUNCATE = None
    truncation_direction: _DIRECTION = None
    raw_scores: _RAW_SCORES = None


class Prediction(msgspec.Struct):
    """What one label comes to."""

    score: float
    label: str


class TeiScoring:
    """The dialect's operations that score."""

    def __init__(self, parts: Parts, tei: Tei) -> None:
        self.error_shape = ERRORS
        self._parts = parts
        self._tei = tei
        texts = BulkInputs("texts", max_inputs=parts.max_inputs)
        inputs = BulkInputs("inputs", max_inputs=parts.max_inputs)
        self._rerank = parts.reader(TeiRerankBody, "texts", texts.reading(list[str] | None))
        self._predict = parts.reader(TeiPredictBody, "inputs", inputs.reading(Inputs | None, strings_each=2))

    def operations(self) -> dict[str, BodyOperation]:
        """What the root decides about."""
        return {
            "tei.rerank": self._tei.operation(self.rerank, "Rank texts", TeiRerankBody, list[TeiRank]),
            "tei.inputs": self._tei.operation(
                self.by_kind, "Embed inputs, or classify them, by what the model does", TeiEmbedBody, list[list[float]]
            ),
        }

    def resources(self) -> list[Resource]:
        """Paths under the dialect's base URL that mean the same at the root."""
        answer = list[Prediction | list[Prediction]]
        predict = self._tei.operation(self.predict, "Classify texts and pairs of texts", TeiPredictBody, answer)
        return [self._resource("/predict", predict)]

    def own_resources(self) -> list[Resource]:
        """Paths under the dialect's base URL that at the root are shared."""
        return [self._resource("/rerank", self.operations()["tei.rerank"])]

    async def rerank(self, _call: Call, raw: bytes) -> Reply:
        started_ns = time.perf_counter_ns()
        body: TeiRerankBody = await self._rerank.read(raw)
        query, texts = required(body.query, "query"), required(body.texts, "texts")
        if not query:
            _refuse_empty(texts, "texts")  # a pair is empty only if both are
        request = ScoringRequest(
            queries=(query,),
            documents=texts,
            document_field="texts",
            scale=Scale.RAW if body.raw_scores else Scale.UNIT,
            only_scorers=True,
            truncate=body.truncate,
            side=_side(body.truncation_direction),
        )
        answer = await self._parts.scoring.score(request)
        ranks = [
            {"index": index, "text": texts[index], "score": score}
            if body.return_text
            else {"index": index, "score": score}
            for index, score in best(answer, None)
        ]
        num_characters = len(query) * len(texts) + sum(map(len, texts))
        headers = tei_headers(
            self._parts.directory.engine(None), answer, num_characters=num_characters, started_ns=started_ns
        )
        return Reply(200, orjson.dumps(ranks), headers)

    async def predict(self, _call: Call, raw: bytes) -> Reply:
        started_ns = time.perf_counter_ns()
        body: TeiPredictBody = await self._predict.read(raw)
        inputs, is_alone = read_inputs(required(body.inputs, "inputs"))
        model = await self._parts.scoring.find(None)
        several = model.spec.scorer is not None and model.spec.scorer.num_labels > 1
        request = ClassificationRequest(
            inputs=inputs,
            is_alone=is_alone,
            activation=Activation.IDENTITY
            if body.raw_scores
            else (Activation.SOFTMAX if several else Activation.SIGMOID),
            truncate=body.truncate,
            side=_side(body.truncation_direction),
        )
        answer = await self._parts.scoring.classify(request)
        predictions = [answer.predictions(index) for index in range(len(inputs))]
        headers = tei_headers(
            self._parts.directory.engine(None),
            answer,
            num_characters=sum(len(text) for texts in inputs for text in texts),
            started_ns=started_ns,
        )
        return Reply(200, orjson.dumps(predictions[0] if is_alone else predictions), headers)

    async def by_kind(self, call: Call, raw: bytes) -> Reply:
        model = await self._parts.scoring.find(None)
        return await (self._tei.embed if model.spec.scorer is None else self.predict)(call, raw)

    def _resource(self, path: str, operation: BodyOperation) -> Resource:
        return Resource(
            path=path, operations={"POST": operation.operation(self._parts.intake)}, error_shape=self.error_shape
        )


def read_inputs(given: Inputs) -> tuple[list[tuple[str, ...]], bool]:
    """Texts and pairs, and whether there is but one that is not in a batch.

    `"a"` and `["a"]` are one text, `["a", "b"]` is one pair, and only a list of lists is a batch.
    """
    if isinstance(given, str):
        given = [given]
    if not given:
        raise EmptyInput("inputs should hold at least one text", param="inputs")
    if all(isinstance(item, str) for item in given):
        return [_texts(given, "inputs")], True
    if any(isinstance(item, str) for item in given):
        odd = next(index for index, item in enumerate(given) if type(item) is not type(given[0]))
        name = f"inputs[{odd}]"
        raise InvalidInput(
            f"{name}: inputs should be a text, a pair, or a list of lists, not a mixture of texts and lists", param=name
        )
    return [_texts(item, f"inputs[{index}]") for index, item in enumerate(given)], False


def _texts(given: Any, name: str) -> tuple[str, ...]:
    if len(given) not in (1, 2):
        raise InvalidInput(f"{name} should hold one text or two, not {len(given)}", param=name)
    if not any(given):
        raise InvalidInput(f"{name} cannot be empty", param=name)
    return tuple(given)


def _refuse_empty(texts: list[str], name: str) -> None:
    for index, text in enumerate(texts):
        if not text:
            raise InvalidInput(f"{name}[{index}] and the query cannot both be empty", param=f"{name}[{index}]")


def _side(direction: Direction | None) -> Side:
    return Side.LEFT if (direction or "").lower() == "left" else Side.RIGHT
