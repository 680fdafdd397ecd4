"""Texts and pairs as sequences: what is the same is computed once. Knows no replica."""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from rosebed.core.retelling import naming
from rosebed.core.types import OutputKind
from rosebed.core.types import Sequence as TokenSequence
from rosebed.text.tokenized import TokenizedInput, TokenizeOptions
from rosebed.text.tokenizer import TextTokenizer

Item = TypeVar("Item", bound=Hashable)

LOGITS_ONLY = frozenset({OutputKind.LOGITS})


@dataclass(frozen=True, slots=True)
class Distinct(Generic[Item]):
    """A list without its repetitions."""

    items: list[Item]
    """Each once, in the order of their first places."""
    places: list[int]
    """Of every element of the whole list, its index in `items`."""
    first: list[int]
    """Of each of `items`, its first place in the whole list."""

    @classmethod
    def of(cls, elements: Iterable[Item]) -> "Distinct[Item]":
        numbers: dict[Item, int] = {}
        first: list[int] = []
        places: list[int] = []
        for place, element in enumerate(elements):
            number = numbers.setdefault(element, len(numbers))
            if number == len(first):
                first.append(place)
            places.append(number)
        return cls(list(numbers), places, first)

    def spread(self, values: Sequence[int]) -> dict[int, int]:
        """Place in the whole list → value of its item, of those that are not 0."""
        return {place: values[number] for place, number in enumerate(self.places) if values[number]}


def same_tokens(tokenized: Sequence[TokenizedInput]) -> Distinct[bytes]:
    """Which inputs have become the same: a text that is query and document, texts that differ where they were cut."""
    return Distinct.of(
        b"".join(
            (
                *((b"",) if item.token_type_ids is None else (b"types", item.token_type_ids.tobytes())),
                item.pool_spans.tobytes(),
                item.token_ids.tobytes(),
            )
        )
        for item in tokenized
    )


def logit_sequences(tokenized: Sequence[TokenizedInput]) -> list[TokenSequence]:
    """What replicas are to compute for logits."""
    return [
        TokenSequence(
            token_ids=item.token_ids,
            pool_spans=item.pool_spans,
            token_type_ids=item.token_type_ids,
            outputs=LOGITS_ONLY,
            index=index,
        )
        for index, item in enumerate(tokenized)
    ]


def unit_sequences(tokenized: Sequence[TokenizedInput]) -> list[TokenSequence]:
    """What replicas are to compute for cosines."""
    return [
        TokenSequence(
            token_ids=item.token_ids,
            pool_spans=item.pool_spans,
            token_type_ids=item.token_type_ids,
            normalize=True,
            index=index,
        )
        for index, item in enumerate(tokenized)
    ]


def tokenize_each(tokenizer: TextTokenizer, texts: Sequence[tuple[TokenizeOptions, str]]) -> list[TokenizedInput]:
    """Each text with its own options; those with the same are neighbours. Errors name the lowest `input[i]`."""
    done: list[TokenizedInput] = []
    for options in dict.fromkeys(options for options, _ in texts):
        chosen = [text for own, text in texts if own == options]
        start = len(done)
        with naming(lambda index, start=start: f"input[{start + index}]"):
            done += tokenizer.tokenize(chosen, options)
    return done


def tokenize_mixed(
    tokenizer: TextTokenizer, inputs: Sequence[tuple[str, ...]], options: TokenizeOptions
) -> list[TokenizedInput]:
    """Single texts and pairs, in order. Errors name an `input[i]`."""
    singles = [index for index, texts in enumerate(inputs) if len(texts) == 1]
    pairs = [index for index, texts in enumerate(inputs) if len(texts) == 2]
    with naming(lambda index: f"input[{singles[index]}]"):
        found = dict(zip(singles, tokenizer.tokenize([inputs[i][0] for i in singles], options), strict=True))
    with naming(lambda index: f"input[{pairs[index]}]"):
        chosen = [(inputs[i][0], inputs[i][1]) for i in pairs]
        found |= zip(pairs, tokenizer.tokenize_pairs(chosen, options), strict=True)
    return [found[index] for index in range(len(inputs))]
