"""Values that go into and come out of tokenization. Knows no tokenizer library."""

from dataclasses import dataclass
from enum import StrEnum

from rosebed.core.types import Int32Array


class Side(StrEnum):
    """The end of a text that truncation drops tokens from."""

    RIGHT = "right"
    LEFT = "left"


class PairCut(StrEnum):
    """Which text of a pair gives way when both together are too long."""

    LONGEST_FIRST = "longest_first"
    """The longer one, until both are equally long; then both."""
    SECOND = "second"
    """Only the second (a reranker's document); the first stays whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeOptions:
    """What a caller may choose per request."""

    prompt: str = ""
    """Text put in front of every input (of a pair: of its first text), see `prompts.resolve_prompt`."""
    truncate: bool = False
    """Cut an input that is over the limit instead of refusing it."""
    truncate_to: int | None = None
    """A limit tighter than the model's, special tokens included; whether it cuts or refuses is for `truncate`."""
    side: Side = Side.RIGHT
    """Where to cut."""
    pair_cut: PairCut = PairCut.LONGEST_FIRST
    """What to cut of a pair."""
    second_to: int | None = None
    """Cut the second text of a pair to so many tokens before anything else, whatever `truncate` says."""
    add_special_tokens: bool = True
    """Put in what the tokenizer's post-processor adds ([CLS], </s>, …)."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenizedInput:
    """One text, or pair of texts, as ids: ready to become a `core.types.Sequence`."""

    token_ids: Int32Array
    """int32[num_tokens], at least one."""
    token_type_ids: Int32Array | None
    """int32[num_tokens] segment of each token; None means all zero."""
    pool_spans: Int32Array
    """int32[num_spans, 2], half-open: the tokens that pooling covers; one span, or one for each chunk of a document."""
    num_tokens_before: int = 0
    """Tokens there were before truncation, or, of a text many times longer than the limit, so many at least; 0 where
    nothing was cut."""

    @property
    def num_tokens(self) -> int:
        return len(self.token_ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenSpan:
    """One token and where it lies in the text, as TEI's /tokenize reports it."""

    id: int
    text: str
    """The slice of the text it covers; a special token's own name."""
    special: bool
    """Whether the post-processor added it."""
    start: int | None
    """First character; None for special tokens."""
    stop: int | None
    """One past the last character; None for special tokens."""
