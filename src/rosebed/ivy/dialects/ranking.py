"""What dialects that rank documents have in common: reading them, and naming the best. Knows no dialect."""

from collections.abc import Sequence
from typing import TypeVar

import msgspec

from rosebed.core.errors import InvalidInput
from rosebed.core.scores import check_top_n, ranked
from rosebed.ivy.http.bulk import BulkInputs
from rosebed.ivy.http.json_body import ReadBulk
from rosebed.ivy.scoring_request import ScoringAnswer

Value = TypeVar("Value")

_STRINGS_EACH = 16
"""Keys and values of a document that is an object, of which only `text` is read."""


class TextObject(msgspec.Struct):
    """A text as an object, whose other fields are ignored."""

    text: str


Documents = list[str | TextObject]


class Ranked(msgspec.Struct):
    """A document's place in what was sent, and how well it fits the query."""

    index: int
    relevance_score: float


def documents_reader(field: str, max_inputs: int) -> ReadBulk:
    """Reads a large list of documents."""
    return BulkInputs(field, max_inputs=max_inputs).reading(Documents | None, strings_each=_STRINGS_EACH)


def required(value: Value | None, name: str) -> Value:
    """InvalidInput if `value` was left out."""
    if value is None:
        raise InvalidInput(f"{name} is missing", param=name)
    return value


def text_of(document: str | TextObject) -> str:
    return document if isinstance(document, str) else document.text


def texts_of(documents: Documents | None, name: str = "documents") -> list[str]:
    """The texts of `documents`. InvalidInput if there is no such list."""
    return [text_of(document) for document in required(documents, name)]


def best(answer: ScoringAnswer, top_n: int | None, name: str = "top_n") -> Sequence[tuple[int, float]]:
    """Place and score of the `top_n` best, best first. InvalidInput for a `top_n` below 1."""
    scores = answer.scores.tolist()
    return [(index, scores[index]) for index in ranked(answer.order, check_top_n(top_n, name))]
