"""Adds graphs for sizes that are frequent, one piece at a time, when there is nothing else to do. Knows no CUDA."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Protocol

from rosebed.core.types import Lane
from rosebed.rose.cuda.history import History
from rosebed.rose.cuda.keys import GraphKey
from rosebed.rose.cuda.refine import Room, refinements

_logger = logging.getLogger(__name__)

SAVE_EVERY_S = 300.0
MOST_S = 0.25
"""A piece that takes longer compiles what was expected to be compiled: rather none than that."""


class RefinedSlot(Protocol):
    """What is refined."""

    @property
    def wanted(self) -> Mapping[GraphKey, int]:
        """Live steps by the key of their own size."""
        ...

    @property
    def held(self) -> Collection[GraphKey]:
        """Keys that have graphs."""
        ...

    @property
    def graph_bytes(self) -> int: ...

    def rung_of(self, key: GraphKey) -> int | None:
        """Tokens of the ladder's key that steps of this size run in."""
        ...

    def compile(self, key: GraphKey) -> None: ...

    def capture_idle(self, key: GraphKey) -> None: ...


class Refiner:
    """Refines the ladders of an engine whose graphs are all captured."""

    def __init__(
        self,
        slots: Mapping[Lane, RefinedSlot],
        history: History,
        *,
        max_bytes: int | None,
        free_bytes: Callable[[], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`max_bytes` bounds the graphs of all slots; `free_bytes` tells what the device has left."""
        self._slots = slots
        self._history = history
        self._max_bytes = max_bytes
        self._free_bytes = free_bytes
        self._clock = clock
        # Halved from run to run, so that what was frequent once is forgotten.
        self._before = Counter({key: count // 2 for key, count in history.read().items() if count > 1})
        self._compiled: GraphKey | None = None
        self._stopped = False
        self._saved_at = clock()
        self._saved_steps = 0

    def advance(self) -> bool:
        """Do the next piece: compile one key's kernels, capture it, or write the history. False if there is none."""
        started = self._clock()
        if not self._refine():
            return self._save_if_due()
        if (elapsed := self._clock() - started) > MOST_S:
            self._stopped = True
            _logger.warning("a graph of a frequent size took %.1f s while idle: no more are added", elapsed)
        return True

    def save(self) -> None:
        """Write the sizes of earlier runs and of this one."""
        steps = sum(self._live().values())
        if steps != self._saved_steps:
            self._history.write(self._before + self._live())
            self._saved_steps = steps
        self._saved_at = self._clock()

    def _save_if_due(self) -> bool:
        if self._clock() - self._saved_at < SAVE_EVERY_S:
            return False
        self.save()
        return True

    def _refine(self) -> bool:
        if self._stopped:
            return False
        if (key := self._compiled) is not None:
            self._compiled = None
            self._slots[key.slot].capture_idle(key)
            _logger.info("captured a graph of %d tokens (%s, %s)", key.num_tokens, key.attention, key.slot.name.lower())
            return True
        keys = refinements(self._before + self._live(), self._rung_of, self._held())
        if not keys or not self._room().is_left:
            return False
        self._compiled = keys[0]
        self._slots[keys[0].slot].compile(keys[0])
        return True

    def _live(self) -> Counter[GraphKey]:
        return sum((Counter(slot.wanted) for slot in self._slots.values()), Counter[GraphKey]())

    def _held(self) -> set[GraphKey]:
        return {key for slot in self._slots.values() for key in slot.held}

    def _rung_of(self, key: GraphKey) -> int | None:
        slot = self._slots.get(key.slot)
        return None if slot is None else slot.rung_of(key)

    def _room(self) -> Room:
        return Room(
            num_graphs=sum(len(slot.held) for slot in self._slots.values()),
            graph_bytes=sum(slot.graph_bytes for slot in self._slots.values()),
            max_bytes=self._max_bytes,
            free_bytes=self._free_bytes(),
        )
