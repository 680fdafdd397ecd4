"""Errors in the words of whoever asked: what is `input[i]` here may have another name there."""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import copy

from rosebed.core.errors import RosebedError

_INPUT = re.compile(r"\binput\[(\d+)\](?:\[(\d+)\])?")


def retold(error: RosebedError, words: Callable[[str], str]) -> RosebedError:
    """The same error with `words` made of its message and of what it is about."""
    copied = copy(error)
    copied.message = words(error.message)
    copied.args = (copied.message,)
    copied.param = error.param and words(error.param)
    return copied


@contextmanager
def naming(name: Callable[[int], str], part: Callable[[int, int], str] | None = None) -> Generator[None]:
    """Errors that are about `input[i]` inside are about `name(i)` outside.

    Those about its `input[i][j]`, such as a text of a pair, are about `part(i, j)`, by default `name(i)[j]`.
    """

    def rename(found: re.Match[str]) -> str:
        index, place = int(found[1]), found[2]
        if place is None:
            return name(index)
        return f"{name(index)}[{place}]" if part is None else part(index, int(place))

    try:
        yield
    except RosebedError as error:
        raise retold(error, lambda words: _INPUT.sub(rename, words)) from error
