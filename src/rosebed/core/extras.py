"""Turns a failed import of an optional dependency into an error that says what to install."""

from collections.abc import Generator
from contextlib import contextmanager

from rosebed.core.errors import MissingExtra


@contextmanager
def needs_extra(what: str, extra: str) -> Generator[None]:
    """Imports inside belong to `extra`; where one fails, MissingExtra says that `what` needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.partition(".")[0] == "rosebed":
            raise  # our own mistake, which no installation mends
        raise MissingExtra(what, extra) from error
