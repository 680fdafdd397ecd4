"""Requests over the wire: what arrives is what was sent, and nothing malformed gets through."""

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rosebed.core.errors import (
    ContextLengthExceeded,
    FingerprintMismatch,
    InvalidInput,
    RequestError,
    RosebedError,
    WrongModelKind,
    mapping_of,
)
from rosebed.core.outputs import OutputSpec, RowsPer
from rosebed.core.types import Lane, OutputKind, Sequence
from rosebed.proto.codec import joined, lane_of, request_message, separated, sequences_of
from rosebed.proto.rosebed_pb2 import EmbedRequest, StreamRequest
from rosebed.testing import fake_info, fake_sequence

INFO = fake_info(
    max_length=16,
    outputs={
        OutputKind.DENSE: OutputSpec(rows_per=RowsPer.SPAN, dim=8),
        OutputKind.SPARSE: OutputSpec(rows_per=RowsPer.TOKEN, dim=1),
    },
)


@st.composite
def requests(draw: st.DrawFn) -> list[Sequence]:
    """Sequences of one request, with spans and token types of every shape."""
    with_types = draw(st.booleans())
    outputs = draw(st.sets(st.sampled_from([OutputKind.DENSE, OutputKind.SPARSE]), min_size=1))
    dimensions = draw(st.integers(0, 8)) if OutputKind.DENSE in outputs else 0
    normalize = draw(st.sampled_from([None, False, True]))
    return [
        draw(_sequence(index, with_types, frozenset(outputs), dimensions, normalize))
        for index in range(draw(st.integers(1, 5)))
    ]


@st.composite
def _sequence(
    draw: st.DrawFn,
    index: int,
    with_types: bool,
    outputs: frozenset[OutputKind],
    dimensions: int,
    normalize: bool | None,
) -> Sequence:
    ids = draw(st.lists(st.integers(0, INFO.vocab_size - 1), min_size=1, max_size=INFO.max_length))
    bounds = st.integers(0, len(ids))
    span = st.tuples(bounds, bounds).filter(lambda pair: pair[0] < pair[1])
    spans = draw(st.one_of(st.just([(0, len(ids))]), st.lists(span, min_size=1, max_size=3)))
    types = draw(st.lists(st.integers(0, 1), min_size=len(ids), max_size=len(ids)))
    return Sequence(
        token_ids=np.array(ids, np.int32),
        pool_spans=np.array(spans, np.int32),
        token_type_ids=np.array(types, np.int32) if with_types else None,
        outputs=outputs,
        dimensions=dimensions,
        normalize=normalize,
        request_id=7,
        index=index,
    )


def _described(sequence: Sequence) -> tuple[object, ...]:
    types = sequence.token_type_ids
    return (
        sequence.token_ids.tolist(),
        sequence.pool_spans.tolist(),
        None if types is None else types.tolist(),
        sequence.outputs,
        sequence.dimensions,
        sequence.normalize,
        sequence.request_id,
        sequence.index,
    )


@given(sequences=requests())
def test_sequences_survive_the_wire(sequences: list[Sequence]) -> None:
    sent = request_message(sequences, request_id=7).SerializeToString()
    received = sequences_of(EmbedRequest.FromString(sent), INFO)
    assert [_described(s) for s in received] == [_described(s) for s in sequences]
    assert all(s.token_ids.dtype == np.int32 and s.pool_spans.dtype == np.int32 for s in received)


def test_defaults_are_left_out_of_the_message() -> None:
    message = request_message([fake_sequence([1, 2]), fake_sequence([3])], request_id=1)
    assert {field.name for field, _ in message.ListFields()} == {"request_id", "token_ids", "lengths"}


def test_request_fields_are_carried() -> None:
    message = request_message(
        [fake_sequence([1])], request_id=2**64 - 1, lane=Lane.BULK, timeout_ns=5, fingerprint=INFO.fingerprint
    )
    assert (message.request_id, lane_of(message), message.timeout_ns) == (2**64 - 1, Lane.BULK, 5)
    assert len(sequences_of(message, INFO)) == 1


def test_sequences_of_one_request_must_agree() -> None:
    with pytest.raises(ValueError, match="share"):
        request_message([fake_sequence([1]), fake_sequence([2], dimensions=4)], request_id=1)


def _int32(*values: int) -> bytes:
    return np.array(values, np.int64).astype("<i4").tobytes()


def _request(**changes: object) -> EmbedRequest:
    """Two sequences of 3 and 2 tokens, with `changes`."""
    fields: dict[str, object] = {"request_id": 1, "token_ids": _int32(1, 2, 3, 4, 5), "lengths": _int32(3, 2)}
    return EmbedRequest(**{**fields, **changes})  # pyright: ignore[reportArgumentType]


Refusal = tuple[dict[str, object], type[RosebedError], str, str]
REFUSALS: list[Refusal] = [
    ({"lengths": b""}, InvalidInput, "lengths", "at least one sequence"),
    ({"lengths": b"", "token_ids": b""}, InvalidInput, "lengths", "at least one sequence"),
    ({"lengths": b"\1\0\0"}, InvalidInput, "lengths", "3 bytes"),
    ({"token_ids": b"\1\0\0\0\1"}, InvalidInput, "token_ids", "5 bytes"),
    ({"lengths": _int32(3, 3)}, InvalidInput, "lengths", "sum to 6, but token_ids holds 5"),
    ({"lengths": _int32(3)}, InvalidInput, "lengths", "sum to 3"),
    ({"token_ids": b""}, InvalidInput, "lengths", "token_ids holds 0"),
    ({"lengths": _int32(5, 0)}, InvalidInput, "sequences[1]", "0 tokens"),
    ({"lengths": _int32(6, -1)}, InvalidInput, "sequences[1]", "-1 tokens"),
    ({"lengths": _int32(2**31 - 1, 2**31 - 1)}, InvalidInput, "lengths", "sum to 4294967294"),
    ({"lengths": _int32(-(2**31), 2**31 - 1)}, InvalidInput, "sequences[0]", "-2147483648 tokens"),
    ({"token_ids": _int32(1, 2, 3, -1, 5)}, InvalidInput, "sequences[1]", "-1 in sequences[1] is outside [0, 30000)"),
    ({"token_ids": _int32(1, 2, 30_000, 4, 5)}, InvalidInput, "sequences[0]", "30000 in sequences[0]"),
    ({"token_type_ids": _int32(0, 0, 0)}, InvalidInput, "token_type_ids", "3 values for 5 tokens"),
    ({"token_type_ids": _int32(0, 0, 0, 0, 2)}, InvalidInput, "sequences[1]", "token_type_ids: 2"),
    ({"token_type_ids": b"\0"}, InvalidInput, "token_type_ids", "1 bytes"),
    ({"span_counts": _int32(1)}, InvalidInput, "span_counts", "1 counts for 2 sequences"),
    ({"span_counts": _int32(1, 1)}, InvalidInput, "span_counts", "holds 0 numbers, not 4"),
    ({"span_offsets": _int32(0, 1)}, InvalidInput, "span_counts", "0 counts"),
    ({"span_counts": _int32(1, 0), "span_offsets": _int32(0, 1)}, InvalidInput, "sequences[1]", "no span"),
    ({"span_counts": _int32(1, -1), "span_offsets": b""}, InvalidInput, "sequences[1]", "no span"),
    (
        {"span_counts": _int32(2**31 - 1, 2**31 - 1), "span_offsets": _int32(0, 1)},
        InvalidInput,
        "span_counts",
        "sum to",
    ),
    ({"span_counts": _int32(1, 1), "span_offsets": _int32(0, 1, 0)}, InvalidInput, "span_counts", "holds 3 numbers"),
    ({"span_counts": _int32(1, 1), "span_offsets": _int32(0, 3, 1, 1)}, InvalidInput, "sequences[1]", "[1, 1)"),
    ({"span_counts": _int32(1, 1), "span_offsets": _int32(0, 3, 1, 3)}, InvalidInput, "sequences[1]", "[1, 3)"),
    ({"span_counts": _int32(1, 1), "span_offsets": _int32(-1, 3, 0, 2)}, InvalidInput, "sequences[0]", "[-1, 3)"),
    (
        {"span_counts": _int32(1, 1), "span_offsets": _int32(0, 3, 0, 2**31 - 1)},
        InvalidInput,
        "sequences[1]",
        "[0, 2147483647)",
    ),
    ({"outputs": [99]}, InvalidInput, "outputs", "99"),
    ({"outputs": [0]}, InvalidInput, "outputs", "0"),
    ({"outputs": [4]}, WrongModelKind, "outputs", "LOGITS"),
    ({"dimensions": 0}, InvalidInput, "dimensions", "[1, 8]"),
    ({"dimensions": 9}, InvalidInput, "dimensions", "[1, 8]"),
    ({"dimensions": 2**32 - 1}, InvalidInput, "dimensions", "4294967295"),
    ({"dimensions": 4, "outputs": [2]}, InvalidInput, "dimensions", "not asked for"),
    ({"token_ids": _int32(*[1] * 20), "lengths": _int32(3, 17)}, ContextLengthExceeded, "sequences[1]", "17 tokens"),
]


@pytest.mark.parametrize(("changes", "error_type", "param", "text"), REFUSALS)
def test_malformed_requests_are_refused_by_name(
    changes: dict[str, object], error_type: type[RosebedError], param: str, text: str
) -> None:
    with pytest.raises(error_type) as caught:
        sequences_of(_request(**changes), INFO)
    assert isinstance(caught.value, RequestError)
    assert caught.value.param == param
    assert text in caught.value.message
    assert mapping_of(caught.value).grpc_status in {"INVALID_ARGUMENT", "FAILED_PRECONDITION"}


def test_another_models_request_is_refused() -> None:
    with pytest.raises(FingerprintMismatch, match="other-model"):
        sequences_of(_request(fingerprint="other-model"), INFO)


def test_unknown_lane_is_refused() -> None:
    with pytest.raises(InvalidInput, match="lane should be 0 or 1, not 5"):
        lane_of(_request(lane=5))


def test_model_without_segments_takes_only_segment_zero() -> None:
    info = dataclasses.replace(INFO, type_vocab_size=0)
    assert len(sequences_of(_request(token_type_ids=_int32(0, 0, 0, 0, 0)), info)) == 2
    with pytest.raises(InvalidInput, match=r"outside \[0, 1\)"):
        sequences_of(_request(token_type_ids=_int32(0, 1, 0, 0, 0)), info)


@given(data=st.binary(max_size=64), lengths=st.binary(max_size=16), spans=st.binary(max_size=32))
def test_random_bytes_never_do_worse_than_a_refusal(data: bytes, lengths: bytes, spans: bytes) -> None:
    message = EmbedRequest(token_ids=data, lengths=lengths, span_offsets=spans, span_counts=lengths)
    try:
        sequences = sequences_of(message, INFO)
    except RosebedError:
        return
    assert sum(s.num_tokens for s in sequences) == len(data) // 4
    assert all((s.pool_spans >= 0).all() and (s.pool_spans[:, 1] <= s.num_tokens).all() for s in sequences)


def test_joined_messages_come_apart_in_order() -> None:
    make: Callable[[int], StreamRequest] = lambda number: StreamRequest(cancel=number)  # noqa: E731
    together = StreamRequest.FromString(joined([make(1), make(2), make(3)]).SerializeToString())
    assert [message.cancel for message in separated(together)] == [1, 2, 3]
    assert [message.cancel for message in separated(joined([make(9)]))] == [9]
