"""One line for each answer, on stdout. Lines go out together, a few times a second."""

import asyncio
import sys
import time
from typing import TextIO

from rosebed.ivy.http.call import Call
from rosebed.ivy.http.reply import Reply

FLUSH_S = 0.2


class AccessLog:
    """`TIME CLIENT "METHOD TARGET" STATUS BYTES MILLISECONDS REQUEST-ID`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, stream: TextIO | None = None) -> None:
        """Lines go to `stream`, or else to stdout."""
        self._loop = loop
        self._stream = stream or sys.stdout
        self._lines: list[str] = []

    def add(self, call: Call, reply: Reply, transport: asyncio.Transport | None) -> None:
        """`call` was answered, on `transport`; None if that is gone. BYTES are those of the body that were sent."""
        peer = None if transport is None else transport.get_extra_info("peername")
        client = f"{peer[0]}:{peer[1]}" if isinstance(peer, tuple) else "-"
        took_ms = (time.perf_counter() - call.started_s) * 1e3
        target = call.target.decode("latin-1").replace('"', "%22")
        num_bytes = 0 if call.method == b"HEAD" else len(reply.body)
        if not self._lines:
            self._loop.call_later(FLUSH_S, self.flush)
        self._lines.append(
            f"{time.strftime('%Y-%m-%dT%H:%M:%S%z')} {client} "
            f'"{call.method.decode("latin-1")} {target}" {reply.status} {num_bytes} '
            f"{took_ms:.2f} {call.request_id.decode()}\n"
        )

    def flush(self) -> None:
        """Write what was added."""
        lines, self._lines = self._lines, []
        self._stream.write("".join(lines))
        self._stream.flush()
