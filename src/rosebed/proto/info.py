"""What a replica says about itself: `EngineInfo` and the server's own limits, as an `InfoResponse`."""

from dataclasses import dataclass

from rosebed.core.engine import BatchLimits, EngineInfo
from rosebed.core.outputs import OutputSpec, RowsPer
from rosebed.core.types import OutputKind
from rosebed.proto import rosebed_pb2


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaInfo:
    """One inference server, as a gateway sees it."""

    engine: EngineInfo
    version: str
    """Version of Rosebed it runs."""
    max_request_sequences: int
    """Sequences one request may hold."""
    max_message_bytes: int = 0
    """Bytes one message to it may hold; 0 if it does not say."""


def info_message(
    info: EngineInfo, *, version: str, max_request_sequences: int, max_message_bytes: int
) -> rosebed_pb2.InfoResponse:
    """The message that `info_of` reads."""
    return rosebed_pb2.InfoResponse(
        model=info.model,
        architecture=info.architecture,
        dtype=info.dtype,
        device=info.device,
        vocab_size=info.vocab_size,
        type_vocab_size=info.type_vocab_size,
        max_length=info.max_length,
        outputs=[
            rosebed_pb2.OutputInfo(kind=int(kind), rows_per=spec.rows_per, dim=spec.dim)  # pyright: ignore[reportArgumentType]
            for kind, spec in sorted(info.outputs.items())
        ],
        normalize=info.normalize,
        batch_limits=rosebed_pb2.Limits(
            tokens=info.limits.tokens,
            sequences=info.limits.sequences,
            spans=info.limits.spans,
            output_bytes=info.limits.output_bytes,
        ),
        max_in_flight=info.max_in_flight,
        fingerprint=info.fingerprint,
        version=version,
        max_request_sequences=max_request_sequences,
        max_message_bytes=max_message_bytes,
    )


def info_of(message: rosebed_pb2.InfoResponse) -> ReplicaInfo:
    """What the replica said. Outputs of kinds this version does not know are left out."""
    limits = message.batch_limits
    known = frozenset(OutputKind)
    return ReplicaInfo(
        engine=EngineInfo(
            model=message.model,
            architecture=message.architecture,
            dtype=message.dtype,
            device=message.device,
            vocab_size=message.vocab_size,
            type_vocab_size=message.type_vocab_size,
            max_length=message.max_length,
            outputs={
                OutputKind(int(output.kind)): OutputSpec(rows_per=RowsPer(output.rows_per), dim=output.dim)
                for output in message.outputs
                if int(output.kind) in known
            },
            normalize=message.normalize,
            limits=BatchLimits(
                tokens=limits.tokens,
                sequences=limits.sequences,
                spans=limits.spans,
                output_bytes=limits.output_bytes,
            ),
            max_in_flight=message.max_in_flight,
            fingerprint=message.fingerprint,
        ),
        version=message.version,
        max_request_sequences=message.max_request_sequences,
        max_message_bytes=message.max_message_bytes,
    )
