"""Before any test module is imported: how Triton's kernels run, and how long hypothesis searches."""

import os
from pathlib import Path

import hypothesis

if not any(Path("/dev").glob("nvidia[0-9]*")):
    os.environ["TRITON_INTERPRET"] = "1"  # NOTE: read when a kernel is decorated, whoever imports it first

collect_ignore = ["sdk"]  # in an environment of its own: `make test-sdk`

# Deadlines measure a shared machine, not the code. Tests that need more examples say so.
hypothesis.settings.register_profile("rosebed", deadline=None, max_examples=50)
hypothesis.settings.load_profile("rosebed")
