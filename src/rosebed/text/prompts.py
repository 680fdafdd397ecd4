"""Which text goes in front of an input. Knows no tokenizer: a prompt is plain text."""

from rosebed.core.errors import InvalidInput
from rosebed.core.model_spec import ModelSpec

_DOCUMENT = ("document", "passage", "corpus")
_PROMPT_NAMES = {
    "query": ("query",),
    "search_query": ("query",),
    "document": _DOCUMENT,
    "passage": _DOCUMENT,
    "search_document": _DOCUMENT,
    "classification": (),
    "clustering": (),
    "none": (),
}
"""Input types of the vendors' APIs → names of the prompts they mean, the first that the checkpoint has; () is none."""


def resolve_prompt(
    spec: ModelSpec, *, prompt: str | None = None, prompt_name: str | None = None, input_type: str | None = None
) -> str:
    """The prompt to put in front of each input, "" for none.

    `prompt` itself, else the one called `prompt_name`, else the one that `input_type` stands for (none, if the model
    has no such prompt), else the checkpoint's default. InvalidInput lists the names that would have been right.
    """
    if prompt is not None:
        return prompt
    if prompt_name is not None:
        return _named(spec, prompt_name)
    if input_type is not None:
        return _typed(spec, input_type)
    return "" if spec.default_prompt_name is None else spec.prompts[spec.default_prompt_name]


def _named(spec: ModelSpec, prompt_name: str) -> str:
    if prompt_name not in spec.prompts:
        known = ", ".join(sorted(spec.prompts)) or "none"
        raise InvalidInput(f"prompt_name {prompt_name!r} is unknown; this model has: {known}", param="prompt_name")
    return spec.prompts[prompt_name]


def _typed(spec: ModelSpec, input_type: str) -> str:
    if input_type not in _PROMPT_NAMES:
        known = ", ".join(_PROMPT_NAMES)
        raise InvalidInput(f"input_type {input_type!r} is unknown; there are: {known}", param="input_type")
    return next((spec.prompts[name] for name in _PROMPT_NAMES[input_type] if name in spec.prompts), "")
