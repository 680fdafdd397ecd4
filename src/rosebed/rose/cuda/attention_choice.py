"""Which attention backend computes a batch: by times measured on this chip, else by a rule of thumb. Knows no tensors.

A batch is judged by one length: the mean over its tokens of the length of the sequence each is in, since the work grows
with the square of a length. Times were measured on full steps of equally long sequences (`tune_attention`).
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from rosebed.core.errors import ConfigError
from rosebed.rose.cuda.keys import PAY_PER_SEQUENCE, GraphKey, few_sequences, sequence_capacity
from rosebed.rose.cuda.tables import Table

OURS = "triton"
ATTENTION = "attention"
"""Name in a table of what was measured."""
LAYERS = 24
"""Over which a plan on the host is spread: what the models that long texts are sent to have."""

LONG_LEAST_TOKENS = 1024
"""Smaller steps are always ours: nothing else starts as fast."""
LONG_LEAST_LENGTH = {"flashinfer-fa3": {64: 2048, 128: 512}, "fa3": {64: 3072, 128: 1024}}
"""Without a table: backend → head size → length from which it beats ours (H200, bf16). The first installed is used."""
IDLE_LEAST_LENGTH = {64: 2048, 128: 1024}
"""The same for a step that nothing runs before: a plan on the host then delays it, by 0.1 to 0.5 ms."""


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What times depend on, beside lengths."""

    num_heads: int
    num_kv_heads: int
    head_dim: int
    causal: bool


@dataclass(frozen=True, slots=True)
class MeasuredAttention:
    """Times for lengths up to a bound."""

    most_length: int
    us: Mapping[str, float]
    """Backend → µs a layer on the device."""
    plan_us: Mapping[str, float]
    """Backend → µs a step on the host, where it plans there at all."""

    def fastest(self, names: Iterable[str], *, idle: bool) -> str | None:
        """None if none of `names` was measured. A plan costs nothing while another step runs."""
        delays = self.plan_us if idle else {}
        costs = {name: self.us[name] + delays.get(name, 0.0) / LAYERS for name in names if name in self.us}
        return min(costs, key=costs.__getitem__, default=None)


AttentionRows = Mapping[AttentionShape, tuple[MeasuredAttention, ...]]
"""Ascending by length; the last row also stands for everything longer."""


def attention_rows(table: Table) -> AttentionRows:
    """The times in a table; none where it has none. ConfigError if they have another form."""
    rows: dict[AttentionShape, list[MeasuredAttention]] = {}
    try:
        for entry in table.get(ATTENTION, []):
            shape = AttentionShape(entry["num_heads"], entry["num_kv_heads"], entry["head_dim"], entry["causal"])
            row = MeasuredAttention(entry["most_length"], dict(entry["us"]), dict(entry["plan_us"]))
            rows.setdefault(shape, []).append(row)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ConfigError("the table of kernels has attention of another form than `rosebed tune` writes") from error
    return {shape: tuple(sorted(choices, key=lambda row: row.most_length)) for shape, choices in rows.items()}


@dataclass(frozen=True, slots=True)
class AttentionChoice:
    """The backends that one model has, and how to choose among them."""

    names: tuple[str, ...]
    """Not empty."""
    head_dim: int
    rows: tuple[MeasuredAttention, ...] = ()
    """Of the model's shape; none where nothing was measured."""

    def choose(self, num_tokens: int, num_sequences: int, length: int, *, idle: bool) -> str:
        """The backend for a batch of `length`; `idle` where no step is in flight."""
        if sole := self.sole(num_tokens):
            return sole
        names = [name for name in self.names if num_sequences <= _auto_capacity(name, num_tokens)]
        return self._fastest(names, length, idle=idle) or self.names[0]

    def sole(self, num_tokens: int) -> str | None:
        """The backend for every batch of so many tokens; None where their lengths decide."""
        if OURS in self.names and num_tokens < LONG_LEAST_TOKENS:
            return OURS
        return self.names[0] if len(self.names) == 1 else None

    def least_tokens(self) -> dict[str, int]:
        """Backend → least tokens of the steps that may take it; without those that none may."""
        if len(self.names) == 1:
            return {self.names[0]: 0}
        starts = [1, *(row.most_length + 1 for row in self.rows[:-1])] if self.rows else self._thumb_lengths()
        least = {OURS: 0} if OURS in self.names else {}
        for length in sorted(starts):
            for name in self._chosen_at(length):
                least.setdefault(name, max(LONG_LEAST_TOKENS, length))
        return least

    def keys(self, rungs: tuple[int, ...]) -> list[GraphKey]:
        """Those that batches can meet on a ladder."""
        alone = len(self.names) == 1
        keys: dict[GraphKey, None] = {}
        for name, least in self.least_tokens().items():
            for num_tokens in (rung for rung in rungs if rung >= least):
                keys[GraphKey.holding(num_tokens, name, 1)] = None
                if alone:
                    keys[GraphKey.holding(num_tokens, name, sequence_capacity(num_tokens))] = None
        return list(keys)

    def _chosen_at(self, length: int) -> Iterator[str]:
        """Every answer at this length: idle or not, with few sequences or with many."""
        for names in (self.names, [name for name in self.names if name not in PAY_PER_SEQUENCE]):
            for idle in (False, True):
                if name := self._fastest(names, length, idle=idle):
                    yield name

    def _fastest(self, names: Iterable[str], length: int, *, idle: bool) -> str | None:
        if not self.rows:
            return self._by_thumb(names, length, idle=idle)
        row = next((row for row in self.rows if length <= row.most_length), self.rows[-1])
        return row.fastest(names, idle=idle)

    def _by_thumb(self, names: Iterable[str], length: int, *, idle: bool) -> str | None:
        names = tuple(names)
        long = next((name for name in LONG_LEAST_LENGTH if name in names), None)
        if long is None or self.head_dim not in IDLE_LEAST_LENGTH:
            return OURS if OURS in names else None
        least = LONG_LEAST_LENGTH[long][self.head_dim]
        if idle:
            least = max(least, IDLE_LEAST_LENGTH[self.head_dim])
        return OURS if OURS in names and length < least else long

    def _thumb_lengths(self) -> list[int]:
        """Where the rule of thumb may change its answer."""
        by_head = (*LONG_LEAST_LENGTH.values(), IDLE_LEAST_LENGTH)
        return [1, *(lengths[self.head_dim] for lengths in by_head if self.head_dim in lengths)]


def _auto_capacity(name: str, num_tokens: int) -> float:
    """Most sequences with which a backend was measured, and is worth its while."""
    if name == OURS:
        return float("inf")
    return few_sequences(num_tokens) if name in PAY_PER_SEQUENCE else sequence_capacity(num_tokens)
