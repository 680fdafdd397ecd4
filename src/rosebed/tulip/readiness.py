"""Whether the server takes requests, and who is told. One value that the servicers share."""

from collections.abc import Callable
from enum import Enum

from rosebed.core.errors import Unavailable


class Readiness(Enum):
    """Phases of a server's life, and what a refused caller is told."""

    STARTING = "the server is warming up"
    SERVING = "the server is ready"
    STALLED = "the running step is overdue"
    FAILED = "the engine cannot compute any more"
    STOPPING = "the server is shutting down"


class Gate:
    """STARTING → SERVING ⇄ STALLED; FAILED and STOPPING are for good, and STOPPING is the last."""

    def __init__(self) -> None:
        self._readiness = Readiness.STARTING
        self._listeners: list[Callable[[Readiness], None]] = []

    @property
    def readiness(self) -> Readiness:
        return self._readiness

    @property
    def is_open(self) -> bool:
        """Whether requests are taken."""
        return self._readiness is Readiness.SERVING

    def require_open(self) -> None:
        """Unavailable unless requests are taken."""
        if not self.is_open:
            raise Unavailable(self._readiness.value)

    def open(self) -> None:
        """The first inference succeeded."""
        self._move(Readiness.SERVING, since=(Readiness.STARTING,))

    def stall(self, stalled: bool) -> None:
        """The running step became overdue, or an overdue one ended."""
        if stalled:
            self._move(Readiness.STALLED, since=(Readiness.SERVING,))
        else:
            self._move(Readiness.SERVING, since=(Readiness.STALLED,))

    def fail(self) -> None:
        """No step will be run any more."""
        self._move(Readiness.FAILED, since=(Readiness.STARTING, Readiness.SERVING, Readiness.STALLED))

    def stop(self) -> None:
        """Nothing new is taken."""
        self._move(Readiness.STOPPING, since=tuple(Readiness))

    def add_listener(self, listener: Callable[[Readiness], None]) -> None:
        """Call with each new phase."""
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[Readiness], None]) -> None:
        self._listeners.remove(listener)

    def _move(self, readiness: Readiness, *, since: tuple[Readiness, ...]) -> None:
        if self._readiness in since and self._readiness is not readiness:
            self._readiness = readiness
            for listener in tuple(self._listeners):
                listener(readiness)
