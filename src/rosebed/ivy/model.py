"""The served model as the gateway knows it: names, limits, prompts, tokenizer. Knows no weights."""

import re
from dataclasses import replace
from pathlib import Path

from rosebed.core.checkpoint import CheckpointFiles
from rosebed.core.dimensions import check_dimensions
from rosebed.core.encodings import BYTES
from rosebed.core.engine import EngineInfo
from rosebed.core.errors import CheckpointError, ConfigError, FingerprintMismatch, InvalidInput, WrongModelKind
from rosebed.core.hub import resolve_model_folder
from rosebed.core.int8_ranges import Int8Ranges
from rosebed.core.model_spec import ModelSpec, Pooling, resolve_model_spec
from rosebed.core.quantize import has_own_quantizers
from rosebed.core.types import OutputKind, Sequence
from rosebed.ivy.config import ModelConfig
from rosebed.ivy.request import EmbeddingsRequest
from rosebed.ivy.token_spans import each_token
from rosebed.text.prompts import resolve_prompt
from rosebed.text.tokenizer import TextTokenizer, TokenizedInput, TokenizeOptions

_HUB_SNAPSHOT = re.compile(r"/models--([^/]+)/snapshots/[0-9a-f]+/?$")
"""Where the hub's cache keeps a repository: a folder named after its commit."""

_NOT_SAID = "nothing"
"""What says how a model pools, where no file and no option does."""
_DEFAULT = "default"
"""Name among the model's prompts of the operator's own text."""


class ServedModel:
    """One model, read once at start and never changed. Safe to share between threads."""

    def __init__(self, spec: ModelSpec, tokenizer: TextTokenizer, names: tuple[str, ...], config: ModelConfig) -> None:
        self.spec = spec
        self.tokenizer = tokenizer
        self.names = names
        """What it answers to; the first is its own name."""
        self.auto_truncate = config.auto_truncate
        """Whether inputs that are too long are cut where the request does not say."""
        self.int8_ranges = int8_ranges_of(spec, config)
        """Those of the vectors that int8 and uint8 are made of; none where each has its own."""
        self._dimensions = config.dimensions

    @classmethod
    def load(cls, model: str, config: ModelConfig, *, max_length: int | None = None) -> "ServedModel":
        """Read a folder, or a hub repository; `max_length` counts where `config` has none.

        CheckpointError or ConfigError says why it cannot be served.
        """
        overrides = replace(config.overrides, max_length=config.overrides.max_length or max_length)
        spec = read_spec(model, replace(config, overrides=overrides))
        return cls(spec, TextTokenizer.load(spec), config.served_model_names or (model_name(model),), config)

    def tokenize_options(self, request: EmbeddingsRequest, *, auto_truncate: bool) -> TokenizeOptions:
        """How the request's inputs become tokens. InvalidInput for an unknown prompt name."""
        wants_cut = request.truncate_to is not None or auto_truncate
        return TokenizeOptions(
            prompt=resolve_prompt(
                self.spec, prompt=request.prompt, prompt_name=request.prompt_name, input_type=request.input_type
            ),
            truncate=wants_cut if request.truncate is None else request.truncate,
            truncate_to=_tighter(request.truncate_to, request.most_input_tokens),
            side=request.side,
            add_special_tokens=request.add_special_tokens,
        )

    def tokenize(self, request: EmbeddingsRequest, options: TokenizeOptions) -> list[TokenizedInput]:
        """The request's inputs as tokens, in order. The tokenizer's errors name the lowest `input[i]` at fault."""
        if request.documents:
            return self.tokenizer.tokenize_documents(request.documents, options)
        if request.token_ids:
            name = "input" if request.is_flat else None
            return [
                self.tokenizer.wrap_token_ids(ids, i, options, name=name) for i, ids in enumerate(request.token_ids)
            ]
        return self.tokenizer.tokenize(request.texts, options)

    def check(self, request: EmbeddingsRequest) -> None:
        """InvalidInput or WrongModelKind for what this model does not give, known before any text is looked at."""
        if self.spec.scorer is not None:
            raise WrongModelKind("this model scores pairs of texts, and has no vectors")
        dimensions = self._kept_dimensions(request)
        blamed = "encodings" if request.dimensions is None else "dimensions"
        for encoding in request.encodings:
            encoding.check(dimensions or self.spec.dim, blamed)
            if encoding.type in BYTES and self.int8_ranges is not None:
                _check_ranges(self.int8_ranges, dimensions or self.spec.dim)
        if request.documents:
            self._check_chunks()
        if request.each_token and self.spec.dense:
            raise WrongModelKind(
                "this model has layers behind pooling, so that its tokens have no vectors of their own"
            )

    def _check_chunks(self) -> None:
        if self.spec.sources["pooling"] == _NOT_SAID:
            raise WrongModelKind(
                "only models that take the mean of all tokens can embed the chunks of a document in its light, and no "
                "file says how this one pools: give rosebed ivy --pooling too"
            )
        if self.spec.pooling is not Pooling.MEAN:
            raise WrongModelKind(
                f"this model takes the vector of one token ({self.spec.pooling} pooling); only models that take the "
                "mean of all can embed the chunks of a document in its light"
            )

    def _kept_dimensions(self, request: EmbeddingsRequest) -> int:
        return check_dimensions(self.spec, self._dimensions if request.dimensions is None else request.dimensions)

    def sequences(self, tokenized: list[TokenizedInput], request: EmbeddingsRequest) -> list[Sequence]:
        """What replicas are to compute. InvalidInput for `dimensions` that this model does not give."""
        dimensions = self._kept_dimensions(request)
        return [
            Sequence(
                token_ids=item.token_ids,
                pool_spans=each_token(item.num_tokens) if request.each_token else item.pool_spans,
                token_type_ids=item.token_type_ids,
                dimensions=dimensions,
                normalize=request.normalize,
                index=index,
            )
            for index, item in enumerate(tokenized)
        ]

    def check_replica(self, engine: EngineInfo) -> None:
        """FingerprintMismatch if `engine` holds another model, ConfigError if it takes less than is asked here."""
        spec = self.spec
        if engine.fingerprint != spec.fingerprint:
            raise FingerprintMismatch(
                f"it holds {engine.model} ({engine.fingerprint}), the gateway {spec.folder} ({spec.fingerprint})"
            )
        if (OutputKind.LOGITS in engine.outputs) is (spec.scorer is None):
            raise ConfigError("of it and the gateway, one scores and the other embeds: give both the same --task")
        if engine.max_length < spec.max_length:
            raise ConfigError(
                f"it takes {engine.max_length} tokens, the gateway {spec.max_length}: give both the same --max-length"
            )
        if engine.vocab_size < spec.vocab_size:
            raise ConfigError(f"it has vectors for {engine.vocab_size} token ids, config.json says {spec.vocab_size}")


def _tighter(first: int | None, second: int | None) -> int | None:
    return first if second is None else second if first is None else min(first, second)


def read_spec(model: str, config: ModelConfig) -> ModelSpec:
    """What a folder or hub repository holds, with the operator's defaults, its tokenizer not yet read.

    CheckpointError or ConfigError says why it cannot be served.
    """
    files = CheckpointFiles.read(resolve_model_folder(model, revision=config.revision))
    try:
        spec = resolve_model_spec(files, config.overrides)
    except CheckpointError:
        # Inference servers pool. Where the files do not say how, they need to be told; here most requests do not care.
        spec = resolve_model_spec(files, replace(config.overrides, pooling=Pooling.MEAN))
        spec = replace(spec, sources={**spec.sources, "pooling": _NOT_SAID})
    return with_defaults(spec, config)


def with_defaults(spec: ModelSpec, config: ModelConfig) -> ModelSpec:
    """`spec` with the operator's default prompt. ConfigError for a default that the model does not have."""
    try:
        check_dimensions(spec, config.dimensions)
    except InvalidInput as error:
        raise ConfigError(f"--dimensions: {error.message}") from error
    name = config.default_prompt_name
    if config.default_prompt is not None:
        return replace(spec, prompts={**spec.prompts, _DEFAULT: config.default_prompt}, default_prompt_name=_DEFAULT)
    if name is None:
        return spec
    if name not in spec.prompts:
        known = ", ".join(sorted(spec.prompts)) or "none"
        raise ConfigError(f"--default-prompt-name {name} is unknown; {spec.folder.name} has: {known}")
    return replace(spec, default_prompt_name=name)


def int8_ranges_of(spec: ModelSpec, config: ModelConfig) -> Int8Ranges | None:
    """The operator's ranges, if any. ConfigError if they are not of the model's vectors, or it has no use for them.

    They are of as many components as a vector has where the request does not say.
    """
    path = config.int8_ranges
    if path is None:
        return None
    if spec.scorer is not None:
        raise ConfigError(f"--int8-ranges {path}: this model scores pairs of texts, and has no vectors")
    if has_own_quantizers(spec.architecture):
        raise ConfigError(f"--int8-ranges {path}: this model has a quantiser of its own")
    return Int8Ranges.read(path, config.dimensions or spec.dim)


def _check_ranges(ranges: Int8Ranges, dimensions: int) -> None:
    if dimensions != ranges.dim:
        raise InvalidInput(
            f"dimensions: int8 and uint8 are made with ranges of {ranges.dim} components here (--int8-ranges), "
            f"not {dimensions}",
            param="dimensions",
        )


def known_here(model: str) -> str:
    """What to load where an inference server says that it holds `model`: that folder, or the hub repository that it is
    a snapshot of, when another machine has it elsewhere."""
    snapshot = _HUB_SNAPSHOT.search(model)
    return model if snapshot is None or Path(model).is_dir() else snapshot[1].replace("--", "/")


def model_name(model: str) -> str:
    """The name a model has unless the operator gives one: its hub id, or its folder's own name."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        return model
    if snapshot := _HUB_SNAPSHOT.search(str(folder)):
        return snapshot[1].replace("--", "/")
    return folder.resolve().name if folder.name in ("", "..") else folder.name
