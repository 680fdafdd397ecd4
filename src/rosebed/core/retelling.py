"""Errors in the words of whoever asked: what is `input[i]` here may have another name there."""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import copy

from rosebed.core.errors import RosebedError

_INPUT = re.compile(r"\binput\[(\d+)\]")


def retold(error: RosebedError, words: Callable[[str], str]) -> RosebedError:
    """The same error with `words` made of its message and of what it is about."""
    copied = copy(error)
    copied.message = words(error.message)
    copied.args = (copied.message,)
    copied.param = error.param and words(error.param)
    return copied


@contextmanager
def naming(name: Callable[[int], str]) -> Generator[None]:
    """Errors that are about `input[i]` inside are about `name(i)` outside."""
    try:
        yield
    except RosebedError as error:
        raise retold(error, lambda words: _INPUT.sub(lambda found: name(int(found[1])), words)) from error
