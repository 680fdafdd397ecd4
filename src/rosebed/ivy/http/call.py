"""One HTTP request as the edge has read it so far: headers first, the body when a handler asks."""

import random
import re
import time
from collections.abc import Mapping
from types import MappingProxyType

from rosebed.core.errors import InvalidInput, UnsupportedMediaType
from rosebed.ivy.http.body import Body
from rosebed.ivy.http.intake import BodyIntake

_REQUEST_ID = re.compile(rb"[\x21-\x7e]{1,128}")
_JSON_TYPE = re.compile(rb"\s*application/([\w.-]+\+)?json\s*(;|$)", re.IGNORECASE)
_NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})


class Call:
    """An HTTP request in progress. Made once per request, used by its own task only."""

    __slots__ = (
        "body",
        "disconnected",
        "headers",
        "is_continued",
        "keeps_alive",
        "method",
        "path_parameters",
        "request_id",
        "started_s",
        "target",
    )

    def __init__(
        self,
        method: bytes,
        target: bytes,
        headers: Mapping[bytes, bytes],
        body: Body,
        *,
        keeps_alive: bool = True,
    ) -> None:
        """`headers` by their names in lower case."""
        self.method = method
        self.target = target
        """What the request line names: path and query, still quoted."""
        self.headers = headers
        self.body = body
        self.keeps_alive = keeps_alive
        """Whether the client may send another request on this connection."""
        self.path_parameters = _NO_PARAMETERS
        """What the route's path leaves open, once the router has found it."""
        self.is_continued = False
        """Whether the client, which waited to be told, was told to send its body."""
        self.disconnected = False
        """Whether the client went away before the answer."""
        self.started_s = time.perf_counter()
        """When it began to be answered, on the clock of `time.perf_counter`; until then, when it came."""
        self.request_id = headers.get(b"x-request-id", b"")
        if not _REQUEST_ID.fullmatch(self.request_id):
            self.request_id = new_request_id()

    @property
    def authorization(self) -> bytes:
        """As it was sent; empty if it was not."""
        return self.headers.get(b"authorization", b"")

    async def read_json(self, intake: BodyIntake) -> bytes:
        """The body, announced as JSON or not announced at all; unpacked, where it was packed with gzip.

        UnsupportedMediaType for another type or packing, InvalidInput if it is empty or badly packed; PayloadTooLarge,
        BodyTimeout and Overloaded as `intake` has its limits.
        """
        content_type = self.headers.get(b"content-type", b"")
        if content_type and content_type != b"application/json" and not _JSON_TYPE.match(content_type):
            raise UnsupportedMediaType(f"the body should be application/json, not {_printable(content_type)}")
        is_packed = b"content-encoding" in self.headers and self._is_packed(self.headers[b"content-encoding"])
        body = await intake.read(self.body)
        if body and is_packed:
            body = await intake.unpack(body)
        if not body:
            raise InvalidInput("the body is empty; it should be a JSON object")
        return body

    @staticmethod
    def _is_packed(content_encoding: bytes) -> bool:
        encoding = content_encoding.strip().lower()
        if encoding not in (b"identity", b"gzip", b"x-gzip", b""):
            raise UnsupportedMediaType(f"content-encoding {_printable(encoding)} is not read here; gzip is")
        return encoding.endswith(b"gzip")


def new_request_id() -> bytes:
    """A name for a request whose client gave none; no secret."""
    return b"%032x" % random.getrandbits(128)


def _printable(value: bytes) -> str:
    return repr(value[:100].decode("latin-1"))
