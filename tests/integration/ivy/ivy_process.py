"""A gateway in a process of its own: prints its port, serves until it is stopped. Argument: its settings as JSON."""

import json
import logging
import sys

from ivy_support import ivy_config

from rosebed.ivy.server import serve

if __name__ == "__main__":
    logging.basicConfig(level="INFO")
    settings = json.loads(sys.argv[1])
    many = {name: tuple(value) for name, value in settings.items() if isinstance(value, list)}
    serve(ivy_config(**settings | many), on_listening=lambda port: print(port, flush=True))  # noqa: T201 - what the test waits for
