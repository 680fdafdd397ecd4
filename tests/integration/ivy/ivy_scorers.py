"""Checkpoints that score, and a service for scores in this event loop."""

import asyncio
import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
from ivy_support import CLS, SEP, engine_info, running_tulip, write_checkpoint

from rosebed.core.engine import EngineInfo
from rosebed.core.outputs import OutputSpec, RowsPer
from rosebed.core.types import Float32Array, OutputKind
from rosebed.core.types import Sequence as TokenSequence
from rosebed.ivy.backend import Backend
from rosebed.ivy.config import ModelConfig
from rosebed.ivy.directory import ModelDirectory
from rosebed.ivy.scoring import ScoringService
from rosebed.ivy.workload import Workload
from rosebed.testing import FakeEngine, expected_rows, fake_sequence


def write_scorer(folder: Path, *labels: str, **settings: object) -> Path:
    """A BERT cross-encoder without weights: [CLS] query [SEP] document [SEP], segment 1 from the document on."""
    write_checkpoint(
        folder,
        architectures=["BertForSequenceClassification"],
        id2label={str(index): label for index, label in enumerate(labels)},
        **settings,
    )
    (folder / "modules.json").unlink()
    path = folder / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    piece = tokenizer["post_processor"]["single"]
    second = [{"Sequence": {"id": "B", "type_id": 1}}, {"SpecialToken": {"id": "[SEP]", "type_id": 1}}]
    tokenizer["post_processor"]["pair"] = [*piece, *second]
    path.write_text(json.dumps(tokenizer))
    return folder


def scorer_info(folder: Path, num_labels: int) -> EngineInfo:
    """What an engine that loaded `folder` would say of itself."""
    outputs = {OutputKind.LOGITS: OutputSpec(rows_per=RowsPer.SEQUENCE, dim=num_labels)}
    return replace(engine_info(folder), outputs=outputs)


def expected_logits(info: EngineInfo, query: Sequence[int], document: Sequence[int]) -> Float32Array:
    """float32[num_labels] that the fake engine makes of a pair of bare ids."""
    ids = [CLS, *query, SEP, *document, SEP]
    types = [0] * (len(query) + 2) + [1] * (len(document) + 1)
    sequence = replace(fake_sequence(ids), token_type_ids=np.array(types, np.int32))
    return expected_rows(sequence, OutputKind.LOGITS, info)[0]


def computed(engine: FakeEngine) -> list[TokenSequence]:
    """Every sequence that was computed, but for the first: the server's own trial."""
    return [sequence for batch in engine.batches for sequence in batch.sequences][1:]


@asynccontextmanager
async def scoring(
    engine: FakeEngine, *, max_inputs: int = 50, auto_truncate: bool = False
) -> AsyncGenerator[ScoringService]:
    """A service before one inference server."""
    async with running_tulip(engine) as tulip:
        config = ModelConfig(tulips=(f"127.0.0.1:{tulip.port}",), auto_truncate=auto_truncate)
        backend = Backend(config, lambda _name, _number: None)
        running = asyncio.create_task(backend.balancer.run())
        try:
            yield ScoringService(ModelDirectory([backend]), Workload(), max_inputs=max_inputs)
        finally:
            running.cancel()
            await asyncio.wait([running])
