"""Errors in the words of whoever asked: the same index may have another name where the request came from."""

import re
from collections.abc import Mapping, Sequence

from rosebed.core.errors import RosebedError
from rosebed.core.retelling import retold

_FIELD = re.compile(r"\b\w+(?=\[\d)|^\w+")
_INDEX = re.compile(r"\binput\[(\d+)\]")
_ONLY_DOCUMENT = re.compile(r"\binput\[0\]")


def renamed(error: RosebedError, names: Mapping[str, str]) -> RosebedError:
    """What `names` has another name for is called by it, at the head of a message and with an index anywhere."""
    return retold(error, lambda words: _FIELD.sub(lambda found: names.get(found[0], found[0]), words))


def renumbered(error: RosebedError, owners: Sequence[int]) -> RosebedError:
    """`input[i]` is `input[owners[i]]`."""
    return retold(error, lambda words: _INDEX.sub(lambda found: f"input[{owners[int(found[1])]}]", words))


def of_one_document(error: RosebedError) -> RosebedError:
    """`input[0][j]` is `input[j]`: the document is the whole input."""
    return retold(error, lambda words: _ONLY_DOCUMENT.sub("input", words))
