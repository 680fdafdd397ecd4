"""int8 and uint8 on fixed ranges are, number for number, what sentence-transformers' `quantize_embeddings` makes."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sentence_transformers.util import quantization

from rosebed.core.encodings import Encoding, VectorType
from rosebed.core.int8_ranges import Int8Ranges


@pytest.mark.parametrize("kind", ["int8", "uint8"])
def test_as_sentence_transformers_has_them(tmp_path: Path, kind: Any) -> None:
    vectors = np.random.default_rng(1).normal(size=(500, 96)).astype(np.float32)
    vectors[:, 5] = 0.25  # no range at all
    measured = vectors[:300]
    ranges = np.vstack([measured.min(axis=0), measured.max(axis=0)])
    (tmp_path / "ranges.json").write_text(json.dumps(ranges.tolist()))
    ours = Encoding(type=VectorType(kind)).encode(
        vectors, "BertModel", Int8Ranges.read(str(tmp_path / "ranges.json"), 96)
    )
    theirs: Any = quantization.quantize_embeddings(vectors, precision=kind, ranges=ranges)
    assert ours.dtype == theirs.dtype
    np.testing.assert_array_equal(ours, theirs)
