"""One line on a terminal that says what is going on; nothing where stderr is no terminal."""

import sys
import time
from types import TracebackType
from typing import Self

_ERASE_LINE = "\r\x1b[2K"


class ProgressLine:
    """Shows the latest activity while its context lasts, then erases it."""

    def __init__(self) -> None:
        self._stream = sys.stderr
        self._is_terminal = self._stream.isatty()
        self._activity = ""
        self._started_s = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._write("")

    def show(self, activity: str, count: int) -> None:
        """Say that `activity` goes on, and that `count` sequences are done."""
        if activity != self._activity:
            self._activity, self._started_s = activity, time.monotonic()
        done = f", {count:,} sequences" if count else ""
        self._write(f"{activity}: {time.monotonic() - self._started_s:.0f} s{done}")

    def _write(self, line: str) -> None:
        if self._is_terminal:
            self._stream.write(_ERASE_LINE + line)
            self._stream.flush()
