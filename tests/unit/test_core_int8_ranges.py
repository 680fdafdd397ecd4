"""Fixed ranges for int8 and uint8: what they make of vectors, against sentence-transformers' rule, and bad files."""

import json
from pathlib import Path

import numpy as np
import pytest

from rosebed.core.encodings import Encoding, VectorType
from rosebed.core.errors import ConfigError
from rosebed.core.int8_ranges import Int8Ranges


def file_of(folder: Path, text: str) -> str:
    (folder / "r.json").write_text(text)
    return str(folder / "r.json")


def test_steps_by_hand(tmp_path: Path) -> None:
    ranges = Int8Ranges.read(file_of(tmp_path, "[[-1, 0, 5], [1.55, 255, 5]]"), 3)
    vectors = np.array([[-1, 0, 5], [2, 254.9, 7.5], [-9, 255, 4]], np.float32)
    expected = [[0, 0, 0], [255, 254, 2], [0, 255, 0]]
    assert Encoding(type=VectorType.UINT8).encode(vectors, "BertModel", ranges).tolist() == expected
    signed = Encoding(type=VectorType.INT8).encode(vectors, "BertModel", ranges)
    assert (signed.dtype, signed.tolist()) == (np.int8, [[value - 128 for value in row] for row in expected])
    assert Encoding(type=VectorType.INT8).encode(vectors[:1], "BertModel").tolist() == [[-25, 0, 127]]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{}", "should hold two lists of numbers, the least and the greatest of each component: "),
        ("[[1, 2]]", "should hold two lists of numbers"),
        ("[[1, true], [2, 2]]", "should hold two lists of numbers"),
        ("[[1, NaN], [2, 2]]", "should hold two lists of numbers"),
        ("\xff", "should hold two lists of numbers"),
        ("[[1, 2], [2, 3, 4]]", ": vectors have 2 components, list [1] has 3"),
        ("[[1, 2], [2, 1.5]]", ": [0][1] to [1][1] is no range: 2.0 to 1.5"),
        ("[[1, -3e38], [2, 3e38]]", ": [0][1] to [1][1] is no range: "),
        ("[[1e39, 0], [1e39, 1]]", ": [0][0] to [1][0] is no range: "),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, says: str) -> None:
    path = file_of(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        Int8Ranges.read(path, 2)
    assert refused.value.message.startswith(f"--int8-ranges {path}{'' if says[0] == ':' else ' '}{says}")


def test_a_file_that_is_not_there_is_named() -> None:
    with pytest.raises(ConfigError, match="--int8-ranges /no/such: No such file"):
        Int8Ranges.read("/no/such", 2)


def test_a_file_of_json_dumps_round_trips(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).normal(size=(2, 8)).astype(np.float32)
    numbers.sort(axis=0)
    ranges = Int8Ranges.read(file_of(tmp_path, json.dumps(numbers.tolist())), 8)
    assert np.array_equal(ranges.starts, numbers[0])
    assert np.array_equal(ranges.steps, (numbers[1] - numbers[0]) / 255)
