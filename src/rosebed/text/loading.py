"""Opens a model folder's tokenizer with the library's own state switched off."""

from pathlib import Path

from tokenizers import Tokenizer

from rosebed.core.errors import CheckpointError


def load_tokenizer(folder: Path) -> Tokenizer:
    """The folder's `tokenizer.json`, neither truncating nor padding. CheckpointError if it is missing or malformed."""
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise CheckpointError(
            f"{folder} has no tokenizer.json; transformers makes it: AutoTokenizer.from_pretrained(…).save_pretrained()"
        )
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # The library raises bare Exception for every malformed file.
        raise CheckpointError(f"{path} cannot be read as a tokenizer: {error}") from error
    # NOTE: MiniLM's file pads every text to 128 tokens and cuts it there.
    tokenizer.no_truncation()
    tokenizer.no_padding()
    return tokenizer
