"""A checkpoint with a tiny tokenizer, and what `FakeEngine` makes of its texts."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import TemplateProcessing

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.engine import EngineInfo
from rosebed.core.model_spec import resolve_model_spec
from rosebed.core.types import Float32Array, OutputKind
from rosebed.ivy.app import create_app
from rosebed.ivy.config import IvyConfig, ModelConfig
from rosebed.ivy.http1.connections import Connections
from rosebed.ivy.http1.limits import ConnectionLimits
from rosebed.testing import FakeEngine, expected_rows, fake_info, fake_sequence
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.server import TulipServer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "hello", "world", *LETTERS, *(f"##{letter}" for letter in LETTERS)]
CLS, SEP = 2, 3
HELLO, WORLD = 4, 5
MAX_LENGTH = 16
DIM = 8


def write_checkpoint(folder: Path, **settings: Any) -> Path:
    """A BERT checkpoint without weights: 58 tokens, 16 positions, vectors of 8 components. Returns `folder`."""
    folder.mkdir()
    ids = {token: index for index, token in enumerate(VOCABULARY)}
    tokenizer = Tokenizer(WordPiece(vocab=ids, unk_token="[UNK]"))
    tokenizer.normalizer = BertNormalizer()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.pre_tokenizer = BertPreTokenizer()  # pyright: ignore[reportAttributeAccessIssue]
    tokenizer.post_processor = TemplateProcessing(  # pyright: ignore[reportAttributeAccessIssue]
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)]
    )
    tokenizer.add_special_tokens(["[PAD]", "[UNK]", "[CLS]", "[SEP]"])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "architectures": ["BertModel"],
        "model_type": "bert",
        "hidden_size": DIM,
        "vocab_size": len(VOCABULARY),
        "type_vocab_size": 2,
        "max_position_embeddings": MAX_LENGTH,
        **settings,
    }
    (folder / "config.json").write_text(json.dumps(config))
    stages = ["Transformer", "Pooling", "Normalize"]
    modules = [
        {"idx": i, "name": str(i), "path": f"{i}_{kind}" if i else "", "type": f"sentence_transformers.models.{kind}"}
        for i, kind in enumerate(stages)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"pooling_mode_mean_tokens": True}))
    prompts = {"prompts": {"query": "hello ", "passage": "world "}, "default_prompt_name": None}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(prompts))
    return folder


def engine_info(folder: Path, *, max_length: int = MAX_LENGTH) -> EngineInfo:
    """What an engine that loaded `folder` would say of itself."""
    spec = resolve_model_spec(CheckpointFiles.read(folder))
    return replace(
        fake_info(max_length=max_length),
        model=str(folder),
        vocab_size=spec.vocab_size,
        fingerprint=spec.fingerprint,
    )


def expected_vector(
    info: EngineInfo, token_ids: list[int], *, dimensions: int = 0, normalize: bool | None = None
) -> Float32Array:
    """What the served model answers for a sequence of these ids: float32[dimensions or 8]."""
    sequence = fake_sequence(token_ids, dimensions=dimensions, normalize=normalize)
    return expected_rows(sequence, OutputKind.DENSE, info)[0, : dimensions or DIM]


def expected_spans(info: EngineInfo, token_ids: list[int], spans: list[tuple[int, int]], **fields: Any) -> Float32Array:
    """The same for each span of one sequence: float32[num_spans, dimensions or 8]."""
    sequence = replace(fake_sequence(token_ids, **fields), pool_spans=np.array(spans, np.int32))
    return expected_rows(sequence, OutputKind.DENSE, info)[:, : fields.get("dimensions") or DIM]


@asynccontextmanager
async def running_tulip(engine: FakeEngine, **settings: Any) -> AsyncGenerator[TulipServer]:
    """An inference server in this event loop."""
    server = TulipServer(engine, replace(TulipConfig(port=0), **settings), on_fatal=lambda reason: None)
    await server.start()
    try:
        yield server
    finally:
        await server.stop(0)
        engine.close()


def ivy_config(**settings: Any) -> IvyConfig:
    """A gateway of one model: `settings` are fields of `ModelConfig` and of `IvyConfig`."""
    own = {field.name for field in fields(ModelConfig)} & settings.keys()
    return IvyConfig(
        models=(ModelConfig(**{name: settings[name] for name in own}),),
        **{name: value for name, value in settings.items() if name not in own},
    )


@asynccontextmanager
async def running_app(config: IvyConfig, *, wait_ready: bool = True) -> AsyncGenerator[httpx.AsyncClient]:
    """The gateway in this event loop, and a client."""
    application = create_app(config)
    async with application.running():
        connections = Connections(application, ConnectionLimits(keep_alive_s=config.keep_alive_s))
        server = await asyncio.get_running_loop().create_server(connections, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=10) as client:
            if wait_ready:
                await until_ready(client)
            yield client
        server.close()
        await connections.drain()


@asynccontextmanager
async def serving(engine: FakeEngine, **settings: Any) -> AsyncGenerator[httpx.AsyncClient]:
    """One inference server and a ready gateway before it; `settings` are as in `ivy_config`."""
    async with (
        running_tulip(engine) as tulip,
        running_app(ivy_config(tulips=(f"127.0.0.1:{tulip.port}",), **settings)) as client,
    ):
        yield client


async def until_ready(client: httpx.AsyncClient) -> None:
    """Return once the gateway has a replica; TimeoutError after ten seconds."""
    async with asyncio.timeout(10):
        while (await client.get("/ready")).status_code != 200:  # noqa: ASYNC110 - over HTTP there is no event
            await asyncio.sleep(0.01)


def vectors_of(answer: httpx.Response) -> Float32Array:
    """float32[n, dim] of a 200 answer in numbers."""
    assert answer.status_code == 200, answer.text
    return np.array([item["embedding"] for item in answer.json()["data"]], np.float32)
