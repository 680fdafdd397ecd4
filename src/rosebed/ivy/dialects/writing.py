"""Vectors as JSON or bytes, giving way to other requests between slices. Knows no dialect."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import msgspec
import numpy as np
import orjson

from rosebed.core.encodings import Encoding, VectorType
from rosebed.core.types import Float32Array
from rosebed.ivy.http.reply import Headers
from rosebed.ivy.request import EmbeddingsAnswer

SLICE_FLOATS = 1 << 16
"""Vectors are written out in slices of about so many numbers, between which other requests get their turn."""
MAX_NAMED_IN_HEADER = 1000
"""Clients refuse header lines of more than about 8,000 bytes; another header says how many were cut in all, and the
body names each."""

Item = Callable[[int, Any], Any]
"""Makes what stands for a vector in an answer, of its place and its numbers (an array) or its bytes (for base64)."""

_BASE64 = msgspec.json.Encoder()
"""Writes bytes as base64, straight into the JSON: a third less time than `base64` and `orjson` take."""


def _numbers(made: Any) -> bytes:
    return orjson.dumps(made, option=orjson.OPT_SERIALIZE_NUMPY)


def alone(_index: int, value: Any) -> Any:
    """The item that is nothing but its vector."""
    return value


async def json_items(answer: EmbeddingsAnswer, encoding: Encoding, *, as_text: bool, item: Item = alone) -> list[bytes]:
    """Each vector's item as JSON, in order; its numbers, or the base64 of their bytes."""
    # Floats of any kind stay float32 as numbers, for JSON's sake.
    encode = _encoder(answer, encoding, is_plain=not as_text and encoding.type in _JSON_FLOATS)
    write = _BASE64.encode if as_text else _numbers
    items: list[bytes] = []
    for vectors in _slices(answer):
        if items:
            await asyncio.sleep(0)
        for value in encode(vectors):
            items.append(write(item(len(items), value.tobytes() if as_text else value)))
    return items


async def raw_items(answer: EmbeddingsAnswer, encoding: Encoding) -> list[bytes]:
    """The bytes of each vector, in order."""
    encode = _encoder(answer, encoding)
    items: list[bytes] = []
    for vectors in _slices(answer):
        if items:
            await asyncio.sleep(0)
        items += [value.tobytes() for value in encode(vectors)]
    return items


def _slices(answer: EmbeddingsAnswer) -> Iterator[list[Float32Array]]:
    vectors = answer.vectors
    step = max(1, SLICE_FLOATS // len(vectors[0]))
    return (vectors[start : start + step] for start in range(0, len(vectors), step))


def _encoder(
    answer: EmbeddingsAnswer, encoding: Encoding, *, is_plain: bool = False
) -> Callable[[list[Float32Array]], Iterable[Any]]:
    """What makes the values to write of some vectors."""
    if is_plain or encoding.is_plain:
        return lambda vectors: vectors
    return lambda vectors: encoding.encode(np.stack(vectors), answer.architecture, answer.int8_ranges)


_JSON_FLOATS = frozenset({VectorType.FLOAT32, VectorType.FLOAT16, VectorType.BFLOAT16})


def array(items: Sequence[bytes]) -> bytes:
    """A JSON array."""
    return b"[%b]" % b",".join(items)


def grouped(items: Sequence[bytes], answer: EmbeddingsAnswer) -> Iterator[bytes]:
    """One array for each input, of the items of its vectors."""
    remaining = iter(items)
    return (array(list(islice(remaining, len(rows)))) for rows in answer.rows)


def listed(items: Sequence[bytes], **rest: Any) -> bytes:
    """`{"object": "list", "data": […]}` and `rest`."""
    return b'{"object":"list","data":%b,%b' % (array(items), orjson.dumps(rest)[1:])


def truncation_headers(truncated_from: Mapping[int, int]) -> Headers:
    """Which inputs were cut: the keys."""
    if not truncated_from:
        return ()
    named = islice(truncated_from, MAX_NAMED_IN_HEADER)
    return (
        (b"x-rosebed-truncated", ",".join(map(str, named)).encode()),
        (b"x-rosebed-truncated-count", b"%d" % len(truncated_from)),
    )
