"""Whether kernels run in Triton's interpreter."""

import os

INTERPRETED = "TRITON_INTERPRET" in os.environ
