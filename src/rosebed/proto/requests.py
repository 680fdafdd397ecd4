"""Requests: sequences to an `EmbedRequest` and back. Reading trusts nothing: everything is range-checked in numpy.

No Python object is made per token; sequences are views into the message's bytes.
"""

import struct
from bisect import bisect_right
from collections.abc import Sequence as AnySequence
from itertools import accumulate

import numpy as np

from rosebed.core.engine import EngineInfo
from rosebed.core.errors import ContextLengthExceeded, FingerprintMismatch, InvalidInput, WrongModelKind
from rosebed.core.token_ids import all_below
from rosebed.core.types import DENSE_ONLY, Int32Array, Lane, OutputKind, Sequence, whole_span
from rosebed.proto.failures import shown
from rosebed.proto.rosebed_pb2 import EmbedRequest

_WIRE_INT = np.dtype("<i4")


def request_message(
    sequences: AnySequence[Sequence],
    *,
    request_id: int,
    lane: Lane = Lane.ONLINE,
    timeout_ns: int = 0,
    fingerprint: str = "",
) -> EmbedRequest:
    """One request for `sequences` (at least one; all want the same outputs, dimensions and normalisation)."""
    first = sequences[0]
    if len(sequences) > 1:
        _check_alike(sequences)
    # Fields left at their defaults cost time too, so the rare ones are set only where they are not.
    message = EmbedRequest(
        request_id=request_id,
        token_ids=_packed([sequence.token_ids for sequence in sequences]),
        lengths=struct.pack(f"<{len(sequences)}i", *[len(sequence.token_ids) for sequence in sequences]),
        lane=lane,  # pyright: ignore[reportArgumentType]
    )
    if first.dimensions:
        message.dimensions = first.dimensions
    if timeout_ns:
        message.timeout_ns = timeout_ns
    if fingerprint:
        message.fingerprint = fingerprint
    if first.normalize is not None:
        message.normalize = first.normalize
    if first.outputs != DENSE_ONLY:
        message.outputs.extend(sorted(first.outputs))  # pyright: ignore[reportArgumentType]
    _pack_token_types(message, sequences)
    _pack_spans(message, sequences)
    return message


def _check_alike(sequences: AnySequence[Sequence]) -> None:
    first = sequences[0]
    wanted = (first.outputs, first.dimensions, first.normalize)
    if any((s.outputs, s.dimensions, s.normalize) != wanted for s in sequences):
        raise ValueError("the sequences of one request share outputs, dimensions and normalize")


def _packed(arrays: list[Int32Array]) -> bytes:
    joined = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    return joined.astype(_WIRE_INT, copy=False).tobytes()


def _pack_token_types(message: EmbedRequest, sequences: AnySequence[Sequence]) -> None:
    for sequence in sequences:
        if sequence.token_type_ids is not None:
            break
    else:
        return
    message.token_type_ids = _packed(
        [
            np.zeros(sequence.num_tokens, np.int32) if sequence.token_type_ids is None else sequence.token_type_ids
            for sequence in sequences
        ]
    )


def _pack_spans(message: EmbedRequest, sequences: AnySequence[Sequence]) -> None:
    for sequence in sequences:
        # NOTE: compared as lists, since arithmetic on arrays this small costs numpy twenty times as much.
        if sequence.pool_spans.tolist() != [[0, len(sequence.token_ids)]]:
            break
    else:
        return
    message.span_offsets = _packed([sequence.pool_spans for sequence in sequences])
    message.span_counts = np.array([sequence.num_spans for sequence in sequences], "<i4").tobytes()


def lane_of(message: EmbedRequest) -> Lane:
    """The traffic class asked for. InvalidInput if there is no such class."""
    try:
        return Lane(int(message.lane))
    except ValueError:
        raise InvalidInput(f"lane should be 0 or 1, not {int(message.lane)}", param="lane") from None


def sequences_of(message: EmbedRequest, info: EngineInfo) -> tuple[Sequence, ...]:
    """The request's sequences, in order, fit for the engine that `info` describes.

    InvalidInput (`param` is a field, or `sequences[i]`), ContextLengthExceeded, WrongModelKind or
    FingerprintMismatch says why a request is refused.
    """
    if message.fingerprint and message.fingerprint != info.fingerprint:
        raise FingerprintMismatch(
            f"the request was made for model {shown(message.fingerprint)}, this replica holds {info.fingerprint!r}"
        )
    outputs = _outputs(message, info)
    dimensions = _dimensions(message, info, outputs)
    normalize = message.normalize if message.HasField("normalize") else None
    lengths = _int32(message.lengths, "lengths").tolist()
    token_ids = _int32(message.token_ids, "token_ids")
    ends = _token_ends(lengths, len(token_ids), info.max_length)
    _check_range(token_ids, "token_ids", limit=info.vocab_size, ends=ends)
    token_types = _token_types(message, info, ends)
    spans = _spans(message, lengths, most=info.limits.spans)
    starts = [0, *ends]
    return tuple(
        Sequence(
            token_ids=token_ids[starts[index] : starts[index + 1]],
            pool_spans=own_spans,
            token_type_ids=None if token_types is None else token_types[starts[index] : starts[index + 1]],
            outputs=outputs,
            dimensions=dimensions,
            normalize=normalize,
            request_id=message.request_id,
            index=index,
        )
        for index, own_spans in enumerate(spans)
    )


def _outputs(message: EmbedRequest, info: EngineInfo) -> frozenset[OutputKind]:
    if not message.outputs:
        wanted = DENSE_ONLY
    elif len(message.outputs) > len(OutputKind):
        raise InvalidInput(f"outputs holds {len(message.outputs)} kinds, there are {len(OutputKind)}", param="outputs")
    else:
        try:
            wanted = frozenset(OutputKind(int(kind)) for kind in message.outputs)
        except ValueError as error:
            raise InvalidInput(f"outputs: {error}", param="outputs") from None
    missing = wanted - info.outputs.keys()
    if missing:
        names = ", ".join(sorted(kind.name for kind in missing))
        has = ", ".join(kind.name for kind in sorted(info.outputs))
        raise WrongModelKind(f"outputs: {info.model} does not return {names}; it returns {has}", param="outputs")
    return wanted


def _dimensions(message: EmbedRequest, info: EngineInfo, outputs: frozenset[OutputKind]) -> int:
    if not message.HasField("dimensions"):
        return 0
    if OutputKind.DENSE not in outputs:
        raise InvalidInput("dimensions applies to the DENSE output, which was not asked for", param="dimensions")
    dim = info.outputs[OutputKind.DENSE].dim
    if not 1 <= message.dimensions <= dim:
        raise InvalidInput(f"dimensions should lie in [1, {dim}], not be {message.dimensions}", param="dimensions")
    return message.dimensions


def _int32(data: bytes, field: str) -> Int32Array:
    if len(data) % 4:
        raise InvalidInput(f"{field} should be packed int32, but its {len(data)} bytes are not whole", param=field)
    return np.frombuffer(data, _WIRE_INT).astype(np.int32, copy=False)


def _token_ends(lengths: list[int], num_tokens: int, max_length: int) -> list[int]:
    """Where each sequence ends on the packed axis."""
    if not lengths:
        raise InvalidInput("lengths is empty: a request needs at least one sequence", param="lengths")
    if min(lengths) < 1:
        index = next(index for index, length in enumerate(lengths) if length < 1)
        raise InvalidInput(
            f"lengths: sequences[{index}] has {lengths[index]} tokens, at least 1 is needed",
            param=f"sequences[{index}]",
        )
    ends = list(accumulate(lengths))
    if ends[-1] != num_tokens:
        raise InvalidInput(f"lengths sum to {ends[-1]}, but token_ids holds {num_tokens}", param="lengths")
    if max(lengths) > max_length:
        index = next(index for index, length in enumerate(lengths) if length > max_length)
        raise ContextLengthExceeded(
            f"sequences[{index}] has {lengths[index]} tokens, this model takes {max_length}",
            param=f"sequences[{index}]",
        )
    return ends


def _check_range(values: Int32Array, field: str, *, limit: int, ends: list[int]) -> None:
    """InvalidInput naming the first of `values` outside [0, limit) and its sequence."""
    if all_below(values, limit):
        return
    position = int((values.view(np.uint32) >= limit).argmax())
    index = bisect_right(ends, position)
    raise InvalidInput(
        f"{field}: {values[position]} in sequences[{index}] is outside [0, {limit})", param=f"sequences[{index}]"
    )


def _token_types(message: EmbedRequest, info: EngineInfo, ends: list[int]) -> Int32Array | None:
    if not message.token_type_ids:
        return None
    token_types = _int32(message.token_type_ids, "token_type_ids")
    if len(token_types) != ends[-1]:
        raise InvalidInput(
            f"token_type_ids holds {len(token_types)} values for {ends[-1]} tokens", param="token_type_ids"
        )
    _check_range(token_types, "token_type_ids", limit=max(1, info.type_vocab_size), ends=ends)
    return token_types


def _spans(message: EmbedRequest, lengths: list[int], *, most: int) -> list[Int32Array]:
    """Each sequence's pool spans: int32[num_spans, 2] each, no more than `most`."""
    if not message.span_counts and not message.span_offsets:
        if len(lengths) == 1:
            return [whole_span(lengths[0])]
        whole = np.zeros((len(lengths), 1, 2), np.int32)
        whole[:, 0, 1] = lengths
        return list(whole)
    counts = _int32(message.span_counts, "span_counts")
    spans = _int32(message.span_offsets, "span_offsets")
    _check_span_counts(counts, num_sequences=len(lengths), num_offsets=len(spans), most=most)
    spans = spans.reshape(-1, 2)
    owners = np.repeat(np.arange(len(counts)), counts)
    wrong = (spans[:, 0] < 0) | (spans[:, 0] >= spans[:, 1]) | (spans[:, 1] > np.array(lengths)[owners])
    if wrong.any():
        at = int(np.argmax(wrong))
        index = int(owners[at])
        raise InvalidInput(
            f"span_offsets: [{spans[at, 0]}, {spans[at, 1]}) is not a span of the {lengths[index]} tokens "
            f"of sequences[{index}]",
            param=f"sequences[{index}]",
        )
    return np.split(spans, np.cumsum(counts)[:-1])


def _check_span_counts(counts: Int32Array, *, num_sequences: int, num_offsets: int, most: int) -> None:
    if len(counts) != num_sequences:
        raise InvalidInput(f"span_counts holds {len(counts)} counts for {num_sequences} sequences", param="span_counts")
    if counts.min() < 1:
        index = int(np.argmax(counts < 1))
        raise InvalidInput(f"span_counts: sequences[{index}] has no span", param=f"sequences[{index}]")
    total = int(counts.sum(dtype=np.int64))
    if 2 * total != num_offsets:
        raise InvalidInput(
            f"span_counts sum to {total}, but span_offsets holds {num_offsets} numbers, not {2 * total}",
            param="span_counts",
        )
    if counts.max() > most:
        index = int(counts.argmax())
        raise InvalidInput(
            f"span_counts: sequences[{index}] has {counts[index]} spans, at most {most} are taken",
            param=f"sequences[{index}]",
        )
