"""What an engine counts of itself: plain figures, by the lane whose steps they are of."""

from collections.abc import Mapping
from dataclasses import dataclass

from rosebed.core.counting import counted
from rosebed.core.types import Lane


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotStatistics:
    """One execution slot of an engine that captures its steps as graphs. Steps are those since warming up."""

    graphs: int = 0
    """Captured, and held for replay."""
    graph_bytes: int = 0
    """Device memory that the graphs took."""
    capture_seconds: float = 0.0
    """Time that compiling and capturing took, warming up included."""
    replays: int = 0
    """Steps that replayed a graph."""
    eager_steps: int = 0
    """Steps that ran kernel by kernel."""
    cold_steps: int = 0
    """Of these, each the first of its key: kernels that nothing before had needed were compiled while it waited."""
    live_captures: int = 0
    """Graphs captured on the way to a step, which waited for them."""
    idle_captures: int = 0
    """Graphs captured, for frequent sizes, while there was nothing else to do."""
    tokens: int = 0
    """Tokens of all these steps."""
    padding_tokens: int = 0
    """Tokens that steps computed beyond their own, since each fills its key."""

    def __str__(self) -> str:
        return f"{counted(self.graphs, 'graph')} in {self.capture_seconds:.1f} s, {self.graph_bytes / 1e6:.0f} MB"


EngineStatistics = Mapping[Lane, SlotStatistics]
"""By lane; a lane without a slot of its own is counted with the online one. Empty for an engine without graphs."""


def graphs_line(statistics: EngineStatistics) -> str:
    """What warming up has captured, for the log; empty where there is nothing to say."""
    return "; ".join(f"{lane.name.lower()}: {slot}" for lane, slot in statistics.items())
