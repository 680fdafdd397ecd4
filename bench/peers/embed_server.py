"""A library behind OpenAI's embeddings route, so that libraries and servers can be measured over the same wire.

    python bench/peers/embed_server.py sentence-transformers MODEL --port 8001 --device cpu --threads 2
    python bench/peers/embed_server.py onnxruntime ONNX_FOLDER --port 8002 --threads 2

As somebody would wrap it who wants it simple: one call of the library for each request, one after the other, its texts
sorted by length and padded in batches of 32. Answers are base64. The server itself costs about a third of a millisecond
a request.
"""

import argparse
import base64
import json
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Vectors = npt.NDArray[np.float32]
Ids = list[int]

BATCH_SIZE = 32


class Library(Protocol):
    """What computes."""

    max_length: int

    def tokenize(self, texts: Sequence[str]) -> list[Ids]: ...

    def embed(self, batch: Sequence[Ids]) -> Vectors:
        """float32[n, dim] of one batch, padded to its longest."""
        ...


class SentenceTransformers:
    """The pipeline of a sentence-transformers folder; token ids go in where its tokenizer's would."""

    def __init__(self, model: str, *, device: str, dtype: str, threads: int | None) -> None:
        import torch
        from sentence_transformers import SentenceTransformer

        if threads is not None:
            torch.set_num_threads(threads)
        self._torch = torch
        self._device = device
        self._model = SentenceTransformer(model, device=device, model_kwargs={"dtype": dtype})
        self.max_length = int(self._model.max_seq_length or 512)

    def tokenize(self, texts: Sequence[str]) -> list[Ids]:
        return self._model.tokenizer(list(texts), truncation=True, max_length=self.max_length)["input_ids"]

    def embed(self, batch: Sequence[Ids]) -> Vectors:
        ids, mask = padded(batch)
        with self._torch.inference_mode():
            features = {
                "input_ids": self._torch.from_numpy(ids).to(self._device),
                "attention_mask": self._torch.from_numpy(mask).to(self._device),
                "modality": "text",
            }
            return self._model(features)["sentence_embedding"].float().cpu().numpy()


class OnnxRuntime:
    """A BERT encoder exported to ONNX, with mean pooling and normalisation in numpy."""

    def __init__(self, folder: str, *, threads: int | None) -> None:
        import onnxruntime  # pyright: ignore[reportMissingImports] - its own environment has it
        from tokenizers import Tokenizer

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads or 0
        path = next(Path(folder).rglob("model.onnx"))
        self._session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        self._tokenizer = Tokenizer.from_file(str(Path(folder) / "tokenizer.json"))
        self._tokenizer.no_padding()
        self.max_length = 256
        self._tokenizer.enable_truncation(self.max_length)

    def tokenize(self, texts: Sequence[str]) -> list[Ids]:
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def embed(self, batch: Sequence[Ids]) -> Vectors:
        ids, mask = padded(batch)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (hidden_states,) = self._session.run(["last_hidden_state"], inputs)  # float32[n, longest, dim]
        weights = mask[:, :, None].astype(np.float32)
        means = (hidden_states * weights).sum(1) / weights.sum(1)
        return means / np.linalg.norm(means, axis=1, keepdims=True)


def padded(batch: Sequence[Ids]) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Ids and mask, int64[n, longest] each."""
    longest = max(map(len, batch))
    ids, mask = np.zeros((2, len(batch), longest), np.int64)
    for row, own in enumerate(batch):
        ids[row, : len(own)] = own
        mask[row, : len(own)] = 1
    return ids, mask


def embed_all(library: Library, ids: Sequence[Ids]) -> Vectors:
    """In batches of like lengths, float32[n, dim] in the order of `ids`."""
    order = sorted(range(len(ids)), key=lambda index: -len(ids[index]))
    batches = [order[start : start + BATCH_SIZE] for start in range(0, len(order), BATCH_SIZE)]
    computed = np.concatenate([library.embed([ids[index] for index in batch]) for batch in batches])
    vectors = np.empty_like(computed)
    vectors[order] = computed
    return vectors


def make_handler(library: Library, name: str, owner: str, compute: Executor) -> type[BaseHTTPRequestHandler]:
    """The two routes. `compute` runs one call of the library at a time."""

    def models(_body: Any) -> Any:
        model = {"id": name, "object": "model", "owned_by": owner, "max_model_len": library.max_length}
        return {"object": "list", "data": [model]}

    def embeddings(body: Any) -> Any:
        given = body["input"] if isinstance(body["input"], list) else [body["input"]]
        ids = library.tokenize(given) if isinstance(given[0], str) else given
        vectors = compute.submit(embed_all, library, ids).result()
        data = [
            {"object": "embedding", "index": index, "embedding": base64.b64encode(vector.tobytes()).decode()}
            for index, vector in enumerate(vectors.astype("<f4"))
        ]
        count = sum(map(len, ids))
        usage = {"prompt_tokens": count, "total_tokens": count}
        return {"object": "list", "data": data, "model": name, "usage": usage}

    return _handler({"/v1/models": models, "/v1/embeddings": embeddings})


def _handler(routes: dict[str, Callable[[Any], Any]]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        wbufsize = -1

        def do_GET(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            route = routes.get(self.path)
            content = b"" if route is None else json.dumps(route(json.loads(body) if body else None)).encode()
            self.send_response(404 if route is None else 200)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_POST = do_GET  # noqa: N815 - the library's name

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the library's name
            """Say nothing about each request."""

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library", choices=["sentence-transformers", "onnxruntime"])
    parser.add_argument("model")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()
    library: Library
    if arguments.library == "onnxruntime":
        library = OnnxRuntime(arguments.model, threads=arguments.threads)
    else:
        library = SentenceTransformers(
            arguments.model, device=arguments.device, dtype=arguments.dtype, threads=arguments.threads
        )
    # NOTE: always the same thread, since OpenMP keeps a team of threads for each that computes.
    with ThreadPoolExecutor(1) as compute:
        handler = make_handler(library, Path(arguments.model).name, arguments.library, compute)
        ThreadingHTTPServer(("127.0.0.1", arguments.port), handler).serve_forever()


if __name__ == "__main__":
    main()
