"""What sequences cost, in the four quantities that batches and the queue are limited by."""

from typing import NamedTuple

from rosebed.core.engine import BatchLimits
from rosebed.tulip.config import TulipConfig


class Cost(NamedTuple):
    """Amounts of each limited quantity."""

    tokens: int = 0
    sequences: int = 0
    spans: int = 0
    output_bytes: int = 0

    @classmethod
    def of_limits(cls, limits: BatchLimits) -> "Cost":
        """The most that one batch may cost."""
        return cls(limits.tokens, limits.sequences, limits.spans, limits.output_bytes)

    @classmethod
    def of_queue(cls, config: TulipConfig) -> "Cost":
        """The most that all admitted, unfinished sequences of a lane may cost."""
        return cls(
            config.max_queued_tokens,
            config.max_queued_sequences,
            config.max_queued_spans,
            config.max_queued_output_bytes,
        )

    def plus(self, other: "Cost") -> "Cost":
        return Cost(
            self.tokens + other.tokens,
            self.sequences + other.sequences,
            self.spans + other.spans,
            self.output_bytes + other.output_bytes,
        )

    def minus(self, other: "Cost") -> "Cost":
        return Cost(
            self.tokens - other.tokens,
            self.sequences - other.sequences,
            self.spans - other.spans,
            self.output_bytes - other.output_bytes,
        )

    def fits(self, capacity: "Cost") -> bool:
        """Whether no quantity is more than `capacity` has."""
        return (
            self.tokens <= capacity.tokens
            and self.sequences <= capacity.sequences
            and self.spans <= capacity.spans
            and self.output_bytes <= capacity.output_bytes
        )

    def excess(self, capacity: "Cost") -> str:
        """The name of the first quantity that is more than `capacity` has, where this does not fit."""
        return next(name for name in self._fields if getattr(self, name) > getattr(capacity, name))

    def fills(self, capacity: "Cost") -> bool:
        """Whether some quantity reaches what `capacity` has."""
        return (
            self.tokens >= capacity.tokens
            or self.sequences >= capacity.sequences
            or self.spans >= capacity.spans
            or self.output_bytes >= capacity.output_bytes
        )
