"""Clients of a running Rosebed: texts over HTTP, token ids over gRPC. Need neither torch nor a tokenizer."""

from rosebed.client.http import AsyncClient, Client
from rosebed.client.messages import EmbedOptions
from rosebed.client.tokens import TokenClient

__all__ = ["AsyncClient", "Client", "EmbedOptions", "TokenClient"]
