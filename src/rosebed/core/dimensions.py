"""Which vector sizes a caller may ask for."""

from rosebed.core.errors import InvalidInput
from rosebed.core.model_spec import ModelSpec


def check_dimensions(spec: ModelSpec, dimensions: int | None) -> int:
    """The leading components to keep, 0 for all: what `core.types.Sequence.dimensions` holds.

    The native size is always allowed; a smaller one only where the model was trained for it (Matryoshka) or the
    operator insists. InvalidInput otherwise.
    """
    if dimensions is None or dimensions == spec.dim:
        return 0
    if not 1 <= dimensions <= spec.dim:
        raise InvalidInput(f"dimensions should lie in [1, {spec.dim}], not be {dimensions}", param="dimensions")
    if not spec.matryoshka:
        raise InvalidInput(
            f"dimensions is {dimensions}, but this model was not trained for fewer than its {spec.dim} components "
            "(Matryoshka); --matryoshka any, or ModelOverrides(matryoshka='any') in Python, allows it all the same",
            param="dimensions",
        )
    if spec.matryoshka_dimensions and dimensions not in spec.matryoshka_dimensions:
        allowed = ", ".join(str(size) for size in spec.matryoshka_dimensions)
        raise InvalidInput(f"dimensions is {dimensions}, but this model has: {allowed}", param="dimensions")
    return dimensions
