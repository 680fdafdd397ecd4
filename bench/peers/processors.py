"""Who uses the machine's processors: this program with all that it started, or others. Read from /proc."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

SAMPLE_S = 0.3


@dataclass(frozen=True, slots=True)
class Ticks:
    """Processor time since the machine started, in clock ticks."""

    total: int
    """Of all processors, idle ones included."""
    idle: int
    own: int
    """Of this process and its descendants, those included that have ended."""

    @classmethod
    def now(cls) -> "Ticks":
        user, nice, system, idle, wait, *others = map(
            int, Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]
        )
        return cls(user + nice + system + idle + wait + sum(others), idle + wait, _own_ticks())

    def others_since(self, before: "Ticks") -> float:
        """Share of all processor time since `before` that others used."""
        total = self.total - before.total
        used = total - (self.idle - before.idle)
        return max(0.0, (used - (self.own - before.own)) / total) if total else 0.0


def wait_until_quiet(most: float, *, patience_s: float) -> None:
    """Wait until others use no more than `most` of the processors, or `patience_s` are over.

    With as many OpenMP threads as processors, anything that runs beside them makes a forward pass several times slower.
    """
    deadline_s = time.monotonic() + patience_s
    while time.monotonic() < deadline_s:
        before = Ticks.now()
        time.sleep(SAMPLE_S)
        if Ticks.now().others_since(before) <= most:
            return


def _own_ticks() -> int:
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = path.parent.name, path.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # it has ended
        parents[int(pid)] = int(rest[1])
        ticks[int(pid)] = sum(map(int, rest[11:15]))  # utime, stime, and those of children that have ended
    own = {os.getpid()}
    while added := {pid for pid, parent in parents.items() if parent in own} - own:
        own |= added
    return sum(ticks.get(pid, 0) for pid in own)
