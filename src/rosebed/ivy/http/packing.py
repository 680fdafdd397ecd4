"""gzip, both ways: bodies unpacked no further than to a limit, answers packed for those who take them so."""

import zlib

from rosebed.core.errors import InvalidInput

_GZIP = 16 + zlib.MAX_WBITS
LEVEL = 1
"""Of 9: vectors hardly get smaller by more work."""
MOST_MEMBERS = 64
"""A gzip file may be several, one after the other; so many empty ones that it takes time are nobody's intention."""


class Unpacker:
    """A gzip file in memory, unpacked bit by bit."""

    def __init__(self, packed: bytes) -> None:
        self._packed = packed
        self._member = zlib.decompressobj(_GZIP)
        self._num_members = 1
        self.is_done = False
        """Whether all of it was unpacked."""

    def read(self, most: int) -> bytes:
        """The next bytes, `most` of them unless it ends before. InvalidInput if it is no gzip, or breaks off."""
        parts: list[bytes] = []
        while most and not self.is_done:
            parts.append(self._step(most))
            most -= len(parts[-1])
        return b"".join(parts)

    def _step(self, most: int) -> bytes:
        try:
            part = self._member.decompress(self._packed, most)
        except zlib.error as error:
            raise InvalidInput(f"the body is not valid gzip: {error}") from None
        self._packed = self._member.unconsumed_tail
        if self._member.eof:
            self._begin_member(self._member.unused_data)
        elif not self._packed and len(part) < most:
            raise InvalidInput("the body is not valid gzip: it breaks off")
        return part

    def _begin_member(self, rest: bytes) -> None:
        if not rest:
            self.is_done = True
            return
        self._num_members += 1
        if self._num_members > MOST_MEMBERS:
            raise InvalidInput(f"the body is over {MOST_MEMBERS} gzip files in one")
        self._packed, self._member = rest, zlib.decompressobj(_GZIP)


def packed(data: bytes) -> bytes:
    """`data` as a gzip file."""
    return zlib.compress(data, LEVEL, _GZIP)


def accepts_gzip(accept_encoding: bytes) -> bool:
    """Whether a client that sends this header takes gzip."""
    weights: dict[bytes, float] = {}
    for item in accept_encoding.lower().split(b","):
        coding, _, parameters = item.partition(b";")
        weights[coding.strip()] = _weight(parameters)
    return weights.get(b"gzip", weights.get(b"*", 0.0)) > 0


def _weight(parameters: bytes) -> float:
    name, _, value = parameters.partition(b"=")
    if name.strip() != b"q":
        return 1.0
    try:
        return float(value)
    except ValueError:
        return 0.0
