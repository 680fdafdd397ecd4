"""Late chunking: the chunks of a document as one sequence, and which of its tokens are whose. Knows no tokenizer."""

from collections.abc import Sequence

import numpy as np

from rosebed.core.types import Int32Array


def join_chunks(
    chunks: Sequence[list[int]], *, before: Sequence[int] = (), separator: Sequence[int] = ()
) -> tuple[list[int], Int32Array]:
    """All ids in order, and the span of each chunk: int32[num_chunks, 2], half-open.

    `before` comes once, ahead of the first chunk; `separator` between two. Neither is in any span, so that it does not
    matter whether a chunk holds the separator itself.
    """
    joined = list(before)
    spans: list[tuple[int, int]] = []
    for chunk in chunks:
        if spans:
            joined += separator
        spans.append((len(joined), len(joined) + len(chunk)))
        joined += chunk
    return joined, np.array(spans, np.int32)
