from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class OutputKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTPUT_KIND_UNSPECIFIED: _ClassVar[OutputKind]
    OUTPUT_KIND_DENSE: _ClassVar[OutputKind]
    OUTPUT_KIND_SPARSE: _ClassVar[OutputKind]
    OUTPUT_KIND_MULTI_VECTOR: _ClassVar[OutputKind]
    OUTPUT_KIND_LOGITS: _ClassVar[OutputKind]

class DType(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    DTYPE_UNSPECIFIED: _ClassVar[DType]
    DTYPE_FLOAT32: _ClassVar[DType]
    DTYPE_FLOAT16: _ClassVar[DType]
    DTYPE_BFLOAT16: _ClassVar[DType]
    DTYPE_INT8: _ClassVar[DType]
    DTYPE_UINT8: _ClassVar[DType]

class Lane(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LANE_ONLINE: _ClassVar[Lane]
    LANE_BULK: _ClassVar[Lane]
OUTPUT_KIND_UNSPECIFIED: OutputKind
OUTPUT_KIND_DENSE: OutputKind
OUTPUT_KIND_SPARSE: OutputKind
OUTPUT_KIND_MULTI_VECTOR: OutputKind
OUTPUT_KIND_LOGITS: OutputKind
DTYPE_UNSPECIFIED: DType
DTYPE_FLOAT32: DType
DTYPE_FLOAT16: DType
DTYPE_BFLOAT16: DType
DTYPE_INT8: DType
DTYPE_UINT8: DType
LANE_ONLINE: Lane
LANE_BULK: Lane

class EmbedRequest(_message.Message):
    __slots__ = ("request_id", "token_ids", "lengths", "token_type_ids", "span_offsets", "span_counts", "outputs", "dimensions", "normalize", "lane", "timeout_ns", "fingerprint")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    LENGTHS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_TYPE_IDS_FIELD_NUMBER: _ClassVar[int]
    SPAN_OFFSETS_FIELD_NUMBER: _ClassVar[int]
    SPAN_COUNTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    DIMENSIONS_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    LANE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_NS_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    token_ids: bytes
    lengths: bytes
    token_type_ids: bytes
    span_offsets: bytes
    span_counts: bytes
    outputs: _containers.RepeatedScalarFieldContainer[OutputKind]
    dimensions: int
    normalize: bool
    lane: Lane
    timeout_ns: int
    fingerprint: str
    def __init__(self, request_id: _Optional[int] = ..., token_ids: _Optional[bytes] = ..., lengths: _Optional[bytes] = ..., token_type_ids: _Optional[bytes] = ..., span_offsets: _Optional[bytes] = ..., span_counts: _Optional[bytes] = ..., outputs: _Optional[_Iterable[_Union[OutputKind, str]]] = ..., dimensions: _Optional[int] = ..., normalize: bool = ..., lane: _Optional[_Union[Lane, str]] = ..., timeout_ns: _Optional[int] = ..., fingerprint: _Optional[str] = ...) -> None: ...

class StreamRequest(_message.Message):
    __slots__ = ("embed", "cancel", "also")
    EMBED_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    ALSO_FIELD_NUMBER: _ClassVar[int]
    embed: EmbedRequest
    cancel: int
    also: _containers.RepeatedCompositeFieldContainer[StreamRequest]
    def __init__(self, embed: _Optional[_Union[EmbedRequest, _Mapping]] = ..., cancel: _Optional[int] = ..., also: _Optional[_Iterable[_Union[StreamRequest, _Mapping]]] = ...) -> None: ...

class Output(_message.Message):
    __slots__ = ("kind", "dtype", "dim", "rows", "data")
    KIND_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DIM_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    kind: OutputKind
    dtype: DType
    dim: int
    rows: int
    data: bytes
    def __init__(self, kind: _Optional[_Union[OutputKind, str]] = ..., dtype: _Optional[_Union[DType, str]] = ..., dim: _Optional[int] = ..., rows: _Optional[int] = ..., data: _Optional[bytes] = ...) -> None: ...

class ItemError(_message.Message):
    __slots__ = ("index", "code", "message", "param", "retry_after_s")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    PARAM_FIELD_NUMBER: _ClassVar[int]
    RETRY_AFTER_S_FIELD_NUMBER: _ClassVar[int]
    index: int
    code: str
    message: str
    param: str
    retry_after_s: int
    def __init__(self, index: _Optional[int] = ..., code: _Optional[str] = ..., message: _Optional[str] = ..., param: _Optional[str] = ..., retry_after_s: _Optional[int] = ...) -> None: ...

class Timings(_message.Message):
    __slots__ = ("queue_ns", "compute_ns", "total_ns", "device_ns", "steps")
    QUEUE_NS_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_NS_FIELD_NUMBER: _ClassVar[int]
    TOTAL_NS_FIELD_NUMBER: _ClassVar[int]
    DEVICE_NS_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    queue_ns: int
    compute_ns: int
    total_ns: int
    device_ns: int
    steps: int
    def __init__(self, queue_ns: _Optional[int] = ..., compute_ns: _Optional[int] = ..., total_ns: _Optional[int] = ..., device_ns: _Optional[int] = ..., steps: _Optional[int] = ...) -> None: ...

class EmbedResponse(_message.Message):
    __slots__ = ("request_id", "first_sequence", "num_sequences", "outputs", "errors", "timings", "last", "refused", "also")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    FIRST_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    NUM_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    TIMINGS_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    ALSO_FIELD_NUMBER: _ClassVar[int]
    request_id: int
    first_sequence: int
    num_sequences: int
    outputs: _containers.RepeatedCompositeFieldContainer[Output]
    errors: _containers.RepeatedCompositeFieldContainer[ItemError]
    timings: Timings
    last: bool
    refused: ItemError
    also: _containers.RepeatedCompositeFieldContainer[EmbedResponse]
    def __init__(self, request_id: _Optional[int] = ..., first_sequence: _Optional[int] = ..., num_sequences: _Optional[int] = ..., outputs: _Optional[_Iterable[_Union[Output, _Mapping]]] = ..., errors: _Optional[_Iterable[_Union[ItemError, _Mapping]]] = ..., timings: _Optional[_Union[Timings, _Mapping]] = ..., last: bool = ..., refused: _Optional[_Union[ItemError, _Mapping]] = ..., also: _Optional[_Iterable[_Union[EmbedResponse, _Mapping]]] = ...) -> None: ...

class InfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class OutputInfo(_message.Message):
    __slots__ = ("kind", "rows_per", "dim")
    KIND_FIELD_NUMBER: _ClassVar[int]
    ROWS_PER_FIELD_NUMBER: _ClassVar[int]
    DIM_FIELD_NUMBER: _ClassVar[int]
    kind: OutputKind
    rows_per: str
    dim: int
    def __init__(self, kind: _Optional[_Union[OutputKind, str]] = ..., rows_per: _Optional[str] = ..., dim: _Optional[int] = ...) -> None: ...

class Limits(_message.Message):
    __slots__ = ("tokens", "sequences", "spans", "output_bytes")
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    SPANS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_BYTES_FIELD_NUMBER: _ClassVar[int]
    tokens: int
    sequences: int
    spans: int
    output_bytes: int
    def __init__(self, tokens: _Optional[int] = ..., sequences: _Optional[int] = ..., spans: _Optional[int] = ..., output_bytes: _Optional[int] = ...) -> None: ...

class InfoResponse(_message.Message):
    __slots__ = ("model", "architecture", "dtype", "device", "vocab_size", "type_vocab_size", "max_length", "outputs", "normalize", "batch_limits", "max_in_flight", "fingerprint", "version", "max_request_sequences", "max_message_bytes")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ARCHITECTURE_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    TYPE_VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    NORMALIZE_FIELD_NUMBER: _ClassVar[int]
    BATCH_LIMITS_FIELD_NUMBER: _ClassVar[int]
    MAX_IN_FLIGHT_FIELD_NUMBER: _ClassVar[int]
    FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MAX_REQUEST_SEQUENCES_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    model: str
    architecture: str
    dtype: str
    device: str
    vocab_size: int
    type_vocab_size: int
    max_length: int
    outputs: _containers.RepeatedCompositeFieldContainer[OutputInfo]
    normalize: bool
    batch_limits: Limits
    max_in_flight: int
    fingerprint: str
    version: str
    max_request_sequences: int
    max_message_bytes: int
    def __init__(self, model: _Optional[str] = ..., architecture: _Optional[str] = ..., dtype: _Optional[str] = ..., device: _Optional[str] = ..., vocab_size: _Optional[int] = ..., type_vocab_size: _Optional[int] = ..., max_length: _Optional[int] = ..., outputs: _Optional[_Iterable[_Union[OutputInfo, _Mapping]]] = ..., normalize: bool = ..., batch_limits: _Optional[_Union[Limits, _Mapping]] = ..., max_in_flight: _Optional[int] = ..., fingerprint: _Optional[str] = ..., version: _Optional[str] = ..., max_request_sequences: _Optional[int] = ..., max_message_bytes: _Optional[int] = ...) -> None: ...
