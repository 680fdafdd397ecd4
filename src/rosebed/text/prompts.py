"""Which text goes in front of an input. Knows no tokenizer: a prompt is plain text."""

from rosebed.core.errors import InvalidInput
from rosebed.core.model_spec import ModelSpec

_DOCUMENT_NAMES = ("document", "passage", "corpus")
_NAMES_BY_INPUT_TYPE = {
    "query": ("query",),
    "search_query": ("query",),
    "document": _DOCUMENT_NAMES,
    "passage": _DOCUMENT_NAMES,
    "search_document": _DOCUMENT_NAMES,
}


def resolve_prompt(
    spec: ModelSpec, *, prompt: str | None = None, prompt_name: str | None = None, input_type: str | None = None
) -> str:
    """The prompt to put in front of each input, "" for none.

    `prompt` itself, else the one called `prompt_name` (InvalidInput listing the names if there is none), else the one
    that `input_type` stands for, else the checkpoint's default. An input type the model has no prompt for adds none.
    """
    if prompt is not None:
        return prompt
    if prompt_name is not None:
        return _named(spec, prompt_name)
    if input_type is not None:
        names = _NAMES_BY_INPUT_TYPE.get(input_type, ())
        return next((spec.prompts[name] for name in names if name in spec.prompts), "")
    return "" if spec.default_prompt_name is None else spec.prompts[spec.default_prompt_name]


def _named(spec: ModelSpec, prompt_name: str) -> str:
    if prompt_name not in spec.prompts:
        known = ", ".join(sorted(spec.prompts)) or "none"
        raise InvalidInput(f"prompt_name {prompt_name!r} is unknown; this model has: {known}", param="prompt_name")
    return spec.prompts[prompt_name]
