"""What callers in Python hand over."""

from collections.abc import Sequence

from rosebed.core.errors import InvalidInput


def as_list(texts: Sequence[str]) -> list[str]:
    """`texts` as a list. InvalidInput for a single text: a str is a sequence of strings too, one a letter."""
    if isinstance(texts, str):
        raise InvalidInput("texts should be a list of texts, not one text: write embed([text])", param="texts")
    return list(texts)
