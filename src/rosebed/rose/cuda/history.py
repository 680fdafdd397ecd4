"""How many steps of each size a model has had here, kept in a file of the user's from run to run. Knows no tensors.

The file is of no account: one that is missing, broken or of something else is as good as none, and is written anew. It
is replaced as a whole, so that processes that share it see one of their versions, the last one written.
"""

import json
import logging
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from rosebed.core.types import Lane
from rosebed.rose.cuda.keys import GraphKey
from rosebed.rose.cuda.tables import slug

_logger = logging.getLogger(__name__)

MOST_ROWS = 1000
"""Kept in a file: the most frequent."""
MOST_BYTES = 1 << 20
MOST_COUNT = 1 << 53
MOST_TOKENS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryKey:
    """What the sizes are of."""

    chip: str
    """As CUDA names it."""
    fingerprint: str
    """Of the model."""
    dtype: str
    rosebed: str
    torch: str
    triton: str

    @property
    def file_name(self) -> str:
        return f"{slug(self.chip)}_{sha256(json.dumps(asdict(self)).encode()).hexdigest()[:16]}.json"


def user_folder() -> Path:
    """Where histories of this user lie."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "rosebed" / "steps"


@dataclass(frozen=True, slots=True)
class History:
    """The file of one model on one chip."""

    key: HistoryKey
    folder: Path

    @property
    def path(self) -> Path:
        return self.folder / self.key.file_name

    def read(self) -> Counter[GraphKey]:
        """Steps by the key of their own size; none, with a warning, where the file says nothing that can be used."""
        if not self.path.is_file():
            return Counter()
        try:
            if self.path.stat().st_size > MOST_BYTES:
                raise ValueError("it is too large")
            content = json.loads(self.path.read_text())
            if content["key"] != asdict(self.key):
                raise ValueError("it is of something else")
            return Counter({_key(row): _within(row[4], MOST_COUNT) for row in content["steps"][:MOST_ROWS]})
        except (OSError, ValueError, KeyError, TypeError, IndexError, RecursionError) as error:
            _logger.warning("%s is ignored, and will be written anew: %s: %s", self.path, type(error).__name__, error)
            return Counter()

    def write(self, counts: Mapping[GraphKey, int]) -> None:
        """Replace the file. What goes wrong is only warned of."""
        rows = [
            [key.slot.name, key.attention, key.num_tokens, key.max_sequences, count]
            for key, count in Counter(counts).most_common(MOST_ROWS)
        ]
        partial = self.path.with_name(f".{self.path.name}.{os.getpid()}")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            partial.write_text(json.dumps({"key": asdict(self.key), "steps": rows}) + "\n")
            partial.replace(self.path)
        except OSError as error:
            _logger.warning("the sizes of steps are not kept: %s: %s", self.path, error)


def _key(row: Any) -> GraphKey:
    slot, attention, num_tokens, max_sequences, _count = row
    if not isinstance(attention, str):
        raise TypeError(f"{attention!r} is no attention backend")
    sequences = None if max_sequences is None else _within(max_sequences, MOST_TOKENS)
    return GraphKey(_within(num_tokens, MOST_TOKENS), attention, sequences, Lane[slot])


def _within(value: Any, most: int) -> int:
    if type(value) is not int or not 0 < value <= most:
        raise ValueError(f"{value!r} is no count")
    return value
