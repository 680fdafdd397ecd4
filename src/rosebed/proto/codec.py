"""Messages to core types and back, for every user of the wire: one import for the whole translation."""

from rosebed.proto.coalescing import joined, separated
from rosebed.proto.decoding import embed_request, stream_request
from rosebed.proto.failures import error_item, error_of, error_of_metadata, failure_metadata, shown
from rosebed.proto.info import ReplicaInfo, info_message, info_of
from rosebed.proto.replies import Assembler, ReplyRows, ReplyTimings
from rosebed.proto.requests import lane_of, request_message, sequences_of

__all__ = [
    "Assembler",
    "ReplicaInfo",
    "ReplyRows",
    "ReplyTimings",
    "embed_request",
    "error_item",
    "error_of",
    "error_of_metadata",
    "failure_metadata",
    "info_message",
    "info_of",
    "joined",
    "lane_of",
    "request_message",
    "separated",
    "sequences_of",
    "shown",
    "stream_request",
]
