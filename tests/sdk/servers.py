"""Serves all-MiniLM-L6-v2 and a small pplx-embed-context with random weights, and says what their vectors should be.

Runs in the server's environment, beside tests that run in the SDKs': writes one line of JSON when both are ready, and
stops when its input ends. The vectors are sentence-transformers' for the one and transformers' for the other.
"""

import json
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch
from minilm import reference_model
from rose_checkpoints import make_sequence, reference_hidden_states, rewrite_json, write_checkpoint
from serve_process import serving
from text_models import EOS, qwen_folder
from tokenizers import Tokenizer

TEXTS = ["A man is playing a guitar on stage.", "Someone performs music with a guitar.", "東京は日本の首都です。"]
DOCUMENTS = [["Marie Curie was born in Warsaw.", "She moved to Paris."], ["One chunk alone."]]
PLAIN_NAME, CONTEXT_NAME = "pplx-embed-v1-0.6b", "pplx-embed-context-v1-0.6b"
"""Perplexity's SDK sends no request for a model of another name."""
CONTEXTUAL = {"auto_map": {"AutoModel": "modeling.PPLXQwen3ContextualModel"}}


def main() -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        model = write_pplx(folder / "pplx")
        _, minilm = stack.enter_context(
            serving("--served-model-name", f"minilm,{PLAIN_NAME}", log=folder / "minilm.log")
        )
        _, pplx = stack.enter_context(
            serving(
                "--served-model-name",
                f"{PLAIN_NAME},{CONTEXT_NAME}",
                models=(str(folder / "pplx"),),
                log=folder / "pplx.log",
            )
        )
        tokenizer = Tokenizer.from_file(str(folder / "pplx" / "tokenizer.json"))
        described = {
            "minilm": {"url": minilm, "texts": TEXTS, "vectors": reference_model().encode(TEXTS).tolist()},
            "pplx": {"url": pplx, "texts": TEXTS, "documents": DOCUMENTS} | pplx_vectors(model, tokenizer),
        }
        sys.stdout.write(json.dumps(described) + "\n")
        sys.stdout.flush()
        sys.stdin.read()


def write_pplx(folder: Path) -> Any:
    """A checkpoint whose tokens are bytes; the model, to compare with."""
    qwen_folder(folder, appends_eos=False)
    model = write_checkpoint("pplx", folder)
    rewrite_json(folder / "config.json", CONTEXTUAL)
    return model


def pplx_vectors(model: Any, tokenizer: Tokenizer) -> dict[str, Any]:
    """Means of hidden states, and what pplx-embed's quantisers make of them, of texts and of chunks of documents."""
    texts = [pooled(model, [tokenizer.encode(text).ids])[0] for text in TEXTS]
    chunks = [pooled(model, [tokenizer.encode(chunk).ids for chunk in document]) for document in DOCUMENTS]
    return {
        "vectors": torch.stack(texts).tolist(),
        "int8": [quantized(x) for x in texts],
        "chunk_int8": [[quantized(x) for x in vectors] for vectors in chunks],
        "chunk_bits": [[(x >= 0).int().tolist() for x in vectors] for vectors in chunks],
    }


def pooled(model: Any, chunks: list[list[int]]) -> torch.Tensor:
    """float32[num_chunks, hidden]: one forward pass over the chunks, the separator between two of them."""
    ids = [token_id for chunk in chunks for token_id in (EOS, *chunk)][1:]
    hidden = reference_hidden_states("pplx", model, make_sequence(np.array(ids, np.int32)))
    starts = np.cumsum([0, *(len(chunk) + 1 for chunk in chunks)])
    return torch.stack(
        [hidden[start : start + len(chunk)].mean(0) for start, chunk in zip(starts, chunks, strict=False)]
    )


def quantized(x: torch.Tensor) -> list[int]:
    return torch.clamp(torch.round(torch.tanh(x) * 127), -128, 127).to(torch.int8).tolist()


if __name__ == "__main__":
    main()
