"""Full-size checkpoints with random weights: the speed of a model follows from its shapes, not from what it learnt.

    python bench/checkpoints.py bge-m3 FOLDER
    python bench/checkpoints.py pplx-embed-0.6b FOLDER --stock STOCK_FOLDER --tokenizer tokenizer.json

Weights are bfloat16 normal of deviation 0.02, norms 1, biases 0; the seed is fixed. STOCK_FOLDER holds the same weights
under the configuration that transformers, sentence-transformers and vLLM read without the checkpoint's own code.
Without a tokenizer.json of the real vocabulary, one is written whose tokens are bytes: enough where ids are sent.
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors.torch import save_file
from tokenizers import Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

SEED = 0
DEVIATION = 0.02
SPECIAL_TOKENS = ("<s>", "<pad>", "</s>", "<unk>")

Json = dict[str, Any]

BGE_M3 = "bge-m3"
PPLX = "pplx-embed-0.6b"
KINDS = (BGE_M3, PPLX)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--stock", type=Path, help="also write what stock libraries read")
    parser.add_argument("--tokenizer", type=Path, help="a tokenizer.json to copy in")
    arguments = parser.parse_args()
    write_checkpoint(arguments.kind, arguments.folder, stock=arguments.stock, tokenizer=arguments.tokenizer)


def write_checkpoint(kind: str, folder: Path, *, stock: Path | None = None, tokenizer: Path | None = None) -> None:
    """Write the checkpoint `kind` into `folder`, and its stock form into `stock`; both share one file of weights."""
    folder.mkdir(parents=True, exist_ok=True)
    config = model_config(kind)
    save_file(random_weights(config), folder / "model.safetensors", metadata={"format": "pt"})
    if tokenizer is None:
        write_byte_tokenizer(folder)
    else:
        shutil.copyfile(tokenizer, folder / "tokenizer.json")
    if stock is not None:
        stock.mkdir(parents=True, exist_ok=True)
        for path in folder.iterdir():
            (stock / path.name).unlink(missing_ok=True)
            (stock / path.name).hardlink_to(path)
        write_configs(stock, kind, own_config(config) | STOCK[kind])
    write_configs(folder, kind, own_config(config) | OWN[kind])


def model_config(kind: str) -> transformers.PretrainedConfig:
    """The published shapes."""
    if kind == BGE_M3:
        return transformers.XLMRobertaConfig(
            vocab_size=250_002, hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
            max_position_embeddings=8194, type_vocab_size=1, pad_token_id=1, layer_norm_eps=1e-5,
        )  # fmt: skip
    return transformers.Qwen3Config(
        vocab_size=151_936, hidden_size=1024, num_hidden_layers=28, num_attention_heads=16, num_key_value_heads=8,
        head_dim=128, intermediate_size=3072, max_position_embeddings=32_768, rms_norm_eps=1e-6,
        rope_parameters={"rope_type": "default", "rope_theta": 1e6},
    )  # fmt: skip


OWN: dict[str, Json] = {
    BGE_M3: {"architectures": ["XLMRobertaModel"]},
    PPLX: {"architectures": ["PPLXQwen3Model"], "model_type": "bidirectional_pplx_qwen3"},
}
"""What the published config.json says."""
STOCK: dict[str, Json] = {
    BGE_M3: {"architectures": ["XLMRobertaModel"], "position_embedding_type": "absolute"},
    PPLX: {"architectures": ["Qwen3ForCausalLM"], "is_causal": False, "tie_word_embeddings": True},
}
"""What stock libraries need instead: vLLM asks for the first's position_embedding_type and serves the second as a
causal model without its mask."""
POOLING = {BGE_M3: "cls", PPLX: "mean"}
NORMALIZES = {BGE_M3: True, PPLX: False}


def random_weights(config: transformers.PretrainedConfig) -> dict[str, torch.Tensor]:
    """Every parameter of the model under its own name, bfloat16 on the CPU; drawn on a GPU where there is one."""
    with torch.device("meta"):
        model = transformers.AutoModel.from_config(config)
    generator = torch.Generator("cuda" if torch.cuda.is_available() else "cpu").manual_seed(SEED)
    return {name: random_tensor(name, parameter.shape, generator) for name, parameter in model.named_parameters()}


def random_tensor(name: str, shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    if name.endswith("bias"):
        return torch.zeros(shape, dtype=torch.bfloat16)
    if len(shape) == 1:  # the weight of a norm
        return torch.ones(shape, dtype=torch.bfloat16)
    drawn = torch.randn(shape, generator=generator, device=generator.device) * DEVIATION
    return drawn.bfloat16().cpu()


def own_config(config: transformers.PretrainedConfig) -> Json:
    """What transformers would write, less what only clutters it."""
    return {key: value for key, value in config.to_dict().items() if key not in ("id2label", "label2id", "dtype")} | {
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
    }


def write_configs(folder: Path, kind: str, config: Json) -> None:
    """config.json and a sentence-transformers pipeline."""
    stages = [
        ("Transformer", ""),
        ("Pooling", "1_Pooling"),
        *([("Normalize", "2_Normalize")] if NORMALIZES[kind] else []),
    ]
    modules = [
        {"idx": index, "name": str(index), "path": path, "type": f"sentence_transformers.models.{name}"}
        for index, (name, path) in enumerate(stages)
    ]
    pooling = {f"pooling_mode_{mode}_tokens": mode == POOLING[kind] for mode in ("mean", "max")}
    pooling |= {"word_embedding_dimension": config["hidden_size"], "pooling_mode_cls_token": POOLING[kind] == "cls"}
    write_json(folder / "config.json", config)
    write_json(folder / "modules.json", modules)
    write_json(folder / "1_Pooling" / "config.json", pooling)


def write_byte_tokenizer(folder: Path) -> None:
    """A tokenizer whose tokens are bytes, after four special ones that it never adds."""
    letters = sorted(ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate((*SPECIAL_TOKENS, *letters))}
    tokenizer = Tokenizer(BPE(vocabulary, []))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens(list(SPECIAL_TOKENS))
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "pad_token": "<pad>", "eos_token": "</s>"}
    write_json(folder / "tokenizer_config.json", settings)


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    # NOTE: a new file, since the old one may be shared with the other form by a hard link.
    path.unlink(missing_ok=True)
    path.write_text(json.dumps(value, indent=1, default=str) + "\n")


if __name__ == "__main__":
    main()
