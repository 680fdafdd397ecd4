"""What callers in Python hand over."""

from collections.abc import Iterable, Sequence

from rosebed.core.errors import InvalidInput


def as_list(texts: Sequence[str]) -> list[str]:
    """`texts` as a list of str. InvalidInput names `input[i]` that is no text, or `texts` that is no list.

    A single text is refused: a str is a sequence of strings too, one a letter.
    """
    if isinstance(texts, str):
        raise InvalidInput("texts should be a list of texts, not one text: write embed([text])", param="texts")
    if not isinstance(texts, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - callers need not be typed
        raise InvalidInput(f"texts should be a list of texts, not {type(texts).__name__}", param="texts")
    listed = list(texts)
    for index, text in enumerate(listed):
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            name = f"input[{index}]"
            raise InvalidInput(f"{name} should be text, not {type(text).__name__}", param=name)
    return listed
