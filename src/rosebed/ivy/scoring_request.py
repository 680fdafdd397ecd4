"""What every dialect that scores, ranks or classifies is translated into and out of. Knows no JSON and no HTTP."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rosebed.core.activations import Activation
from rosebed.core.scores import Scale
from rosebed.core.types import Float32Array, Lane
from rosebed.ivy.request import Timings
from rosebed.text.tokenized import Side


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoringRequest:
    """Pairs to score: one query with every document, or as many queries as documents, each with its own."""

    queries: Sequence[str]
    documents: Sequence[str]
    query_field: str = "query"
    """What the caller calls the query; where there are many, with an index."""
    document_field: str = "documents"
    model: str | None = None
    """The served name asked for."""
    scale: Scale = Scale.MODEL
    only_scorers: bool = False
    """Refuse to compare the vectors of a model that embeds."""
    prompt: str | None = None
    """Text before each query; of a model that is asked a question, its instruction. None is the checkpoint's own."""
    truncate: bool | None = None
    """Cut what is too long; None does as the server is set."""
    truncate_to: int | None = None
    """A limit tighter than the model's, in tokens; asking for one also asks to truncate."""
    document_tokens: int | None = None
    """Cut each document to so many tokens first."""
    side: Side = Side.RIGHT
    lane: Lane = Lane.ONLINE

    def pair(self, index: int) -> tuple[str, str]:
        """The query and the document of one score."""
        return self.queries[0 if len(self.queries) == 1 else index], self.documents[index]

    def query_name(self, index: int) -> str:
        """What the caller calls that query."""
        return self.query_field if len(self.queries) == 1 else f"{self.query_field}[{index}]"

    def document_name(self, index: int) -> str:
        """What the caller calls that document."""
        return f"{self.document_field}[{index}]"

    def text_name(self, index: int, place: int) -> str:
        """What the caller calls the first or second text of that pair."""
        return self.document_name(index) if place else self.query_name(index)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoringAnswer:
    """The scores of one request, in the order of its documents."""

    scores: Float32Array
    """float32[num_documents]"""
    order: Float32Array
    """float32[num_documents]: what they are ranked by, the logit or cosine itself. A sigmoid of float32 is 1 from
    a logit of 17 on, and would make ties of what is none."""
    model: str
    """The name asked for, or the model's first."""
    num_tokens: int
    """Tokens computed, special tokens and prompts included: of each distinct text, or pair, once."""
    truncated_from: Mapping[int, int]
    """Document → tokens that it, or its pair, had, for those that were cut."""
    timings: Timings


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassificationRequest:
    """Texts and pairs of texts to classify."""

    inputs: Sequence[tuple[str, ...]]
    """One text or two each."""
    field: str = "inputs"
    """What the caller calls them."""
    is_alone: bool = False
    """Whether the only one came as itself, not in a list: it is `field` to the caller then, without an index."""
    model: str | None = None
    activation: Activation | None = None
    """None goes by the model's problem type: softmax over several labels, sigmoid where they do not exclude each other
    or there is one, and nothing for a regression."""
    truncate: bool | None = None
    truncate_to: int | None = None
    side: Side = Side.RIGHT
    add_special_tokens: bool = True
    lane: Lane = Lane.ONLINE

    def name(self, index: int) -> str:
        """What the caller calls that input."""
        return self.field if self.is_alone else f"{self.field}[{index}]"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ClassificationAnswer:
    """What the labels of each input come to."""

    scores: Float32Array
    """float32[num_inputs, num_labels]"""
    labels: tuple[str, ...]
    model: str
    num_tokens: int
    """Tokens computed, special tokens included: of each distinct input once."""
    truncated_from: Mapping[int, int]
    """Input → tokens it had, for those that were cut."""
    timings: Timings

    def predictions(self, index: int) -> list[dict[str, float | str]]:
        """Score and label of every label of one input, the highest score first, of equal ones the first label."""
        scores = self.scores[index].tolist()
        order = sorted(range(len(scores)), key=lambda label: -scores[label])
        return [{"score": scores[label], "label": self.labels[label]} for label in order]
