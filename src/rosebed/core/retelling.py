"""Errors in the words of whoever asked: what is `input[i]` here may have another name there."""

import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from copy import copy

from rosebed.core.errors import RosebedError

_INPUT = re.compile(r"\binput\[(\d+)\]")


@contextmanager
def naming(name: Callable[[int], str]) -> Generator[None]:
    """Errors that are about `input[i]` inside are about `name(i)` outside."""

    def words(text: str) -> str:
        return _INPUT.sub(lambda found: name(int(found[1])), text)

    try:
        yield
    except RosebedError as error:
        retold = copy(error)
        retold.message = words(error.message)
        retold.args = (retold.message,)
        retold.param = error.param and words(error.param)
        raise retold from error
