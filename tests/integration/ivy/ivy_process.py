"""A gateway in a process of its own: prints its port, serves until it is stopped. Argument: the config as JSON."""

import logging
import sys

import msgspec

from rosebed.ivy.config import IvyConfig
from rosebed.ivy.server import serve

if __name__ == "__main__":
    logging.basicConfig(level="INFO")
    config = msgspec.json.decode(sys.argv[1], type=IvyConfig)
    serve(config, on_listening=lambda port: print(port, flush=True))  # noqa: T201 - what the test waits for
