"""What a folder's files decide: one test per rule, on folders in the layouts that real checkpoints have."""

from pathlib import Path
from typing import Any

import pytest
from core_folders import BERT, MEAN, PIPELINE, PPLX, QWEN3, XLM_R, minilm, modules, write_folder

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.errors import CheckpointError, ConfigError
from rosebed.core.model_spec import DenseStage, ModelOverrides, ModelSpec, Pooling, resolve_model_spec


def resolve(folder: Path, files: dict[str, Any], **overrides: Any) -> ModelSpec:
    return resolve_model_spec(CheckpointFiles.read(write_folder(folder, files)), ModelOverrides(**overrides))


def refuse(folder: Path, files: dict[str, Any], match: str, **overrides: Any) -> None:
    with pytest.raises(CheckpointError, match=match):
        resolve(folder, files, **overrides)


# Whole checkpoints


def test_minilm(tmp_path: Path) -> None:
    spec = resolve(tmp_path, minilm())
    assert (spec.architecture, spec.model_type) == ("BertModel", "bert")
    assert (spec.hidden_size, spec.dim, spec.vocab_size, spec.type_vocab_size) == (384, 384, 30522, 2)
    assert (spec.max_length, spec.pooling, spec.normalize) == (256, Pooling.MEAN, True)
    assert (spec.pool_prompt, spec.lower_case, spec.matryoshka, spec.dense) == (True, False, False, ())
    assert (spec.prompts, spec.default_prompt_name) == ({}, None)
    assert spec.sources == {
        "max_length": "sentence_bert_config.json",
        "pooling": "1_Pooling/config.json",
        "pool_prompt": "1_Pooling/config.json",
        "normalize": "modules.json",
        "dim": "config.json",
        "prompts": "default",
        "lower_case": "sentence_bert_config.json",
        "matryoshka": "default for bert",
    }


def test_bge_m3(tmp_path: Path) -> None:
    files = {
        "config.json": XLM_R,
        "modules.json": PIPELINE,
        "1_Pooling/config.json": {"word_embedding_dimension": 1024, "pooling_mode_cls_token": True},
        "sentence_bert_config.json": {"max_seq_length": 8192, "do_lower_case": False},
        "tokenizer_config.json": {"model_max_length": 8192},
    }
    spec = resolve(tmp_path, files)
    assert (spec.max_length, spec.pooling, spec.normalize, spec.dim) == (8192, Pooling.CLS, True, 1024)
    assert spec.sources["max_length"] == "sentence_bert_config.json"


def test_qwen3_embedding(tmp_path: Path) -> None:
    query = "Instruct: Given a web search query, retrieve relevant passages that answer the query\nQuery:"
    files = {
        "config.json": QWEN3,
        "modules.json": PIPELINE,
        "1_Pooling/config.json": {"pooling_mode_lasttoken": True, "include_prompt": True},
        "config_sentence_transformers.json": {
            "prompts": {"query": query, "document": ""},
            "default_prompt_name": None,
            "similarity_fn_name": "cosine",
        },
        "tokenizer_config.json": {"model_max_length": 131072, "add_bos_token": False},
    }
    spec = resolve(tmp_path, files)
    assert (spec.max_length, spec.pooling, spec.normalize, spec.matryoshka) == (32768, Pooling.LAST, True, True)
    assert spec.prompts == {"query": query, "document": ""}
    assert spec.default_prompt_name is None
    assert spec.sources["max_length"] == "tokenizer_config.json, clamped to config.json"
    assert spec.sources["prompts"] == "config_sentence_transformers.json"


def test_pplx_embed(tmp_path: Path) -> None:
    """Its pipeline ends in a quantiser of its own code, which is not a stage of the vector."""
    files = {
        "config.json": PPLX,
        "modules.json": modules(
            ("sentence_transformers.models.Transformer", ""),
            ("sentence_transformers.models.Pooling", "1_Pooling"),
            ("st_quantize.FlexibleQuantizer", ""),
        ),
        "1_Pooling/config.json": {"word_embedding_dimension": 1024, "pooling_mode_mean_tokens": True},
        "tokenizer_config.json": {"model_max_length": 131072},
    }
    spec = resolve(tmp_path, files)
    assert (spec.architecture, spec.max_length) == ("PPLXQwen3Model", 32768)
    assert (spec.pooling, spec.normalize, spec.matryoshka) == (Pooling.MEAN, False, True)


@pytest.mark.parametrize(
    ("more", "separator"),
    [
        ({}, None),
        ({"auto_map": {"AutoModel": "modeling.PPLXQwen3Model"}}, None),
        ({"auto_map": {"AutoModel": "modeling.PPLXQwen3ContextualModel"}}, "<|endoftext|>"),
        ({"architectures": ["PPLXQwen3ContextualModel"]}, "<|endoftext|>"),
    ],
)
def test_pplx_embed_context_is_known_by_its_class(tmp_path: Path, more: dict[str, Any], separator: str | None) -> None:
    assert resolve(tmp_path, {"config.json": PPLX | more}).chunk_separator == separator


@pytest.mark.parametrize(
    ("config", "pooling", "normalize"),
    [
        (QWEN3, Pooling.LAST, True),
        (QWEN3 | {"is_causal": True}, Pooling.LAST, True),
        (QWEN3 | {"is_causal": False}, Pooling.MEAN, False),
        (PPLX, Pooling.MEAN, False),
    ],
)
def test_bare_qwen3_folders(tmp_path: Path, config: dict[str, Any], pooling: Pooling, normalize: bool) -> None:
    spec = resolve(tmp_path, {"config.json": config})
    assert (spec.pooling, spec.normalize) == (pooling, normalize)
    assert spec.sources["pooling"] == spec.sources["normalize"] == f"default for {config['model_type']}"


def test_sentence_transformers_6_writes_other_names(tmp_path: Path) -> None:
    files = {
        "config.json": BERT,
        "modules.json": modules(
            ("sentence_transformers.base.modules.transformer.Transformer", ""),
            ("sentence_transformers.sentence_transformer.modules.pooling.Pooling", "1_Pooling"),
            ("sentence_transformers.base.modules.dense.Dense", "2_Dense"),
            ("sentence_transformers.base.modules.normalize.Normalize", "3_Normalize"),
        ),
        "1_Pooling/config.json": {"embedding_dimension": 384, "pooling_mode": "mean", "include_prompt": False},
        "2_Dense/config.json": {
            "in_features": 384,
            "out_features": 128,
            "bias": False,
            "activation_function": "torch.nn.modules.linear.Identity",
            "module_input_name": "sentence_embedding",
            "module_output_name": "sentence_embedding",
        },
        "3_Normalize/config.json": {"module_input_name": "sentence_embedding"},
        "sentence_bert_config.json": {
            "transformer_task": "feature-extraction",
            "modality_config": {"text": {"method": "forward", "method_output_name": "last_hidden_state"}},
            "module_output_name": "token_embeddings",
        },
        "tokenizer_config.json": {"model_max_length": 128},
        "config_sentence_transformers.json": {"prompts": {"query": None, "document": ""}, "default_prompt_name": None},
    }
    spec = resolve(tmp_path, files)
    assert (spec.pooling, spec.pool_prompt, spec.normalize, spec.max_length) == (Pooling.MEAN, False, True, 128)
    assert spec.dim == 128
    assert spec.dense == (
        DenseStage(path="2_Dense", in_features=384, out_features=128, bias=False, activation="Identity"),
    )
    assert spec.sources["dim"] == "2_Dense/config.json"
    assert spec.prompts == {"query": "", "document": ""}


# Length limits


@pytest.mark.parametrize(
    ("config", "usable"),
    [
        (BERT, 512),
        (XLM_R, 8192),
        (XLM_R | {"model_type": "roberta", "max_position_embeddings": 514}, 512),
        (XLM_R | {"model_type": "camembert", "max_position_embeddings": 514}, 512),
        (XLM_R | {"pad_token_id": 0}, 8193),
        (XLM_R | {"pad_token_id": None}, 8192),
        (XLM_R | {"model_type": "mpnet", "max_position_embeddings": 514}, 512),
        (XLM_R | {"model_type": "mpnet", "max_position_embeddings": 514, "pad_token_id": 5}, 512),
        (QWEN3, 32768),
    ],
)
def test_usable_positions(tmp_path: Path, config: dict[str, Any], usable: int) -> None:
    spec = resolve(tmp_path, {"config.json": config}, pooling="mean")
    assert (spec.max_length, spec.sources["max_length"]) == (usable, "config.json")


@pytest.mark.parametrize(
    ("override", "max_seq_length", "model_max_length", "limit", "source"),
    [
        (None, None, None, 512, "config.json"),
        (None, None, 128, 128, "tokenizer_config.json"),
        (None, None, 128.0, 128, "tokenizer_config.json"),
        (None, None, 1_000_000, 512, "config.json"),
        (None, None, 1000000000000000019884624838656, 512, "config.json"),
        (None, None, 1e30, 512, "config.json"),
        (None, None, 999_999, 512, "tokenizer_config.json, clamped to config.json"),
        (None, 256, 128, 256, "sentence_bert_config.json"),
        (None, 1024, 128, 512, "sentence_bert_config.json, clamped to config.json"),
        (100, 256, 128, 100, "--max-length"),
        (300, 256, 128, 300, "--max-length"),
        (512, 256, 128, 512, "--max-length"),
        (2_000_000, 256, 128, 512, "--max-length, clamped to config.json"),
    ],
)
def test_length_limit(
    tmp_path: Path,
    override: int | None,
    max_seq_length: int | None,
    model_max_length: float | None,
    limit: int,
    source: str,
) -> None:
    files = minilm(
        **{
            "sentence_bert_config.json": {"max_seq_length": max_seq_length},
            "tokenizer_config.json": {"model_max_length": model_max_length},
        }
    )
    spec = resolve(tmp_path, files, max_length=override)
    assert (spec.max_length, spec.sources["max_length"]) == (limit, source)


def test_without_any_limit_the_flag_is_asked_for(tmp_path: Path) -> None:
    config = {name: value for name, value in BERT.items() if name != "max_position_embeddings"}
    files = minilm(**{"config.json": config, "sentence_bert_config.json": None, "tokenizer_config.json": None})
    refuse(tmp_path, files, "give --max-length")
    assert resolve(tmp_path, files, max_length=2_000_000).max_length == 2_000_000


@pytest.mark.parametrize("value", [0, -1])
def test_a_bad_max_length_names_itself(tmp_path: Path, value: int) -> None:
    with pytest.raises(ConfigError, match=f"--max-length should be at least 1, not {value}"):
        resolve(tmp_path, minilm(), max_length=value)


# Pooling


@pytest.mark.parametrize(
    ("config", "pooling"),
    [
        (MEAN, Pooling.MEAN),
        ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, Pooling.CLS),
        ({"pooling_mode_lasttoken": True, "pooling_mode_mean_tokens": False}, Pooling.LAST),
        ({"pooling_mode": "cls"}, Pooling.CLS),
        ({"pooling_mode": "mean"}, Pooling.MEAN),
        ({"pooling_mode": "lasttoken"}, Pooling.LAST),
        ({"pooling_mode": ["lasttoken"]}, Pooling.LAST),
        ({"pooling_mode": "cls", "pooling_mode_mean_tokens": True}, Pooling.CLS),
        ({"word_embedding_dimension": 384}, Pooling.MEAN),
        ({"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": False}, Pooling.MEAN),
    ],
)
def test_pooling_file(tmp_path: Path, config: dict[str, Any], pooling: Pooling) -> None:
    spec = resolve(tmp_path, minilm(**{"1_Pooling/config.json": config}))
    assert (spec.pooling, spec.sources["pooling"]) == (pooling, "1_Pooling/config.json")


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"pooling_mode_max_tokens": True}, r"1_Pooling/config\.json: pooling max is not served; cls, mean, lasttoken"),
        ({"pooling_mode_weightedmean_tokens": True}, "pooling weightedmean is not served"),
        ({"pooling_mode": "attention"}, "pooling attention is not served"),
        ({"pooling_mode": 7}, "pooling 7 is not served"),
        (MEAN | {"pooling_mode_cls_token": True}, r"one pooling mode is served, not cls \+ mean"),
        ({"pooling_mode": ["mean", "max"]}, r"one pooling mode is served, not mean \+ max"),
        ({"pooling_mode": "mean", "include_prompt": "no"}, "include_prompt should be true or false, not 'no'"),
        (None, r"1_Pooling/config\.json is missing"),
    ],
)
def test_pooling_that_is_not_served(tmp_path: Path, config: dict[str, Any] | None, match: str) -> None:
    refuse(tmp_path, minilm(**{"1_Pooling/config.json": config}), match)


def test_the_pooling_flag_wins(tmp_path: Path) -> None:
    spec = resolve(tmp_path, minilm(), pooling="cls")
    assert (spec.pooling, spec.sources["pooling"]) == (Pooling.CLS, "--pooling")


def test_a_bad_pooling_flag_names_itself(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--pooling should be cls, mean, last, not 'max'"):
        resolve(tmp_path, minilm(), pooling="max")


@pytest.mark.parametrize("config", [BERT, XLM_R])
def test_without_pooling_the_flag_is_asked_for(tmp_path: Path, config: dict[str, Any]) -> None:
    files = {"config.json": config}
    refuse(tmp_path, files, f"no file says how {config['model_type']} is pooled .* give --pooling cls, mean, last")
    spec = resolve(tmp_path, files, pooling="last")
    assert (spec.pooling, spec.normalize) == (Pooling.LAST, False)


# Stages

ST = "sentence_transformers.models."


@pytest.mark.parametrize(
    ("names", "match"),
    [
        ([ST + "Transformer"], "Transformer is not served"),
        ([ST + "Pooling"], "Pooling is not served"),
        ([ST + "Transformer", ST + "Normalize"], "Transformer → Normalize is not served"),
        ([ST + "Transformer", ST + "Pooling", ST + "Normalize", ST + "Dense"], "→ Normalize → Dense is not served"),
        ([ST + "Transformer", ST + "Pooling", ST + "LSTM"], "→ LSTM is not served"),
        ([ST + "StaticEmbedding"], "StaticEmbedding is not served"),
        (["custom_st.Transformer", ST + "Pooling"], "custom_st.Transformer is code of the checkpoint's own"),
        ([ST + "Transformer", ST + "Pooling", "evil.Normalize"], "evil.Normalize is code of the checkpoint's own"),
        (["pylate.models.Dense.Dense"], "pylate.models.Dense.Dense is code"),
    ],
)
def test_pipelines_that_are_not_served(tmp_path: Path, names: list[str], match: str) -> None:
    entries = modules(*((name, f"{i}_Stage" if i else "") for i, name in enumerate(names)))
    refuse(tmp_path, minilm(**{"modules.json": entries, "1_Stage/config.json": MEAN}), match)


def test_a_transformer_in_a_subfolder_is_refused(tmp_path: Path) -> None:
    entries = modules((ST + "Transformer", "0_Transformer"), (ST + "Pooling", "1_Pooling"))
    refuse(tmp_path, minilm(**{"modules.json": entries}), "the Transformer lies in 0_Transformer")


def test_a_transformer_at_a_dot_is_at_the_top(tmp_path: Path) -> None:
    entries = modules((ST + "Transformer", "."), (ST + "Pooling", "1_Pooling/"))
    assert resolve(tmp_path, minilm(**{"modules.json": entries})).sources["pooling"] == "1_Pooling/config.json"


def test_a_pipeline_without_normalize(tmp_path: Path) -> None:
    spec = resolve(tmp_path, minilm(**{"modules.json": PIPELINE[:2]}))
    assert (spec.normalize, spec.sources["normalize"]) == (False, "modules.json")


DENSE = {"in_features": 384, "out_features": 64, "bias": True}


def with_dense(*configs: dict[str, Any] | None) -> dict[str, Any]:
    names = [f"{i}_Dense" for i in range(2, 2 + len(configs))]
    entries = modules((ST + "Transformer", ""), (ST + "Pooling", "1_Pooling"), *((ST + "Dense", n) for n in names))
    files = {f"{name}/config.json": config for name, config in zip(names, configs, strict=True)}
    return minilm(**{"modules.json": entries}, **files)


def test_dense_layers_are_chained(tmp_path: Path) -> None:
    second = {"in_features": 64, "out_features": 512, "activation_function": "torch.nn.modules.activation.GELU"}
    spec = resolve(tmp_path, with_dense(DENSE, second))
    assert [(d.path, d.in_features, d.out_features, d.bias, d.activation) for d in spec.dense] == [
        ("2_Dense", 384, 64, True, "Tanh"),
        ("3_Dense", 64, 512, True, "GELU"),
    ]
    assert (spec.dim, spec.hidden_size, spec.normalize) == (512, 384, False)


@pytest.mark.parametrize(
    ("config", "match"),
    [
        (None, "2_Dense/config.json: in_features should be a positive integer, not None"),
        (DENSE | {"in_features": 768}, "2_Dense/config.json: in_features is 768, what comes in 384"),
        (DENSE | {"out_features": 0}, "out_features should be a positive integer, not 0"),
        (DENSE | {"bias": 1}, "bias should be true or false, not 1"),
        (DENSE | {"activation_function": "my.Act"}, "activation_function 'my.Act' is not served"),
        (DENSE | {"activation_function": None}, "activation_function None is not served"),
        (DENSE | {"module_input_name": "token_embeddings"}, "module_input_name 'token_embeddings' is not served"),
        (DENSE | {"use_residual": True}, "use_residual True is not served"),
    ],
)
def test_dense_layers_that_are_not_served(tmp_path: Path, config: dict[str, Any] | None, match: str) -> None:
    refuse(tmp_path, with_dense(config), match)


def test_other_tasks_are_refused(tmp_path: Path) -> None:
    files = minilm(**{"sentence_bert_config.json": {"transformer_task": "sequence-classification"}})
    refuse(tmp_path, files, "transformer_task 'sequence-classification' is not served")


# config.json


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"architectures": None}, "names no architecture"),
        ({"architectures": []}, "names no architecture"),
        ({"architectures": "BertModel"}, "names no architecture"),
        ({"architectures": [1]}, "names no architecture"),
        ({"model_type": None}, "names no architecture"),
        ({"hidden_size": "384"}, "hidden_size should be a positive integer, not '384'"),
        ({"hidden_size": None}, "hidden_size should be a positive integer, not None"),
        ({"hidden_size": True}, "hidden_size should be a positive integer, not True"),
        ({"vocab_size": 0}, "vocab_size should be a positive integer, not 0"),
        ({"vocab_size": 1.5}, "vocab_size should be a positive integer, not 1.5"),
        ({"hidden_size": 10**9}, "hidden_size should be at most 131072, not 1000000000"),
        ({"vocab_size": 10**9}, "vocab_size should be at most 16777216, not 1000000000"),
        ({"type_vocab_size": -1}, "type_vocab_size should be at least 0, not -1"),
        ({"max_position_embeddings": 0}, "max_position_embeddings should be at least 1, not 0"),
        ({"model_type": "roberta", "pad_token_id": -5}, "pad_token_id should be at least 0, not -5"),
        ({"type_vocab_size": "2"}, "type_vocab_size should be a whole number, not '2'"),
        ({"max_position_embeddings": "512"}, "max_position_embeddings should be a whole number, not '512'"),
        ({"model_type": "roberta", "max_position_embeddings": 2}, "leaves no position for a token"),
        ({"matryoshka_dimensions": 64}, "matryoshka_dimensions should be a list of positive integers, not 64"),
        ({"matryoshka_dimensions": [64, 0]}, "matryoshka_dimensions should be a list of positive integers"),
        ({"is_matryoshka": "yes"}, "is_matryoshka should be true or false, not 'yes'"),
    ],
)
def test_malformed_config(tmp_path: Path, change: dict[str, Any], match: str) -> None:
    refuse(tmp_path, minilm(**{"config.json": BERT | change}), match)


def test_distilbert_calls_its_width_dim(tmp_path: Path) -> None:
    config = {
        "architectures": ["DistilBertModel"],
        "model_type": "distilbert",
        "dim": 768,
        "vocab_size": 30522,
        "max_position_embeddings": 512,
    }
    spec = resolve(tmp_path, {"config.json": config}, pooling="cls")
    assert (spec.hidden_size, spec.dim, spec.type_vocab_size) == (768, 768, 0)


@pytest.mark.parametrize(
    ("name", "value", "match"),
    [
        ("sentence_bert_config.json", {"max_seq_length": "256"}, "max_seq_length should be a whole number, not '256'"),
        ("sentence_bert_config.json", {"max_seq_length": 0}, "max_seq_length should be at least 1, not 0"),
        ("sentence_bert_config.json", {"do_lower_case": "true"}, "do_lower_case should be true or false, not 'true'"),
        ("tokenizer_config.json", {"model_max_length": "big"}, "model_max_length should be a whole number, not 'big'"),
        ("tokenizer_config.json", {"model_max_length": -1}, "model_max_length should be at least 1, not -1"),
        ("config_sentence_transformers.json", {"prompts": ["a"]}, "prompts should map names to strings"),
        ("config_sentence_transformers.json", {"prompts": {"a": 1}}, "prompts should map names to strings"),
        (
            "config_sentence_transformers.json",
            {"prompts": {"a": "x"}, "default_prompt_name": "b"},
            r"default_prompt_name 'b' is not among the prompts \['a'\]",
        ),
        ("config_sentence_transformers.json", {"default_prompt_name": []}, r"default_prompt_name \[\] is not among"),
    ],
)
def test_malformed_settings_name_file_and_key(tmp_path: Path, name: str, value: object, match: str) -> None:
    refuse(tmp_path, minilm(**{name: value}), f"{name}: {match}")


@pytest.mark.parametrize(
    ("overrides", "flag"),
    [
        ({"pooling": ["cls"]}, "--pooling"),
        ({"pooling": 1}, "--pooling"),
        ({"max_length": "5"}, "--max-length"),
        ({"max_length": True}, "--max-length"),
        ({"matryoshka": None}, "--matryoshka"),
        ({"matryoshka": ["any"]}, "--matryoshka"),
    ],
)
def test_overrides_of_a_wrong_type(tmp_path: Path, overrides: dict[str, Any], flag: str) -> None:
    with pytest.raises(ConfigError, match=f"{flag} should be"):
        resolve(tmp_path, minilm(), **overrides)


def test_do_lower_case(tmp_path: Path) -> None:
    spec = resolve(tmp_path, minilm(**{"sentence_bert_config.json": {"do_lower_case": True}}))
    assert (spec.lower_case, spec.sources["lower_case"]) == (True, "sentence_bert_config.json")


@pytest.mark.parametrize(
    ("settings", "prompts", "default"),
    [
        ({"prompts": {"query": "q: "}, "default_prompt_name": "query"}, {"query": "q: "}, "query"),
        ({"prompts": None, "default_prompt_name": None}, {}, None),
        ({"prompts": {"query": None}}, {"query": ""}, None),
        ({"default_prompt_name": "document"}, {"document": ""}, "document"),
    ],
)
def test_prompts(tmp_path: Path, settings: dict[str, Any], prompts: dict[str, str], default: str | None) -> None:
    spec = resolve(tmp_path, minilm(**{"config_sentence_transformers.json": settings}))
    assert (spec.prompts, spec.default_prompt_name) == (prompts, default)


# Matryoshka


@pytest.mark.parametrize(
    ("change", "override", "allowed", "sizes", "source"),
    [
        ({}, "declared", False, (), "default for bert"),
        ({}, "any", True, (), "--matryoshka any"),
        ({"is_matryoshka": True}, "declared", True, (), "config.json"),
        ({"is_matryoshka": False}, "declared", False, (), "default for bert"),
        ({"matryoshka_dimensions": [64, 128]}, "declared", True, (64, 128), "config.json"),
        ({"is_matryoshka": True, "matryoshka_dimensions": [64]}, "declared", True, (64,), "config.json"),
        ({"matryoshka_dimensions": []}, "declared", False, (), "default for bert"),
        ({"matryoshka_dimensions": [64]}, "any", True, (), "--matryoshka any"),
    ],
)
def test_matryoshka(
    tmp_path: Path, change: dict[str, Any], override: str, allowed: bool, sizes: tuple[int, ...], source: str
) -> None:
    spec = resolve(tmp_path, minilm(**{"config.json": BERT | change}), matryoshka=override)
    assert (spec.matryoshka, spec.matryoshka_dimensions, spec.sources["matryoshka"]) == (allowed, sizes, source)
