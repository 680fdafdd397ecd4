"""Answers put back together, and the errors and facts that travel with them."""

import numpy as np
import pytest

from rosebed.core.errors import (
    ERROR_TABLE,
    InvalidInput,
    NonFiniteOutput,
    Overloaded,
    RosebedError,
    ServerError,
    Unavailable,
)
from rosebed.core.outputs import OutputSpec, RowsPer
from rosebed.core.types import OutputKind, Sequence
from rosebed.proto.codec import (
    Assembler,
    ReplyTimings,
    error_item,
    error_of,
    error_of_metadata,
    failure_metadata,
    info_message,
    info_of,
)
from rosebed.proto.rosebed_pb2 import (
    DTYPE_FLOAT16,
    DTYPE_FLOAT32,
    OUTPUT_KIND_DENSE,
    OUTPUT_KIND_LOGITS,
    EmbedResponse,
    InfoResponse,
    ItemError,
    Output,
    Timings,
)
from rosebed.testing import fake_info, fake_sequence

SPECS = {
    OutputKind.DENSE: OutputSpec(rows_per=RowsPer.SPAN, dim=3),
    OutputKind.SPARSE: OutputSpec(rows_per=RowsPer.TOKEN, dim=1),
}


def _dense(*rows: list[float]) -> Output:
    data = np.array(rows, "<f4").reshape(-1, 3)
    return Output(kind=OUTPUT_KIND_DENSE, dtype=DTYPE_FLOAT32, dim=3, rows=len(data), data=data.tobytes())


def _three() -> list[Sequence]:
    return [fake_sequence([1], index=0), fake_sequence([2, 3], index=1), fake_sequence([4], index=2)]


def test_one_response_gives_each_sequence_its_rows() -> None:
    assembler = Assembler(_three(), SPECS)
    response = EmbedResponse(
        outputs=[_dense([1, 1, 1], [2, 2, 2], [3, 3, 3])],
        timings=Timings(queue_ns=1, compute_ns=2, total_ns=4, device_ns=8, steps=3),
        last=True,
    )
    assembler.add(response)
    reply = assembler.result()
    assert [reply.rows(OutputKind.DENSE, i).tolist() for i in range(3)] == [[[1, 1, 1]], [[2, 2, 2]], [[3, 3, 3]]]
    assert reply.timings == ReplyTimings(queue_ns=1, compute_ns=2, total_ns=4, device_ns=8, num_steps=3)


def test_chunks_are_appended_until_the_last() -> None:
    assembler = Assembler(_three(), SPECS)
    assembler.add(EmbedResponse(first_sequence=0, num_sequences=1, outputs=[_dense([1, 1, 1])]))
    assert not assembler.done
    with pytest.raises(ValueError, match="last response"):
        assembler.result()
    assembler.add(EmbedResponse(first_sequence=1, num_sequences=2, outputs=[_dense([2, 2, 2], [3, 3, 3])], last=True))
    assert assembler.done
    assert assembler.result().outputs[OutputKind.DENSE].tolist() == [[1, 1, 1], [2, 2, 2], [3, 3, 3]]


def test_a_failed_sequence_has_no_rows_and_raises_alone() -> None:
    assembler = Assembler(_three(), SPECS)
    errors = [error_item(NonFiniteOutput("not finite"), 1)]
    assembler.add(EmbedResponse(outputs=[_dense([1, 1, 1], [3, 3, 3])], errors=errors, last=True))
    reply = assembler.result()
    assert reply.rows(OutputKind.DENSE, 0).tolist() == [[1, 1, 1]]
    assert reply.rows(OutputKind.DENSE, 2).tolist() == [[3, 3, 3]]
    with pytest.raises(NonFiniteOutput, match="not finite"):
        reply.rows(OutputKind.DENSE, 1)


def test_all_sequences_failed() -> None:
    assembler = Assembler(_three()[:1], SPECS)
    assembler.add(EmbedResponse(errors=[error_item(NonFiniteOutput("x"), 0)], last=True))
    assert list(assembler.result().errors) == [0]


def test_a_refusal_is_raised() -> None:
    assembler = Assembler(_three(), SPECS)
    assembler.add(EmbedResponse(refused=error_item(Overloaded("full", retry_after_s=7)), last=True))
    with pytest.raises(Overloaded, match="full") as caught:
        assembler.result()
    assert caught.value.retry_after_s == 7


def test_dimensions_decide_the_width() -> None:
    assembler = Assembler([fake_sequence([1], dimensions=2)], SPECS)
    row = np.array([[1, 2]], "<f4").tobytes()
    assembler.add(
        EmbedResponse(outputs=[Output(kind=OUTPUT_KIND_DENSE, dtype=DTYPE_FLOAT32, dim=2, rows=1, data=row)], last=True)
    )
    assert assembler.result().rows(OutputKind.DENSE, 0).tolist() == [[1, 2]]


@pytest.mark.parametrize(
    "output",
    [
        Output(kind=OUTPUT_KIND_LOGITS, dtype=DTYPE_FLOAT32, dim=3, rows=1, data=bytes(12)),
        Output(kind=OUTPUT_KIND_DENSE, dtype=DTYPE_FLOAT16, dim=3, rows=1, data=bytes(6)),
        Output(kind=OUTPUT_KIND_DENSE, dtype=DTYPE_FLOAT32, dim=4, rows=1, data=bytes(16)),
        Output(kind=OUTPUT_KIND_DENSE, dtype=DTYPE_FLOAT32, dim=3, rows=1, data=bytes(11)),
    ],
)
def test_malformed_outputs_are_a_server_error(output: Output) -> None:
    with pytest.raises(ServerError):
        Assembler(_three(), SPECS).add(EmbedResponse(outputs=[output], last=True))


def test_missing_rows_are_a_server_error() -> None:
    assembler = Assembler(_three(), SPECS)
    assembler.add(EmbedResponse(outputs=[_dense([1, 1, 1])], last=True))
    with pytest.raises(ServerError, match="1 DENSE rows, not 3"):
        assembler.result()


def test_an_error_for_a_sequence_that_does_not_exist_is_a_server_error() -> None:
    with pytest.raises(ServerError, match="sequence 3 of 3"):
        Assembler(_three(), SPECS).add(EmbedResponse(errors=[ItemError(index=3)]))


@pytest.mark.parametrize("error_type", list(ERROR_TABLE))
def test_every_error_survives_the_wire(error_type: type[RosebedError]) -> None:
    received = error_of(ItemError.FromString(error_item(error_type("why"), 4).SerializeToString()))
    assert type(received) is error_type
    assert received.message == "why"


def test_error_details_survive_the_wire() -> None:
    refused = error_of(error_item(InvalidInput("bad", param="sequences[3]")))
    assert isinstance(refused, InvalidInput)
    assert refused.param == "sequences[3]"
    gone = error_of(error_item(Unavailable("soon", retry_after_s=9)))
    assert isinstance(gone, Unavailable)
    assert gone.retry_after_s == 9
    assert type(error_of(ItemError(code="of_the_future", message="m"))) is ServerError


def test_a_failed_call_says_why_in_its_metadata() -> None:
    assert failure_metadata(InvalidInput("bad", param="sequences[3]")) == (
        ("rosebed-code", "invalid_input"),
        ("rosebed-param", "sequences[3]"),
    )
    metadata = dict(failure_metadata(Overloaded("full", retry_after_s=4)))
    assert metadata == {"rosebed-code": "overloaded", "rosebed-retry-after-s": "4"}
    error = error_of_metadata(metadata, "full")
    assert isinstance(error, Overloaded)
    assert (error.message, error.retry_after_s) == ("full", 4)
    assert error_of_metadata({"grpc-status": "14"}, "connection refused") is None


def test_info_survives_the_wire() -> None:
    info = fake_info(outputs=SPECS)
    message = info_message(info, version="1.2.3", max_request_sequences=99, max_message_bytes=1 << 33)
    received = info_of(InfoResponse.FromString(message.SerializeToString()))
    assert received.engine == info
    assert (received.version, received.max_request_sequences) == ("1.2.3", 99)
    assert received.max_message_bytes == 1 << 33


def test_outputs_of_a_newer_replica_are_left_out() -> None:
    message = info_message(fake_info(outputs=SPECS), version="9", max_request_sequences=1, max_message_bytes=0)
    message.outputs.add(kind=77, rows_per="galaxy", dim=1)  # pyright: ignore[reportArgumentType]
    assert info_of(message).engine.outputs == SPECS
