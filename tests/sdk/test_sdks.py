"""Vendors' own SDKs at their defaults against `rosebed serve`: each gets the vectors that it should."""

import base64
from types import SimpleNamespace
from typing import Any

import cohere
import numpy as np
import openai
import perplexity
import pytest
import tiktoken
import voyageai
from huggingface_hub import InferenceClient
from langchain_openai import OpenAIEmbeddings
from llama_index.embeddings.openai_like import OpenAILikeEmbedding

KEY = "none"
PLAIN, CONTEXT = "pplx-embed-v1-0.6b", "pplx-embed-context-v1-0.6b"
"""The only names that Perplexity's SDK takes, so that the servers answer to them."""


def check(vectors: Any, expected: Any) -> None:
    """Each within 1e-5 of its reference in cosine, and in length."""
    found, wanted = np.array(vectors, np.float64), np.array(expected)
    lengths = np.linalg.norm(found, axis=1), np.linalg.norm(wanted, axis=1)
    assert (1 - (found * wanted).sum(1) / lengths[0] / lengths[1] < 1e-5).all()
    np.testing.assert_allclose(lengths[0], lengths[1], rtol=1e-4)


def int8_of(vectors: Any) -> Any:
    """What models without a quantiser of their own get."""
    x = np.array(vectors, np.float32)
    return np.rint(127 * x / np.abs(x).max(1, keepdims=True)).astype(int)


def near(found: Any, expected: Any) -> None:
    """The same numbers but for those that lie on the edge between two, of which there are few."""
    difference = np.abs(np.array(found, int) - np.array(expected, int))
    assert difference.max() <= 1
    assert (difference > 0).mean() < 0.02


def test_openai(minilm: SimpleNamespace) -> None:
    for path in ("/v1", "/openai/v1"):
        client = openai.OpenAI(base_url=minilm.url + path, api_key=KEY)
        check(
            [item.embedding for item in client.embeddings.create(model="minilm", input=minilm.texts).data],
            minilm.vectors,
        )
        assert [model.id for model in client.models.list()] == ["minilm", PLAIN]
        with pytest.raises(openai.BadRequestError) as caught:
            client.embeddings.create(model="minilm", input=["a", "word " * 300])
        assert (caught.value.param, caught.value.code) == ("input[1]", "context_length_exceeded")


def test_langchain(minilm: SimpleNamespace) -> None:
    client = OpenAIEmbeddings(
        base_url=f"{minilm.url}/v1", api_key=KEY, model="minilm", check_embedding_ctx_length=False
    )
    check(client.embed_documents(minilm.texts), minilm.vectors)
    check([client.embed_query(minilm.texts[0])], minilm.vectors[:1])


def test_langchain_at_its_default_is_told_which_flag_it_needs(
    minilm: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = {bytes([byte]): 60_000 + byte for byte in range(256)}  # OpenAI's own table is not in the package
    foreign = tiktoken.Encoding("foreign", pat_str=r".", mergeable_ranks=ranks, special_tokens={})
    monkeypatch.setattr(tiktoken, "get_encoding", lambda _name: foreign)
    monkeypatch.setattr(tiktoken, "encoding_for_model", lambda _name: foreign)
    client = OpenAIEmbeddings(base_url=f"{minilm.url}/v1", api_key=KEY, model="minilm")
    with pytest.raises(openai.BadRequestError, match="check_embedding_ctx_length=False"):
        client.embed_documents(minilm.texts)


def test_llama_index(minilm: SimpleNamespace) -> None:
    client = OpenAILikeEmbedding(model_name="minilm", api_base=f"{minilm.url}/v1", api_key=KEY)
    check(client.get_text_embedding_batch(minilm.texts), minilm.vectors)
    check([client.get_query_embedding(minilm.texts[0])], minilm.vectors[:1])


def test_cohere(minilm: SimpleNamespace) -> None:
    for path in ("", "/cohere"):
        client = cohere.ClientV2(base_url=minilm.url + path, api_key=KEY)
        kinds = ["float", "int8", "uint8", "binary", "ubinary", "base64"]
        answer = client.embed(model="minilm", texts=minilm.texts, input_type="search_document", embedding_types=kinds)
        found = answer.embeddings
        check(found.float_, minilm.vectors)
        check([np.frombuffer(base64.b64decode(text), "<f4") for text in found.base64], minilm.vectors)
        near(found.int8, int8_of(minilm.vectors))
        near(found.uint8, int8_of(minilm.vectors) + 128)
        bits = np.packbits(np.array(found.float_) >= 0, axis=1)
        assert found.ubinary == bits.tolist()
        assert found.binary == (bits.astype(int) - 128).tolist()
        plain = client.embed(model="minilm", texts=minilm.texts, input_type="search_query")
        check(plain.embeddings.float_, minilm.vectors)
        with pytest.raises(cohere.BadRequestError) as caught:
            client.embed(model="minilm", texts=["a", "word " * 300], input_type="search_query", truncate="NONE")
        assert caught.value.body["message"].startswith("texts[1] has")


def test_voyage(minilm: SimpleNamespace) -> None:
    for path in ("/v1", "/voyage/v1"):
        client = voyageai.Client(base_url=minilm.url + path, api_key=KEY)
        check(client.embed(minilm.texts, model="minilm").embeddings, minilm.vectors)
        near(client.embed(minilm.texts, model="minilm", output_dtype="int8").embeddings, int8_of(minilm.vectors))
        bits = client.embed(minilm.texts, model="minilm", output_dtype="ubinary").embeddings
        floats = client.embed(minilm.texts, model="minilm", input_type="document").embeddings
        assert bits == np.packbits(np.array(floats) >= 0, axis=1).tolist()
        cut = client.embed(["word " * 3000], model="minilm")
        assert cut.total_tokens == 256
        with pytest.raises(voyageai.error.InvalidRequestError, match="over the limit of 256"):
            client.embed(["word " * 3000], model="minilm", truncation=False)


def test_voyage_contextualized(pplx: SimpleNamespace) -> None:
    client = voyageai.Client(base_url=f"{pplx.url}/voyage/v1", api_key=KEY)
    answer = client.contextualized_embed(pplx.documents, model=CONTEXT, input_type="document", output_dtype="int8")
    assert [result.index for result in answer.results] == [0, 1]
    for result, expected in zip(answer.results, pplx.chunk_int8, strict=True):
        near(result.embeddings, expected)


def test_hugging_face(minilm: SimpleNamespace) -> None:
    for path in ("", "/tei"):
        client = InferenceClient(model=minilm.url + path)
        check(client.feature_extraction(minilm.texts), minilm.vectors)
        check(client.feature_extraction(minilm.texts[0]), minilm.vectors[:1])
        similar = client.sentence_similarity(minilm.texts[0], other_sentences=minilm.texts[1:])
        wanted = np.array(minilm.vectors[1:]) @ np.array(minilm.vectors[0])
        np.testing.assert_allclose(similar, wanted, atol=1e-5)


def test_perplexity(pplx: SimpleNamespace) -> None:
    client = perplexity.Perplexity(base_url=f"{pplx.url}/perplexity", api_key=KEY)
    answer = client.embeddings.create(model=PLAIN, input=pplx.texts)
    found = [np.frombuffer(base64.b64decode(item.embedding), np.int8) for item in answer.data]
    near(found, pplx.int8)
    # Bit for bit, of the server's own floats.
    floats = openai.OpenAI(base_url=f"{pplx.url}/openai/v1", api_key=KEY).embeddings.create(
        model=PLAIN, input=pplx.texts
    )
    x = np.array([item.embedding for item in floats.data], np.float32)
    check(x, pplx.vectors)
    np.testing.assert_array_equal(found, np.rint(np.tanh(x) * np.float32(127)))
    coded = client.embeddings.create(model=PLAIN, input=pplx.texts, encoding_format="base64_binary", dimensions=32)
    bits = [np.frombuffer(base64.b64decode(item.embedding), np.uint8) for item in coded.data]
    np.testing.assert_array_equal(bits, np.packbits(x[:, :32] >= 0, axis=1, bitorder="little"))


def test_perplexity_contextualized(pplx: SimpleNamespace) -> None:
    client = perplexity.Perplexity(base_url=f"{pplx.url}/perplexity", api_key=KEY)
    answer = client.contextualized_embeddings.create(model=CONTEXT, input=pplx.documents)
    for document, expected in zip(answer.data, pplx.chunk_int8, strict=True):
        near([np.frombuffer(base64.b64decode(item.embedding), np.int8) for item in document.data], expected)
    coded = client.contextualized_embeddings.create(
        model=CONTEXT, input=pplx.documents, encoding_format="base64_binary"
    )
    for document, expected in zip(coded.data, pplx.chunk_bits, strict=True):
        packed = [np.frombuffer(base64.b64decode(item.embedding), np.uint8) for item in document.data]
        bits = np.unpackbits(packed, axis=1, bitorder="little")
        assert (bits != np.array(expected)).mean() < 0.02  # signs of what is nearly 0
    with pytest.raises(perplexity.UnprocessableEntityError) as caught:
        client.contextualized_embeddings.create(model=CONTEXT, input=[["a"], ["a", ""]])
    assert caught.value.body["detail"][0]["loc"] == ["body", "input", 1, 1]


def test_perplexity_of_an_ordinary_model(minilm: SimpleNamespace) -> None:
    client = perplexity.Perplexity(base_url=f"{minilm.url}/perplexity", api_key=KEY)
    answer = client.embeddings.create(model=PLAIN, input=minilm.texts)
    near([np.frombuffer(base64.b64decode(item.embedding), np.int8) for item in answer.data], int8_of(minilm.vectors))
