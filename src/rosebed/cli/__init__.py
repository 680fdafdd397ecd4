"""The command line. Reads the environment, so that nothing below does; imports nothing heavy before it must."""

import os
import sys

from rosebed.core.errors import RosebedError, SetupError
from rosebed.core.extras import needs_extra


def main() -> None:
    """Entry point of `rosebed`. A deliberate error is one line and exit code 2 (found before serving) or 1."""
    set_environment()
    try:
        with needs_extra("the command line", "serve"):
            from rosebed.cli.app import app

            app()
    except RosebedError as error:
        print(f"Error: {error.message}", file=sys.stderr)
        sys.exit(2 if isinstance(error, SetupError) else 1)


def set_environment() -> None:
    """What libraries read when they are imported, but for what the user has set."""
    # Threads that spin while they wait take cores from the gateway and the event loop. Read when torch is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    # gRPC's event engine hands messages from thread to thread: with many cores a third of a millisecond a round trip.
    os.environ.setdefault("GRPC_EXPERIMENTS", "-event_engine_client,-event_engine_listener,-event_engine_callback_cq")
