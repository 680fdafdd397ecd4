"""`TokenClient`: token ids in, vectors out, straight from an inference server over gRPC. Knows no text."""

import reprlib
from collections.abc import Generator, Iterable
from collections.abc import Sequence as AnySequence
from contextlib import contextmanager
from functools import cached_property
from typing import Self

import grpc
import numpy as np

from rosebed.core.errors import DeadlineExceeded, InvalidInput, RosebedError, ServerError, Unavailable
from rosebed.core.options import as_dimensions, as_flag, as_timeout_s
from rosebed.core.types import Float32Array, Int32Array, OutputKind, Sequence, whole_span
from rosebed.proto.codec import Assembler, ReplicaInfo, ReplyRows, error_of_metadata, info_of, request_message
from rosebed.proto.rosebed_pb2 import InfoRequest
from rosebed.proto.rosebed_pb2_grpc import TulipStub

TokenIds = AnySequence[int] | Int32Array

_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class TokenClient:
    """A connection to one inference server. Usable from several threads.

    >>> with TokenClient("127.0.0.1:50051") as client:
    ...     vectors = client.embed([[101, 7592, 102], [101, 102]])
    """

    def __init__(self, target: str, *, timeout_s: float = 60.0) -> None:
        """`target` is HOST:PORT, or unix:PATH."""
        self._target = target
        self._timeout_s = as_timeout_s(timeout_s)
        self._channel = grpc.insecure_channel(target, _OPTIONS)
        self._stub = TulipStub(self._channel)

    @cached_property
    def info(self) -> ReplicaInfo:
        """What is loaded there. Unavailable until the server is ready."""
        with self._translated():
            return info_of(self._stub.Info(InfoRequest(), timeout=self._timeout_s))

    def embed(
        self, token_ids: AnySequence[TokenIds], *, dimensions: int | None = None, normalize: bool | None = None
    ) -> Float32Array:
        """One vector per sequence of ids (special tokens included), in order: float32[n, dim].

        One call is one request. InvalidInput names `input[i]` that is not a list of whole numbers. Raises the error of
        the first sequence that failed.
        """
        if not isinstance(token_ids, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance] - callers need not be typed
            raise InvalidInput(f"token_ids should be a list, not {type(token_ids).__name__}", param="token_ids")
        sequences = [
            as_sequence(ids, index, dimensions=dimensions, normalize=normalize) for index, ids in enumerate(token_ids)
        ]
        if not sequences:
            raise InvalidInput("token_ids should hold at least one sequence", param="token_ids")
        reply = self.request(sequences)
        for index in sorted(reply.errors):
            raise reply.errors[index]
        return reply.outputs[OutputKind.DENSE]

    def request(self, sequences: AnySequence[Sequence]) -> ReplyRows:
        """The whole answer, with errors per sequence and the server's timings."""
        assembler = Assembler(sequences, self.info.engine.outputs)
        with self._translated():
            assembler.add(self._stub.Embed(request_message(sequences, request_id=1), timeout=self._timeout_s))
        return assembler.result()

    @contextmanager
    def _translated(self) -> Generator[None]:
        try:
            yield
        except grpc.RpcError as error:
            raise error_of_call(error, self._target) from error
        except ValueError as error:  # all that grpc says of a closed channel
            raise Unavailable(f"{self._target} cannot be asked: {error}") from error

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def as_sequence(ids: TokenIds, index: int, *, dimensions: int | None, normalize: bool | None) -> Sequence:
    """`ids`, which are `input[index]`, as one sequence with one vector over all of it. Else InvalidInput."""
    array = _as_array(ids, f"input[{index}]")
    return Sequence(
        token_ids=array,
        pool_spans=whole_span(len(array)),
        dimensions=as_dimensions(dimensions) or 0,
        normalize=as_flag(normalize, "normalize"),
    )


def _as_array(ids: TokenIds, name: str) -> Int32Array:
    complaint = InvalidInput(f"{name} should be a list of token ids, not {reprlib.repr(ids)}", param=name)
    try:
        array = np.asarray(ids)
    except ValueError:  # lists of unlike lengths inside
        raise complaint from None
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise complaint
    limits = np.iinfo(np.int32)
    if array.size and (array.min() < limits.min or array.max() > limits.max):
        raise complaint
    return array.astype(np.int32)


def error_of_call(error: grpc.RpcError, target: str) -> RosebedError:
    """What a failed call means: the server's own refusal, or else trouble on the way to it."""
    assert isinstance(error, grpc.Call)
    details = error.details() or ""
    metadata = {datum.key: datum.value for datum in error.trailing_metadata() or () if isinstance(datum.value, str)}
    if (refusal := error_of_metadata(metadata, details)) is not None:
        return refusal
    message = f"{target}: {details}"
    if error.code() is grpc.StatusCode.UNAVAILABLE:
        return Unavailable(message)
    if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
        return DeadlineExceeded(message)
    return ServerError(f"{error.code().name}: {message}")
