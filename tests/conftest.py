"""Before any test module is imported: how kernels run, what processes inherit, and how long hypothesis searches."""

import os
from pathlib import Path

import hypothesis

if not any(Path("/dev").glob("nvidia[0-9]*")):
    os.environ["TRITON_INTERPRET"] = "1"  # NOTE: read when a kernel is decorated, whoever imports it first

# As under `rosebed`: threads that spin while they wait take cores from the tests beside them. Read by torch's import.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
# Tests start hundreds of processes, which would each compile all of Rosebed: a third of the time most of them take.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

collect_ignore = ["sdk"]  # in an environment of its own: `make test-sdk`

# Deadlines measure a shared machine, not the code. Tests that need more examples say so.
hypothesis.settings.register_profile("rosebed", deadline=None, max_examples=50)
hypothesis.settings.load_profile("rosebed")
